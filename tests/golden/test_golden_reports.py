"""Stacks rebuilt from public bug reports (tests/data/reports), each with the truth that its report tells.

Two looks in which nothing moved, as a look at such a job gives them; no flight record, as in the reports.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest
from tests.classify_factory import ARank, a_rank, judge_still

from rankscope.diag.classify import load_catalogue
from rankscope.diag.model import Diagnosis, ExitFacts, Frame, ThreadStack
from rankscope.diag.ranks import rank_runs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = Path(__file__).parents[1] / "data" / "reports"
FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)")


class Thread(msgspec.Struct, forbid_unknown_fields=True):
    frames: list[str]
    name: str | None = None


class Stacks(msgspec.Struct, forbid_unknown_fields=True):
    ranks: str
    main: list[str]
    threads: list[Thread] = []
    busy: bool = False
    state: str = "S"
    wchan: str | None = None
    exit_code: int | None = None


class Truth(msgspec.Struct, forbid_unknown_fields=True):
    verdict: str | list[str]
    kind: str | list[str] | None = None
    culprits: list[int] = []
    location: str | None = None
    suspects: list[int] = []


class Report(msgspec.Struct, forbid_unknown_fields=True):
    source: str
    ranks: int
    truth: Truth
    stacks: list[Stacks]
    trained: bool = True
    lines: dict[str, str] = {}


def read(path: Path) -> Report:
    return msgspec.convert(tomllib.loads(path.read_text()), Report)


def frame(text: str) -> Frame:
    parts = FRAME.fullmatch(text)
    assert parts is not None, text
    file = parts["file"]
    native = re.search(r"\.so(\.\d+)*$", file) is not None
    return Frame(parts["function"], file, int(parts["line"] or 0), "native" if native else "python", file)


def members(ranks: str) -> list[int]:
    return [rank for run in rank_runs(ranks) for rank in run]


def built(rank: int, stacks: Stacks, report: Report) -> ARank:
    others = tuple(
        ThreadStack(
            thread_id=90_000 + 100 * rank + at,
            name=thread.name,
            frames=tuple(map(frame, thread.frames)),
            holds_gil=False,
            active=False,
        )
        for at, thread in enumerate(stacks.threads)
    )
    gone = stacks.exit_code is not None
    return a_rank(rank).but(
        frames=tuple(map(frame, stacks.main)),
        others=others,
        state=None if gone else ("R" if stacks.busy else stacks.state),
        wchan=stacks.wchan,
        cpu=1.0 if stacks.busy else 0.0,
        active=stacks.busy,
        exit=ExitFacts(stacks.exit_code) if gone else None,
        step=5 if report.trained else 0,
        reason=None if stacks.main else "its process has ended" if gone else "blocked in the kernel",
    )


def diagnosis_of(report: Report) -> Diagnosis:
    ranks = [built(rank, stacks, report) for stacks in report.stacks for rank in members(stacks.ranks)]
    assert sorted(rank.rank for rank in ranks) == list(range(report.ranks))
    lines = {int(number): text for number, text in report.lines.items()}
    return judge_still(*ranks, lines=lines, silent=600.0)


def allowed(truth: str | list[str]) -> list[str]:
    return [truth] if isinstance(truth, str) else truth


REPORTS = sorted(DATA.glob("*.toml"))


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_a_reported_hang_is_explained_as_its_report_tells_it(path: Path) -> None:
    report = read(path)
    found = diagnosis_of(report)
    told = f"{found.verdict} {found.kind} {found.culprits} rule {found.rule}: {found.summary}"
    assert found.verdict in allowed(report.truth.verdict), told
    assert list(found.culprits) == report.truth.culprits, told
    if report.truth.kind is not None:
        assert found.kind in allowed(report.truth.kind), told
    if report.truth.location is not None:
        place = found.location
        assert place is not None, told
        assert f"{place.function} ({place.file})" == report.truth.location, told
    if report.truth.suspects:
        assert [one.rank for one in found.ranks if one.state == "suspected"] == report.truth.suspects, told


def test_there_are_reports_of_every_library_with_their_address() -> None:
    sources = [read(path).source for path in REPORTS]
    assert len(sources) >= 25
    assert all(source.startswith("https://github.com/") for source in sources)
    for name in (
        "DeepSpeed",
        "Megatron",
        "vllm",
        "sglang",
        "nccl",
        "Lightning",
        "accelerate",
        "pytorch/pytorch",
    ):
        assert any(name.lower() in source.lower() for source in sources), name


def test_what_the_catalogue_does_not_know_of_a_report_is_counted() -> None:
    report = Report(
        source="",
        ranks=2,
        truth=Truth("Unknown"),
        stacks=[
            Stacks("0", ["spin (acme_runtime/site-packages/acme/comm.py:3)", "main (train.py:9)"]),
            Stacks("1", ["all_reduce (torch/distributed/distributed_c10d.py:1)", "main (train.py:8)"]),
        ],
    )
    unknown = diagnosis_of(report).unknown_frames
    assert [(one.function, one.file, one.count, one.ranks) for one in unknown] == [
        ("spin", "acme/comm.py", 1, "0")
    ]
    assert load_catalogue().label(frame("spin (acme/comm.py:3)")) is None
