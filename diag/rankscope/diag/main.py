"""The ``diag`` command: finds its verbs by entry point and turns errors into exit codes.

A verb is a module in the group ``rankscope.commands`` with ``SUMMARY: str`` and
``main(arguments) -> int``; only the chosen one is imported, so that ``diag --help`` starts fast.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol, TextIO, cast

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "rankscope.commands"
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
SUMMARIES: Final = {
    "run": "launch a training job as torchrun does, watched",
    "analyze": "explain a job: live, dead, plain processes, or dumps",
    "snapshot": "store this host's evidence in a folder, for analyze elsewhere",
    "jobs": "the stored jobs: state, age, restarts, last verdict",
    "top": "a job as it runs, rank by rank: steps, communication, CPU",
    "export": "the records of jobs as a Parquet dataset, for any engine",
    "history": "what a job has been through: cycles, restarts, incidents, where the time went",
    "report": "an incident as one HTML file: verdict, stacks, who waits, ranks, timeline",
    "bundle": "one archive of a job for a ticket, redacted",
    "prune": "remove old jobs, never one that runs",
    "watch": "watch running jobs that others launched, without touching them",
    "doctor": "is this host ready: can ranks be read, records be stored",
    "demo": "a real training run that hangs, is explained and restarted",
    "completion": "shell completion: bash, zsh, fish",
}


class Verb(Protocol):
    """What a verb's module has."""

    def main(self, arguments: Sequence[str]) -> int:
        """Run the verb; returns its exit status."""
        ...


class _Ended(KeyboardInterrupt):
    """A signal has asked for the end; everything under way is ended as at Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``diag``; the exit status is the verb's own, 2 for an unknown verb."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = f"diag {words[0]}" if words else "diag"
    from rankscope.diag.errors import RankscopeError
    from rankscope.diag.streams import answer, fill_closed, tell

    fill_closed()
    try:
        with _ended_by_signals():
            try:
                code = _main(words)
            finally:
                # What argparse and others have printed; Python would lose a failure at its end.
                if sys.stdout is not None:
                    answer(_nothing)
    except RankscopeError as error:
        hint = f" ({error.hint})" if error.hint else ""
        tell(f"{name}: {error}{hint}\n")
        return error.exit_code
    except BrokenPipeError:
        return 0
    except _Ended as ended:
        return 128 + ended.number
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _main(words: Sequence[str]) -> int:
    from importlib.metadata import entry_points

    from rankscope.diag.streams import tell

    verbs = {entry.name: entry for entry in entry_points(group=GROUP)}
    if not words or words[0] in ("-h", "--help", "help"):
        _print_help(verbs)
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        _print(f"rankscope {version('rankscope')}\n")
        return 0
    entry = verbs.get(words[0])
    if entry is None:
        known = ", ".join(sorted(verbs))
        tell(f"diag: no such command {words[0]!r} (known: {known})\n")
        return 2
    return cast("Verb", entry.load()).main(words[1:])


@contextlib.contextmanager
def _ended_by_signals() -> Generator[None]:
    """Let a signal that asks for the end raise, so that tools are ended and files closed.

    A verb may set handlers of its own. What is ignored (``nohup``) stays ignored.
    """

    def handle(number: int, _frame: FrameType | None) -> None:
        raise _Ended(number)

    taken: list[signal.Signals] = []
    try:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                if signal.getsignal(number) is signal.SIG_DFL:
                    taken.append(number)
                    signal.signal(number, handle)
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is handle:
                signal.signal(number, signal.SIG_DFL)


def _nothing(_out: TextIO) -> None:
    """There is nothing more to write."""


def _print(text: str) -> None:
    from rankscope.diag.streams import answer

    answer(lambda out: print(text, end="", file=out))


def _print_help(verbs: Mapping[str, EntryPoint]) -> None:
    lines = ["usage: diag COMMAND ...", "", "Find out why a distributed PyTorch job hangs.", ""]
    lines += [f"  {name:<10} {SUMMARIES.get(name, '')}".rstrip() for name in sorted(verbs)]
    lines += ["", "diag COMMAND --help says more."]
    _print("\n".join(lines) + "\n")
