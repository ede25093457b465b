"""Small programs that need torch, each in a process of its own, forked from one that has imported it.

Importing torch takes two seconds of a processor, forking 20 ms. The program runs under the name
``__main__`` in the main thread of its process; what it prints goes to files.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.jobs import DEADLINE, until

_SERVER = """
import gc, importlib, json, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()  # or a forked child goes through all of torch before it ends: 2 s
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        break
    for what in ("pid", "code"):
        number = pid if what == "pid" else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with open(asked["stem"] + what, "w") as file:
            file.write(f"{number}\\n")
else:
    sys.exit()
for descriptor, what in ((1, "out"), (2, "err")):
    os.dup2(os.open(asked["stem"] + what, os.O_WRONLY | os.O_CREAT, 0o600), descriptor)
sys.argv = ["-c", *asked["arguments"]]
exec(compile(asked["program"], "<program>", "exec"), {"__name__": "__main__"})
"""


@dataclass(frozen=True)
class Program:
    """One that was started."""

    stem: str

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._number("pid")

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self._number("code")

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._text("out")

    @property
    def stderr(self) -> str:
        """What it has said of errors so far."""
        return self._text("err")

    def _text(self, what: str) -> str:
        path = Path(self.stem + what)
        return path.read_text() if path.exists() else ""

    def _number(self, what: str) -> int:
        until(lambda: self._text(what).endswith("\n"), f"the program's {what}")
        return int(self._text(what))


class TorchPrograms:
    """Starts programs, one after the other."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._count = 0

    def start(self, program: str, *arguments: str) -> Program:
        """Start one; the one before must have ended."""
        self._count += 1
        started = Program(str(self._folder / f"{self._count}."))
        assert self._server.stdin is not None
        asked = {"program": program, "arguments": arguments, "stem": started.stem}
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        return started


@contextmanager
def torch_programs(folder: Path, *modules: str) -> Generator[TorchPrograms]:
    """The process that has imported ``modules``; what the programs print lies in ``folder``."""
    command = [sys.executable, "-c", _SERVER, *modules]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True) as server:
        try:
            yield TorchPrograms(server, folder)
            assert server.stdin is not None
            server.stdin.close()
            assert server.wait(DEADLINE) == 0
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)  # a program that goes on, too
