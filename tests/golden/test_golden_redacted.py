"""Redaction takes nothing away that a verdict stands on: real dumps are judged with and without it."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard
from tests.tool_table import cases, files_by_tool

from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.dumps import read_dumps
from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.diag.redact.names import Names, numbered, users_in
from rankscope.diag.redact.records import redacted
from rankscope.diag.redact.text import Redactor

DATA = Path(__file__).parents[1] / "data"
LOCALS = ("pyspy_locals.txt", "pystack_locals")
"""Dumps with local variables: these go, and with them what only they tell."""


def judged(looks: tuple[JobSnapshot, JobSnapshot | None], samples: tuple[JobSnapshot, ...]) -> Diagnosis:
    return diagnose(
        looks,
        catalogue=load_catalogue(),
        source_line=lambda _file, _line: None,
        time="2026-11-29T16:40:00Z",
        samples=samples,
    )


def without_names(look: JobSnapshot, redactor: Redactor) -> JobSnapshot:
    record: object = msgspec.json.decode(msgspec.json.encode(look))
    return msgspec.convert(redacted(record, redactor), JobSnapshot)


def dumps(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """All dumps of each case by one tool, all tools in turn, and the looks of other tests."""
    for number, case in enumerate(cases(folder)):
        tools = files_by_tool(case)
        for tool in sorted(tools)[number % 3 :: 3]:
            yield f"{case.name} by {tool}", tools[tool]
    yield "subgroup", [DATA / "looks" / "subgroup"]
    yield "gdb", [DATA / "looks" / "gdb"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("cases")
    packed = zstandard.open(DATA / "cases" / "dumps.tar.zst", "rb")
    with packed, tarfile.open(fileobj=io.BytesIO(packed.read())) as archive:
        archive.extractall(target, filter="data")
    return target


def test_real_dumps_give_the_same_verdict_without_what_must_not_leave(folder: Path) -> None:
    different: list[str] = []
    count = 0
    for name, paths in dumps(folder):
        job = read_dumps(paths)
        first, second = job.pair
        text = msgspec.json.encode(first).decode()
        nodes = {rank.node for rank in first.ranks} - {""}
        redactor = Redactor(Names(numbered(users_in(text), "user"), numbered(nodes, "node")))
        looks = (without_names(first, redactor), without_names(second, redactor) if second else None)
        before = judged(job.pair, job.samples)
        after = judged(looks, tuple(without_names(look, redactor) for look in job.samples))
        same = (after.verdict, after.culprits, after.confidence) == (
            before.verdict,
            before.culprits,
            before.confidence,
        )
        if not same or (after.kind != before.kind and not name.endswith(LOCALS)):
            different.append(f"{name}: {before.verdict} {before.kind} -> {after.verdict} {after.kind}")
        count += 1
    assert count > 60
    assert different == []
