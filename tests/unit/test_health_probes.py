"""What the endpoints answer, by table, with the time as an argument."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest

from rankscope.agent.health.model import (
    Check,
    HealthStatus,
    PageView,
    Phase,
    PhaseRecord,
    Stamps,
    Suspicion,
    WorkerHealth,
)
from rankscope.agent.health.probes import agent_gone, health, is_alive, livez, readyz

TIMEOUT = 60.0
NS = 1_000_000_000
NOW = 10_000.0
NOW_NS = int(NOW * NS)


def a_worker(rank: int, **changes: object) -> WorkerHealth:
    worker = WorkerHealth(rank=rank, local_rank=rank, pid=100 + rank, state="running")
    return msgspec.structs.replace(worker, **changes)


def a_status(*workers: WorkerHealth, **changes: object) -> HealthStatus:
    status = HealthStatus(job="run-7", node="host-a", pid=1, workers=workers)
    return msgspec.structs.replace(status, **changes)


def a_view(
    phase: Phase = "running",
    *,
    main_age: float | None = 1.0,
    watch_age: float | None = 1.0,
    deadline_in: float | None = None,
    created_age: float = 5000.0,
    status: HealthStatus | None = None,
) -> PageView:
    def stamp(age: float | None) -> int:
        return 0 if age is None else NOW_NS - int(age * NS)

    return PageView(
        stamps=Stamps(stamp(main_age), stamp(watch_age), stamp(created_age)),
        phase=PhaseRecord(phase, None if deadline_in is None else NOW + deadline_in),
        status=status,
        published_ns=stamp(1.0),
    )


def checks_of(view: PageView) -> dict[str, Any]:
    checks: dict[str, list[Any]] = json.loads(json.dumps(health(view, NOW_NS, TIMEOUT).body))["checks"]
    return {name: each[0] for name, each in checks.items()}


ALIVE = [
    ("both loops turned", a_view()),
    ("only the monitor loop turned", a_view(watch_age=900)),
    ("only the watch loop turned", a_view(main_age=900)),
    ("exactly at the limit", a_view(main_age=60, watch_age=None)),
    (
        "never turned, but the page is young",
        a_view("starting", main_age=None, watch_age=None, created_age=59),
    ),
    ("a stamp from a moment ahead", a_view(main_age=-1)),
    ("rendezvous before its deadline", a_view("rendezvous", main_age=500, watch_age=500, deadline_in=100)),
    ("rendezvous within the grace", a_view("rendezvous", main_age=900, watch_age=900, deadline_in=-59)),
    ("exit barrier before its deadline", a_view("exit_barrier", main_age=250, watch_age=250, deadline_in=50)),
    ("restart before its deadline", a_view("restarting", main_age=250, watch_age=250, deadline_in=50)),
    ("past the deadline, but watched", a_view("rendezvous", main_age=900, watch_age=1, deadline_in=-500)),
]
DEAD = [
    ("both loops stand", a_view(main_age=61, watch_age=75)),
    ("never turned", a_view("starting", main_age=None, watch_age=None, created_age=61)),
    ("an old stamp counts, not the young page", a_view(main_age=900, watch_age=None, created_age=1)),
    (
        "rendezvous past its deadline and the grace",
        a_view("rendezvous", main_age=900, watch_age=900, deadline_in=-61),
    ),
    ("exit barrier past both", a_view("exit_barrier", main_age=900, watch_age=900, deadline_in=-61)),
    ("running has no deadline", a_view("running", main_age=61, watch_age=61)),
]


def test_a_worker_shows_its_step_once_it_has_one_and_never_where_it_is() -> None:
    workers = a_worker(0, where="load_batch (train.py:8)"), a_worker(1, step=0)
    checks = checks_of(a_view(status=a_status(*workers)))
    assert "step" not in checks["worker:0"]
    assert checks["worker:1"]["step"] == 0
    assert "load_batch" not in str(checks)


@pytest.mark.parametrize("view", [view for _, view in ALIVE], ids=[name for name, _ in ALIVE])
def test_the_agent_lives_when(view: PageView) -> None:
    answer = livez(view, NOW_NS, TIMEOUT)
    assert answer.code == 200
    assert answer.body == {"status": "pass", "phase": view.phase.name}


@pytest.mark.parametrize("view", [view for _, view in DEAD], ids=[name for name, _ in DEAD])
def test_the_agent_is_dead_when(view: PageView) -> None:
    answer = livez(view, NOW_NS, TIMEOUT)
    assert answer.code == 503
    assert answer.body["status"] == "fail"
    assert view.phase.name in str(answer.body["output"])
    assert readyz(view, NOW_NS, TIMEOUT).code == 503
    assert health(view, NOW_NS, TIMEOUT).code == 503


PHASES = get_args(Phase)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("has_deadline", [True, False], ids=["with a deadline", "without"])
def test_each_phase_lives_until_its_own_end_and_the_grace_and_no_moment_longer(
    phase: Phase, *, has_deadline: bool
) -> None:
    """Both loops stand since the phase began, as when the main thread waits in C++ and nobody watches."""
    begun, deadline = NOW, NOW + 300.0 if has_deadline else None
    stamp = int(begun * NS)
    view = PageView(Stamps(stamp, stamp, stamp), PhaseRecord(phase, deadline), None, stamp)
    end = (deadline or begun) + TIMEOUT
    for moment in (begun, begun + TIMEOUT, end - 1.0, end):
        assert livez(view, int(moment * NS), TIMEOUT).code == 200, moment
    for moment in (end + 0.001, end + 3600.0):
        answer = livez(view, int(moment * NS), TIMEOUT)
        assert answer.code == 503, moment
        assert phase in str(answer.body["output"])
        assert ("past its deadline" in str(answer.body["output"])) == has_deadline
        assert not is_alive(view, int(moment * NS), TIMEOUT)


@pytest.mark.parametrize("phase", PHASES)
def test_a_watch_loop_that_turns_keeps_every_phase_alive_for_ever(phase: Phase) -> None:
    """A frozen store holds all main threads at once: Kubernetes must not kill the job for that."""
    view = a_view(phase, main_age=90_000, watch_age=1, deadline_in=-80_000)
    assert livez(view, NOW_NS, TIMEOUT).code == 200


@pytest.mark.parametrize("phase", PHASES)
def test_a_hung_rank_never_fails_liveness_in_any_phase(phase: Phase) -> None:
    hung = a_status(a_worker(0, state="hung"), suspected=Suspicion("no progress for 30 s", (0,)))
    assert livez(a_view(phase, status=hung), NOW_NS, TIMEOUT).code == 200
    assert readyz(a_view(phase, status=hung), NOW_NS, TIMEOUT).code == 503


@pytest.mark.parametrize(("age", "status"), [(0.0, "pass"), (10.0, "pass"), (11.0, "warn"), (59.0, "warn")])
def test_a_watch_loop_that_is_late_is_told_long_before_the_agent_counts_as_dead(
    age: float, status: str
) -> None:
    view = a_view(watch_age=age, status=a_status(a_worker(0)))
    found = checks_of(view)["watchdog:loop"]
    assert (found["status"], found["observedValue"], found["observedUnit"]) == (status, age, "s")
    assert ("hangs are not noticed" in found.get("output", "")) == (status == "warn")
    assert livez(view, NOW_NS, TIMEOUT).code == 200


def test_a_page_without_a_watch_loop_says_nothing_of_one() -> None:
    assert "watchdog:loop" not in checks_of(a_view(watch_age=None))


def test_a_dead_agent_says_for_how_long_its_loops_have_stood() -> None:
    output = livez(a_view(main_age=300, watch_age=75), NOW_NS, TIMEOUT).body["output"]
    expected = "neither the monitor loop nor the watch loop has turned for 75 s (limit 60 s); phase running"
    assert output == expected


def test_a_hung_worker_fails_readiness_and_health_but_never_liveness() -> None:
    suspicion = Suspicion("no progress for 30 s", (2, 3, 5))
    view = a_view(status=a_status(a_worker(2, state="hung"), suspected=suspicion))
    assert livez(view, NOW_NS, TIMEOUT).code == 200
    ready = readyz(view, NOW_NS, TIMEOUT)
    assert (ready.code, ready.body["output"]) == (503, "suspected ranks 2-3,5: no progress for 30 s")
    whole = health(view, NOW_NS, TIMEOUT)
    assert (whole.code, whole.body["status"]) == (503, "fail")


@pytest.mark.parametrize(
    "phase", ["starting", "rendezvous", "restarting", "stopping", "exit_barrier", "ended"]
)
def test_readiness_names_the_phase_in_which_no_workers_run(phase: Phase) -> None:
    answer = readyz(a_view(phase, status=a_status(a_worker(0))), NOW_NS, TIMEOUT)
    assert (answer.code, answer.body["output"]) == (503, f"workers do not run: phase {phase}")


def test_ready_means_workers_run_and_none_is_suspected() -> None:
    assert readyz(a_view(status=a_status(a_worker(0), a_worker(1))), NOW_NS, TIMEOUT).code == 200


def test_a_worker_that_is_done_does_not_end_readiness_but_the_last_one_does() -> None:
    done = a_worker(0, state="exited")
    assert readyz(a_view(status=a_status(done, a_worker(1))), NOW_NS, TIMEOUT).code == 200
    answer = readyz(a_view(status=a_status(done)), NOW_NS, TIMEOUT)
    assert (answer.code, answer.body["output"]) == (503, "all workers have exited")


def test_a_suspected_worker_without_a_job_wide_suspicion_is_named() -> None:
    view = a_view(status=a_status(a_worker(0), a_worker(1, state="suspected")))
    assert readyz(view, NOW_NS, TIMEOUT).body["output"] == "ranks 1 are suspected"


def test_an_agent_that_has_not_reported_is_not_ready() -> None:
    assert readyz(a_view(), NOW_NS, TIMEOUT).code == 503


@pytest.mark.parametrize(
    ("view", "code", "status"),
    [
        (a_view("starting"), 200, "pass"),
        (a_view(status=a_status(a_worker(0), a_worker(1, state="waiting"))), 200, "pass"),
        (a_view(status=a_status(a_worker(0), a_worker(1, state="slow"))), 200, "warn"),
        (a_view(status=a_status(a_worker(0, state="exited"))), 200, "warn"),
        (a_view("exit_barrier", status=a_status(a_worker(0, state="exited"))), 200, "pass"),
        (a_view(status=a_status(suspected=Suspicion("why"))), 200, "warn"),
        (a_view("restarting", status=a_status()), 200, "warn"),
        (a_view(status=a_status(checks={"disk": Check("warn", "97 % full")})), 200, "warn"),
        (a_view(status=a_status(checks={"gpu": Check("pass", "not present")})), 200, "pass"),
        (a_view(status=a_status(a_worker(0, state="slow"), checks={"store": Check("fail")})), 503, "fail"),
    ],
)
def test_health_is_as_bad_as_its_worst_check(view: PageView, code: int, status: str) -> None:
    answer = health(view, NOW_NS, TIMEOUT)
    assert (answer.code, answer.body["status"]) == (code, status)


def test_a_workers_age_goes_on_growing_after_the_agent_last_reported() -> None:
    worker = a_worker(3, step=41, seconds_since_progress=2.5)
    found = checks_of(a_view(status=a_status(worker)))["worker:3"]
    assert found["observedValue"] == 3.5
    assert (found["observedUnit"], found["step"], found["pid"]) == ("s", 41, 103)


def test_health_shows_one_short_line_without_paths() -> None:
    checks = {
        "store": Check("warn", "slow share /mnt/jobs/run 7\nTraceback: /usr/lib/x.py"),
        "disk": Check("pass"),
    }
    suspicion = Suspicion("stuck in load_batch (~/train.py:8), 1/2 ranks; see '/tmp/a b'")
    view = a_view(status=a_status(checks=checks, suspected=suspicion))
    text = json.dumps(health(view, NOW_NS, TIMEOUT).body)
    assert "slow share <path> 7" in text
    assert "load_batch (<path>:8), 1/2 ranks" in text
    for hidden in ("/mnt", "/usr", "/tmp", "train.py", "Traceback"):
        assert hidden not in text
    assert "output" not in checks_of(view)["disk"]


def test_an_agent_that_has_ended_fails_everything() -> None:
    answer = agent_gone(4711)
    assert answer.code == 503
    assert "4711" in str(answer.body["output"])
