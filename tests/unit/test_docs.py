"""The documentation against the code: nothing that exists is missing, nothing is claimed that does not exist.

What is compared are names: settings, variables, events, exit codes, verbs and their flags, HTTP paths, words
of a verdict, make targets, links. Whether a sentence is true is for a reader to see.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args
from urllib.parse import unquote

import pytest

from rankscope.agent.health.routes import PROBES
from rankscope.agent.health.status import Phase
from rankscope.agent.policy import EXIT_RUN_AGAIN
from rankscope.agent.settings import OPTIONS, Option
from rankscope.diag import errors, model
from rankscope.diag.main import GROUP, SUMMARIES
from rankscope.diag.store.events import TYPE_PREFIX
from rankscope.watchdog import environment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = tuple(
    path for room in ("agent", "diag", "watchdog") for path in sorted((ROOT / room).rglob("*.py"))
)
REFERENCE: Final = ROOT / "docs" / "reference"
DECISIONS: Final = ROOT / "docs" / "decisions"
# Exit statuses that no constant names: done, and a shell's 128 + SIGINT.
PLAIN_CODES: Final = frozenset({0, 1, 2, 130})
CODE_BLOCK: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FLAG: Final = re.compile(r"--?[a-z][a-z-]*")
OUR_VARIABLE: Final = re.compile(r"\bRANKSCOPE_[A-Z]+(?:_[A-Z]+)*\b")


def reference(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text()


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows, without backticks; headings and rules included."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def names(text: str) -> set[str]:
    """Everything that stands in backticks in the first column of a table."""
    firsts = [line.strip("|").split("|")[0] for line in text.splitlines() if line.startswith("|")]
    return {name for first in firsts for name in re.findall(r"`([^`]+)`", first)}


def section(text: str, title: str) -> str:
    """A section with everything below it, without its heading."""
    found = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert found is not None, f"there is no section {title!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def documented_codes(verb: str) -> set[int]:
    table = section(reference("cli"), f"Exit codes of diag {verb}")
    return {int(row[0]) for row in rows(table) if row[0].isdigit()}


def declared_verbs() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {str(name): str(module) for name, module in project["entry-points"][GROUP].items()}


def exit_constants(path: Path) -> Iterator[int]:
    """Values of ``EXIT_...`` constants at the top of a module."""
    for node in ast.parse(path.read_text()).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id.startswith("EXIT_"):
            value = node.value if isinstance(node, ast.AnnAssign) else None
            assert isinstance(value, ast.Constant)
            assert isinstance(value.value, int)
            yield value.value


def recorded_events() -> set[str]:
    """First arguments of ``....event("name", ...)`` with the data of an event behind them."""
    found: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            first = node.args[0] if node.args else None
            if node.func.attr == "event" and isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.add(TYPE_PREFIX + first.value)
    return found


def documents() -> list[Path]:
    """All Markdown files of the project, in no environment and no hidden folder."""
    found: list[Path] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "node_modules"]
        found += [Path(folder) / name for name in files if name.endswith(".md")]
    return sorted(found)


def anchors(text: str) -> set[str]:
    """Names of the headings as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", CODE_BLOCK.sub("", text), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_setting_is_documented_with_its_variable_default_and_range(option: Option[object]) -> None:
    shown = "auto" if option.default is None else str(option.default) or "none"
    known = {row[0]: row[1:4] for row in rows(section(reference("cli"), "diag run"))}
    assert known.get(option.flag) == [option.variable, shown, option.allowed]


def test_no_setting_is_documented_that_does_not_exist() -> None:
    documented = {name for name in names(section(reference("cli"), "diag run")) if FLAG.fullmatch(name)}
    assert documented == {option.flag for option in OPTIONS}


def test_every_name_between_agent_and_workers_is_documented() -> None:
    declared = {value for name, value in vars(environment).items() if name.isupper()}
    assert declared <= names(reference("environment"))


def test_every_variable_of_ours_in_the_code_is_documented_and_the_other_way_round() -> None:
    used = {name for path in SOURCES for name in OUR_VARIABLE.findall(path.read_text())}
    known = names(reference("environment")) | {option.variable for option in OPTIONS}
    written = {name for path in documents() for name in OUR_VARIABLE.findall(path.read_text())}
    assert used <= known
    assert written <= used | {option.variable for option in OPTIONS}


def test_the_documented_events_are_those_that_are_recorded() -> None:
    documented = names(section(reference("files"), "events.jsonl"))
    assert documented == recorded_events()


def test_the_verbs_are_those_of_the_entry_points() -> None:
    documented = re.findall(r"^## diag (\S+)$", reference("cli"), re.MULTILINE)
    assert set(documented) == set(declared_verbs()) == set(SUMMARIES)
    for verb, module in declared_verbs().items():
        assert SUMMARIES[verb] == importlib.import_module(module).SUMMARY


@pytest.mark.parametrize("verb", sorted(declared_verbs()))
def test_the_flags_of_a_verb_are_documented(verb: str) -> None:
    prepare_parser = getattr(importlib.import_module(declared_verbs()[verb]), "prepare_parser", None)
    if prepare_parser is None:
        return  # torchrun's own parser: its flags are torch's to document
    flags = {flag for action in prepare_parser()._actions for flag in action.option_strings}
    documented = {name for name in names(section(reference("cli"), f"diag {verb}")) if FLAG.fullmatch(name)}
    assert documented == flags - {"-h", "--help"}


@pytest.mark.parametrize("verb", sorted(declared_verbs()))
def test_the_exit_codes_of_a_verb_are_documented(verb: str) -> None:
    path = importlib.import_module(declared_verbs()[verb]).__file__
    assert path is not None
    assert set(exit_constants(Path(path))) <= documented_codes(verb)


def test_the_exit_codes_of_run_are_those_of_torchrun_and_of_the_policy() -> None:
    assert documented_codes("run") == {0, 1, errors.UsageError.exit_code, EXIT_RUN_AGAIN}


def test_every_exit_code_of_the_code_is_documented_and_no_other() -> None:
    constants = {code for path in SOURCES for code in exit_constants(path)}
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    raised = {each.exit_code for each in classes if issubclass(each, errors.RankscopeError)}
    documented = {code for verb in declared_verbs() for code in documented_codes(verb)}
    assert constants | raised <= documented <= constants | raised | PLAIN_CODES


def test_the_documented_paths_are_those_that_are_served() -> None:
    assert {name for name in names(reference("http")) if name.startswith("/")} == set(PROBES)


def test_the_checks_of_health_are_documented() -> None:
    bulletin = (ROOT / "agent" / "rankscope" / "agent" / "bulletin.py").read_text()
    published = set(re.findall(r'"([a-z]+:[a-z-]+)": Check', bulletin))
    assert published
    documented = set(re.findall(r"`((?:capture|disk|gpu|store|watchdog):[a-z-]+)`", reference("http")))
    assert documented == published | {"watchdog:suspicion"}


def test_the_words_of_a_verdict_and_the_phases_are_documented() -> None:
    words = section(reference("cli"), "The words of a verdict")
    known = {word for alias in (model.Verdict, model.Kind, model.Confidence) for word in get_args(alias)}
    known |= {word for alias in (model.Severity, model.Role) for word in get_args(alias)}
    assert known <= set(re.findall(r"`([^`]+)`", words))
    assert set(get_args(Phase)) <= set(re.findall(r"`([^`]+)`", section(reference("http"), "Fields")))


def test_decision_records_are_numbered_without_a_gap_and_have_their_parts() -> None:
    records = sorted(DECISIONS.glob("*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for record in records:
        text = record.read_text()
        parts = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert parts == ["Context", "Decision", "Rejected", "Consequence", "Revisit when"], record.name
        assert text.startswith(f"# {record.name[:4]} ")
        assert 20 <= len(text.splitlines()) <= 60, record.name


def test_a_decision_that_the_code_names_exists() -> None:
    named = {number for path in SOURCES for number in re.findall(r"decision (\d{4})", path.read_text())}
    assert named <= {record.name[:4] for record in DECISIONS.glob("*.md")}


def test_every_make_target_is_documented() -> None:
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    documented = names(section((ROOT / "CONTRIBUTING.md").read_text(), "Make targets"))
    assert {f"make {target}" for target in targets} <= documented


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document: Path) -> None:
    for link in LINK.findall(CODE_BLOCK.sub("", document.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = unquote(link).partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leaves the repository"
        if fragment:
            assert fragment in anchors(target.read_text()), f"{link} names no heading"
