"""The counters, whatever a job goes through and wherever its agent is killed: against a count by hand."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.history_factory import NodeLogBuilder, a_failure

from rankscope.agent.records.past import Past
from rankscope.diag.store.events import parse_log

Step = tuple[str, int]
WHAT = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), st.integers(0, 3)),
        st.tuples(st.just("restart"), st.integers(0, 1)),
        st.tuples(st.just("train"), st.integers(1, 9)),
        st.tuples(st.just("launch"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("end"), st.sampled_from([0, 1, 75, 93])),
    ),
    max_size=40,
)


class ByHand:
    """What the contract says, the long way: every rule looks at all that has happened."""

    def __init__(self) -> None:
        self.happened: list[Step] = []

    def since(self, *ends: int) -> list[Step]:
        """What has happened since the last end of such a code."""
        places = [at for at, one in enumerate(self.happened) if one[0] == "end" and one[1] in ends]
        return self.happened[places[-1] + 1 :] if places else self.happened

    @property
    def of_the_job(self) -> list[Step]:
        return self.since(0, 1, 93)

    @property
    def restarts(self) -> int:
        return self.since(0, 1, 75, 93).count(("restart", 1))

    def errors(self, rank: int) -> int:
        return self.of_the_job.count(("fail", rank))

    @property
    def failed(self) -> int:
        return len({rank for what, rank in self.of_the_job if what == "fail"})

    @property
    def without_progress(self) -> int:
        count, launched = 0, False
        for what, value in self.of_the_job:
            if what == "launch":
                launched = True
            elif what == "train":
                count = 0
            elif what == "restart" and not value:
                launched = False
            elif what in ("restart", "kill", "end"):
                count += launched
                launched = False
        return count


def play(steps: list[Step]) -> tuple[NodeLogBuilder, ByHand]:
    log, by_hand = NodeLogBuilder().agent(), ByHand()
    for what, value in steps:
        match what:
            case "fail":
                log.fails(value)
            case "restart":
                log.restart_begins(counted=bool(value))
            case "train":
                log.trains(steps=value)
            case "launch":
                log.launch()
            case "kill":
                log.agent()
            case _:
                log.ends(value).agent()
        by_hand.happened.append((what, value))
    return log, by_hand


def check(past: Past, by_hand: ByHand) -> None:
    history = past.history(allowed=3, workers=4)
    assert history.restarts_used == by_hand.restarts
    assert history.failed_workers == by_hand.failed
    assert history.without_progress == by_hand.without_progress
    for rank in range(4):
        failure = a_failure(rank)
        assert past.same_errors(failure) == max(1, by_hand.errors(rank))
        of_worker = past.worker_history(rank, failure, allowed=3, workers=4)
        assert of_worker.same_errors == max(1, by_hand.errors(rank))


@given(WHAT)
def test_the_counters_are_what_a_count_by_hand_gives(steps: list[Step]) -> None:
    log, by_hand = play(steps)
    check(Past.of(log.events), by_hand)


@given(WHAT, st.data())
def test_a_kill_anywhere_loses_nothing_that_is_in_the_log_and_counts_nothing_twice(
    steps: list[Step], data: st.DataObject
) -> None:
    """The log as bytes: cut at any byte, with any line written twice; then an agent starts again."""
    log, _ = play(steps)
    written = [msgspec.json.encode(event) + b"\n" for event in log.events]
    twice = data.draw(st.integers(0, len(written) - 1))
    text = b"".join([*written[: twice + 1], *written[twice:]])
    cut = data.draw(st.integers(0, len(text)))
    content = parse_log(text[:cut] + b"\n")
    survived = len(content.events)
    acknowledged = text[:cut].count(b"\n")  # lines that were written whole, one of them perhaps twice
    assert acknowledged - (acknowledged > twice + 1) <= survived <= acknowledged + 1
    assert [event.id for event in content.events] == [event.id for event in log.events[:survived]]
    assert content.missing == ()
    live = Past()
    for event in log.events[:survived]:
        live.take(event)
    assert Past.of(content.events) == live
