"""The ``diag`` command: finds its verbs by entry point and turns errors into exit codes.

A verb is a module in the group ``rankscope.commands`` with ``SUMMARY: str`` and
``main(arguments) -> int``; only the chosen one is imported, so that ``diag --help`` starts fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final, Protocol, cast

GROUP: Final = "rankscope.commands"
SUMMARIES: Final = {
    "run": "launch a training job as torchrun does, watched",
    "analyze": "explain a job: live, dead, plain processes, or dumps",
    "snapshot": "store this host's evidence in a folder, for analyze elsewhere",
    "watch": "watch running jobs that others launched, without touching them",
    "doctor": "is this host ready: can ranks be read, records be stored",
    "demo": "a real training run that hangs, is explained and restarted",
}


class Verb(Protocol):
    """What a verb's module has."""

    def main(self, arguments: Sequence[str]) -> int:
        """Run the verb; returns its exit status."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``diag``; the exit status is the verb's own, 2 for an unknown verb."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbs = {entry.name: entry for entry in entry_points(group=GROUP)}
    if not words or words[0] in ("-h", "--help", "help"):
        _print_help(verbs)
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        from importlib.metadata import version

        sys.stdout.write(f"rankscope {version('rankscope')}\n")
        return 0
    entry = verbs.get(words[0])
    if entry is None:
        known = ", ".join(sorted(verbs))
        sys.stderr.write(f"diag: no such command {words[0]!r} (known: {known})\n")
        return 2
    return _run(cast("Verb", entry.load()), words[0], words[1:])


def _run(verb: Verb, name: str, arguments: Sequence[str]) -> int:
    from rankscope.diag.errors import RankscopeError

    try:
        return verb.main(arguments)
    except RankscopeError as error:
        hint = f" ({error.hint})" if error.hint else ""
        sys.stderr.write(f"diag {name}: {error}{hint}\n")
        return error.exit_code
    except BrokenPipeError:
        # The reader has seen enough; Python must not complain about it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _print_help(verbs: dict[str, EntryPoint]) -> None:
    lines = ["usage: diag COMMAND ...", "", "Find out why a distributed PyTorch job hangs.", ""]
    lines += [f"  {name:<10} {SUMMARIES.get(name, '')}".rstrip() for name in sorted(verbs)]
    lines += ["", "diag COMMAND --help says more."]
    sys.stdout.write("\n".join(lines) + "\n")
