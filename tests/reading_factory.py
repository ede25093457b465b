"""Dumps for tests of the readers: real ones, texts made by hand, and what logs put before their lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

from rankscope.diag.model import ThreadStack
from rankscope.diag.read import Contents, StackDump
from rankscope.diag.read.bounds import Bounds
from rankscope.diag.read.stream import DumpStream

DATA = Path(__file__).parent / "data" / "tools"

# What stands before line number `at` of a log, by who puts it there.
PREFIXES: dict[str, Callable[[str, int], str]] = {
    "torchrun global": lambda line, _: f"[rank2]: {line}",
    "torchrun global, tight": lambda line, _: f"[rank2]:{line}",
    "torchrun local": lambda line, _: f"[default2]:{line}",
    "torchrun role": lambda line, _: f"[trainer12]: {line}",
    "torchrun twice": lambda line, _: f"[default2]:[rank2]: {line}",
    "ray": lambda line, _: f"(RayWorker pid=123, ip=10.0.0.1) {line}",
    "ray in colour": lambda line, _: f"\x1b[36m(RayTrainWorker pid=123)\x1b[0m {line}",
    "compose": lambda line, _: f"sglang-1  | {line}",
    "kubectl": lambda line, _: f"[pod/train-worker-0/pytorch] {line}",
    "stern": lambda line, _: f"train-worker-0 pytorch {line}",
    "slurm": lambda line, _: f"12: {line}",
    "slurm, padded": lambda line, _: f" 3: {line}",
    "mpirun": lambda line, _: f"[1,3]<stdout>:{line}",
    "pdsh": lambda line, _: f"node-7: {line}",
    "container runtime": lambda line, at: f"2026-09-28T10:00:{at % 60:02d}.{at:09d}Z stdout F {line}",
    "date": lambda line, at: f"2026-09-28 10:00:{at % 60:02d},{at % 1000:03d} {line}",
    "date in brackets": lambda line, at: f"[2026-09-28T10:00:{at % 60:02d}+00:00] {line}",
    "syslog": lambda line, at: f"Sep 28 10:00:{at % 60:02d} node-1 torchrun[123]: {line}",
    "logging": lambda line, at: f"INFO 09-28 10:00:{at % 60:02d} worker.py:88] {line}",
    "a template of the user's": lambda line, _: f"<trainer/5> {line}",
    "docker": lambda line, _: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-01"}),
    "structured": lambda line, _: json.dumps({"level": "info", "message": line}),
    "several": lambda line, at: f"2026-09-28T10:00:{at % 60:02d}Z [pod/a/b] (W pid=7) [rank2]: {line}",
    "colours": lambda line, _: f"\x1b[32m{line}\x1b[0m",
    "carriage returns": lambda line, _: line + "\r",
    "indentation": lambda line, _: f"  {line}",
}


def read(data: bytes | str, *, bounds: Bounds | None = None) -> Contents:
    """What is in an input. Text may be indented as a whole."""
    stream = DumpStream(bounds)
    stream.feed(data if isinstance(data, bytes) else dedent(data).lstrip("\n").encode())
    return stream.close()


def one_dump(data: bytes | str) -> StackDump:
    """The only dump of an input that nothing was lost of."""
    contents = read(data)
    assert not contents.problems
    (dump,) = contents.dumps
    return dump


def real(scenario: str, name: str) -> bytes:
    """A real dump."""
    return (DATA / scenario / name).read_bytes()


def functions(thread: ThreadStack) -> list[str]:
    """The names on a stack, leaf first."""
    return [frame.function for frame in thread.frames]


def wrapped(data: bytes, prefix: Callable[[str, int], str]) -> list[str]:
    """The lines of a dump with a prefix before each."""
    lines = data.decode().removesuffix("\n").split("\n") if data else []
    return [prefix(line, at) for at, line in enumerate(lines)]


def log(lines: list[str]) -> bytes:
    """Lines as a file."""
    return ("\n".join(lines) + "\n").encode()


def shape(dump: StackDump) -> tuple[object, ...]:
    """What of a dump does not depend on where in a log it stands."""
    return dump.source, dump.title.rstrip(), dump.threads, dump.is_native, dump.has_variables, dump.parent
