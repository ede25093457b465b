"""``diag analyze`` takes many seconds: who waits at a terminal is told for what, a pipe stays quiet."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from tests.capture_factory import DEADLINE, first_line, running

MAIN = "import sys; from rankscope.diag.main import main; sys.exit(main())"
WAITING = "import time\nprint('ready', flush=True)\ntime.sleep(1000)\n"


def test_a_line_says_at_a_terminal_only_what_was_found_and_what_comes() -> None:
    with running(WAITING) as process:
        assert first_line(process) == ["ready"]
        command = [sys.executable, "-c", MAIN, "analyze", "--pid", str(process.pid), "--json"]
        terminal, stderr = pty.openpty()
        try:
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr) as at_terminal:
                assert at_terminal.stdout is not None
                assert at_terminal.stdout.read().startswith(b"{")
                assert at_terminal.wait(DEADLINE) != 1
            said = os.read(terminal, 10_000)
        finally:
            os.close(stderr)
            os.close(terminal)
        piped = subprocess.run(command, capture_output=True, timeout=DEADLINE, check=False)
    assert b"diag analyze: 1 rank found; second look in 4 s, then a closer one" in said
    assert b"found;" not in piped.stderr
