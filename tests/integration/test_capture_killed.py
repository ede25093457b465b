"""A capture whose own process is ended in the middle: its tools end, and no rank is left stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.capture_factory import DEADLINE, state_of, wait_until, waiting_process

from rankscope.diag import proc

MAIN = "import sys; from rankscope.diag.main import main; sys.exit(main())"


def a_python_with(folder: Path, tool: str) -> tuple[str, dict[str, str]]:
    """A Python beside which no tool lies, and the environment in which ``tool`` is what py-spy is."""
    python, path = folder / "python", folder / "bin" / "py-spy"
    path.parent.mkdir()
    python.symlink_to(os.path.realpath(sys.executable))
    path.write_text(f"#!/bin/sh\n{tool}\n")
    path.chmod(0o755)
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    return str(python), {**os.environ, "PATH": f"{path.parent}:/usr/bin:/bin", "PYTHONPATH": paths}


def is_guarded(pid: int) -> bool:
    return any("rankscope-guard" in proc.command_line(child) for child in proc.children(pid))


def gone(pids: Sequence[int]) -> bool:
    return all(state_of(pid) in {None, "Z"} for pid in pids)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
)
def test_its_tools_end_with_it_and_the_rank_goes_on(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    told = tmp_path / "told"
    # It leaves the rank stopped, as a tool that is killed may; when it stops none, it does nothing.
    tool = 'case "$*" in *--nonblocking*) exit 1;; esac; for pid; do :; done; kill -STOP "$pid"; '
    tool += f"sleep 1000 & echo $$ $! > {told}.new; mv {told}.new {told}; wait"
    python, env = a_python_with(tmp_path, tool)
    with waiting_process() as rank:
        command = [python, "-c", MAIN, "analyze", "--pid", str(rank.pid)]
        with subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as diag:
            wait_until(told.exists)
            tools = [int(word) for word in told.read_text().split()]
            wait_until(lambda: state_of(rank.pid) == "T")
            wait_until(
                lambda: any("rankscope-guard" in proc.command_line(pid) for pid in proc.children(diag.pid))
            )
            diag.send_signal(number)
            assert diag.wait(DEADLINE) == status
            assert diag.stderr is not None
            assert b"Traceback" not in diag.stderr.read()
        wait_until(lambda: gone(tools))
        wait_until(lambda: state_of(rank.pid) == "S")
        told.unlink()


def test_ctrl_c_while_the_verb_is_loaded_is_130_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(1000)\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    for verb in (["analyze"], ["snapshot", "-o", str(tmp_path / "look")], ["doctor"]):
        with subprocess.Popen(
            [sys.executable, "-c", MAIN, *verb], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as diag:
            assert diag.stdout is not None
            assert diag.stdout.readline() == b"loading\n"
            diag.send_signal(signal.SIGINT)
            assert diag.communicate(timeout=DEADLINE) == (b"", b"")
            assert diag.returncode == 130
