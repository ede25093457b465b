"""The agent's end of the drain process: starts it, sends to it, reads from it. Knows no pipes, no ranks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from rankscope.agent.logs.drain import MESSAGE_BYTES
from rankscope.agent.logs.stream import Limits

Message = dict[str, object]

# Isolated and without site: no user's module may shadow the standard library's, none of ours boots in it.
_BOOT: Final = (
    "import sys; sys.path.append(sys.argv[1])\n"
    "from rankscope.agent.logs.drain import main; main(sys.argv[2:])"
)
_ROOT: Final = Path(__file__).resolve().parents[3]
_KEPT_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
_SEND_TIMEOUT: Final = 2.0
_ended: list[subprocess.Popen[bytes]] = []


class DrainProcess:
    """One drain process and the socket to it.

    Attributes:
        pid: of the process.
    """

    def __init__(self, counters_fd: int, limits: Limits) -> None:
        """Start the process.

        Raises:
            OSError: it cannot be started.
        """
        _ended[:] = [process for process in _ended if process.poll() is None]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = _start(theirs.fileno(), counters_fd, limits)
            except OSError:
                ours.close()
                raise
        ours.settimeout(_SEND_TIMEOUT)
        self._socket = ours
        self.pid = self._process.pid

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def send(self, message: Mapping[str, object]) -> bool:
        """Send, waiting 2 s at most; False when it could not be sent."""
        try:
            self._socket.send(json.dumps(message).encode(), socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def receive(self, timeout: float) -> Message | None:
        """The next message, waiting at most ``timeout`` seconds; None when none came.

        Raises:
            EOFError: the process has closed its end.
        """
        if self._socket.fileno() < 0:
            raise EOFError
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        if not waiting.poll(max(0.0, timeout) * 1000):
            return None
        try:
            packet = self._socket.recv(MESSAGE_BYTES)
        except OSError:
            packet = b""
        if not packet:
            raise EOFError
        return cast("Message", json.loads(packet))

    def kill(self) -> None:
        """End the process at once; what it held in memory is lost."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self.leave(timeout=1.0)

    def leave(self, timeout: float) -> bool:
        """Close the socket and wait for the end of the process; True when it has ended.

        One that is still needed (somebody holds a pipe open) is left to itself and ends when it can.
        """
        self._socket.close()
        deadline = time.monotonic() + timeout
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
            return True
        _ended.append(self._process)
        return False


def _start(control_fd: int, counters_fd: int, limits: Limits) -> subprocess.Popen[bytes]:
    descriptors = (control_fd, counters_fd)
    return subprocess.Popen(
        [
            sys.executable,
            *("-I", "-S", "-c", _BOOT, str(_ROOT)),
            *map(str, descriptors),
            json.dumps(limits.to_dict()),
        ],
        stdin=subprocess.DEVNULL,
        stdout=_own(1),
        stderr=_own(2),
        pass_fds=descriptors,
        cwd="/",
        env={name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ},
        start_new_session=True,
    )


def _own(fd: int) -> int | None:
    try:
        os.fstat(fd)
    except OSError:
        return subprocess.DEVNULL
    return None
