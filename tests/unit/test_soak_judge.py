"""A soak in which something is wrong is told to be wrong, in that line and in no other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import msgspec
import pytest
from tests import soak_factory
from tests.soak.judge import ALARMS, judged
from tests.soak.samples import Captures, Ending, LastCount, Observed, RankLook, Requests, Sample, Streams
from tests.soak_factory import gauges, observed, with_gauges, with_samples

replace: Final = msgspec.structs.replace
KIB: Final = 1024


def wrong(seen: Observed) -> list[str]:
    return [line.name for line in judged(seen) if not line.ok]


def found(seen: Observed, name: str) -> str:
    (line,) = [line for line in judged(seen) if line.name == name]
    return line.found


def test_a_soak_in_which_nothing_is_wrong_is_right_in_every_line() -> None:
    assert wrong(observed()) == []
    assert len(judged(observed())) > 25


GROWTH: Final[dict[str, tuple[Observed, list[str]]]] = {
    "the health server leaks 60 KiB a second": (
        with_gauges("health server", lambda second: gauges(2, mib=50 + second * 0.06)),
        ["health server: memory"],
    ),
    "the agent leaks 120 KiB a second": (
        with_gauges("agent", lambda second: gauges(1, mib=240 + second * 0.12)),
        ["agent: memory", "agent: anonymous memory"],
    ),
    "the health server keeps a descriptor every ten seconds": (
        with_gauges("health server", lambda second: gauges(2, descriptors=20 + second // 10)),
        ["health server: descriptors"],
    ),
    "the agent keeps a thread every ten seconds": (
        with_gauges("agent", lambda second: gauges(1, mib=240, threads=11 + second // 10)),
        ["agent: threads"],
    ),
    "one of eight workers leaks": (
        with_gauges("worker 3", lambda second: gauges(13, mib=50 + second * 0.06)),
        ["worker 3 less the control: memory"],
    ),
    "files are left in the run-time folder": (
        with_samples(lambda second, one: replace(one, files=30 + second // 8)),
        ["files in the run-time and temporary folders"],
    ),
    "captures do not end": (
        with_samples(lambda second, one: replace(one, passing=second // 8)),
        ["other processes of the agent"],
    ),
    "zombies": (
        with_samples(lambda _second, one: replace(one, zombies=1)),
        ["children that nobody asked after"],
    ),
    "the health server is started again": (
        with_gauges("health server", lambda second: gauges(2 if second < 40 else 77)),
        ["processes"],
    ),
    "a worker ends": (
        with_samples(
            lambda second, one: replace(
                one, workers={rank: one for rank, one in one.workers.items() if rank != 5 or second < 40}
            )
        ),
        ["processes"],
    ),
}


@pytest.mark.parametrize(("seen", "names"), GROWTH.values(), ids=GROWTH)
def test_what_grows_or_goes_is_told(seen: Observed, names: list[str]) -> None:
    assert wrong(seen) == names


def test_what_all_ranks_grow_by_is_the_scripts_and_not_ours() -> None:
    def grown(second: int, one: Sample) -> Sample:
        more = second * 0.2
        return replace(
            one,
            workers={rank: gauges(each.pid, mib=50 + more) for rank, each in one.workers.items()},
            control={rank: gauges(each.pid, mib=40 + more) for rank, each in one.control.items()},
        )

    assert wrong(with_samples(grown)) == []


def test_growth_before_the_warm_up_is_over_does_not_count() -> None:
    seen = with_gauges("agent", lambda second: gauges(1, mib=200 + 2 * min(second, 20)))
    assert wrong(seen) == []
    assert wrong(replace(seen, warm_up=0.0)) != []


def _one_look(change: Callable[[RankLook], RankLook]) -> Observed:
    def changed(second: int, one: Sample) -> Sample:
        return replace(one, steps={**one.steps, 2: change(one.steps[2])}) if second == 30 else one

    return with_samples(changed)


@pytest.mark.parametrize("page", [-2, 2], ids=["too few", "too many"])
def test_a_step_that_the_page_misses_or_makes_up_is_told(page: int) -> None:
    seen = _one_look(lambda look: replace(look, page=look.before + page if page < 0 else look.after + page))
    assert wrong(seen) == ["steps on the page while ranks train"]


def test_a_rank_that_ends_with_another_count_than_the_page_is_told() -> None:
    seen = replace(observed(), last_counts=[LastCount(0, 2_500, 2_499)])
    assert wrong(seen) == ["steps on the page at the end"]
    assert wrong(replace(observed(), last_counts=[])) == ["steps on the page at the end"]


def test_a_probe_whose_thread_stands_still_is_told() -> None:
    assert wrong(_one_look(lambda look: replace(look, beat_age=31.0))) == ["oldest beat"]


@pytest.mark.parametrize("name", ALARMS)
def test_any_alarm_in_a_healthy_job_is_a_false_one(name: str) -> None:
    seen = observed()
    assert wrong(replace(seen, events={**seen.events, name: 1})) == ["alarms"]


SEEN: Final = observed()
OTHERS: Final[dict[str, tuple[Observed, str]]] = {
    "a capture finds a hang": (
        replace(SEEN, captures=Captures("x", {"Healthy": 5, "RankCommHang": 1}, [])),
        "captures",
    ),
    "a capture fails": (replace(SEEN, captures=Captures("x", {"Healthy": 5}, ["500: "])), "captures"),
    "most captures are put off": (replace(SEEN, captures=Captures("x", {"Healthy": 3}, [], 4)), "captures"),
    "no capture is made": (replace(SEEN, captures=Captures("x", {}, [])), "captures"),
    "a probe says that it is not ready": (
        replace(SEEN, requests=Requests(10, 1.0, {"/readyz 503": 1, "/livez 200": 9}, 0, 0.0, 0.0)),
        "requests on the open paths",
    ),
    "a request is lost": (
        replace(SEEN, requests=Requests(10, 1.0, {"/livez 200": 9}, 1, 0.0, math.inf)),
        "requests on the open paths",
    ),
    "no request is sent": (
        replace(SEEN, requests=Requests(0, 1.0, {}, 0, math.inf, math.inf)),
        "requests on the open paths",
    ),
    "a path is missing": (replace(SEEN, missing=["/metrics"]), "open paths"),
    "a stream is refused": (replace(SEEN, streams=Streams(3, 9, ["HTTP/1.1 503"])), "event streams"),
    "streams say nothing": (replace(SEEN, streams=Streams(3, 0, [])), "event streams"),
    "a message is not recorded": (
        replace(SEEN, notices=replace(SEEN.notices, recorded=29)),
        "messages and their notices",
    ),
    "a notice is told twice": (
        replace(SEEN, notices=replace(SEEN.notices, told=31)),
        "messages and their notices",
    ),
    "the job fails": (replace(SEEN, ending=Ending(1, 0, [], [], [])), "exit codes"),
    "a process is left": (replace(SEEN, ending=Ending(0, 0, ["py-spy"], [], [])), "processes left"),
    "a file is left": (replace(SEEN, ending=Ending(0, 0, [], ["run/x"], [])), "files left"),
    "it tells of trouble": (
        replace(SEEN, ending=Ending(0, 0, [], [], ["Traceback (most"])),
        "troubles it told of",
    ),
}


@pytest.mark.parametrize(("seen", "name"), OTHERS.values(), ids=OTHERS)
def test_everything_else_that_goes_wrong_is_told_in_its_line(seen: Observed, name: str) -> None:
    assert wrong(seen) == [name]


def test_a_capture_that_a_busy_agent_puts_off_is_no_failure() -> None:
    seen = replace(SEEN, captures=Captures("x", {"Healthy": 3}, [], 2))
    assert wrong(seen) == []
    assert found(seen, "captures") == "3 by x: 3 Healthy; 2 put off"


def test_an_agent_without_event_streams_is_said_to_have_none() -> None:
    assert found(replace(SEEN, streams=Streams()), "event streams") == "this agent has none"


def _slower(share: float, noise: float = 0.0) -> Observed:
    """Under ``diag run`` fewer steps are made in the same seconds."""

    def changed(second: int, one: Sample) -> Sample:
        elapsed = second / (1 + share + noise * (second % 3 - 1))
        return replace(one, steps={rank: soak_factory.look(elapsed) for rank in one.steps})

    return with_samples(changed)


def test_training_that_is_slower_than_under_torchrun_is_told() -> None:
    assert wrong(_slower(0.25)) == ["a step, against torchrun"]
    assert found(_slower(0.25), "a step, against torchrun") == "+25.0 [+25.0, +25.0] %"


def test_a_long_soak_tells_less() -> None:
    assert wrong(_slower(0.04)) == []
    assert wrong(replace(_slower(0.04), is_long=True)) == ["a step, against torchrun"]
    assert wrong(replace(_slower(0.005), is_long=True)) == []


def test_a_difference_that_noise_hides_is_no_difference() -> None:
    assert wrong(_slower(0.0, noise=0.0005)) == []


def test_what_a_step_takes_without_its_sleep_is_shown_and_has_no_bar() -> None:
    def changed(second: int, one: Sample) -> Sample:
        return replace(one, steps={rank: soak_factory.look(second, step_ms=1.5) for rank in one.steps})

    seen = with_samples(changed)
    assert wrong(seen) == []
    name = "a step without its sleep"
    assert found(seen, name) == "+50.0 [+50.0, +50.0] %: 1.50 ms, torchrun's 1.00 ms"


def test_ranks_that_make_no_step_are_no_measurement() -> None:
    def stands(_second: int, one: Sample) -> Sample:
        return replace(one, steps=soak_factory.sample(0).steps)

    assert wrong(with_samples(stands)) == ["a step, against torchrun"]


def test_too_few_samples_are_no_soak() -> None:
    seen = observed()
    assert wrong(replace(seen, samples=seen.samples[:30])) == ["samples"]
