"""What was found on this host: jobs and their ranks, as processes. Plain data, wherever it was found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundRank:
    """One rank: its process and where its progress is written.

    Attributes:
        rank: global rank.
        pid: its process; with start_ticks its identity.
        local_rank: rank on this node, ``None`` when not given.
        page: path of the node's progress page, ``None`` without a probe.
        slot: its slot in the page.
        answers: folder through which its probe answers those who look (``watchdog.answers``), ``None``
            without.
    """

    rank: int
    pid: int
    start_ticks: int
    local_rank: int | None = None
    page: str | None = None
    slot: int | None = None
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class FoundJob:
    """The ranks of one job on this host, in rank order.

    Attributes:
        job: torch's run id, else ``pid-<parent>``: the process that launched them.
        world_size: ranks of the whole job; when no variable says so, the highest rank here and one.
        job_dir: the job's folder, ``None`` for a job that was not started by Rankscope.
        run_id: ``TORCHELASTIC_RUN_ID``, ``None`` without.
        notes: what a reader of the answer must know: how ranks were numbered, if no variable said it.
        meeting: ``MASTER_ADDR:MASTER_PORT``, ``""`` when not given: what tells launches of one name apart.
        here: which ranks this host was given, as far as variables say; some of them may have ended.
        assumed: whether nothing but the user's word says that these processes are ranks.
    """

    job: str
    ranks: tuple[FoundRank, ...]
    world_size: int
    job_dir: str | None = None
    run_id: str | None = None
    notes: tuple[str, ...] = ()
    meeting: str = ""
    here: tuple[range, ...] = ()
    assumed: bool = False

    def is_here(self, rank: int) -> bool:
        """Whether a rank was started on this host, wherever its process is now."""
        return any(rank in ranks for ranks in self.here)


@dataclass(frozen=True, slots=True)
class FoundPids:
    """What was found, and ``problems``: a line for each oddity."""

    jobs: tuple[FoundJob, ...]
    problems: tuple[str, ...] = ()
