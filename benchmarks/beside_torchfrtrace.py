"""Our answer and torchfrtrace's on the same flight records: the cases of docs/how-it-works/torchfrtrace.md.

``python -m benchmarks.beside_torchfrtrace`` prints, for each case, what both said, as it stands on that page;
a test holds the page to it. Real cases are dumps of gloo jobs (``tests/data``), the others have NCCL's form
(``flight_dumps``): torchfrtrace reads no others. Of torchfrtrace's lines those are kept that name ranks,
operations and errors; its stack traces and sizes are left out. It gets ``tabulate``, which it needs for sends
and receives, and which torch does not bring.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.flight_dumps import Group, Recorder, State
from benchmarks.peers import peer_python
from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.classify.wording import name_ranks
from rankscope.diag.dumps import read_dumps
from rankscope.diag.model import Diagnosis

_DATA: Final = Path(__file__).parent.parent / "tests" / "data" / "flight_recorder"
_KEPT: Final = re.compile(
    r"(?:Not all ranks joining|missing ranks|Collective sequence number|group info|collective:|error msg"
    r"|Rank \d+ does not have|\w+(?:Error|Exception)\b)"
)
_CRASH: Final = re.compile(r"^(\w+Error)\b", re.MULTILINE)
_MISSING: Final = re.compile(r"^missing ranks: \{([\d, ]+)\}$", re.MULTILINE)
_CULPRIT: Final = re.compile(r"Culprit rank (\d+);")
_NEXT: Final = "==== the next folder ====\n"
_DRIVER: Final = f"""
import sys
from torch.distributed.flight_recorder.fr_trace import main
for folder in sys.argv[1:]:
    print({_NEXT!r}, end="", flush=True)
    try:
        main([folder])
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}", flush=True)
    sys.stderr.flush()
"""
_LONGEST: Final = 8  # lines of one answer that are shown
_RANKS: Final = 4
WORLD: Final = Group("0", "default_pg", tuple(range(_RANKS)))


@dataclass(frozen=True, slots=True)
class Case:
    """One job.

    Attributes:
        name: what the page calls it.
        truth: what was the matter.
        write: writes its dumps into a folder, named as torch names them, and says who was to blame: nobody
            in a healthy job.
    """

    name: str
    truth: str
    write: Callable[[Path], tuple[int, ...]]


def _real(scenario: str, *culprits: int) -> Callable[[Path], tuple[int, ...]]:
    def write(folder: Path) -> tuple[int, ...]:
        for file in _DATA.joinpath(scenario).glob("rank*.pickle"):
            shutil.copy(file, folder / file.stem)
        return culprits

    return write


def _made(
    calls: Callable[[Recorder], None], *culprits: int, ring: int = 2000
) -> Callable[[Path], tuple[int, ...]]:
    def write(folder: Path) -> tuple[int, ...]:
        for rank in WORLD.members:
            recorder = Recorder(rank, ring=ring)
            calls(recorder)
            recorder.write(folder)
        return culprits

    return write


def _odd_at(place: int) -> Callable[[Path], tuple[int, ...]]:
    """The odd rank is the one whose file the system lists at that place: torchfrtrace reads in that order."""

    def write(folder: Path) -> tuple[int, ...]:
        _made(_missing)(folder)
        name = next(os.walk(folder))[2][place]
        culprit = int(name.removeprefix("rank"))
        return _made(_odd(culprit), culprit)(folder)

    return write


def _odd(culprit: int) -> Callable[[Recorder], None]:
    def calls(one: Recorder) -> None:
        one.calls(WORLD, 3)
        one.call(WORLD, "broadcast" if one.rank == culprit else "all_reduce", state="scheduled")

    return calls


def _missing(one: Recorder) -> None:
    one.calls(WORLD, 3)
    if one.rank != 2:
        one.call(WORLD, state="scheduled")


def _chain(one: Recorder) -> None:
    one.calls(WORLD, 3)
    if one.rank < 3:
        one.call(Group(str(one.rank + 1), f"pair {one.rank}", (one.rank, one.rank + 1)), state="scheduled")


def _wrapped(one: Recorder) -> None:
    side = Group("1", "side", (0, 1))
    if one.rank in side.members:
        one.calls(side, 12)
    one.calls(WORLD, 16)


def _queued(one: Recorder) -> None:
    one.calls(WORLD, 3)
    for _ in range(0 if one.rank == 1 else 2 + one.rank):
        one.call(WORLD, state="scheduled")


def _half_done(one: Recorder) -> None:
    one.calls(WORLD, 3)
    one.call(WORLD, state="scheduled" if one.rank == 2 else "completed")
    if one.rank != 2:
        one.call(WORLD, state="scheduled")


def _pipeline(one: Recorder) -> None:
    for step in range(4):
        if step == 3 and one.rank == 2:
            return
        state: State = "scheduled" if step == 3 else "completed"
        if one.rank:
            one.peer(WORLD, "recv", one.rank - 1, state=state)
        if one.rank < 3:
            one.peer(WORLD, "send", one.rank + 1, state=state)


def _batches(one: Recorder) -> None:
    one.calls(WORLD, 2)
    if one.rank != 2:
        one.batch(WORLD, ("send", (one.rank + 1) % 4), ("recv", (one.rank - 1) % 4), state="scheduled")


_THAT: Final = "that rank"
_OTHER: Final = "calls broadcast, the others all_reduce"
CASES: Final = (
    Case("gloo: a missing rank", "rank 2 does not come to all_reduce 4", _real("missing_rank", 2)),
    Case("gloo: another operation", f"rank 1 {_OTHER}", _real("type_mismatch", 1)),
    Case("gloo: a chain of waits", "0 waits for 2, 1 for 0, 2 for 3; 3 is at fault", _real("chain", 3)),
    Case("gloo: a ring that wrapped", "healthy", _real("ring_wrap")),
    Case("gloo: a straggler", "rank 1 is 40 ms late in each step; no hang", _real("straggler", 1)),
    Case("a missing rank", "rank 2 does not come to all_reduce 4", _made(_missing, 2)),
    Case("another operation, on the rank listed last", f"{_THAT} {_OTHER}", _odd_at(-1)),
    Case("another operation, on the rank listed first", f"{_THAT} {_OTHER}", _odd_at(0)),
    Case("a chain of waits", "0 waits for 1, 1 for 2, 2 for 3; 3 is at fault", _made(_chain, 3)),
    Case("rings that wrapped", "healthy; ranks 0 and 1 have called more", _made(_wrapped, ring=20)),
    Case("queued operations", "rank 1 does not come to 4; the others have run ahead", _made(_queued, 1)),
    Case(
        "an operation not finished", "all entered 4, and the layer holds rank 2 in it", _made(_half_done, 2)
    ),
    Case("a pipeline", "rank 2 neither receives from 1 nor sends to 3", _made(_pipeline, 2)),
    Case("batches", "rank 2 does not call batch_isend_irecv", _made(_batches, 2)),
)


@dataclass(frozen=True, slots=True)
class Answers:
    """What both said of one case.

    Attributes:
        culprits: who was to blame.
        theirs: torchfrtrace's output, its exception as the last line.
    """

    case: Case
    culprits: tuple[int, ...]
    ours: Diagnosis
    theirs: str

    @property
    def row(self) -> str:
        """Its row of the page's table."""
        crash = _CRASH.search(self.theirs)
        ours = f"{self.ours.verdict}, {_judged(self.ours.culprits, self.culprits)}"
        theirs = f"crashes ({crash[1]})" if crash else _judged(self._blamed, self.culprits)
        row = f"| {self.case.name} | {self.case.truth} | {ours} | {theirs} |"
        # Which rank that is, is the file system's affair.
        return row.replace(f"rank {self.culprits[0]}", _THAT) if self.case.truth.startswith(_THAT) else row

    @property
    def _blamed(self) -> tuple[int, ...]:
        found = {rank for text in _MISSING.findall(self.theirs) for rank in map(int, text.split(","))}
        return tuple(sorted(found | set(map(int, _CULPRIT.findall(self.theirs)))))

    @property
    def our_text(self) -> str:
        """Our answer, in short."""
        return f"{self.ours.verdict}, confidence {self.ours.confidence}\n{self.ours.summary}"

    @property
    def section(self) -> str:
        """What both said, as it stands on the page."""
        lines = [_in_order(line) for line in self.theirs.splitlines() if _KEPT.match(line)]
        kept = lines[:_LONGEST] + [f"... ({len(lines) - _LONGEST} more lines)"] * (len(lines) > _LONGEST)
        return (
            f"### {self.case.name[0].upper()}{self.case.name[1:]}\n\nTruth: {self.case.truth}.\n\n"
            f"```\n$ diag analyze dumps/\n{self.our_text}\n\n$ torchfrtrace dumps/\n"
            + "\n".join(kept or ["(no line that names a rank or an error)"])
            + "\n```\n"
        )


def _judged(blamed: tuple[int, ...], culprits: tuple[int, ...]) -> str:
    if blamed == culprits:
        return f"rank {culprits[0]}" if culprits else "nobody"
    others = tuple(rank for rank in WORLD.members if rank not in culprits)
    whom = "every rank but that one" if len(culprits) == 1 and blamed == others else name_ranks(blamed)
    return f"**wrong**: {whom}" if blamed else "**wrong**: nobody"


def _in_order(line: str) -> str:
    """An error's ranks in their order: they come out of a set."""
    head, *rest = line.split("Culprit rank ")
    return head + ", ".join(f"Culprit rank {one.removesuffix(', ')}" for one in sorted(rest))


def answers(cases: Sequence[Case] = CASES, *, tabulate: str = "") -> Iterator[Answers]:
    """Run both on every case; ``tabulate`` is the folder where torchfrtrace finds that package."""
    catalogue = load_catalogue()
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, str(at)) for at in range(len(cases))]
        for folder in folders:
            folder.mkdir()
        culprits = [case.write(folder) for case, folder in zip(cases, folders, strict=True)]
        said = _torchfrtrace(folders, tabulate)
        for case, folder, guilty, theirs in zip(cases, folders, culprits, said, strict=True):
            job = read_dumps([folder])
            ours = diagnose(
                job.pair, catalogue=catalogue, source_line=_no_source, time="", samples=job.samples
            )
            yield Answers(case, guilty, ours, theirs)


def _no_source(_file: str, _line: int) -> str | None:
    return None


def _torchfrtrace(folders: Sequence[Path], tabulate: str) -> list[str]:
    """Its output for each folder, all from one process: importing torch takes most of the time."""
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, *map(str, folders)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": tabulate},
    )
    return done.stdout.split(_NEXT)[1:]


def _where(requirement: str) -> str:
    python = peer_python(requirement)
    if python is None:
        return ""
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.run([python, "-c", show], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    _found = list(answers(tabulate=_where("tabulate==0.9.0")))
    print("\n".join(one.row for one in _found), *(one.section for one in _found), sep="\n\n")
