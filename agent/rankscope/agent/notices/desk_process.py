"""The agent's end of the desk: starts the process, hands it tries, reads how they ended. Never waits long."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from rankscope.agent.notices.child import ENVIRONMENT
from rankscope.agent.notices.desk import PACKET_BYTES
from rankscope.agent.notices.lane import Outcome
from rankscope.agent.notices.targets import Target, Webhook

# Isolated and without site: no user's module may shadow the standard library's, none of ours boots in it.
_BOOT: Final = (
    "import sys; sys.path.append(sys.argv[1])\n"
    "from rankscope.agent.notices.desk import main; main(sys.argv[2:])"
)
_ROOT: Final = Path(__file__).resolve().parents[3]
_NETWORK: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_KEPT_ENVIRONMENT: Final = (
    *ENVIRONMENT,
    "LD_LIBRARY_PATH",
    *_NETWORK,
    *(name.lower() for name in _NETWORK[2:]),
)
_END_TIMEOUT: Final = 0.5
_ended: list[subprocess.Popen[bytes]] = []


class Done(msgspec.Struct, frozen=True):
    """What the desk says of a try; see ``lane.Outcome``."""

    done: int
    reason: str
    again: bool = False
    wait: float | None = None
    output: str = ""

    @property
    def outcome(self) -> Outcome:
        """For the lane."""
        return Outcome(self.reason, again=self.again, wait=self.wait, output=self.output)


class DeskProcess:
    """One process and the socket to it.

    Attributes:
        pid: of the process.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        """Start it; secrets go through the socket, not through its arguments or environment.

        Raises:
            OSError: it cannot be started.
        """
        _ended[:] = [process for process in _ended if process.poll() is None]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = _start(theirs.fileno())
            except (OSError, subprocess.SubprocessError) as error:
                ours.close()
                raise OSError(getattr(error, "errno", None), f"{sys.executable} cannot be started") from error
        ours.setblocking(False)
        self._socket = ours
        self.pid = self._process.pid
        self._send({"targets": [_words(target) for target in targets], "cwd": _working_folder()}, b"")

    def fileno(self) -> int:
        """What to poll."""
        return self._socket.fileno()

    def begin(self, number: int, target: int, *, seconds: float, content_type: str, body: bytes) -> bool:
        """Have a try carried out; False when the process does not take it.

        Args:
            number: what the answer will be known by.
            target: which one of those it was started with.
            seconds: it may take.
            content_type: of the body.
            body: what is delivered.
        """
        return self._send({"try": number, "target": target, "seconds": seconds, "type": content_type}, body)

    def _send(self, message: dict[str, object], body: bytes) -> bool:
        try:
            self._socket.send(json.dumps(message).encode() + b"\n" + body, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def receive(self) -> Done | None:
        """The next answer that is there.

        Raises:
            EOFError: the process has ended, or talks nonsense.
        """
        try:
            packet = self._socket.recv(PACKET_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            packet = b""
        try:
            return msgspec.json.decode(packet, type=Done)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise EOFError from None

    def end(self, timeout: float = _END_TIMEOUT) -> None:
        """End the process and its tries; one that has not done so in ``timeout`` seconds gets SIGKILL."""
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
            return
        with contextlib.suppress(OSError):
            self._process.kill()  # its children follow: the kernel sends them SIGKILL
        try:
            self._process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            _ended.append(self._process)


def wait_for(desk: DeskProcess | None, wake: int, timeout: float) -> None:
    """Wait until the desk says something or ``wake`` is readable, at most ``timeout`` seconds."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    if desk is not None:
        poll.register(desk, select.POLLIN)
    poll.poll(max(0.0, timeout) * 1000)


def _words(target: Target) -> dict[str, object]:
    if isinstance(target, Webhook):
        return {"url": target.url, "headers": target.headers, "slack": target.format == "slack"}
    return {"words": target.words}


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "/"


def _start(control_fd: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, str(_ROOT), str(control_fd)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(control_fd,),
        cwd="/",
        env={name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ},
        start_new_session=True,
    )
