"""Small builders of flight records: ``a_record(*steps(3), call("broadcast", 4, ended=False))``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.classify_factory import C10D, TRAIN

from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.model import (
    Collective,
    Diagnosis,
    FlightRecord,
    Frame,
    JobSnapshot,
    RankSnapshot,
    RecordedGroup,
)

MS = 1_000_000
START = 1_795_968_338_000_000_000


def call(
    op: str = "all_reduce",
    seq: int = 1,
    *,
    group: str = "0",
    ended: bool = True,
    sizes: tuple[tuple[int, ...], ...] = ((64,),),
    dtypes: tuple[str, ...] = ("Float",),
    line: int = 11,
    at: int = 0,
    started: bool | None = None,
) -> Collective:
    """One recorded collective; ``at`` is in ns after the start of the job."""
    return Collective(
        group=group,
        seq=seq,
        op=op,
        is_completed=ended,
        is_started=started,
        input_sizes=sizes,
        output_sizes=sizes,
        input_dtypes=dtypes,
        output_dtypes=dtypes,
        created_ns=START + at,
        frames=(Frame(op, C10D, 3245), Frame("train_step", TRAIN, line)),
    )


def peer_call(op: str, peer: int, *, seq: int = 1, ended: bool = False) -> Collective:
    """A recorded send or receive, as NCCL has them."""
    return Collective(group="0", seq=seq, op=op, is_p2p=True, is_completed=ended, peer=peer)


def steps(count: int, *, group: str = "0", first: int = 1) -> tuple[Collective, ...]:
    """That many all_reduces that ended."""
    return tuple(call(seq=seq, group=group, at=seq * MS) for seq in range(first, first + count))


def a_record(
    *calls: Collective,
    status: Mapping[str, tuple[int, int]] | None = None,
    members: Mapping[str, tuple[int, ...]] | None = None,
    default: Sequence[str] = ("0",),
    whole: bool = True,
) -> FlightRecord:
    """A record of these calls.

    ``status`` gives last enqueued and last completed by group; left out, it is what the calls say.
    """
    called = [one.group for one in calls if not one.is_p2p]
    names: list[str] = sorted({*called, *(status or {}).keys(), *(members or {}).keys()})
    groups: list[RecordedGroup] = []
    for name in names:
        own = [one for one in calls if one.group == name and not one.is_p2p]
        enqueued = max((one.seq for one in own), default=-1)
        completed = max((one.seq for one in own if one.is_completed), default=-1)
        if status is not None:
            enqueued, completed = status.get(name, (-1, -1))
        groups.append(
            RecordedGroup(
                name,
                "default_pg" if name in default else f"group {name}",
                (members or {}).get(name, ()),
                enqueued,
                -1,
                completed,
            )
        )
    return FlightRecord(tuple(groups), calls, whole, "2.10")


def recorded_job(*records: FlightRecord | None, node: str = "host-a") -> JobSnapshot:
    """A job of which only flight records are known, in the order of the ranks."""
    ranks = tuple(
        RankSnapshot(rank, node, observed=False, reason="no stack was taken", record=record)
        for rank, record in enumerate(records)
    )
    return JobSnapshot("run-7", 1000.0, len(ranks), ranks)


def judge_records(*records: FlightRecord | None, again: Sequence[FlightRecord | None] = ()) -> Diagnosis:
    """Diagnose records of one time, or of two with ``again``."""
    return diagnose(
        (recorded_job(*records), recorded_job(*again) if again else None),
        catalogue=load_catalogue(),
        source_line=lambda _file, _line: None,
        time="2026-11-29T16:40:00Z",
    )
