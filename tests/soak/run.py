"""Runs a soak: starts both jobs, everything that is done to them, samples them, ends them, and leaves nobody.

What comes of it is judged elsewhere (``judge``).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from tests.chaos.job import _is_torchs as is_torchs
from tests.chaos.onlooker import alive_of
from tests.notices_factory import Receiver, a_receiver
from tests.soak.captures import capturing
from tests.soak.door import PATHS, door_of, paths_there
from tests.soak.job import SoakJob, steps_on
from tests.soak.outside import requests_beside, streams_beside
from tests.soak.plan import Plan
from tests.soak.processes import bytes_below, family_of, files_below, gauges_of
from tests.soak.samples import SLOW_MACHINE, Ending, Gauges, LastCount, Notices, Observed, Sample
from tests.soak.trend import LEAST_SAMPLES

from rankscope.diag.store.events import TYPE_PREFIX, Event
from rankscope.watchdog.page import PageReader

_GRACE: Final = 10.0
"""Seconds that small processes have to end after their launcher."""
_PAUSE: Final = 0.05
_TELL_EVERY: Final = 60.0
_LATEST: Final = 4.0
"""Times the planned seconds: so long it may go on until there are enough samples."""
_MIB: Final = 1 << 20
_TROUBLE: Final = (
    *("rankscope could not", "Exception ignored in", "Fatal Python error", "Traceback", "starts again in"),
)
_ANY_PORT: Final = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")


class Soak:
    """Both jobs while everything is done to them.

    Args:
        plan: of it.
        folder: for everything that is kept.
        scratch: short path for temporary files and sockets of the agent.
    """

    def __init__(self, plan: Plan, folder: Path, scratch: Path) -> None:
        self.plan = plan
        self.mark = f"soak-{os.getpid()}"
        self.places = [scratch / "tmp", scratch / "run"]
        for place in self.places:
            place.mkdir(mode=0o700)
        self.ours = SoakJob(folder / "ours", launcher="ours", ranks=plan.workers, mark=self.mark)
        self.peer = SoakJob(folder / "torchrun", launcher="torchrun", ranks=plan.control, mark=self.mark)

    def start(self, receiver: Receiver) -> None:
        """Both jobs train when this returns."""
        tmp, run = map(str, self.places)
        environ = {"TMPDIR": tmp, "XDG_RUNTIME_DIR": run}
        notices = (f"--webhook={receiver.url}/", "--notify-on=incident,decision,restart,message,end")
        self.ours.launch(self.plan, *notices, "--diag-port=0", environ=environ)
        self.peer.launch(self.plan, *_ANY_PORT, environ={})
        self.ours.wait_until_it_trains()
        self.peer.wait_until_it_trains()

    def page(self) -> PageReader:
        """The progress page: mapped, it stays readable after the agent has removed it."""
        return PageReader(self.ours.agent().page)

    def sample(self, at: float, page: PageReader) -> Sample:
        """Look at everything once."""
        family = family_of(self.ours.pid, self.ours.pids.values())
        return Sample(
            at,
            _gauges(family.lasting),
            _gauges(self.ours.pids),
            _gauges(self.peer.pids),
            {rank: self.ours.look_beside(rank, page) for rank in self.ours.pids},
            {rank: self.peer.look(rank) for rank in self.peer.pids},
            family.passing,
            family.zombies,
            files_below(*self.places),
            bytes_below(self.ours.records.path),
        )

    def last_counts(self, page: PageReader) -> list[LastCount]:
        """Counts of ranks that make no more steps."""
        return [LastCount(rank, self.ours.own(rank)[0], steps_on(page, rank)) for rank in self.ours.pids]

    def ending(self, exit_code: int, control_code: int) -> Ending:
        """How it ended, and what is left of it."""
        left = _left_over(self.mark)
        said = [line for line in self.ours.stderr.splitlines() if any(text in line for text in _TROUBLE)]
        found = [path for place in self.places for path in place.iterdir() if not is_torchs(path.name)]
        return Ending(exit_code, control_code, sorted(left.values()), sorted(map(str, found)), said[:10])

    def close(self) -> None:
        """Leave nobody, whatever went wrong."""
        self.ours.close()
        self.peer.close()
        for pid in alive_of(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


_Name = TypeVar("_Name")


def _gauges(pids: Mapping[_Name, int]) -> dict[_Name, Gauges]:
    return {name: found for name, pid in pids.items() if (found := gauges_of(pid)) is not None}


def run(plan: Plan, folder: Path, say: Callable[[str], None]) -> Observed:
    """Run a soak in this process.

    Args:
        plan: of it.
        folder: for the jobs' output and records; made.
        say: is told how far it is.

    Raises:
        AssertionError: a job did not start, or did not end.
    """
    with contextlib.ExitStack() as stack:
        # A path of its own, for a socket's path below a long one might be too long.
        scratch = stack.enter_context(_scratch())
        receiver = stack.enter_context(a_receiver())
        soak = Soak(plan, folder, scratch)
        stack.callback(soak.close)
        began = time.monotonic()
        soak.start(receiver)
        page = soak.page()
        stack.callback(page.close)
        say(f"all ranks train after {time.monotonic() - began:.0f} s; {plan.seconds:.0f} s of soak begin")
        return _observe(soak, receiver, page, say)


def _observe(soak: Soak, receiver: Receiver, page: PageReader, say: Callable[[str], None]) -> Observed:
    plan, door = soak.plan, door_of(soak.ours)
    paths = paths_there(door.open)
    requests = requests_beside(door, paths, plan.rate)
    streams = streams_beside(door, plan.streams)
    with capturing(soak.ours, door, plan.capture_every) as capturer:
        samples = _sampled(soak, page, say)
    captures, streamed, asked = capturer.end(), streams.end(), requests.end()
    exit_code, control_code = soak.ours.let_end(), soak.peer.let_end()
    last_counts, ending = soak.last_counts(page), soak.ending(exit_code, control_code)
    events = Counter(map(_event_name, soak.ours.events()))
    told = [notice.json() for notice in receiver.requests]
    return Observed(
        seconds=plan.seconds,
        warm_up=plan.warm_up,
        is_long=plan.is_long,
        samples=samples,
        last_counts=last_counts,
        events=dict(events),
        missing=[path for path in PATHS if path not in paths],
        requests=asked,
        captures=captures,
        streams=streamed,
        notices=Notices(
            soak.ours.own(0)[3],
            events["message"],
            sum(notice["type"] == f"{TYPE_PREFIX}message" for notice in told),
        ),
        ending=ending,
    )


def _event_name(event: Event) -> str:
    """That all ranks alike take longer is told as ``slow`` too; on a busy machine that is true."""
    return SLOW_MACHINE if (event.name, event.data.get("verdict")) == ("slow", "Healthy") else event.name


def _sampled(soak: Soak, page: PageReader, say: Callable[[str], None]) -> list[Sample]:
    """Samples until the time is over; one that comes late moves those after it.

    Raises:
        AssertionError: a job ended.
    """
    plan = soak.plan
    samples: list[Sample] = []
    begin = time.monotonic()
    told = 0.0
    while (at := time.monotonic() - begin) < plan.seconds or _too_few(plan, samples, at):
        for job in (soak.ours, soak.peer):
            job.pids_now()
        samples.append(soak.sample(at, page))
        if at - told >= _TELL_EVERY:
            told = at
            say(f"{at:.0f} s: {_told(samples[-1])}")
        time.sleep(max(_PAUSE, plan.sample_every - (time.monotonic() - begin - at)))
    return samples


def _too_few(plan: Plan, samples: Sequence[Sample], at: float) -> bool:
    """Whether a machine that is busy with other things has not allowed enough of them yet."""
    counted = sum(sample.at >= plan.warm_up for sample in samples)
    return counted < LEAST_SAMPLES and at < _LATEST * plan.seconds


def _told(sample: Sample) -> str:
    memory = ", ".join(f"{name} {one.rss / _MIB:.1f}" for name, one in sample.ours.items())
    return f"MiB: {memory}; step {min(look.before for look in sample.steps.values()):,}"


def _left_over(mark: str) -> dict[int, str]:
    """Who still runs some seconds after the launchers have ended."""
    deadline = time.monotonic() + _GRACE
    while (left := alive_of(mark)) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return left


@contextmanager
def _scratch() -> Generator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
