"""What a job that was stopped from outside is called: no false alarm, and nothing of the evidence lost."""

from __future__ import annotations

from rankscope.agent.stopped import Standing, stopped
from rankscope.diag.model import Diagnosis, Evidence, Location, RankFinding

HANG = Diagnosis(
    job="job",
    time="t",
    world_size=3,
    observed="0-2",
    verdict="RankNonCommHang",
    kind="lock",
    severity="warning",
    confidence="medium",
    culprits=(1,),
    nodes=("host",),
    summary="rank 1 is stuck in step (train.py:5)",
    location=Location("step", "train.py", 5, rank=1),
    rule="8",
    evidence=(Evidence("py-spy", "main thread in step", 1),),
    ranks=(
        RankFinding(0, "host", 10, "waiting", "victim", None, waits_for=(1,)),
        RankFinding(1, "host", 11, "hung", "culprit", "RankNonCommHang"),
        RankFinding(2, "host", 12, "exited", "bystander"),
    ),
)


def call(standing: Standing, *, silent: float = 15.0, ever_moved: bool = True) -> Diagnosis:
    return stopped(HANG, standing=standing, why="SIGTERM", silent=silent, ever_moved=ever_moved)


def test_a_job_in_its_rhythm_is_healthy_whatever_one_look_shows() -> None:
    found = call("training", silent=0.4)
    assert (found.verdict, found.severity, found.kind, found.culprits) == ("Healthy", "none", "none", ())
    assert found.location is None
    assert found.summary == "stopped by SIGTERM 0.4 s after the last progress: no longer silent than usual"
    assert [rank.state for rank in found.ranks] == ["running", "running", "exited"]
    assert {rank.role for rank in found.ranks} == {"bystander"}


def test_a_silent_job_that_was_not_suspected_blames_nobody_and_tells_the_guess() -> None:
    found = call("silent")
    assert (found.verdict, found.severity, found.confidence) == ("Unknown", "info", "low")
    assert found.culprits == ()
    assert found.summary.startswith("stopped by SIGTERM 15 s without progress, too early to call it a hang")
    assert HANG.summary in found.summary
    assert found.evidence[0] == HANG.evidence[0]
    assert found.location == HANG.location
    assert [rank.state for rank in found.ranks] == ["waiting", "suspected", "exited"]


def test_a_job_that_never_moved_is_told_apart_from_one_that_stopped_moving() -> None:
    assert "without any progress yet" in call("silent", ever_moved=False).summary
    found = call("training", silent=1.0, ever_moved=False)
    assert (found.verdict, found.confidence) == ("Healthy", "low")
    assert (
        found.summary == "stopped by SIGTERM 1.0 s after the last sign of life: no progress had been seen yet"
    )


def test_under_suspicion_the_verdict_stands() -> None:
    found = call("suspected")
    assert (found.verdict, found.culprits, found.severity) == ("RankNonCommHang", (1,), "warning")
    assert found.summary == f"{HANG.summary}; then stopped by SIGTERM"
