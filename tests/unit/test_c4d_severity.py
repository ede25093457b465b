"""With C4D's numbers a hang is as serious as it has lasted; without, as its rule says."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rankscope.agent.evidence.c4d_severity import SeverityTimes, with_severity
from rankscope.agent.evidence.taker import EvidenceTaker
from rankscope.agent.records.folder import Records
from rankscope.diag.model import Diagnosis, Severity, Verdict
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder

TIMES = SeverityTimes.of({"C4D_HANG_TIMEOUT": "20", "C4D_HANG_TIMES": "3"})


def a_hang(verdict: Verdict = "RankCommHang", severity: Severity = "error") -> Diagnosis:
    return Diagnosis(
        job="run-7",
        time="2026-11-30T08:00:00.000Z",
        world_size=2,
        observed="0-1",
        verdict=verdict,
        kind="network",
        severity=severity,
        confidence="high",
        culprits=(1,),
        nodes=("vm",),
        summary="the link between ranks 0 and 1 is dead",
        location=None,
        rule="5",
        incident="20261130T080000Z-ab12",
    )


@pytest.mark.parametrize(
    ("verdict", "silent", "severity"),
    [
        ("RankCommHang", 19.0, "info"),
        ("RankCommHang", 20.0, "warning"),
        ("RankCommHang", 59.9, "warning"),
        ("RankCommHang", 60.0, "error"),
        ("RankNonCommHang", 19.0, "info"),
        ("RankNonCommHang", 600.0, "warning"),
        ("Exited", 600.0, "warning"),
        ("Unknown", 600.0, "warning"),
    ],
)
def test_a_hang_grows_more_serious_with_the_time_it_lasts(
    verdict: Verdict, silent: float, severity: Severity
) -> None:
    assert with_severity(a_hang(verdict, "warning"), silent, TIMES).severity == severity


def test_what_may_be_honest_work_and_what_nobody_watched_stays_as_it_is() -> None:
    assert with_severity(a_hang(severity="info"), 600.0, TIMES).severity == "info"
    assert with_severity(a_hang(), None, TIMES) == a_hang()


def test_without_c4ds_numbers_nothing_changes_and_one_number_has_the_others_default() -> None:
    assert SeverityTimes.of({"C4D_LOG": "x"}) is None
    assert with_severity(a_hang(), 1.0, None) == a_hang()
    assert SeverityTimes.of({"C4D_HANG_TIMES": "6"}) == SeverityTimes(10.0, 60.0)
    assert SeverityTimes.of({"C4D_HANG_TIMEOUT": "30000000"}) == SeverityTimes(30.0, 540.0)


def test_a_hang_that_lasts_is_stored_with_its_new_severity(tmp_path: Path) -> None:
    records = Records(JobFolder(tmp_path / "run-7"), lambda _line: None)
    taker = EvidenceTaker("run-7", records, severities=TIMES)
    early = msgspec.structs.replace(a_hang(), severity="warning")
    records.diagnosis(early.incident or "", early)
    late = taker.lasting(early, 60.0)
    assert late.severity == "error"
    assert IncidentFolder(records.folder.incidents / (early.incident or "")).diagnosis() == late
    assert list(records.incidents) == [late]
    assert taker.lasting(early, 30.0) == early
    records.close()
