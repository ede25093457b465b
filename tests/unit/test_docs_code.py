"""The code in the README and in ``docs/``: what can run cheaply runs; of the rest it is said why it does not.

A block below ``<!-- run -->`` runs from the repository's root, and what it shows must be what comes of it. Of
all other commands the verb and every flag must exist.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml
from tests.deadline import DEADLINE
from tests.pages.blocks import ROOT, Block, Command, blocks, commands, is_shown
from tests.unit.test_docs import declared_verbs

from rankscope.agent.settings.table import OPTIONS
from rankscope.diag.main import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BLOCKS: Final = blocks()
RUN: Final = [block for block in BLOCKS if block.is_run]
PYTHON: Final = [block for block in BLOCKS if block.language == "python"]
# Why the commands of a program are not run here.
PROGRAMS: Final = {
    ".venv/bin/diag": "the same as diag, in a fresh clone",
    ".venv/bin/jupyter": "needs a job; tests/integration/test_notebooks.py runs it on one",
    "cat": "shows a file of the example",
    "chmod": "a step of the example; tests/integration/test_notices_servers.py has one of its own",
    "curl": "asks an agent that runs; tests/integration/test_health_server.py does",
    "diag": "looks at jobs that run, or starts one, unless its block is marked; the integration tests do",
    "docker": "needs Docker",
    "echo": "shows the exit code of the command before it",
    "export": "tells the client of the example its token; tests/integration/test_api_client.py does so",
    "for": "makes input of the example; tests/integration/test_async_job.py runs one like it",
    "grep": "reads records of a job that ran",
    "kubectl": "needs a cluster",
    "ls": "shows files of the example",
    "make": "takes a minute or more; each target is run by .ci/run or has a test of its own",
    "mkdir": "a step of the example",
    "py-spy": "needs a process to look at; tests/integration/test_capture.py has one",
    "python": "a step of the example",
    "sbatch": "needs Slurm; tests/integration/test_schedulers.py runs the script with stand-ins",
    "srun": "needs Slurm",
    "ssh": "needs another host",
    "tail": "reads records of a job that ran",
    "torchrun": "what the page moves away from",
    "wc": "reads records of a job that ran",
}
# Why a Python block is only compiled: page, and the first words of the block.
ONLY_COMPILED: Final = {
    (
        "docs/how-to/lightning.md",
        "import os",
    ): "tests/integration/test_frameworks.py runs a whole job of this kind",
    ("docs/how-to/lightning.md", "import lightning"): "seconds of imports for one decorator",
    ("docs/how-to/moving-from-aimaster.md", "from aimaster"): "AIMaster's SDK is not public",
    (
        "docs/how-to/moving-from-aimaster.md",
        "import os",
    ): "a job; tests/integration/test_sdk_job.py runs one like it",
    (
        "docs/reference/python.md",
        "from rankscope.diag import RankscopeError, analyze",
    ): "dumps and processes of the reader's own; tests/unit/test_analyze_function.py calls it",
    ("docs/how-to/notices.md", "import http.server"): "serves until it is ended",
    (
        "docs/how-to/offline-inference.md",
        "import os",
    ): "a job; tests/integration/test_async_job.py runs one like it",
    ("docs/reference/dataframes.md", "import pyarrow"): "DIR is the reader's",
    ("docs/reference/fault-matrix.md", "Row("): "a row as rows_*.py have it, which the matrix runs",
}
# What a block may take for granted: names that the reader has.
GIVEN: Final = """
def train_one(step): ...
def save_checkpoint(): ...
def evaluate(*words): ...
def debug(): ...
steps, rank, loader = 2, 0, iter([1, 2])
from rankscope.watchdog import job_monitor as jm
"""
FLAG: Final = re.compile(r"--[a-z][a-z0-9-]*")


def by_name(block: Block) -> str:
    return block.name


def flags_of(verb: str) -> set[str]:
    """Every flag of a verb; torchrun's are those of the parity page, which a test holds against torch."""
    module = importlib.import_module(declared_verbs()[verb])
    if verb != "run":
        return {flag for action in module.prepare_parser()._actions for flag in action.option_strings}
    parity = (ROOT / "docs" / "reference" / "torch-parity.md").read_text().partition("## ")[2]
    torch = set(re.findall(r"`(--[a-z-]+)`", parity.partition("\n## ")[0]))
    return {flag for option in OPTIONS for flag in option.spellings} | torch | {"--help", "-h"}


def diag_calls(command: Command) -> list[tuple[str, ...]]:
    """The calls of ``diag`` in a command, its own or one that another program makes."""
    starts = [at for at, word in enumerate(command.words) if word == "diag" or (not at and "/diag" in word)]
    return [command.words[at + 1 :] for at in starts]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "console"], ids=by_name)
def test_every_command_is_known_with_all_its_flags(block: Block) -> None:
    for command in commands(block):
        assert command.words[0] in PROGRAMS, f"{command.words[0]}: no reason is given why it does not run"
        if command.words[0] == "make" and len(command.words) > 1:
            assert f"\n{command.words[1]}:" in (ROOT / "Makefile").read_text()
        for verb, *words in diag_calls(command):
            if verb.startswith("-"):
                assert verb in ("--version", "--help")
                continue
            assert verb in declared_verbs(), verb
            used = {word.partition("=")[0] for word in _own_words(words) if FLAG.match(word)}
            assert used <= flags_of(verb), used - flags_of(verb)


def _own_words(words: list[str]) -> list[str]:
    """Words up to the script, whose flags are its own."""
    for at, word in enumerate(words):
        if word.endswith(".py") or word in ("--no-python", "--"):
            return words[:at]
    return words


def test_no_reason_is_given_for_a_program_that_no_page_names() -> None:
    used = {
        command.words[0] for block in BLOCKS if block.language == "console" for command in commands(block)
    }
    assert set(PROGRAMS) <= used


@pytest.mark.parametrize("block", RUN, ids=by_name)
def test_what_a_marked_block_shows_is_what_comes_of_it(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    code = 0
    for command in commands(block):
        if command.words == ("echo", "$?"):
            assert command.shown[0] == str(code)
            continue
        monkeypatch.setenv("RANKSCOPE_HOME", str(ROOT / command.variables.get("RANKSCOPE_HOME", tmp_path)))
        assert command.words[0] == "diag", f"{command.words[0]} cannot be run here"
        code = main(command.words[1:])
        said = capsys.readouterr()
        assert is_shown(said.out, command.shown), f"{' '.join(command.words)} says:\n{said.out}\n{said.err}"


def test_the_readme_and_the_page_for_a_hung_job_show_something_that_was_run() -> None:
    assert {"README.md", "docs/hung-right-now.md"} <= {block.page for block in RUN}


@pytest.mark.parametrize("block", PYTHON, ids=by_name)
def test_python_compiles_and_runs(block: Block, tmp_path: Path) -> None:
    ast.parse(block.text)
    if _reason(block) is not None:
        return
    records = ROOT / "docs" / "examples" / "records" / "jobs"
    shutil.copytree(next(records.iterdir()), tmp_path / "home" / "jobs" / "run-7")
    env = {
        **os.environ,
        "RANKSCOPE_HOME": str(tmp_path / "home"),
        "TORCHELASTIC_TIMER_FILE": str(tmp_path / "timers"),
    }
    done = subprocess.run(
        [sys.executable, "-c", GIVEN + block.text],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr.decode()


def _reason(block: Block) -> str | None:
    reasons = (
        why
        for (page, words), why in ONLY_COMPILED.items()
        if page == block.page and block.text.startswith(words)
    )
    return next(reasons, None)


def test_every_reason_belongs_to_a_block() -> None:
    for page, words in ONLY_COMPILED:
        assert any(block.page == page and block.text.startswith(words) for block in PYTHON), (page, words)


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language in ("toml", "yaml", "json", "bash")], ids=by_name
)
def test_settings_manifests_and_scripts_are_well_formed(block: Block) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "yaml":
        assert yaml.safe_load(block.text)
    elif block.language == "json":
        json.loads(block.text)
    else:
        subprocess.run(["bash", "-n"], input=block.text.encode(), check=True, timeout=20)


def test_an_output_that_differs_is_seen() -> None:
    assert is_shown("a\nb\nc\n", ("a", "...", "c"))
    assert is_shown("a\n", ("a",))
    assert not is_shown("a\nb\n", ("a",))
    assert not is_shown("a\nx\n", ("a", "...", "c"))
