"""Whatever happens to a cycle, in whatever order it is told: the stages add up to the time."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rankscope.diag.history.stages import CycleClock, Span
from rankscope.diag.store.launches import STAGES

TIMES = st.floats(-1e4, 1e6, allow_nan=False)
CALLS = st.lists(
    st.tuples(st.sampled_from([*STAGES, "progressed", "cleared", "recovered", "end"]), TIMES), max_size=60
)


def spans_of(calls: list[tuple[str, float]]) -> list[Span]:
    clock = CycleClock()
    spans: list[Span | None] = []
    for name, at in calls:
        match name:
            case "progressed":
                clock.progressed(at)
            case "cleared":
                clock.cleared()
            case "recovered":
                clock.recovered(at)
            case "end":
                spans.append(clock.end(at))
            case _:
                spans.append(clock.enter(next(one for one in STAGES if one == name), at))
    spans.append(clock.end(2e6))
    return [span for span in spans if span is not None]


@given(CALLS)
def test_the_stages_add_up_and_none_is_negative(calls: list[tuple[str, float]]) -> None:
    for span in spans_of(calls):
        assert set(span.milliseconds) == set(STAGES)
        assert min(span.milliseconds.values()) >= 0
        assert sum(span.milliseconds.values()) == span.ended_ms - span.began_ms
        assert round(sum(span.seconds.values()), 3) == round(span.duration, 3)


@given(CALLS)
def test_cycles_without_an_end_between_them_leave_no_gap_and_never_overlap(
    calls: list[tuple[str, float]],
) -> None:
    ordered = sorted(((name, at) for name, at in calls if name != "end"), key=lambda call: call[1])
    spans = spans_of(ordered)
    for before, after in pairwise(spans):
        assert before.ended_ms == after.began_ms
    if spans:
        first = next(at for name, at in ordered if name in STAGES)
        assert spans[0].began_ms == round(first * 1000)
        assert spans[-1].ended_ms == 2_000_000_000


@given(CALLS)
def test_training_is_never_counted_before_the_first_progress(calls: list[tuple[str, float]]) -> None:
    silent = [(name, at) for name, at in calls if name not in ("progressed", "training", "recovered")]
    assert all(span.milliseconds["training"] == 0 for span in spans_of(silent))
