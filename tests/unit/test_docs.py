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
from functools import cache
from pathlib import Path
from typing import Final, get_args
from urllib.parse import unquote

import msgspec
import pytest
from tests.pages.api import MODULES, public_names

from rankscope.agent.checks import capture, disk, gpu_judge
from rankscope.agent.health.api.table import TABLE
from rankscope.agent.health.metrics import METRICS
from rankscope.agent.health.model import Phase
from rankscope.agent.health.routes import METRICS_PATH, PROBES
from rankscope.agent.policy import EXIT_REFUSED, EXIT_RUN_AGAIN
from rankscope.agent.settings.option import Option
from rankscope.agent.settings.table import OPTIONS
from rankscope.diag import errors, model
from rankscope.diag.main import GROUP, SUMMARIES
from rankscope.diag.store import job
from rankscope.diag.store.events import TYPE_PREFIX
from rankscope.watchdog import environment
from rankscope.watchdog.sdk.config import PARAMETERS

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
FLAG: Final = re.compile(r"--?[a-z][a-z0-9-]*")
SUFFIXES: Final = frozenset({".py", ".toml"})
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


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def exit_constants(path: Path) -> Iterator[int]:
    """Values of ``EXIT_...`` constants at the top of a module."""
    for node in parsed(path).body:
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
        for node in ast.walk(parsed(path)):
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
    known = {row[0]: row[1:4] for row in rows(section(reference("cli"), "diag run"))}
    assert known.get(option.flag) == [option.variable, option.shown_default, option.allowed]


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


def event_rows() -> dict[str, str]:
    """What the reference says of each type of event."""
    return dict(re.findall(r"^\| `(rankscope\.[a-z.]+)` \| (.*) \|$", reference("events"), re.MULTILINE))


@cache
def recorded_fields() -> dict[str, set[str]]:
    """For each type of event the fields that the function around ``.event(...)`` writes out."""
    found: dict[str, set[str]] = {}
    for path in SOURCES:
        for function in ast.walk(parsed(path)):
            if isinstance(function, ast.FunctionDef):
                for name in filter(None, map(_event_name, ast.walk(function))):
                    found.setdefault(f"{TYPE_PREFIX}{name}", set()).update(_written_fields(function))
    return found


def _event_name(node: ast.AST) -> str:
    """The name in ``....event("name", ...)``, empty for anything else."""
    is_call = (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "event"
    )
    first = node.args[0] if isinstance(node, ast.Call) and is_call and node.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _written_fields(function: ast.FunctionDef) -> set[str]:
    """Keys of the dictionaries that a function writes out, and those that it adds to them."""
    keys: list[ast.expr | None] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            keys += node.keys
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            keys.append(node.targets[0].slice)
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def test_the_documented_events_are_those_that_are_recorded() -> None:
    assert set(event_rows()) == recorded_events()


def test_every_field_of_an_event_is_documented() -> None:
    documented = event_rows()
    for name, fields in recorded_fields().items():
        missing = fields - set(re.findall(r"`([^`]+)`", documented[name]))
        assert not missing, f"{name}: {missing}"


def _named_in(tree: ast.Module) -> Iterator[str]:
    """What may be a field or a value of an event: the texts in a module, and the fields of its structs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    yield each.target.id


@pytest.mark.parametrize(
    "verb",
    [
        path.stem
        for path in SOURCES
        if path.parent.name == "commands" and "import unpacked\n" in path.read_text()
    ],
)
def test_the_verbs_that_read_a_bundle_say_so_in_their_help_and_in_the_reference(verb: str) -> None:
    module = importlib.import_module(f"rankscope.diag.commands.{verb}")
    assert "bundle" in " ".join(module.prepare_parser().format_help().split())
    section = reference("cli").split(f"\n## diag {verb}\n")[1].split("\n## ")[0]
    assert "](#diag-bundle) wrote" in section


def test_no_field_of_an_event_is_documented_that_the_code_does_not_name() -> None:
    known = {name for path in SOURCES for name in _named_in(parsed(path))}
    for name, told in event_rows().items():
        words = set(re.findall(r"`([a-z_]+)`", told))
        assert words <= known, f"{name}: {words - known}"


STORED: Final = {
    "job.json": job.JobFile,
    "agent.json": job.AgentFile,
    "An incident": (model.Diagnosis, model.Decision, model.RankFinding, model.StackGroup, model.Location),
}


@pytest.mark.parametrize("title", STORED)
def test_every_field_of_a_stored_file_is_documented(title: str) -> None:
    structs = STORED[title]
    wanted = {
        field.encode_name
        for struct in (structs if isinstance(structs, tuple) else (structs,))
        for field in msgspec.structs.fields(struct)
    }
    documented = set(re.findall(r"`([^`]+)`", section(reference("files"), title)))
    assert wanted - {"schema"} <= documented, wanted - documented


def test_the_sdk_is_documented_name_by_name_and_parameter_by_parameter() -> None:
    text = reference("sdk") + reference("timers")
    for one in public_names("rankscope.watchdog.job_monitor"):
        assert one.name.rpartition(".")[2] in text, one.name
    assert set(PARAMETERS) == names(section(reference("sdk"), "Configurations"))


def test_the_python_page_has_every_public_name_with_what_it_does() -> None:
    page = reference("python")
    for module in MODULES:
        for one in public_names(module):
            assert f"`{one.shown}`" in page, one.shown
            assert one.does, f"{module}.{one.name} says nothing of itself"


def test_the_metrics_are_documented_with_the_words_that_a_scraper_gets() -> None:
    told = [line for line in reference("metrics").splitlines() if line.startswith("| `rankscope_")]
    assert told == [
        f"| `{row.name}` | {row.kind} | {', '.join(f'`{label}`' for label in row.labels)} | {row.about} |"
        for row in METRICS
    ]


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


@pytest.mark.parametrize("verb", sorted(set(declared_verbs()) - {"run"}))
def test_a_number_that_is_documented_as_a_default_is_the_default(verb: str) -> None:
    parser = importlib.import_module(declared_verbs()[verb]).prepare_parser()
    defaults = {flag: action.default for action in parser._actions for flag in action.option_strings}
    told = section(reference("cli"), f"diag {verb}").partition("\n### ")[0]
    for row in rows(told):
        default = defaults.get(row[0])
        number = re.match(r"-?[0-9.]+\b", row[1])
        if isinstance(default, int | float) and not isinstance(default, bool) and number is not None:
            assert float(number[0]) == default, row[0]


@pytest.mark.parametrize("verb", sorted(declared_verbs()))
def test_the_exit_codes_of_a_verb_are_documented(verb: str) -> None:
    path = importlib.import_module(declared_verbs()[verb]).__file__
    assert path is not None
    assert set(exit_constants(Path(path))) <= documented_codes(verb)


def test_the_exit_codes_of_run_are_those_of_torchrun_and_of_the_policy() -> None:
    assert documented_codes("run") == {0, 1, errors.UsageError.exit_code, EXIT_RUN_AGAIN, EXIT_REFUSED}


def test_every_exit_code_of_the_code_is_documented_and_no_other() -> None:
    constants = {code for path in SOURCES for code in exit_constants(path)}
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    raised = {each.exit_code for each in classes if issubclass(each, errors.RankscopeError)}
    documented = {code for verb in declared_verbs() for code in documented_codes(verb)}
    assert constants | raised <= documented <= constants | raised | PLAIN_CODES


def test_the_documented_paths_are_those_that_are_served() -> None:
    assert {name for name in names(reference("http")) if name.startswith("/")} == {
        *PROBES,
        METRICS_PATH,
        "/",
        *(row.path for row in TABLE),
    }


def test_the_checks_of_health_are_documented() -> None:
    bulletin = (ROOT / "agent" / "rankscope" / "agent" / "telling" / "bulletin.py").read_text()
    published = set(re.findall(r'"([a-z]+:[a-z-]+)": Check', bulletin))
    assert published
    documented = set(re.findall(r"`((?:capture|disk|gpu|store|watchdog):[^`]+)`", reference("http")))
    own = {"watchdog:loop", "watchdog:suspicion", capture.NAME, disk.NAME}
    assert documented == published | own | {"gpu:N", *(f"gpu:N:{name}" for name in gpu_judge.names())}


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


def test_a_source_file_that_a_page_names_exists() -> None:
    there = {
        f"/{path.relative_to(ROOT).as_posix()}"
        for path in ROOT.glob("[a-z]*/**/*")
        if path.suffix in SUFFIXES
    }
    ours = {part for path in there for part in path.split("/")[:-1]}
    for document in documents():
        if document.is_relative_to(DECISIONS) or document.name in ("CHANGELOG.md", "torch-parity.md"):
            continue  # they tell of the past, and of torch's files
        for name in re.findall(r"`([a-z_]+/[\w/]+\.(?:py|toml))`", document.read_text()):
            is_ours = name.partition("/")[0] in ours
            assert not is_ours or any(path.endswith(f"/{name}") for path in there), f"{document.name}: {name}"


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
