"""Ends the tools of a capture whose own process was killed: a shell that outlives it by a second.

A tool that holds a rank would go on, for ever on a rank that does not let itself be read. The kernel could
end it with its parent (PR_SET_PDEATHSIG), but that must be set between fork and exec, and a target that the
tool leaves stopped would stay so. So a shell waits for the end of a pipe that only the capturing process
holds. It must not know which tools there are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from typing import Final

_KILL_SECONDS: Final = 1.0
# Each line is the whole list, of tool:target:start of the target; the last one counts, and the first comes as
# an argument: whoever is killed right after the start has not written yet. A tool gets half a second to end
# by itself, and its target goes on if it stands still after that (state T). When a tool was started is read
# only then: in its first millisecond the answer would be waited for.
_SCRIPT: Final = r"""
trap '' HUP INT QUIT TERM
last=$1
while read -r line; do last=$line; done
[ -n "$last" ] || exit 0
fields() {
  found=
  read -r found 2>/dev/null < "/proc/$1/stat" || return 1
  set -- ${found##*) }
  echo "${20}:$1"
}
list=
for each in $last; do
  tool=${each%%:*}
  now=$(fields "$tool") && list="$list $tool:${now%%:*}:${each#*:}"
done
left() { for each in $list; do
  IFS=: read -r tool ticks target since <<.
$each
.
  now=$(fields "$tool")
  if [ "${now%%:*}" = "$ticks" ] && [ "${now##*:}" != Z ]; then "$@"; fi
done; }
for turn in 1 2 3 4 5; do [ -n "$(left echo x)" ] || break; sleep 0.1 2>/dev/null || sleep 1; done
end() { kill -9 "-$tool" || kill -9 "$tool"; }
left end 2>/dev/null
for turn in 1 2; do
  sleep 0.05 2>/dev/null || sleep 1
  for each in $last; do
    IFS=: read -r tool target since <<.
$each
.
    if [ "$target" -gt 1 ] && [ "$(fields "$target")" = "$since:T" ]; then kill -CONT "$target"; fi
  done
done
"""


class Guard:
    """Looks after the tools of one capture, until it is closed. Thread-safe; never raises.

    Where no shell can be started, tools are not looked after.

    Attributes:
        cancelled: whether the capture was given up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, str] = {}
        self.cancelled = False
        self._shell: subprocess.Popen[bytes] | None = None
        self._tried = False

    def close(self) -> None:
        """End the shell."""
        shell, self._shell = self._shell, None
        if shell is None or shell.stdin is None:
            return
        shell.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            shell.wait(_KILL_SECONDS)
        shell.stdin.close()

    def cancel(self) -> None:
        """End the tools that run, whoever waits for them: the capture is given up."""
        with self._lock:
            self.cancelled = True
            for tool in self._running:
                with contextlib.suppress(OSError):
                    os.killpg(tool, signal.SIGKILL)

    @contextlib.contextmanager
    def over(self, tool: int, *, held: int = 0, held_since: int = 0) -> Generator[None]:
        """Look after a tool while this lasts.

        Args:
            tool: its process, the leader of its group.
            held: a process that it may leave stopped and that was not stopped before, 0 for none.
            held_since: start time of that process, clock ticks since boot.
        """
        self._tell(tool, f"{tool}:{held}:{held_since}")
        if self.cancelled:
            self.cancel()
        try:
            yield
        finally:
            self._tell(tool, "")

    def _tell(self, tool: int, entry: str) -> None:
        with self._lock, contextlib.suppress(OSError):
            if entry:
                self._running[tool] = entry
            else:
                self._running.pop(tool, None)
            entries = " ".join(self._running.values())
            if not self._tried:
                self._tried = True
                self._shell = _start(entries)
            elif self._shell is not None and self._shell.stdin is not None:
                os.write(self._shell.stdin.fileno(), f"{entries}\n".encode())


def _start(entries: str) -> subprocess.Popen[bytes]:
    """In a process group of its own: Ctrl-C at the terminal is not for it."""
    command = ["/bin/sh", "-c", _SCRIPT, "rankscope-guard", entries]
    environ = {"PATH": os.environ.get("PATH", os.defpath)}
    null = subprocess.DEVNULL
    if sys.version_info >= (3, 11):
        shell = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=null, stderr=null, env=environ, process_group=0
        )
    else:
        shell = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=null,
            stderr=null,
            env=environ,
            start_new_session=True,
        )
    assert shell.stdin is not None  # noqa: S101 - asked for above
    os.set_blocking(shell.stdin.fileno(), False)  # a shell that somebody stopped must not hold a capture
    return shell
