"""What ``diag analyze`` and ``diag report`` explain, from their command lines."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence

from rankscope.diag.commands.analyze_output import say, say_lost, speak_as
from rankscope.diag.judging.judge import judge_all
from rankscope.diag.judging.judged import Judged
from rankscope.diag.judging.wanted import Wanted


def judge_asked(options: argparse.Namespace) -> Sequence[Judged]:
    """All that the command line asks for, each explained.

    Args:
        options: of ``diag analyze`` or ``diag report``.

    Raises:
        UsageError: no such job, or the flags do not fit it.
        StoreError: nothing of what is stored can be read.
    """
    speak_as(options.verb)
    wanted = Wanted(
        names=options.names,
        pids=options.pid,
        incident=options.incident,
        all=options.all,
        catalogue=options.catalogue,
        user_code=options.user_code,
        timeout=options.timeout,
        interval=options.interval,
        samples=options.samples,
        native=options.native,
        locals=options.locals,
        stored_first=options.stored_first,
        quiet=options.json,
        say=say,
        say_once=functools.cache(say),
        say_lost=functools.partial(say_lost, full=options.full),
        token_file=getattr(options, "token_file", None),
        say_begun=say if _somebody_waits() else None,
    )
    return judge_all(wanted)


def _somebody_waits() -> bool:
    """Whether a person sees what is said: a look takes many seconds."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False
