"""The history of a job for a person, in 80 columns. It renders and decides nothing.

Everything that came from the job (names, paths, messages) is shown inert.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from rankscope.diag.history.model import OUTSIDE, Cause, Fault, JobHistory, Moment, Restart
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.report.text import inert
from rankscope.diag.store.launches import STAGES, Cycle, RestartRecord

WIDTH: Final = 80
_NAMES: Final[dict[Cause, str]] = {
    "rendezvous": "rendezvous",
    "start": "starting the workers",
    "first_step": "until the first step",
    "training": "training",
    "hang_unnoticed": "hang, unnoticed",
    "collection": "collecting evidence",
    "analysis": "analysis, until decided",
    "stopping": "stopping the workers",
    "agent": "agent, before and after",
    "agent_gone": "no agent (killed)",
    "not_running": "until run again",
}
_COLUMNS: Final = ("rdzv", "start", "first", "train", "hang", "coll", "anal", "stop")
_RESULT: Final = 10
"""Characters of a result that still fit in 80 columns."""
_LONG: Final = 10_000
_LONGEST: Final = 4000
"""Characters of one line; what is longer (a program's message) is for ``--json``."""
_MINUTE: Final = 60
_HOUR: Final = 3600
_TIME: Final = slice(11, 19)
_DATE: Final = slice(0, 10)


def render_history(history: JobHistory, *, width: int = WIDTH, full: bool = False) -> str:
    """The history as text, no line longer than ``width``.

    Args:
        history: what to show.
        width: columns.
        full: the settings at their defaults too.
    """
    sections = (
        _head(history),
        _where_it_went(history),
        _cycles(history),
        _restarts(history),
        _last_faults(history),
        _moments(history),
        _settings(history, full=full),
    )
    texts = ["\n".join(_fit(lines, width)) for lines in sections]
    return "\n\n".join(text for text in texts if text) + "\n"


def _fit(lines: Iterable[tuple[int, str]], width: int) -> Iterator[str]:
    """Lines, each with the indent of what does not fit its first row."""
    for indent, line in lines:
        more = len(line) - _LONGEST
        cut = f"{line[:_LONGEST]} ... ({more} characters more)" if more > 0 else line
        text = inert(cut).rstrip()
        if len(text) <= width:
            yield text
            continue
        start = text[: len(text) - len(text.lstrip())]
        yield from textwrap.wrap(
            text.lstrip(),
            width,
            initial_indent=start,
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )


def duration_text(seconds: float) -> str:
    """``2 h 3 min``, ``4 min 5 s``, ``6.7 s``."""
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        minutes, rest = divmod(round(seconds), _MINUTE)
        return f"{minutes} min {rest} s"
    hours, rest = divmod(round(seconds), _HOUR)
    return f"{hours} h {rest // _MINUTE} min"


def _cell(seconds: float) -> str:
    """Seconds in five characters."""
    if seconds == 0:
        return "-"
    if seconds < 10:  # noqa: PLR2004 - digits
        return f"{seconds:.2f}"
    if seconds < 1000:  # noqa: PLR2004
        return f"{seconds:.1f}"
    if seconds < _LONG:
        return f"{seconds:.0f}"
    return f"{seconds / _HOUR:.1f}h"


def _head(history: JobHistory) -> Iterator[tuple[int, str]]:
    state = history.result or "its end is not known"
    size = f", {history.world_size} ranks" if history.world_size else ""
    nodes = f"{len(history.nodes)} node{'s' * (len(history.nodes) != 1)}"
    yield 2, f"job {history.job}: {state}, {duration_text(history.wall)}, {nodes}{size}"
    began = _moment(history.created) if history.created else "not known"
    ended = f" to {_moment(history.ended)}" if history.ended else ""
    yield 2, f"{began}{ended} (UTC)"
    if history.command:
        yield 2, " ".join(history.command)
    if history.earlier:
        jobs = f"{history.earlier} earlier job{'s' * (history.earlier > 1)}"
        yield 2, f"{jobs} of this run id: --all shows {'them' if history.earlier > 1 else 'it'} too"


def _moment(text: str) -> str:
    return f"{text[_DATE]} {text[_TIME]}"


def _where_it_went(history: JobHistory) -> Iterator[tuple[int, str]]:
    nodes = tuple(dict.fromkeys(one.node for one in history.spent))
    if not nodes:
        return
    total = sum(one.seconds for one in history.spent)
    of_nodes = f" ({len(nodes)} nodes together)" if len(nodes) > 1 else ""
    yield 0, f"Where the time went{of_nodes}"
    for cause in (*STAGES, *OUTSIDE):
        seconds = sum(one.seconds for one in history.spent if one.cause == cause)
        if seconds:
            share = f"{100 * seconds / total:.1f} %" if total else ""
            yield 2, f"  {_NAMES[cause]:<26}{duration_text(seconds):>14}{seconds:>14.3f} s{share:>9}"
    yield 2, f"  {'wall time':<26}{duration_text(total):>14}{total:>14.3f} s"


def _cycles(history: JobHistory) -> Iterator[tuple[int, str]]:
    if not history.cycles:
        return
    yield 0, "Cycles (seconds)"
    several = len({cycle.node for cycle in history.cycles}) > 1
    yield 0, f"   # {'began':<8} {''.join(f'{name:>6}' for name in _COLUMNS)}{'total':>7}"
    for node, cycles in groupby(history.cycles, key=lambda cycle: cycle.node):
        if several:
            yield 2, f" {node}"
        for cycle in cycles:
            yield from _cycle(cycle)


def _cycle(cycle: Cycle) -> Iterator[tuple[int, str]]:
    stages = "".join(f"{_cell(getattr(cycle, stage)):>6}" for stage in STAGES)
    fits = len(cycle.result) <= _RESULT
    row = f"{cycle.number:>4} {cycle.began[_TIME]:<8} {stages}{_cell(cycle.duration):>7}"
    yield 5, f"{row}  {cycle.result}" if fits else row
    made = f"{cycle.steps} step{'s' * (cycle.steps != 1)}" if cycle.steps else ""
    if cycle.step is not None:
        made = f"step {cycle.step}"
    came_of_it = ", ".join(part for part in (made, "" if fits else cycle.result) if part)
    words = ": ".join(part for part in (came_of_it, cycle.reason) if part)
    if words:
        yield 7, f"     {words}"


def _restarts(history: JobHistory) -> Iterator[tuple[int, str]]:
    if history.restarts:
        yield 0, "Restarts"
    for restart in history.restarts:
        yield from _restart(restart)


def _restart(restart: Restart) -> Iterator[tuple[int, str]]:
    record = restart.record
    yield 2, f"  {_restart_line(record)}"
    others = len(restart.nodes) - 1
    if others > 0:
        yield 7, f"     on {len(restart.nodes)} nodes: {', '.join(restart.nodes)}"
    code = f"exit code {record.error_code}" if _is_exit_code(record.error_code) else record.error_code
    what = ": ".join(part for part in (code, record.error_message) if part)
    if what:
        source = f" ({record.error_source})" if record.error_source else ""
        yield 7, f"     {what}{source}"
    if record.identity and record.identity not in record.error_message:
        yield 7, f"     the same error is: {record.identity}"
    yield 7, f"     {record.reason}"
    if restart.records:
        if others > 0:
            for each in restart.records:
                yield 9, f"       {_restart_line(each)}"
        yield from _fault_lines(restart.faults)
    elif len(restart.faults) > 1:
        ranks = fold_ranks(fault.rank for fault in restart.faults if fault.rank >= 0)
        yield 7, f"     {len(restart.faults)} faults behind it (ranks {ranks}): --all shows them"


def _is_exit_code(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _restart_line(record: RestartRecord) -> str:
    number = f"{record.restarts}" if record.is_counted else "-"
    worker = f"worker {record.worker} alone, " if record.worker is not None else ""
    parts = [f"{number:>2} {record.restart_time[_TIME]} {record.node_name}"]
    if record.instance_name:
        parts.append(record.instance_name)
    took = f" after {record.duration:.1f} s" if record.duration is not None else ""
    parts.append(f"{worker}{record.result}{took}")
    if record.lost is not None:
        parts.append(f"{record.lost:.1f} s after the last progress")
    return ", ".join(parts)


def _fault_lines(faults: Sequence[Fault]) -> Iterator[tuple[int, str]]:
    for fault in faults:
        code = f"exit code {fault.exit_code}" if fault.exit_code is not None else "exit code not known"
        root = ", the first" if fault.is_root else ""
        text = f": {fault.message}" if fault.message else ""
        yield 9, f"       {fault.time[_TIME]} {fault.node} rank {fault.rank}{root}: {code}{text}"


def _last_faults(history: JobHistory) -> Iterator[tuple[int, str]]:
    if history.faults:
        yield 0, "Failed, and not restarted"
        yield from _fault_lines(history.faults)


def _moments(history: JobHistory) -> Iterator[tuple[int, str]]:
    if history.moments:
        yield 0, "What happened"
    day = ""
    several = len({moment.node for moment in history.moments if moment.node}) > 1
    for moment in history.moments:
        if moment.time[_DATE] != day:
            day = moment.time[_DATE]
            yield 2, f" {day}"
        yield 13, f"  {moment.time[_TIME]} {_what(moment, several=several)}"


def _what(moment: Moment, *, several: bool) -> str:
    where = f"{moment.node} " if several and len(moment.nodes) < 2 and moment.node else ""  # noqa: PLR2004
    again = ""
    if len(moment.nodes) > 1:
        again = f" (on {len(moment.nodes)} nodes)"
    elif moment.count > 1:
        again = f" ({moment.count} times, last at {moment.last[_TIME]})"
    incident = f" [{moment.incident}]" if moment.incident else ""
    return f"{where}{moment.type}: {moment.text}{again}{incident}"


def _settings(history: JobHistory, *, full: bool) -> Iterator[tuple[int, str]]:
    if not history.settings:
        return
    shown = [one for one in history.settings if full or one.source != "default"]
    others = len(history.settings) - len(shown)
    rest = f" ({others} more at their defaults: --all shows them)" if others else ""
    yield 0, f"Settings in force{rest}"
    longest = min(40, max((len(one.name) for one in shown), default=0))
    for one in shown:
        source = one.source or "not recorded"
        yield 6, f"  {one.name:<{longest}}  {one.value or '-'}  ({source})"
