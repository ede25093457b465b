"""Shell completion: a real bash completes a verb, a flag and the id of a stored job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadline import DEADLINE
from tests.screen_of import MAIN

ASK = """
source "$1"
COMP_WORDS=(diag $2)
case "$2" in ""|*" ") COMP_WORDS+=("") ;; esac
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
COMP_LINE="diag $2"
COMP_POINT=${#COMP_LINE}
FUNCTION=$(complete -p diag | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$FUNCTION diag "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "diag.bash"
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "completion", "bash"], capture_output=True, timeout=DEADLINE, check=True
    )
    path.write_bytes(done.stdout)
    return path


def completed(script: Path, line: str, home: Path, cwd: Path) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "bash", str(script), line],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "RANKSCOPE_HOME": str(home)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.split("\n")))


def test_bash_completes_verbs_flags_and_jobs(script: Path, tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "empty"
    cwd.mkdir()
    for name in ("run-7", "run-8", "demo-1"):
        (home / "jobs" / name).mkdir(parents=True)
    (home / "jobs" / ".pruned-1").mkdir()
    (home / "jobs" / "$(touch x)").mkdir()
    (home / "jobs" / "run 9").mkdir()
    assert completed(script, "hi", home, cwd) == ["history"]
    assert {"jobs", "top", "run", "analyze"} <= set(completed(script, "", home, cwd))
    assert completed(script, "prune --older", home, cwd) == ["--older-than"]
    assert completed(script, "run --nproc", home, cwd) == ["--nproc-per-node", "--nproc_per_node"]
    for verb in ("history", "analyze", "bundle", "top"):
        assert completed(script, f"{verb} run", home, cwd) == ["run-7", "run-8"], verb
    assert completed(script, "analyze run-7 de", home, cwd) == ["demo-1"]
    assert completed(script, "history run", tmp_path / "nowhere", cwd) == []
    assert completed(script, "history ", home, cwd) == ["demo-1", "run-7", "run-8"]
    (tmp_path / "new" / "jobs").mkdir(parents=True)
    assert completed(script, "history ", tmp_path / "new", cwd) == []
    assert list(cwd.iterdir()) == [], "a folder's name is never carried out"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_a_script_and_none_needs_torch(shell: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "completion", shell],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    assert done.stderr == ""
    for word in ("history", "bundle", "older-than", "jobs", "run"):
        assert word in done.stdout
    for variable in ("RANKSCOPE_HOME", "XDG_STATE_HOME"):
        assert variable in done.stdout
    for line in done.stdout.splitlines():
        assert "_rankscope_jobs" not in line or line.count('"') % 2 == 0
    if shell == "fish":
        # What fish carries out at Tab stands between double quotes of shtab's, so with none of its own.
        assert {'"(_rankscope_jobs)"'} == set(re.findall(r'-ka (".*") -d .*job folder', done.stdout))
