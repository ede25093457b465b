"""``diag watch``: the detector beside a job that it did not launch and never touches."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Final

from rankscope.diag.commands.flags import VerbParser, named, seconds
from rankscope.diag.errors import UsageError

if TYPE_CHECKING:
    from rankscope.agent.beside.search import Search
    from rankscope.diag.discover import FoundJob
    from rankscope.diag.store.events import Event
    from rankscope.watchdog.limits import HangSettings

SUMMARY = "watch running jobs that others launched, without touching them"
EXIT_ENDED: Final = 0
EXIT_HANG: Final = 3
QUIET_FLOOR: Final = 20.0
QUIET_CEILING: Final = 45.0
"""Seconds: what is learned without steps is less sure, and a verdict is to come within 60 s."""
_STDOUT: Final = 1
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag watch``."""
    parser = VerbParser(
        prog="diag watch",
        description="Watch running training jobs, say which rank hangs, where and why, and never touch them.",
    )
    parser.add_argument(
        "job",
        nargs="?",
        help="run id (or its beginning), job folder, or process ids as 12,13 (ranks or their launcher); "
        "nothing: all training jobs of this host, those to come too",
    )
    parser.add_argument(
        "--pid", action="append", default=[], metavar="PID", help="the same as process ids in place of a job"
    )
    parser.add_argument(
        "--log-file",
        action="append",
        default=[],
        type=named,
        metavar="GLOB",
        help="log files of the job, ** for any folders; their growth is a sign of life",
    )
    parser.add_argument(
        "--diagnose-after",
        type=seconds,
        metavar="S",
        help="seconds without progress after which evidence is taken (default: learned from its rhythm)",
    )
    parser.add_argument("--once-hung", action="store_true", help="end with status 3 at the first hang")
    parser.add_argument("--json", action="store_true", help="events on stdout, one JSON object a line")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Watch.

    Returns:
        0 when the jobs have ended or watching was stopped, 2 usage or no such job, 3 when a published hang
        was there at the end.
    """
    options = prepare_parser().parse_args(arguments)
    name, pids = _named(options)
    if options.log_file and name is None and not pids:
        raise UsageError("--log-file needs a job: say whose log files these are")
    from rankscope.agent.beside.search import Search
    from rankscope.agent.own_memory import share_arenas
    from rankscope.diag.streams import tell

    share_arenas()
    search = Search(name, pids)
    jobs = search.jobs()
    for problem in search.problems:
        tell(f"diag watch: {problem}\n")
    if not jobs and not search.may_come:
        raise _nothing_to_watch(name, pids)
    if options.log_file and len(jobs) > 1:
        raise UsageError("--log-file needs one job, and several were named")
    return _watch(search, jobs, options)


def _nothing_to_watch(name: str | None, pids: Sequence[int]) -> UsageError:
    if name is not None and "," in name:
        return UsageError(
            f"{name!r} is no job that runs here: for processes, numbers as in 12,13 are expected"
        )
    what = name if name is not None else ",".join(map(str, pids))
    return UsageError(
        f"no training process of {what!r} runs on this host", hint="diag watch alone watches all jobs"
    )


def _named(options: argparse.Namespace) -> tuple[str | None, list[int]]:
    from rankscope.diag.live import pids_of

    texts = list(options.pid)
    name: str | None = options.job
    if name is not None and name.replace(",", "").isdecimal():
        texts, name = [*texts, name], None
    if name is not None and texts:
        raise UsageError("give a job or process ids, not both")
    try:
        pids = pids_of(texts)
    except ValueError:
        pids = []
    if texts and not pids:
        raise UsageError(f"{','.join(texts)!r}: process ids expected, as in 12,13")
    return name, pids


def _watch(search: Search, jobs: tuple[FoundJob, ...], options: argparse.Namespace) -> int:
    from rankscope.agent.beside.event_stream import EventStream
    from rankscope.agent.beside.host import HostWatch
    from rankscope.agent.beside.job import JobWatch
    from rankscope.agent.beside.log_files import LogFiles
    from rankscope.agent.telling.console import Console, LogLines

    console = Console()
    lines = LogLines(console)
    logs = LogFiles(options.log_file)

    def show(job: str, event: Event) -> None:
        if stream is not None:
            stream.write(job, event)

    def make(job: FoundJob) -> JobWatch:
        return JobWatch(
            job,
            settings=_settings(job, options.diagnose_after),
            logs=logs,
            say=console.say,
            on_event=partial(show, job.job),
            on_hang=host.stop if options.once_hung else _nothing,
        )

    host = HostWatch(search, make)
    stream = EventStream(_STDOUT, host.stop, console.once) if options.json else None
    lines.attach()
    logs.start()
    try:
        with _ended_by_signals(host.stop):
            if not jobs:
                console.say("no rank runs on this host yet: waiting for one, Ctrl-C ends")
            hung = host.run(jobs)
    finally:
        logs.stop()
        lines.detach()
        if stream is not None:
            stream.close()
        console.close()
    return EXIT_HANG if hung else EXIT_ENDED


def _settings(job: FoundJob, diagnose_after: float | None) -> HangSettings:
    """The limits of ``diag run`` where its probe tells of steps."""
    from rankscope.watchdog.limits import HangSettings

    if job.job_dir is not None:
        return HangSettings(diagnose_after=diagnose_after)
    return HangSettings(diagnose_after=diagnose_after, quiet_floor=QUIET_FLOOR, quiet_ceiling=QUIET_CEILING)


@contextmanager
def _ended_by_signals(stop: Callable[[], None]) -> Generator[None]:
    """Let the first signal that asks for the end stop the watch; a second one has its usual effect."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(_number: int, _frame: FrameType | None) -> None:
        restore()
        stop()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


def _nothing() -> None:
    """A hang is no reason to end."""
