"""The diagnosis for a person: verdict, culprits with their line, who waits, stacks, what was not seen.

Everything that came from the job (names, paths, messages) is shown inert: no markup, no control
characters, no escape sequences. It renders and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from rankscope.diag.merge.groups import runs_of, split_stacks
from rankscope.diag.model import Diagnosis, RankFinding, StackGroup
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.report.kept_frames import kept_frames
from rankscope.diag.report.short_frames import short_frame

_STYLES: Final = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan", "none": "bold green"}
_SHORT_STACKS: Final = 8
_SHORT_EVIDENCE: Final = 12
_SHORT_THREADS: Final = 6


def render_text(diagnosis: Diagnosis, *, console: Console, full: bool = False) -> None:
    """Print a diagnosis.

    Args:
        diagnosis: what to print.
        console: where; its width and colour settings are respected.
        full: all stack groups, threads and evidence, instead of the first few of each.
    """
    page = _Page(console)
    page.line(_verdict(diagnosis), style=_STYLES[diagnosis.severity])
    page.line(diagnosis.summary)
    _location(page, diagnosis)
    if full:
        _why(page, diagnosis)
    _waits(page, diagnosis)
    _evidence(page, diagnosis, full=full)
    _stacks(page, diagnosis, full=full)
    _unobserved(page, diagnosis)
    _limits(page, diagnosis)
    if full:
        _unknown_frames(page, diagnosis)


def inert(text: str) -> str:
    """The text with every control, format or surrogate character spelled out, as ``ascii`` does."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class _Page:
    """Prints plain text only: markup, emoji codes and highlighting stay off whatever the console says."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, text: str, *, style: str = "", indent: int = 0) -> None:
        rendered = Text(inert(text), style=style, overflow="fold")
        width = max(20, self._console.width - indent)
        for row in rendered.wrap(self._console, width):
            row.rstrip()
            row.pad_left(indent)
            self._console.print(row, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def title(self, text: str) -> None:
        self._console.print()
        self.line(text, style="bold")


def _verdict(diagnosis: Diagnosis) -> str:
    parts: list[str] = [diagnosis.verdict]
    if diagnosis.kind != "none":
        parts.append(diagnosis.kind)
    parts.append(f"confidence {diagnosis.confidence}")
    if diagnosis.severity != "none":
        parts.append(f"severity {diagnosis.severity}")
    return f"{diagnosis.job}: {', '.join(parts)}" if diagnosis.job else ", ".join(parts)


def _location(page: _Page, diagnosis: Diagnosis) -> None:
    place = diagnosis.location
    if place is None:
        return
    who = f"rank {place.rank}: " if place.rank is not None and diagnosis.culprits else ""
    where = f"{place.file}:{place.line}" if place.line else place.file
    page.line(f"{who}{where} in {place.function}", indent=2)
    if place.source:
        page.line(place.source, indent=6)
    if diagnosis.nodes:
        page.line(f"on {', '.join(diagnosis.nodes)}{_processes(diagnosis)}", indent=2)


def _processes(diagnosis: Diagnosis) -> str:
    """The process of each culprit: what is looked into next, or ended."""
    known = [one for one in diagnosis.ranks if one.rank in diagnosis.culprits and one.pid > 0]
    if len(diagnosis.culprits) == 1:
        return "".join(f", process {one.pid}" for one in known)
    named = ", ".join(f"rank {one.rank}: process {one.pid}" for one in known[:_SHORT_THREADS])
    more = f" and {len(known) - _SHORT_THREADS} more" if len(known) > _SHORT_THREADS else ""
    return f" ({named}{more})" if named else ""


def _why(page: _Page, diagnosis: Diagnosis) -> None:
    """Which rule it was, and what would change its mind."""
    page.line(f"by rule {diagnosis.rule}", indent=2)
    if diagnosis.would_change:
        page.line(f"what would change it: {diagnosis.would_change}", indent=2)


def _waits(page: _Page, diagnosis: Diagnosis) -> None:
    rows: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for one in diagnosis.ranks:
        if one.role == "victim" or one.waits_for:
            rows.setdefault((one.waits_for, one.position), []).append(one.rank)
    if not rows:
        return
    page.title("who waits for whom")
    for (targets, position), ranks in rows.items():
        whom = f" for rank {fold_ranks(targets)}" if targets else ""
        where = f" in {position}" if position else ""
        page.line(f"{fold_ranks(ranks)} wait{'s' if len(ranks) == 1 else ''}{whom}{where}", indent=2)
    others = _others(diagnosis.ranks)
    if others:
        page.line(f"{others}: bystanders", indent=2)


def _others(ranks: Iterable[RankFinding]) -> str:
    return fold_ranks(one.rank for one in ranks if one.role == "bystander" and one.state == "running")


def _evidence(page: _Page, diagnosis: Diagnosis, *, full: bool) -> None:
    if not diagnosis.evidence:
        return
    page.title("evidence")
    shown = diagnosis.evidence if full else diagnosis.evidence[:_SHORT_EVIDENCE]
    for one in shown:
        who = f"rank {one.rank}, " if one.rank is not None else ""
        page.line(f"{who}{one.source}: {one.fact}", indent=2)
    _more(page, len(diagnosis.evidence) - len(shown), "fact")


def _stacks(page: _Page, diagnosis: Diagnosis, *, full: bool) -> None:
    compared, others = split_stacks(diagnosis.stacks)
    if compared:
        page.title("stacks, leaf first: culprits, then rarest first")
        _groups(page, _culprits_first(compared, diagnosis.culprits), full=full)
    if others and full:
        page.title("other threads")
        _groups(page, others, full=full)
    elif others:
        threads = sum(group.count for group in others)
        page.line(f"{threads} other thread{'s' * (threads != 1)} not shown (--full)", indent=2)


def _culprits_first(groups: Sequence[StackGroup], culprits: Sequence[int]) -> list[StackGroup]:
    def guilty(group: StackGroup) -> bool:
        return any(rank in run for run in runs_of(group) or () for rank in culprits)

    return sorted(groups, key=guilty, reverse=True)


def _groups(page: _Page, groups: Sequence[StackGroup], *, full: bool) -> None:
    shown = groups if full else groups[:_SHORT_STACKS]
    for group in shown:
        threads = group.threads if full else group.threads[:_SHORT_THREADS]
        rest = f" ... {len(group.threads) - len(threads)} more" if len(threads) < len(group.threads) else ""
        odd = "" if runs_of(group) is not None else f"ranks {group.ranks}  "
        page.line(f"count {group.count}  {odd}threads {' '.join(threads)}{rest}", indent=2)
        for frame in group.stack if full else kept_frames(group.stack):
            if isinstance(frame, int):
                _more(page, frame, "frame", indent=6)
            else:
                page.line(frame if full else short_frame(frame), indent=6)
    _more(page, len(groups) - len(shown), "stack")


def _unobserved(page: _Page, diagnosis: Diagnosis) -> None:
    if not diagnosis.unobserved:
        return
    page.title("could not be observed")
    reasons: dict[str, list[int]] = {}
    for one in diagnosis.unobserved:
        reasons.setdefault(one.reason, []).append(one.rank)
    for reason, ranks in reasons.items():
        page.line(f"{'rank' if len(ranks) == 1 else 'ranks'} {fold_ranks(ranks)}: {reason}", indent=2)


def _limits(page: _Page, diagnosis: Diagnosis) -> None:
    """Ranks that were seen, but not whole: one line for each thing that was missing."""
    reasons: dict[str, list[int]] = {}
    for one in diagnosis.ranks:
        if one.observed and one.reason:
            reasons.setdefault(one.reason, []).append(one.rank)
    if not reasons:
        return
    page.title("seen with limits")
    for reason, ranks in reasons.items():
        page.line(f"{'rank' if len(ranks) == 1 else 'ranks'} {fold_ranks(ranks)}: {reason}", indent=2)


def _unknown_frames(page: _Page, diagnosis: Diagnosis) -> None:
    """What a catalogue of the user's own could name: `function (file)` as its entries are written."""
    if not diagnosis.unknown_frames:
        return
    page.title("frames that the catalogue does not know, in the threads that decide")
    for one in diagnosis.unknown_frames:
        who = f"{'rank' if one.count == 1 else 'ranks'} {one.ranks}"
        place = f"{one.function} ({one.file})" if one.file else one.function
        page.line(f"count {one.count}  {who}: {place}", indent=2)


def _more(page: _Page, count: int, noun: str, *, indent: int = 2) -> None:
    if count > 0:
        page.line(f"... {count} more {noun}{'s' * (count != 1)} (--full)", indent=indent)
