"""The detector under any order of events: it never raises, says nothing out of turn, and can be replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.watchdog.detector import Detector
from rankscope.watchdog.limits import HangSettings
from rankscope.watchdog.observations import (
    ActDue,
    Capture,
    Captured,
    Cleared,
    Confirmed,
    CycleStarted,
    Diagnosed,
    Event,
    Instruction,
    RankObservation,
    Recovered,
    Sample,
    Sampled,
    SettingsChanged,
    Suspected,
    Tick,
    TimerExpired,
)
from rankscope.watchdog.page import GroupSeq

RANKS = 3
_limits = st.one_of(st.none(), st.just(-1.0), st.floats(1.0, 500.0))
_settings = st.builds(
    HangSettings,
    diagnose_after=st.one_of(st.none(), st.floats(1.0, 100.0)),
    act_after=st.one_of(st.none(), st.floats(1.0, 500.0)),
    exit_after=st.one_of(st.none(), st.floats(1.0, 500.0)),
)
_changes = st.fixed_dictionaries(
    {},
    optional={
        "alive": st.booleans(),
        "state": st.sampled_from("RSDTtZX"),
        "probed": st.booleans(),
        "returned": st.booleans(),
        "step": st.integers(0, 3),
        "batches": st.integers(0, 3),
        "user_step_ns": st.integers(0, 3),
        "interval": _limits,
        "stage_limit": _limits,
        "cpu_seconds": st.floats(0, 1000),
        "other_cpu_seconds": st.floats(0, 1000),
        "switches": st.integers(0, 10**6),
        "io_bytes": st.integers(0, 10**9),
        "children_cpu_seconds": st.floats(0, 1000),
        "youngest_child_born": st.one_of(st.none(), st.floats(0, 2000)),
        "log_bytes": st.integers(0, 10**9),
        "last_timer_call": st.floats(0, 2000),
        "groups": st.lists(
            st.builds(
                GroupSeq,
                name=st.sampled_from(["0", "1", ""]),
                size=st.integers(1, RANKS),
                enqueued=st.integers(-1, 3),
                completed=st.integers(-1, 3),
                members_hash=st.integers(0, 2),
            ),
            max_size=2,
        ).map(tuple),
    },
)
_some_ranks = st.frozensets(st.integers(0, RANKS))
_tick = st.tuples(
    st.just("tick"), st.floats(0.1, 5.0), st.integers(0, RANKS - 1), _changes, st.integers(1, 60)
)
_other = st.one_of(
    st.tuples(st.just("captured"), st.sampled_from("ab"), _some_ranks),
    st.tuples(st.just("sampled"), _some_ranks, _some_ranks),
    st.tuples(st.just("diagnosed"), st.booleans(), st.sampled_from(["high", "medium", "low"]), st.booleans()),
    st.tuples(st.just("timer"), st.integers(-1, RANKS)),
    st.tuples(st.just("settings"), _settings),
    st.tuples(st.just("cycle")),
)
# What jobs do: train, hang in a collective without one rank, which works or sleeps.
_spell = st.tuples(
    st.sampled_from(["train", "sleep", "work", "work"]), st.integers(0, RANKS - 1), st.integers(5, 150)
)
_story = st.lists(st.one_of(_spell, _spell, _spell, _spell, _tick, _other), min_size=2, max_size=30)
_Step = tuple[object, ...]


def _events(story: list[_Step]) -> list[Event]:
    """The story as events whose time goes on."""
    now = 1000.0
    ranks = {rank: RankObservation(rank=rank, probed=True) for rank in range(RANKS)}
    events: list[Event] = [CycleStarted(now)]
    for step in story:
        match step:
            case ("tick", float(pause), int(rank), dict(changes), int(times)):
                ranks[rank] = replace(ranks[rank], **changes)
                for _ in range(times):
                    now += pause
                    events.append(Tick(now, tuple(ranks.values())))
            case (str(what), int(rank), int(seconds)) if what in ("train", "sleep", "work"):
                if what != "train":
                    ranks = {other: _enter(one) if other != rank else one for other, one in ranks.items()}
                for _ in range(0, seconds, 2):
                    now += 2.0
                    ranks = _after(ranks, what, rank)
                    events.append(Tick(now, tuple(ranks.values())))
            case _:
                events.append(_other_event(step, now))
    return events


def _other_event(step: _Step, now: float) -> Event:
    match step:
        case ("captured", str(which), frozenset(communicating)):
            return Captured(now, "a" if which == "a" else "b", communicating)
        case ("sampled", frozenset(loops), frozenset(library)):
            return Sampled(now, loops=loops, library_loops=library)
        case ("diagnosed", bool(hang), str(confidence), bool(healthy)):
            return Diagnosed(hang=hang, confidence=confidence, healthy=healthy)
        case ("timer", int(rank)):
            return TimerExpired(now, rank, "scope")
        case ("settings", HangSettings() as changed):
            return SettingsChanged(changed)
        case _:
            return CycleStarted(now)


def _after(ranks: dict[int, RankObservation], what: str, rank: int) -> dict[int, RankObservation]:
    if what == "train":
        return {other: _step(one) for other, one in ranks.items()}
    if what == "work":
        return {**ranks, rank: replace(ranks[rank], cpu_seconds=ranks[rank].cpu_seconds + 2.0)}
    return ranks


def _enter(rank: RankObservation) -> RankObservation:
    """The rank waits in its next collective."""
    return replace(rank, groups=(GroupSeq("0", RANKS, rank.step + 1, rank.step),))


def _step(rank: RankObservation) -> RankObservation:
    step = rank.step + 1
    return replace(rank, step=step, groups=(GroupSeq("0", RANKS, step, step),))


@dataclass(frozen=True)
class _Shell:
    """How the fake shell answers what the detector asks for: at once, always the same."""

    communicating: frozenset[int]
    loops: frozenset[int]
    hang: bool
    confidence: str
    healthy: bool

    def answer(self, said: Instruction, now: float) -> Event | None:
        match said:
            case Capture():
                return Captured(now, said.which, self.communicating)
            case Sample():
                return Sampled(now, self.communicating, self.loops)
            case Confirmed():
                return Diagnosed(hang=self.hang, confidence=self.confidence, healthy=self.healthy)
            case _:
                return None


_real_shell = st.builds(
    _Shell,
    communicating=_some_ranks,
    loops=_some_ranks,
    hang=st.booleans(),
    confidence=st.sampled_from(["high", "medium", "low"]),
    healthy=st.booleans(),
)
_shell = st.one_of(_real_shell, _real_shell, st.none())
_Record = list[tuple[Event, tuple[Instruction, ...]]]


def _play(events: list[Event], limits: HangSettings, shell: _Shell | None = None) -> _Record:
    """What is said to each event, the shell's answers included."""
    detector = Detector(limits)
    record: _Record = []
    now = 1000.0
    waiting = list(reversed(events))
    while waiting:
        event = waiting.pop()
        now = event.now if isinstance(event, Tick) else now
        said = detector.handle(event)
        record.append((event, said))
        answers = [answer for one in said if shell and (answer := shell.answer(one, now)) is not None]
        waiting += reversed(answers)
    return record


@settings(max_examples=150)
@given(_story, _settings, _shell)
def test_a_replay_says_the_same(story: list[_Step], limits: HangSettings, shell: _Shell | None) -> None:
    live = _play(_events(story), limits, shell)
    assert _play([event for event, _ in live], limits) == live


@settings(max_examples=150)
@given(_story, _settings, _shell)
def test_nothing_is_said_out_of_turn(story: list[_Step], limits: HangSettings, shell: _Shell | None) -> None:
    """A second snapshot follows a suspicion, a publication the second snapshot, an action a publication."""
    turn = _Turn()
    for event, instructions in _play(_events(story), limits, shell):
        if isinstance(event, CycleStarted):
            turn = _Turn()
            assert not instructions
        if isinstance(event, Diagnosed) and event.healthy and turn.confirmed:
            turn = _Turn(published=turn.published)
        for said in instructions:
            turn = turn.after(said)


@dataclass(frozen=True)
class _Turn:
    """What may be said next."""

    suspected: bool = False
    second: bool = False
    published: bool = False
    confirmed: bool = False

    def after(self, said: Instruction) -> _Turn:
        match said:
            case Suspected():
                assert not self.suspected or self.published
                assert not said.again or self.published
                assert said.limit <= said.seconds or said.clock == "timer"
                return _Turn(suspected=True, published=self.published)
            case Capture(which="b"):
                assert self.suspected
                assert not self.second
                return replace(self, second=True)
            case Confirmed():
                assert self.second
                return replace(self, second=False, published=True, confirmed=True)
            case ActDue():
                assert self.published
            case Cleared():
                assert self.suspected
                return _Turn()
            case Recovered():
                assert self.published
                return _Turn()
            case _:
                pass
        return self


@settings(max_examples=100)
@given(_story)
def test_ranks_that_have_switched_it_off_are_never_suspected_for_their_silence(story: list[_Step]) -> None:
    off = [
        replace(event, ranks=tuple(replace(rank, interval=-1.0, stage_limit=None) for rank in event.ranks))
        if isinstance(event, Tick)
        else event
        for event in _events(story)
    ]
    said = [one for _, instructions in _play(off, HangSettings()) for one in instructions]
    assert all(one.clock == "timer" or one.again for one in said if isinstance(one, Suspected))
