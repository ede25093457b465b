"""docs/reference/torch-parity.md against the installed torch: what newer torch adds must be added there."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from torch.distributed.elastic.agent.server.api import WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.run import get_args_parser

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "torch-parity.md").read_text()
TICKED = re.compile(r"`([^`]+)`")
SECTIONS: dict[str, str] = dict(
    re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
)
TESTS = sorted(set(re.findall(r"`((?:unit/)?test_\w+\.py)::(\w+)`", PAGE)))


def rows(section: str) -> set[str]:
    """What the first column of a section's table names."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("| `")]
    return {name for line in lines for name in TICKED.findall(line.split("|")[1])}


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """One long, dashed spelling of each flag."""
    longest = (
        [one for one in action.option_strings if one.startswith("--") and "_" not in one]
        for action in parser._actions
    )
    return {spellings[0] for spellings in longest if spellings} - {"--help"}


def test_every_flag_of_torchrun_has_a_row() -> None:
    assert flags_of(get_args_parser()) <= rows("Flags of torchrun")


def test_every_field_of_a_worker_spec_has_a_row() -> None:
    assert {field.name for field in dataclasses.fields(WorkerSpec)} <= rows("Fields of `WorkerSpec`")


def test_every_argument_of_torchs_agent_has_a_row() -> None:
    taken = set(inspect.signature(LocalElasticAgent.__init__).parameters) - {"self"}
    assert taken <= rows("Arguments of `LocalElasticAgent`")


def test_every_state_of_a_worker_group_has_a_row() -> None:
    assert {state.name for state in WorkerState} <= rows("States of the worker group")


def test_every_variable_that_torchs_agent_names_has_a_row() -> None:
    from torch.distributed.elastic.agent.server import local_elastic_agent as module

    named = {name for name in module.__all__ if name.startswith("TORCHELASTIC_")}
    assert named <= rows("Variables")


@pytest.mark.parametrize(("file", "name"), TESTS, ids=[f"{file}::{name}" for file, name in TESTS])
def test_the_test_of_a_row_exists(file: str, name: str) -> None:
    path = ROOT / "tests" / (file if file.startswith("unit/") else f"integration/{file}")
    assert re.search(rf"^def {name}\(", path.read_text(), re.MULTILINE), f"no {name} in {path.name}"
