"""Rows about flight records (NUMBERS.md): a folder of 256 ranks, and 16,384 ranks classified.

The folder has dumps in NCCL's form (``flight_dumps``), 2,000 operations each in three groups, and one rank
that did not come to the last all_reduce. Ours is ``diag analyze FOLDER``, the peer torch's own analyser, each
from the start of its process to its answer, in turn; both must name that rank. CPU time counts, for both use
one core. What is classified are snapshots in memory, as a leader has them: each rank's newest operations.
"""

from __future__ import annotations

import gc
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.flight_dumps import START_NS, Group, Recorder
from benchmarks.row import Row
from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.model import Collective, FlightRecord, Frame, JobSnapshot, RankSnapshot, RecordedGroup

FOLDER_RANKS: Final = 256
ENTRIES: Final = 2_000
FOLDER_BAR: Final = 5
CLASSIFIED: Final = 16_384
CLASSIFY_BAR: Final = 1.0
_CULPRIT: Final = 77
_NODE: Final = 8
_DEPTH: Final = 9
_NEWEST: Final = 5
"""Operations of each of a rank's three groups that a leader keeps."""
_SIZES: Final = ((64,),)
_DTYPES: Final = ("Float",)
_STACK: Final = (
    Frame("all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3245),
    Frame("train_step", "/workspace/train.py", 16),
)
_ROUNDS: Final = 2
_ENOUGH: Final = 60.0
"""Seconds after which no further round is begun: the whole table has a budget."""


def rows() -> list[Row]:
    """Measure: about two minutes, most of it the peer's."""
    return [_folder_row(), *_classify_rows()]


def _folder_row() -> Row:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rank in range(FOLDER_RANKS):
            write_rank(folder, rank, ranks=FOLDER_RANKS, entries=ENTRIES, culprit=_CULPRIT)
        begin, pairs, found, told = time.perf_counter(), list[tuple[float, float]](), "", ""
        while len(pairs) < _ROUNDS and (not pairs or time.perf_counter() - begin < _ENOUGH):
            ours, found = _run("rankscope.diag.main", "analyze", str(folder))
            peer, told = _run("torch.distributed.flight_recorder.fr_trace", str(folder))
            pairs.append((ours, peer))
    is_right = f"rank {_CULPRIT} is stuck" in found
    peer_is_right = f"missing ranks: {{{_CULPRIT}}}" in told
    ours, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row(
        f"FR folder of {FOLDER_RANKS} ranks x {ENTRIES:,} entries",
        f"{ours:.1f} s, {'right' if is_right else 'wrong'} culprit",
        f"{peer:.1f} s, torchfrtrace, {'right' if peer_is_right else 'wrong'}",
        peer / ours,
        f">= {FOLDER_BAR}x faster, right culprit",
        is_right and peer >= FOLDER_BAR * ours,
    )


def _run(module: str, *arguments: str) -> tuple[float, str]:
    """CPU seconds of a program from its start to its end, and what it said on both streams."""
    call = f"import sys; from {module} import main; sys.exit(main(sys.argv[1:]))"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", call, *arguments], capture_output=True, text=True, timeout=400, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, done.stdout + done.stderr


def write_rank(folder: Path, rank: int, *, ranks: int, entries: int, culprit: int) -> None:
    """The dump of one rank of a job with tensor and data parallel groups."""
    world, tensor, data = _groups(rank, ranks)
    recorder = Recorder(rank, depth=_DEPTH)
    share = len(data.members)
    for _ in range(entries // _NEWEST):
        recorder.call(tensor, line=12)
        recorder.call(tensor, line=13)
        recorder.call(data, "_reduce_scatter_base", sizes=((64 * share,),), outputs=((64,),), line=14)
        recorder.call(data, "_all_gather_base", outputs=((64 * share,),), line=15)
        recorder.call(world, line=16)
    if rank != culprit:
        recorder.call(world, state="scheduled", line=17)
    recorder.write(folder)


def _groups(rank: int, ranks: int) -> tuple[Group, Group, Group]:
    node, place = divmod(rank, _NODE)
    tensor = Group(f"{1 + node}", "tp", tuple(range(node * _NODE, (node + 1) * _NODE)))
    data = Group(f"{1 + ranks // _NODE + place}", "dp", tuple(range(place, ranks, _NODE)))
    return Group("0", "default_pg", tuple(range(ranks))), tensor, data


def _classify_rows() -> list[Row]:
    ranks = _snapshots(CLASSIFIED)
    looks = [JobSnapshot("bench", at, CLASSIFIED, ranks) for at in (1.0, 5.0)]
    gc.collect()
    gc.freeze()  # the input is not what the collector should go through
    catalogue = load_catalogue()
    found: list[Row] = []
    for name, second in (("one look", None), ("a pair", looks[1])):
        begin = time.process_time()
        pair = (looks[0], second)
        answer = diagnose(pair, catalogue=catalogue, source_line=lambda _file, _line: None, time="")
        seconds = time.process_time() - begin
        is_right = answer.culprits == (_CULPRIT,)
        found.append(
            Row(
                f"classify {CLASSIFIED:,} ranks with FR data, {name}",
                f"{seconds:.2f} s, {'right' if is_right else 'wrong'} culprit",
                "none",
                0.0,
                f"<= {CLASSIFY_BAR:.0f} s",
                is_right and seconds <= CLASSIFY_BAR,
            )
        )
    gc.unfreeze()
    return found


def _snapshots(count: int) -> tuple[RankSnapshot, ...]:
    """As a leader has them; the members of a group are one object for all, as the reader makes them."""
    world = tuple(range(count))
    tensor = [world[at : at + _NODE] for at in range(0, count, _NODE)]
    data = [world[place::_NODE] for place in range(_NODE)]
    return tuple(
        _snapshot(
            rank,
            ("0", "default_pg", world),
            (f"tp{rank // _NODE}", "tp", tensor[rank // _NODE]),
            (f"dp{rank % _NODE}", "dp", data[rank % _NODE]),
        )
        for rank in range(count)
    )


def _snapshot(rank: int, *groups: tuple[str, str, tuple[int, ...]]) -> RankSnapshot:
    """Every group has ended its newest calls; one more of the world's is open, but not on the culprit."""
    newest = 100 + _NEWEST
    entries = [
        _entry(name, seq, is_completed=True) for seq in range(101, newest + 1) for name, _, _ in groups
    ]
    behind = rank == _CULPRIT
    if not behind:
        entries.append(_entry("0", newest + 1, is_completed=False))
    called = {"0": newest + (not behind)}
    recorded = tuple(
        RecordedGroup(name, description, members, called.get(name, newest), -1, newest)
        for name, description, members in groups
    )
    record = FlightRecord(recorded, tuple(entries), is_whole=False, version="2.10")
    return RankSnapshot(rank, f"node-{rank // _NODE}", 100 + rank, observed=False, record=record)


def _entry(group: str, seq: int, *, is_completed: bool) -> Collective:
    return Collective(
        group, seq, "all_reduce", is_completed=is_completed, is_started=False, input_sizes=_SIZES,
        output_sizes=_SIZES, input_dtypes=_DTYPES, output_dtypes=_DTYPES,
        created_ns=START_NS + seq * 1_000_000, frames=_STACK,
    )  # fmt: skip
