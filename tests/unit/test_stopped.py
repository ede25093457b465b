"""What a job that was stopped from outside is called: no false alarm, and nothing of the evidence lost."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.classify_factory import a_job, a_rank, judge, judge_still

from rankscope.agent.ending.stopped import Standing, left_behind, stopped
from rankscope.diag.model import Diagnosis, Evidence, ExitFacts, Location, RankFinding, Verdict

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


def test_a_job_that_nobody_saw_and_that_never_moved_is_not_healthy() -> None:
    found = stopped(
        replace(HANG, verdict="Unknown", observed="", culprits=(), rule="none"),
        standing="training", why="SIGTERM", silent=0.7, ever_moved=False,
    )  # fmt: skip
    assert (found.verdict, found.severity, found.confidence) == ("Unknown", "info", "low")
    assert (found.culprits, found.location) == ((), None)
    assert found.summary == (
        "stopped by SIGTERM 0.7 s after the last sign of life: no rank could be observed"
        " and no progress had been seen yet"
    )


def test_a_job_that_moved_is_healthy_though_nobody_could_look_at_it_in_time() -> None:
    found = stopped(
        replace(HANG, observed=""), standing="training", why="SIGTERM", silent=0.7, ever_moved=True
    )
    assert (found.verdict, found.confidence) == ("Healthy", "medium")


UNSEEN = st.builds(
    lambda **about: about,
    state=st.sampled_from(["S", "R", "D", "T", None]),
    cpu=st.sampled_from([0.0, 0.5, 4.0]),
    switches=st.sampled_from([0.0, 100.0]),
    io=st.sampled_from([0.0, 1e6]),
    beat=st.sampled_from([None, 0.1, 60.0]),
    step=st.sampled_from([None, 0]),
    exit=st.sampled_from([None, ExitFacts(code=None), ExitFacts(code=1), ExitFacts(code=-15)]),
    wchan=st.sampled_from([None, "futex_do_wait", "0"]),
)
"""What can be known of a rank whose stack nobody read and that never moved."""


@given(
    known=st.lists(UNSEEN, min_size=1, max_size=3),
    paired=st.booleans(),
    standing=st.sampled_from(get_args(Standing)),
    silent=st.floats(0, 100),
)
def test_no_job_is_healthy_of_which_nobody_was_observed_and_no_progress_is_known(
    known: list[dict[str, object]], *, paired: bool, standing: Standing, silent: float
) -> None:
    ranks = [
        a_rank(rank).unseen("the capture ran out of time").but(**about) for rank, about in enumerate(known)
    ]
    found = judge_still(*ranks) if paired else judge(a_job(*ranks))
    assert found.observed == ""
    assert found.verdict != "Healthy"
    assert (
        stopped(found, standing=standing, why="SIGTERM", silent=silent, ever_moved=False).verdict != "Healthy"
    )
    assert left_behind(found, why="nobody was there").verdict != "Healthy"


def test_under_suspicion_the_verdict_stands() -> None:
    found = call("suspected")
    assert (found.verdict, found.culprits, found.severity) == ("RankNonCommHang", (1,), "warning")
    assert found.summary == f"{HANG.summary}; then stopped by SIGTERM"


# ---- workers that outlived their agent --------------------------------------------------------------------


def test_one_look_at_workers_that_nobody_followed_is_no_more_than_a_guess() -> None:
    found = left_behind(HANG, why="their agent was killed")
    assert (found.verdict, found.severity, found.confidence) == ("Unknown", "info", "low")
    assert (found.culprits, found.nodes) == ((), ())
    assert found.summary == (
        "left behind, their agent was killed, no telling whether it hangs;"
        " if it was one: rank 1 is stuck in step (train.py:5)"
    )
    assert found.evidence == (*HANG.evidence, Evidence("watch", "one look, no progress was followed"))
    assert [(rank.state, rank.role, rank.rank_class) for rank in found.ranks] == [
        ("waiting", "victim", None),
        ("suspected", "bystander", None),
        ("exited", "bystander", None),
    ]


@pytest.mark.parametrize("verdict", ["Healthy", "Unknown", "Exited"])
def test_what_says_no_hang_is_kept_and_says_whose_workers_they_were(verdict: Verdict) -> None:
    said = replace(HANG, verdict=verdict)
    found = left_behind(said, why="their agent was killed")
    assert found == replace(said, summary=f"left behind, their agent was killed: {HANG.summary}")
