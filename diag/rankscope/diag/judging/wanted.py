"""What is to be explained, and how: the words of a command line, or the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankscope.diag.dumps.problem import Problem

Say = Callable[[str], None]
"""Is given a line for the user."""
SayLost = Callable[[Sequence[Problem]], None]
"""Is given what was not understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be explained.

    Attributes:
        names: a job, or files and folders of dumps; none: all jobs of this host.
        pids: process numbers instead, as ``--pid`` takes them.
        incident: id of the stored incident that is wanted.
        all: every stored incident.
        catalogue: a file with frame patterns of the user's own.
        user_code: code below these paths is the user's although it is installed.
        timeout: seconds that one look may take.
        interval: seconds between two looks, ``None`` for what fits.
        samples: how many looks for slowness, ``None`` for a look at a hang.
        native: C++ frames too.
        locals: local variables too.
        stored_first: what is stored of a named job goes before a look at it.
        quiet: say nothing of when what is stored is from.
        say: is given each line for the user.
        say_once: the same, for what several jobs have in common.
        say_lost: is given what was not understood.
        token_file: file with the token of an agent whose URL is named, ``None``: the environment has it.
        say_begun: is given a line before a look at running jobs, for one who waits at a terminal.
    """

    names: Sequence[str]
    pids: Sequence[str]
    incident: str | None
    all: bool
    catalogue: str | None
    user_code: Sequence[str]
    timeout: float
    interval: float | None
    samples: int | None
    native: bool
    locals: bool
    stored_first: bool
    quiet: bool
    say: Say
    say_once: Say
    say_lost: SayLost
    say_begun: Say | None = None
    token_file: str | None = None
