"""``make chaos``: rounds of real jobs to which something happens, and what must come of each.

Each round runs in a process of its own: this command with ``--only``. Exit status: 0 when every round is
right, 1 when one is not, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.chaos.checks import wrong
from tests.chaos.draw import draw
from tests.chaos.expected import expected_of
from tests.chaos.onlooker import become_subreaper
from tests.chaos.places import missing
from tests.chaos.plan import Round
from tests.chaos.run import run
from tests.side_by_side import as_they_end, leave, positive

ROOT: Final = Path(__file__).parents[2]
_SEEDS: Final = 100_000
_ROUNDS: Final = 100
_LONGEST: Final = 600.0
"""Seconds after which a round is given up."""
_TIDIES_UP: Final = 60.0
"""Seconds that it has then to end its job and to give back its mounts."""
_PAUSE: Final = 0.1
_SKIPPED: Final = 77


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round's process said, and how it ended."""

    round: Round
    text: str
    code: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds that are asked for."""
    options = _parser().parse_args(arguments)
    seed = random.randrange(_SEEDS) if options.seed is None else options.seed
    if options.list:
        print("\n".join(_listed(draw(seed, number)) for number in range(options.rounds)))
        return 0
    keep: Path = options.keep or Path(tempfile.mkdtemp(prefix="rankscope-chaos-"))
    if options.only is not None:
        code = _run_here(draw(seed, options.only), keep)
    else:
        numbers = options.these or range(options.rounds)
        code = _run_rounds([draw(seed, number) for number in numbers], keep, jobs=options.jobs)
    if options.keep is None and code in (0, _SKIPPED):
        shutil.rmtree(keep, ignore_errors=True)
    return code


def _run_rounds(rounds: Sequence[Round], keep: Path, *, jobs: int) -> int:
    """All rounds of one seed, each in a process of its own; the exit status."""
    seed = rounds[0].seed
    print(f"seed {seed}, {len(rounds)} rounds", flush=True)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    for outcome in as_they_end(partial(_run_beside, keep=keep), rounds, jobs=jobs):
        outcomes.append(outcome)
        print(outcome.text, flush=True)
    failed = sorted(one.round.number for one in outcomes if one.code not in (0, _SKIPPED))
    skipped = sum(one.code == _SKIPPED for one in outcomes)
    minutes = (time.monotonic() - began) / 60
    verdict = f"wrong: {', '.join(map(str, failed))}, kept in {keep}" if failed else "all right"
    left_out = f" ({skipped} skipped)" if skipped else ""
    print(f"\nseed {seed}: {len(rounds)} rounds{left_out} in {minutes:.1f} minutes, {verdict}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--rounds", type=positive, default=_ROUNDS, metavar="N", help="so many (default: 100)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of everything (default: one by chance)")
    parser.add_argument("--these", type=_numbers, metavar="ROUND,...", help="these rounds and no others")
    parser.add_argument("--only", type=int, metavar="ROUND", help="run this round, in this process")
    parser.add_argument("--list", action="store_true", help="say what the rounds are, run nothing")
    parser.add_argument(
        "--jobs", type=positive, default=2, metavar="N", help="so many at a time (default: 2)"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep everything of every round here")
    return parser


def _numbers(text: str) -> list[int]:
    """Numbers of rounds."""
    return [int(word) for word in text.split(",")]


def _listed(one: Round) -> str:
    expected = expected_of(one)
    ends = f"{', '.join(expected.actions) or 'nothing decided'}, exit {expected.exit_code}"
    return f"{one.number:4}  {one.kind:14}  {one.what}\n      {' '.join(one.settings.flags)} -> {ends}"


def _run_beside(one: Round, given_up: threading.Event, *, keep: Path) -> Outcome:
    """A round in a process of its own, ended when it takes too long or nobody wants to know any more."""
    words = [f"--seed={one.seed}", f"--only={one.number}", f"--keep={keep}"]
    command = [sys.executable, "-m", "tests.chaos", *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        text = _read_until_it_ends(process, given_up)
    return Outcome(one, text.rstrip(), process.returncode)


def _read_until_it_ends(process: subprocess.Popen[str], given_up: threading.Event) -> str:
    """What it prints; SIGTERM when its time is over, which it answers by tidying up, then SIGKILL."""
    deadline = time.monotonic() + _LONGEST
    while not given_up.is_set() and time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_PAUSE)[0]
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=_TIDIES_UP)[0]
    process.kill()
    return process.communicate(timeout=_TIDIES_UP)[0]


def _run_here(one: Round, keep: Path) -> int:
    """One round in this process: a line when it is right, and what is wrong when it is not."""
    reason = missing(one.place)
    if reason:
        print(f"{one.number:4}  skipped  {one.kind}: {one.what} ({reason})")
        return _SKIPPED
    folder = keep / f"{one.seed}-{one.number}"
    shutil.rmtree(folder, ignore_errors=True)
    become_subreaper()
    try:
        expected, seen = run(one, folder)
        found, seconds = wrong(one, expected, seen), f"{seen.seconds:5.1f} s"
    except (AssertionError, OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        found = [f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"]
        seconds = "      -"
    print(f"{one.number:4}  {'wrong' if found else 'ok   '}  {seconds}  {_listed(one)[6:]}")
    if found:
        print("\n".join(f"      - {line}" for line in found))
        print(f"      replay: {one.replay}; kept: {folder}")
    return 1 if found else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, leave)
    sys.exit(main())
