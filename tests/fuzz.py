"""Feeds the readers with real dumps that were damaged at random: ``python -m tests.fuzz --seconds 600``.

Every input must be read without an exception, in bounded time, and the same however it is cut into pieces;
what it gives must keep the model's promises. A failing input is written beside the message about it.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.reading_factory import PREFIXES

from rankscope.diag.read import Contents
from rankscope.diag.read.stream import read_contents

DATA = Path(__file__).parent / "data"
_SLOWEST = 5.0  # seconds for an input of at most 200 kB, on a busy machine
_LONGEST = 200_000
Mutation = Callable[[random.Random, bytes, list[bytes]], bytes]


def flip_bits(draw: random.Random, data: bytes, _: list[bytes]) -> bytes:
    damaged = bytearray(data)
    for _at in range(draw.randint(1, 16)):
        if damaged:
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def cut(draw: random.Random, data: bytes, _: list[bytes]) -> bytes:
    start, end = sorted(draw.randint(0, len(data)) for _ in range(2))
    return draw.choice((data[:end], data[start:], data[:start] + data[end:]))


def splice(draw: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    other = draw.choice(corpus)
    at, start = draw.randint(0, len(data)), draw.randint(0, len(other))
    return data[:at] + other[start : start + draw.randint(0, 4000)] + data[at:]


def shuffle_lines(draw: random.Random, data: bytes, _: list[bytes]) -> bytes:
    lines = data.split(b"\n")
    for _at in range(draw.randint(1, 10)):
        one, two = draw.randrange(len(lines)), draw.randrange(len(lines))
        lines[one], lines[two] = lines[two], lines[one]
    return b"\n".join(lines)


def repeat_lines(draw: random.Random, data: bytes, _: list[bytes]) -> bytes:
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    return b"\n".join([*lines[:at], *[lines[at]] * draw.choice((2, 50, 500)), *lines[at:]])


def mix_lines(draw: random.Random, data: bytes, corpus: list[bytes]) -> bytes:
    streams = [data.split(b"\n"), draw.choice(corpus).split(b"\n")]
    prefixes = draw.choice(((b"", b""), (b"[rank0]: ", b"[rank1]: "), (b"[default0]:", b"x 1| ")))
    mixed: list[bytes] = []
    while any(streams):
        at = draw.choice([at for at, one in enumerate(streams) if one])
        mixed.append(prefixes[at] + streams[at].pop(0))
    return b"\n".join(mixed)


def put_before(draw: random.Random, data: bytes, _: list[bytes]) -> bytes:
    prefix = draw.choice(list(PREFIXES.values()))
    lines = data.decode("utf-8", "replace").split("\n")
    return "\n".join(prefix(line, at) for at, line in enumerate(lines)).encode("utf-8", "replace")


def swap_bytes(draw: random.Random, data: bytes, _: list[bytes]) -> bytes:
    old, new = (draw.choice(b' \t\n\r"()[]{}:,0123\\\x1b\x80|<>#') for _ in range(2))
    return data.replace(bytes([old]), bytes([new]), draw.choice((1, 5, -1)))


MUTATIONS: tuple[Mutation, ...] = (
    flip_bits,
    cut,
    splice,
    shuffle_lines,
    repeat_lines,
    mix_lines,
    put_before,
    swap_bytes,
)


def corpus(folders: list[Path]) -> list[bytes]:
    """All files below the folders, and some that have several of them."""
    files = sorted(file for folder in folders for file in folder.rglob("*") if file.is_file())
    found = [data for file in files if (data := file.read_bytes()) and len(data) < _LONGEST]
    return [*found, *(b"\n".join(found[at : at + 4]) for at in range(0, len(found), 40))]


def check(contents: Contents, data: bytes) -> None:
    """What holds for every input."""
    assert contents.size_bytes == len(data)
    text = data.removeprefix(b"\xef\xbb\xbf")
    if not text.startswith(b"\x80"):
        assert contents.lines == text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    assert text or contents.problems
    for dump in contents.dumps:
        assert 0 < dump.line <= contents.lines
        assert sum(thread.is_main for thread in dump.threads) <= 1
        assert dump.threads or dump.trouble
        for thread in dump.threads:
            assert all(0 <= one.frame < len(thread.frames) for one in thread.variables)
            assert all(frame.line >= 0 for frame in thread.frames)


def attempt(draw: random.Random, data: bytes) -> Contents:
    """Read an input whole and in pieces."""
    started = time.monotonic()
    contents = read_contents([data])
    taken = time.monotonic() - started
    assert taken < _SLOWEST, f"{taken:.1f} s for {len(data)} bytes"
    check(contents, data)
    if draw.random() < 0.1:
        size = draw.choice((1, 100, 4096))
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert read_contents(pieces) == contents, f"differs in pieces of {size}"
    return contents


def main() -> int:
    """Run until the time is up; 1 when an input failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("folders", nargs="*", type=Path, default=[DATA])
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    inputs = corpus(asked.folders)
    counts: collections.Counter[str] = collections.Counter(corpus=len(inputs))
    end = time.monotonic() + asked.seconds
    while time.monotonic() < end:
        data = draw.choice(inputs)
        for mutation in draw.choices(MUTATIONS, k=draw.randint(1, 4)):
            data = mutation(draw, data, inputs)[:_LONGEST]
            counts[mutation.__name__] += 1
        counts["inputs"] += 1
        try:
            contents = attempt(draw, data)
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            counts["failures"] += 1
            with tempfile.NamedTemporaryFile(prefix="fuzz-", suffix=".input", delete=False) as kept:
                kept.write(data)
            print(f"{kept.name}\n{traceback.format_exc()}", flush=True)
            continue
        counts["bytes"] += len(data)
        counts["dumps"] += len(contents.dumps)
        counts["threads"] += sum(len(dump.threads) for dump in contents.dumps)
        counts["records"] += len(contents.records)
        counts["facts"] += len(contents.facts)
        counts["inputs with problems"] += bool(contents.problems)
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
    return 1 if counts["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
