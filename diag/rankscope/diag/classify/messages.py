"""Row 3 over sends and receives: the two halves of one message carry different numbers of bytes.

Messages between two ranks of a group are carried out in order: the first send is for the first receive. NCCL
moves bytes, so that shapes and dtypes may differ as long as the bytes are as many; where they are not, the
transfer never ends, or ends wrongly. Which half is right only the program can tell: both ranks are named.
Torch's own ``flight_recorder`` analysis compares the same two (sizes and dtypes as they are). It reads
records only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.diag.classify.blame import Finding, pair_evidence, unseen_phrase, victim_evidence
from rankscope.diag.classify.demands import amount, describe
from rankscope.diag.classify.kinds import recorded_location
from rankscope.diag.classify.records import recorded_title
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import KIND_WORDS, join
from rankscope.diag.model import Collective, Evidence, FlightRecord

_Way = tuple[str, int, int]
"""A group, who sends and who receives."""
_COMPARED: Final = 16
"""Messages before the open ones by which two records that lost their beginnings are aligned."""


@dataclass(frozen=True, slots=True)
class _Message:
    """Both halves of one message."""

    sender: int
    receiver: int
    send: Collective
    recv: Collective

    @property
    def fits(self) -> bool:
        """Whether as much is received as is sent, as far as the records tell."""
        sent = amount(self.send.input_sizes, self.send.input_dtypes)
        received = amount(self.recv.output_sizes, self.recv.output_dtypes)
        return sent is None or received is None or sent == received


def different_messages(job: JobView) -> Finding | None:
    """Row 3. An open message of which more, or less, is sent than received."""
    if job.entered_new:
        return None
    odd = [one for one in _open_messages(job) if not one.fits]
    if not odd:
        return None
    first = min(odd, key=lambda one: (min(one.send.created_ns, one.recv.created_ns), one.sender))
    ranks = tuple(sorted((first.sender, first.receiver)))
    waiting = [view.rank for view in job.ranks if view.rank not in ranks and view.waits]
    sends = f"rank {first.sender} called {describe(first.send)} to rank {first.receiver}"
    receives = f"rank {first.receiver} called {describe(first.recv, outputs=True)} from rank {first.sender}"
    places = [
        recorded_location(call, rank, job.catalogue)
        for rank, call in ((first.sender, first.send), (first.receiver, first.recv))
    ]
    return Finding(
        verdict="RankNonCommHang",
        kind="desync",
        severity="warning",
        confidence="low",
        rule="3",
        summary=join(
            f"a tie: in group {_title(job, first)} {sends}",
            receives,
            KIND_WORDS["desync"],
            unseen_phrase(job),
        ),
        culprits=ranks,
        victims=dict.fromkeys(waiting, ranks),
        location=next((place for place in places if place is not None), None),
        evidence=(
            Evidence("flight record", sends, first.sender),
            Evidence("flight record", receives, first.receiver),
            *victim_evidence(job.of(waiting)),
            *pair_evidence(job),
        ),
        is_tie=True,
    )


def _title(job: JobView, message: _Message) -> str:
    (sender,) = job.of((message.sender,))
    return recorded_title(sender.latest.record, message.send.group)


def _open_messages(job: JobView) -> Iterator[_Message]:
    """The oldest open message of each way of which both halves are known."""
    records = {view.rank: view.latest.record for view in job.ranks if view.latest.record is not None}
    sent, received = dict[_Way, list[Collective]](), dict[_Way, list[Collective]]()
    for rank, record in records.items():
        for entry in record.entries:
            if not entry.is_p2p or entry.peer is None:
                continue
            if entry.op == "send":
                sent.setdefault((entry.group, rank, entry.peer), []).append(entry)
            elif entry.op == "recv":
                received.setdefault((entry.group, entry.peer, rank), []).append(entry)
    for way, sends in sorted(sent.items()):
        _, sender, receiver = way
        at = _paired(sends, received.get(way, ()), records, (sender, receiver))
        if at is not None:
            yield _Message(sender, receiver, sends[at[0]], received[way][at[1]])


def _paired(
    sends: Sequence[Collective],
    receives: Sequence[Collective],
    records: Mapping[int, FlightRecord],
    ranks: tuple[int, int],
) -> tuple[int, int] | None:
    """Where the halves of the oldest open message stand, ``None`` where that cannot be told."""
    firsts = [
        next((at for at, one in enumerate(halves) if not one.is_completed), len(halves))
        for halves in (sends, receives)
    ]
    if all(records[rank].is_whole for rank in ranks):
        oldest = min(firsts)
        return (oldest, oldest) if oldest < min(len(sends), len(receives)) else None
    send, receive = firsts
    if len(sends) - send != len(receives) - receive or send == len(sends):
        return None
    before = range(1, min(send, receive, _COMPARED) + 1)
    alike = all(_Message(*ranks, sends[send - back], receives[receive - back]).fits for back in before)
    return (send, receive) if alike and len(before) > 0 else None
