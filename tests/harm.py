"""Does looking harm? Captures a working rank again and again, some of them killed half-way, and compares.

``python -m tests.harm --captures 200`` looks that often with each backend at a rank with 1 and with 64 extra
threads; a test does the same with fewer. Compared before and after: that it runs, is not traced, has no
signal pending or newly blocked, the states of its threads, its descriptors and handlers, and what a step
costs it. A step is measured in CPU time of its thread, and set against a second rank at which nobody looks,
so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.capture_factory import DEADLINE, wait_until
from tests.probe_factory import Workers, workers

from rankscope.diag import proc
from rankscope.diag.capture import Target, capture_ranks
from rankscope.diag.capture.plan import Backend
from rankscope.diag.capture.server import ask_server
from rankscope.watchdog.answers import answer_file, read_answer, socket_file
from rankscope.watchdog.probe.process_stat import start_ticks

STEPS: Final = 64
"""Steps whose cost is remembered."""
SLOWER: Final = 1.5
"""How much more a step may cost after than before, against the rank that nobody looked at."""
KILL_EVERY: Final = 3
_LONGEST_KILL: Final = 20
_SIGPIPE: Final = 1 << (signal.SIGPIPE - 1)
_RING: Final = 8 * (STEPS + 1)

RANK: Final = f"""
import mmap, struct, sys, threading, time
import torch.distributed
extra, path = int(sys.argv[1]), sys.argv[2]
def wait_for_ever(): threading.Event().wait()
for number in range(extra):
    threading.Thread(target=wait_for_ever, name=f"extra-{{number}}", daemon=True).start()
with open(path, "r+b") as file:
    ring = mmap.mmap(file.fileno(), {_RING})
stopped = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
print("ready", flush=True)
step = 0
while not stopped.is_set():
    begin = time.thread_time_ns()
    total = 0
    for number in range(8_000):
        total += number * number
    step += 1
    struct.pack_into("<Q", ring, 8 * (1 + step % {STEPS}), time.thread_time_ns() - begin)
    struct.pack_into("<Q", ring, 0, step)
    stopped.wait(0.004)
print("end", flush=True)
"""


class WorkingRank:
    """A rank that makes steps, and can be asked what it is like."""

    def __init__(self, node: Workers, process: subprocess.Popen[str], ring: Path) -> None:
        self.pid = process.pid
        self.process = process
        self.answers = str(node.answers)
        self._ring = ring

    def step(self) -> int:
        """Steps made so far."""
        return int(self._numbers()[0])

    def cost(self) -> float:
        """Median CPU nanoseconds of steps made from now on; it must make them."""
        begin = self.step()
        wait_until(lambda: self.step() >= begin + STEPS + 1)
        return statistics.median(self._numbers()[1:])

    def _numbers(self) -> tuple[int, ...]:
        with self._ring.open("rb") as file, mmap.mmap(file.fileno(), _RING, prot=mmap.PROT_READ) as ring:
            return struct.unpack(f"<{STEPS + 1}Q", ring[:])

    def condition(self) -> dict[str, object]:
        """Everything that must be the same after a look."""
        access = proc.read_access(self.pid)
        return {
            "start": start_ticks(self.pid),
            "stopped": access.stopped,
            "tracer": access.traced_by,
            "descriptors": sorted(path.name for path in Path(f"/proc/{self.pid}/fd").iterdir()),
            **{
                f"thread {task.name}": self._thread(task) for task in Path(f"/proc/{self.pid}/task").iterdir()
            },
        }

    def _thread(self, task: Path) -> tuple[object, ...]:
        """A thread's state and masks; running and sleeping are one, as it may be either.

        A client that hung up leaves SIGPIPE pending in the server's thread, which blocks it for ever.
        """
        status = (task / "status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        state = "alive" if fields["State"][0] in "RS" else fields["State"]
        own, shared, blocked, ignored, caught = (
            int(fields[name], 16) for name in ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")
        )
        return state, own & ~(blocked & _SIGPIPE), shared, blocked, ignored, caught


@contextlib.contextmanager
def working_rank(node: Workers, *, extra: int, slot: int) -> Generator[WorkingRank]:
    """A rank with ``extra`` threads that has begun to make steps and can be asked in every way."""
    ring = node.folder / f"ring-{slot}"
    ring.write_bytes(bytes(_RING))
    process = node.start(node.script(RANK), str(extra), str(ring), rank=slot)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    rank = WorkingRank(node, process, ring)
    wait_until(lambda: Path(socket_file(rank.answers, rank.pid)).is_socket())
    wait_until(lambda: _is_known(rank))
    wait_until(lambda: rank.step() > 1)
    try:
        yield rank
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out, err) == (0, "end\n", "")
    finally:
        if process.poll() is None:
            process.kill()


def _is_known(rank: WorkingRank) -> bool:
    with contextlib.suppress(FileNotFoundError):
        answer = read_answer(Path(answer_file(rank.answers, rank.pid)).read_text())
        return answer is not None and answer.thread_id > 0
    return False


Look = Callable[[WorkingRank, float | None], bool]
"""Looks once, and says whether it saw something; with seconds it is killed after them."""


def _tool(backend: Backend, *, native: bool = False, blocking: bool = True) -> Look:
    def look(rank: WorkingRank, killed_after: float | None) -> bool:
        (snapshot,) = capture_ranks(
            (Target(0, rank.pid, answers=rank.answers),),
            timeout=killed_after or DEADLINE,
            rank_timeout=killed_after or DEADLINE,
            children=False,
            native=native,
            blocking=blocking,
            record=False,
            backends=(backend,),
        )
        return snapshot.observed

    return look


def _server(rank: WorkingRank, killed_after: float | None) -> bool:
    path = socket_file(rank.answers, rank.pid)
    if killed_after is None:
        answer = ask_server(path, deadline=time.monotonic() + DEADLINE)
        return answer.answers is True and answer.record != b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(b"POST /handler/fr_trace_json HTTP/1.1\r\n"[: int(killed_after * 1e3) + 5])
    return True


LOOKS: Final[dict[str, Look]] = {
    "py-spy": _tool("py-spy"),
    "py-spy --nonblocking": _tool("py-spy", blocking=False),
    "py-spy --native": _tool("py-spy", native=True),
    "pystack": _tool("pystack"),
    "pystack --no-block": _tool("pystack", blocking=False),
    "faulthandler": _tool("faulthandler"),
    "server": _server,
}


@dataclass(frozen=True)
class Harm:
    """What came of looking with one backend.

    Attributes:
        seen: looks that were let finish and saw something.
        killed: looks that were killed half-way.
        changes: what is not as it was.
        slower: what a step costs after against before, the other rank's own change taken out.
    """

    backend: str
    seen: int
    killed: int
    changes: dict[str, tuple[object, object]]
    slower: float

    @property
    def is_none(self) -> bool:
        """Whether the rank is as it was."""
        return not self.changes and self.slower <= SLOWER


def look_often(backend: str, rank: WorkingRank, control: WorkingRank, *, captures: int) -> Harm:
    """Look at ``rank`` so many times, every third look killed after 1-20 ms, and compare."""
    look = LOOKS[backend]
    before, cost, control_cost = rank.condition(), rank.cost(), control.cost()
    seen = killed = 0
    for turn in range(captures):
        if turn % KILL_EVERY == KILL_EVERY - 1:
            look(rank, 1e-3 * (1 + turn // KILL_EVERY % _LONGEST_KILL))
            killed += 1
        else:
            seen += look(rank, None)
    step = rank.step()
    wait_until(lambda: rank.step() > step)
    after: dict[str, object] = {}
    with contextlib.suppress(AssertionError):
        wait_until(lambda: after.update(rank.condition()) is None and after == before, within=2.0)
    changes = {
        name: (before.get(name), after.get(name))
        for name in before | after
        if before.get(name) != after.get(name)
    }
    slower = rank.cost() / cost / (control.cost() / control_cost)
    return Harm(backend, seen, killed, changes, slower)


@contextlib.contextmanager
def two_ranks(folder: Path, *, extra: int) -> Generator[tuple[WorkingRank, WorkingRank]]:
    """The rank to look at, and one to be left alone."""
    with (
        workers(folder, slots=2) as node,
        working_rank(node, extra=extra, slot=0) as rank,
        working_rank(node, extra=extra, slot=1) as control,
    ):
        yield rank, control


def main() -> int:
    """Print a line for each backend and number of threads; 1 when anything was harmed."""
    parser = argparse.ArgumentParser(prog="python -m tests.harm", description=__doc__)
    parser.add_argument("--captures", type=int, default=200, help="looks with each backend")
    parser.add_argument("--backend", choices=list(LOOKS), action="append", help="only this one")
    asked = parser.parse_args()
    is_well = True
    for extra in (1, 64):
        with tempfile.TemporaryDirectory() as folder, two_ranks(Path(folder), extra=extra) as (rank, control):
            for backend in asked.backend or LOOKS:
                begin = time.monotonic()
                harm = look_often(backend, rank, control, captures=asked.captures)
                is_well &= harm.is_none and harm.seen == asked.captures - harm.killed
                print(
                    f"{backend:22} {extra:3} extra threads  {harm.seen} seen, {harm.killed} killed  "
                    f"step {harm.slower:.2f}x  {harm.changes or 'nothing changed'}  "
                    f"{time.monotonic() - begin:.0f} s",
                    flush=True,
                )
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
