"""One server process as its parent sees it: how it is started, when it is ready, how it ended.

It decides nothing about starting again (``process`` does) and knows nothing of what is served.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Final

import msgspec

from rankscope.agent.health.handover import ServerReady, ServerSettings
from rankscope.agent.health.listen import HealthError

_LAST_WORDS_BYTES: Final = 4096
_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10));"
    " from rankscope.agent.health.server import main; sys.exit(main())"
)


class ServerChild:
    """One server process and its pipes."""

    def __init__(self, settings: ServerSettings) -> None:
        """Start it; it inherits the sockets that the settings name, and no other descriptor.

        Raises:
            HealthError: no process could be started.
        """
        self.started = time.monotonic()
        self._words = b""
        self._ready = False
        try:
            # -I: neither the working directory nor PYTHON... variables reach it; it finds its modules
            # where this process finds them. A session of its own keeps signals for the agent's group away.
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, "\n".join(_module_paths())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                close_fds=True,
                pass_fds=tuple(fd for fd in (settings.listen_fd, settings.api_fd) if fd is not None),
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise HealthError(f"health server: cannot start {sys.executable}: {error}") from error
        self.pid = self._popen.pid
        stdin, self._stdout, self._stderr = self._pipes()
        os.set_blocking(self._stderr.fileno(), False)
        try:
            stdin.write(msgspec.json.encode(settings) + b"\n")
            stdin.close()
        except OSError:
            stdin.close()  # it ended already: ``ended`` will say so

    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        stdin, stdout, stderr = self._popen.stdin, self._popen.stdout, self._popen.stderr
        if stdin is None or stdout is None or stderr is None:
            raise HealthError("health server: started without pipes")
        return stdin, stdout, stderr

    def wait_ready(self, timeout: float) -> None:
        """Wait for its line.

        Raises:
            HealthError: it ended first, or is not ready in time.
        """
        if self._ready:
            return
        poller = select.poll()
        poller.register(self._stdout, select.POLLIN | select.POLLHUP)
        if not poller.poll(max(0.0, timeout) * 1000):
            raise HealthError(f"health server: not ready after {timeout:g} s")
        line = os.read(self._stdout.fileno(), _LAST_WORDS_BYTES)
        if not line:
            raise HealthError(f"health server: it ended before it was ready ({self._end(1.0)})")
        try:
            msgspec.json.decode(line, type=ServerReady)
        except msgspec.DecodeError as error:
            raise HealthError(f"health server: unexpected first line {line[:80]!r}") from error
        self._ready = True

    def ended(self) -> str | None:
        """How it ended, ``None`` while it runs. Empties its stderr on the way."""
        self._listen()
        return None if self._popen.poll() is None else self._end(0.0)

    def _end(self, timeout: float) -> str:
        try:
            code = self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return "its output is closed"
        self._listen()
        words = self._words.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        how = _signal_name(-code) if code < 0 else f"exit code {code}"
        return f"{how}: {words}" if words else how

    def _listen(self) -> None:
        try:
            said = os.read(self._stderr.fileno(), 65536)
        except (OSError, ValueError):
            return  # nothing there, or closed
        self._words = (self._words + said)[-_LAST_WORDS_BYTES:]

    def stop(self, timeout: float) -> None:
        """SIGTERM, then SIGKILL."""
        try:
            self._popen.terminate()
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._wait_killed()
        self.close()

    def _wait_killed(self) -> None:
        try:
            self._popen.wait(1.0)
        except subprocess.TimeoutExpired:
            return  # in an uninterruptible sleep: the kernel ends it when it can

    def close(self) -> None:
        """Close the pipes."""
        self._stdout.close()
        self._stderr.close()


def _module_paths() -> list[str]:
    """This process's module search path, without the working directory."""
    return [path for path in sys.path if Path(path).is_absolute()]


def _signal_name(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
