"""Which benchmarks there are, and how one is run: in a process of its own, with a deadline.

A benchmark is a module of this package with ``rows() -> list[Row]``. One that fails or hangs costs its own
rows and nobody else's. Run as a program (``python -m benchmarks.run NAME FILE``) this module is that process.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.row import Row

_ROOT: Final = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One module that measures.

    Attributes:
        name: the module's, and what ``--only`` takes.
        timeout: seconds until it is given up; several times what it takes on two quiet cores.
    """

    name: str
    timeout: float


BENCHMARKS: Final = (
    Benchmark("probe", 150),
    Benchmark("training", 900),
    Benchmark("capture", 120),
    Benchmark("timers", 150),
    Benchmark("health", 480),
    Benchmark("start", 60),
    Benchmark("tree", 120),
    Benchmark("folding", 240),
    Benchmark("flight_records", 600),
    Benchmark("scale", 900),
    Benchmark("tables", 600),
    Benchmark("agent_cpu", 150),
    Benchmark("detection", 180),
)
NOT_BUILT: Final = ("no code change and no steps seen (log, FR, process facts alone)",)
"""Rows of NUMBERS.md that nothing here measures yet."""


class BenchmarkError(Exception):
    """A benchmark ended without figures; the message says how."""


def measure(benchmark: Benchmark) -> list[Row]:
    """Run one benchmark.

    Raises:
        BenchmarkError: it failed, or did not end in its time; nothing of it is left running.
    """
    with tempfile.TemporaryDirectory(prefix="rankscope-bench-") as folder:
        answer = Path(folder) / "rows.json"
        environ = {**os.environ, "RANKSCOPE_HOME": f"{folder}/home", "TMPDIR": folder}
        command = [sys.executable, "-m", "benchmarks.run", benchmark.name, str(answer)]
        process = subprocess.Popen(
            command,
            stdout=sys.stderr,
            stdin=subprocess.DEVNULL,
            cwd=_ROOT,
            env=environ,
            start_new_session=True,
        )
        try:
            code = process.wait(benchmark.timeout)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"{benchmark.name}: no end within {benchmark.timeout:.0f} s") from None
        finally:
            _end(process)
        if code != 0:
            raise BenchmarkError(f"{benchmark.name}: ended with {code}")
        return msgspec.json.decode(answer.read_bytes(), type=list[Row])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let it clean up, then end what is left of its process group."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _be_the_benchmark(name: str, answer: Path) -> None:
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    rows: list[Row] = importlib.import_module(f"benchmarks.{name}").rows()
    answer.write_bytes(msgspec.json.encode(rows))


if __name__ == "__main__":
    _be_the_benchmark(sys.argv[1], Path(sys.argv[2]))
