"""Jobs that are healthy but look hung: they end well, and no incident may be opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.faults.draw import Draw
from tests.faults.outside import pause_everything, pause_workers
from tests.faults.rows import Command, Row, Silent, program
from tests.jobs import Job

_PAUSE: Final = 20.0
_PAUSE_AFTER: Final = "step 30 "


def _row(
    name: str,
    what: str,
    command: Command,
    *,
    ranks: int = 2,
    during: Callable[[Job, Draw], None] | None = None,
) -> Row:
    return Row(
        name,
        "healthy",
        what,
        Silent(),
        command,
        least_ranks=ranks,
        most_ranks=ranks,
        zero=False,
        modes=("run",),
        during=during,
    )


def _healthy(*flags: str) -> Command:
    return program("healthy_job.py", "--checkpoint={folder}/checkpoint", *flags)


_STEPS: Final = (
    _row(
        "first_step",
        "the first step takes 12 s of sleep, the others 0.3 s",
        program("rhythm_job.py", "--rhythm=first_step", "--step-time=0.3", "--steps=30"),
    ),
    _row(
        "long_first_step",
        "the first step computes for 20 s on all ranks",
        _healthy("--spell=warm_up", "--seconds=20"),
        ranks=3,
    ),
    _row(
        "step_doubles",
        "steps of 0.3 s take 0.6 s from the middle on",
        program("rhythm_job.py", "--rhythm=doubles", "--step-time=0.3", "--steps=50"),
    ),
    _row(
        "heavy_tail",
        "steps of 0.06 s, some of 2, 5 and 10 s, each on one rank",
        program("rhythm_job.py", "--rhythm=heavy_tail", "--step-time=0.06", "--steps=80"),
        ranks=3,
    ),
    _row(
        "prints_nothing",
        "steps of 0.05 s, not a word",
        program("rhythm_job.py", "--step-time=0.05", "--steps=300", "--output=none"),
        ranks=4,
    ),
    _row(
        "prints_always",
        "steps of 0.15 s, a hundred lines a second from every rank",
        program("rhythm_job.py", "--step-time=0.15", "--steps=100", "--output=always"),
    ),
)
_SPELLS: Final = (
    _row(
        "evaluations",
        "every 20 steps of 0.2 s all ranks compute for 10 s, 50 steps long",
        program("evaluating_job.py", "--step-time=0.2", "--seconds=10", "--steps=60"),
    ),
    _row(
        "device_evaluations",
        "every 20 steps of 0.3 s all ranks wait for their device for 15 s, 50 steps long",
        program(
            "evaluating_job.py",
            "--step-time=0.3",
            "--seconds=15",
            "--batch-time=0.3",
            "--on=device",
            "--steps=45",
        ),
    ),
    _row(
        "evaluation",
        "rank 0 evaluates for 20 s, the others wait in a barrier",
        _healthy("--spell=evaluation", "--seconds=20"),
        ranks=3,
    ),
    _row(
        "slow_checkpoint",
        "rank 0 writes a checkpoint for 15 s, the others wait in the next step",
        _healthy("--spell=checkpoint", "--seconds=15"),
        ranks=3,
    ),
    _row(
        "slow_shards",
        "every rank saves its shard of a checkpoint for 25 s",
        program("checkpoint_job.py", "--folder={folder}/saved", "--seconds=25", "--who=all"),
        ranks=3,
    ),
    _row(
        "epoch_end",
        "all ranks wait quietly for 20 s after the first 3 s of steps",
        _healthy("--spell=epoch_end", "--seconds=20"),
        ranks=3,
    ),
    _row(
        "late_quiet",
        "all ranks wait quietly for 20 s after 26 s of steps: the job is well known by then",
        _healthy("--spell=epoch_end", "--seconds=20", "--spell-step=250", "--steps=270"),
        ranks=3,
    ),
    _row(
        "early_end",
        "all but rank 0 have finished, rank 0 waits quietly for 40 s more",
        _healthy("--spell=early_end", "--seconds=40"),
        ranks=3,
    ),
    _row(
        "garbage",
        "rank 1 collects garbage for 20 s, the others wait for it",
        program("occupied_job.py", "--spell=collect", "--seconds=20"),
    ),
)
_CHILDREN: Final = (
    _row(
        "loader_works",
        "loader workers build an index for 15 s at the begin of each epoch",
        program("loader_job.py", "--prepare=work", "--seconds=15", "--workers=1"),
    ),
    _row(
        "loader_writes",
        "loader workers of the second epoch fill a cache on disk for 20 s first",
        program("loader_job.py", "--prepare=files", "--seconds=20", "--slow-from=1"),
    ),
    _row(
        "compile",
        "the first step waits for a compiler, a child process, for 80 s",
        program("building_job.py", "--seconds=80"),
    ),
    _row(
        "recompile",
        "all ranks wait for a compiler for 45 s after 24 s of steps",
        program("building_job.py", "--seconds=45", "--build-at=160", "--steps=170"),
    ),
)
_REST: Final = (
    _row(
        "job_stopped",
        "agent and workers are stopped by SIGSTOP for 20 s, then continued",
        _healthy(),
        ranks=3,
        during=partial(pause_everything, after=_PAUSE_AFTER, seconds=_PAUSE),
    ),
    _row(
        "workers_stopped",
        "all workers, not the agent, are stopped by SIGSTOP for 20 s, then continued",
        _healthy(),
        ranks=3,
        during=partial(pause_workers, after=_PAUSE_AFTER, seconds=_PAUSE),
    ),
    _row(
        "no_torch",
        "75 s of sleeping and computing, no torch, no steps",
        program("without_torch.py", "--seconds=75"),
    ),
)
ROWS: Final[tuple[Row, ...]] = (*_STEPS, *_SPELLS, *_CHILDREN, *_REST)
