"""The pulse of a job that reports no steps: three ranks, moved tick by tick, with looks that are answered."""

from __future__ import annotations

from dataclasses import replace

from rankscope.agent.beside.pulse import FIRST_LOOK, LOG_FLOOR, Pulse, Seen, Wanted
from rankscope.watchdog.observations import RankObservation

TICK = 0.5


class Job:
    """Ranks that train (CPU and switches), spin, poll, or are still."""

    def __init__(self, ranks: int = 3) -> None:
        self.pulse = Pulse()
        self.now = 100.0
        self.ranks = {rank: RankObservation(rank=rank) for rank in range(ranks)}
        self.logged: dict[int, int] = {}
        self.felt: tuple[RankObservation, ...] = ()
        self.looks: list[Wanted] = []
        self.seen: Seen | None = None

    def run(self, seconds: float, *, stirring: set[int], logs: int | None = None) -> None:
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            for rank in stirring:
                one = self.ranks[rank]
                self.ranks[rank] = replace(one, cpu_seconds=one.cpu_seconds + 0.1, switches=one.switches + 20)
            if logs is not None:
                self.logged = {**self.logged, logs: self.logged.get(logs, 0) + 10}
            self.felt = self.pulse.take(self.now, tuple(self.ranks.values()), logged=self.logged)
            wanted = self.pulse.wanted(self.now)
            if wanted is not None:
                self.looks.append(wanted)

    def answer(
        self,
        *,
        communicating: frozenset[int] = frozenset(),
        held: frozenset[int] = frozenset(),
        moving: frozenset[int] = frozenset(),
    ) -> None:
        self.pulse.seen(self.now, Seen(self.looks[-1], communicating, held, moving))

    def train(self, seconds: float = 10.0) -> None:
        self.run(seconds, stirring=set(self.ranks))

    @property
    def marks(self) -> int:
        """Signs of progress so far."""
        return self.felt[0].groups[0].completed

    @property
    def waiting(self) -> set[int]:
        return {rank.rank for rank in self.felt if rank.groups[0].enqueued > rank.groups[0].completed}


def ranks(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def test_ranks_that_all_stir_make_progress_and_are_not_looked_at() -> None:
    job = Job()
    job.train(60.0)
    assert job.marks >= 100
    assert not job.looks


def test_a_jump_of_the_kernels_count_of_waiting_for_a_core_is_no_stirring() -> None:
    job = Job()
    job.train()
    job.run(3.0, stirring=set())
    before = job.marks
    # Seen on Linux 6.18: the count rises by 10 s within 4 s.
    job.ranks = {
        rank: replace(one, cpu_seconds=one.cpu_seconds + 10.0, run_delay_seconds=one.run_delay_seconds + 10.0)
        for rank, one in job.ranks.items()
    }
    job.run(60.0, stirring=set())
    assert job.marks == before
    assert not job.looks


def test_a_rank_that_only_waits_for_a_core_stirs() -> None:
    job = Job()
    job.train()
    before = job.marks
    for _ in range(20):
        job.ranks = {
            rank: replace(
                one, cpu_seconds=one.cpu_seconds + 0.2, run_delay_seconds=one.run_delay_seconds + 0.2
            )
            for rank, one in job.ranks.items()
        }
        job.run(TICK, stirring=set())
    assert job.marks > before


def test_a_job_in_which_nobody_stirs_makes_no_progress_and_needs_no_look() -> None:
    job = Job()
    job.train()
    job.run(3.0, stirring=set())
    before = job.marks
    job.run(60.0, stirring=set())
    assert job.marks == before
    assert not job.looks  # the detector takes evidence of such a silence itself


def test_ranks_that_wait_in_communication_for_one_that_works_are_known_after_a_look() -> None:
    job = Job()
    job.train()
    job.run(FIRST_LOOK + 4.0, stirring={1})
    assert [(look.still, look.stirring) for look in job.looks] == [(ranks(0, 2), ranks(1))]
    job.answer(communicating=ranks(0, 2))
    before = job.marks
    job.run(60.0, stirring={1})
    assert job.waiting == {0, 2}
    assert job.marks == before


def test_when_who_waited_wakes_that_is_progress() -> None:
    job = Job()
    job.train()
    job.run(FIRST_LOOK + 4.0, stirring={1})
    job.answer(communicating=ranks(0, 2))
    job.run(5.0, stirring={1})
    before = job.marks
    job.run(TICK, stirring={0})
    assert job.waiting == set()
    assert job.marks == before + 1


def test_a_rank_that_nobody_waits_for_and_that_waits_for_nobody_is_left_out() -> None:
    job = Job()
    job.train()
    job.run(FIRST_LOOK + 4.0, stirring={0, 1})
    job.answer()
    before = job.marks
    job.run(60.0, stirring={0, 1})
    assert job.marks > before + 50
    assert len(job.looks) == 1


def test_a_rank_that_waits_while_the_others_go_on_among_themselves_is_left_out() -> None:
    job = Job()
    job.train()
    job.run(FIRST_LOOK + 4.0, stirring={0, 1})
    job.answer(communicating=ranks(2), moving=ranks(0))
    before = job.marks
    job.run(20.0, stirring={0, 1})
    assert job.waiting == set()
    assert job.marks > before


def test_one_that_was_left_out_still_counts_when_all_are_still() -> None:
    job = Job()
    job.train()
    job.run(FIRST_LOOK + 4.0, stirring={0, 1})
    job.answer()
    job.run(5.0, stirring={0, 1})
    job.run(3.0, stirring=set())
    before = job.marks
    job.run(60.0, stirring=set())
    assert job.marks == before


def test_ranks_that_spin_in_one_call_wait_for_the_one_that_is_still() -> None:
    job = Job()
    job.train()
    job.run(FIRST_LOOK + 4.0, stirring={0, 2})
    job.answer(held=ranks(0, 2))
    before = job.marks
    job.run(30.0, stirring={0, 2})
    assert job.waiting == {0, 2}
    assert job.marks == before
    job.run(3.0, stirring={0, 1, 2})
    assert job.marks > before
    assert job.waiting == set()


def test_what_cannot_be_looked_at_raises_no_suspicion() -> None:
    job = Job()
    job.train()
    job.run(FIRST_LOOK + 4.0, stirring={1})
    job.pulse.seen(job.now, Seen(job.looks[-1], blind=True))
    before = job.marks
    job.run(30.0, stirring={1})
    assert job.marks > before


def test_a_rank_that_stirred_during_the_look_is_past_it() -> None:
    job = Job()
    job.train()
    job.run(FIRST_LOOK + 4.0, stirring={1})
    job.run(2.0, stirring={0, 1})
    job.answer(communicating=ranks(0, 2))
    job.run(1.0, stirring={0, 1})
    assert job.waiting == {2}


def test_our_own_look_at_a_rank_does_not_count_as_its_life() -> None:
    job = Job()
    job.train()
    job.run(3.0, stirring=set())
    before = job.marks
    for rank, one in job.ranks.items():
        job.ranks[rank] = replace(one, switches=one.switches + 8)
    job.pulse.captured(job.now)
    job.run(4.0, stirring=set())
    assert job.marks == before


def test_output_of_a_working_rank_is_progress_that_of_a_still_one_is_not() -> None:
    job = Job()
    job.train()
    job.run(FIRST_LOOK + 4.0, stirring={1})
    job.answer(communicating=ranks(0, 2))
    job.run(1.0, stirring={1})
    before = job.marks
    job.run(2.0, stirring={1}, logs=0)
    assert job.marks == before
    job.run(2.0, stirring={1}, logs=1)
    assert job.marks > before


def test_a_thread_that_prints_does_not_hide_a_hang() -> None:
    job = Job()
    job.train()
    job.run(3.0, stirring=set())
    before = job.marks
    job.run(30.0, stirring=set(), logs=-1)
    assert job.marks == before


def test_a_log_that_was_steady_and_is_silent_outweighs_ranks_that_spin() -> None:
    job = Job()
    for _ in range(5):
        job.run(1.0, stirring={0, 1, 2})
        job.run(TICK, stirring={0, 1, 2}, logs=-1)
    job.run(LOG_FLOOR + 2.0, stirring={0, 1, 2})
    before = job.marks
    job.run(30.0, stirring={0, 1, 2})
    assert job.marks == before
    job.run(TICK, stirring={0, 1, 2}, logs=-1)
    assert job.marks > before


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    job = Job()
    job.train()
    job.ranks[2] = replace(job.ranks[2], alive=False, state="X")
    before = job.marks
    job.run(10.0, stirring={0, 1})
    assert job.marks > before + 10


def test_time_in_which_the_watch_stood_still_is_nobodys_silence() -> None:
    job = Job()
    job.train()
    job.now += 3600.0
    job.run(FIRST_LOOK - 2.0, stirring={1})
    assert not job.looks


def test_records_of_torch_tell_progress_where_ranks_give_them() -> None:
    job = Job()
    job.train()
    job.pulse.recorded(job.now, {0: ((5, 5),), 1: ((5, 5),), 2: ((5, 5),)})
    job.train()
    before = job.marks
    job.train(30.0)
    assert job.marks == before  # life alone is none any more
    job.pulse.recorded(job.now, {0: ((9, 8),), 1: ((9, 8),), 2: ((8, 8),)})
    job.train(1.0)
    assert job.marks == before + 1
    assert job.waiting == set()


def test_ranks_that_spin_inside_a_collective_wait_by_their_records() -> None:
    job = Job()
    for _ in range(2):
        job.pulse.recorded(job.now, {0: ((9, 8),), 1: ((8, 8),), 2: ((9, 8),)})
        job.train()
    assert job.waiting == {0, 2}
