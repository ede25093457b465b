"""What the name of a dump says: rank, child process, which look, node, tool, attempt.

People name dumps in many ways; what is accepted is listed in ``docs/reference/cli.md``. A number that
belongs to a host (``node-17``) is no rank. This module knows names only: no file is opened here, and
whether a bare number is a rank is decided by all names together (``are_ranks``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from rankscope.diag.dumps.numbers import counts_from_zero
from rankscope.diag.ranks import MAX_RANKS

_RANK: Final = re.compile(
    r"(local[ _.-]?)?((?<![a-z])(?:tp|pp|dp|ep|cp|sp|mp|fsdp|node|group|role|machine|agent|host)[ _.-]?)?"
    r"rank[ _.=-]?(\d{1,7})(?!\d)",
    re.IGNORECASE,
)
"""A rank in a dimension of a mesh, or of a node, is none of the job."""
_WORKER: Final = re.compile(r"(?<![a-z])(worker)[ _.=-]?(\d{1,7})(?!\d)", re.IGNORECASE)
_HEAD: Final = re.compile(r"(?<![a-z])(master|chief)[ _.=-]?(0)(?!\d)", re.IGNORECASE)
"""The pod of rank 0; where there is one, worker 0 is rank 1."""
_CHILD: Final = re.compile(r"(?<![a-z])child[ _.-]?(\d{1,8})(?!\d)", re.IGNORECASE)
_SAMPLE: Final = re.compile(
    r"(?:^|[._-])(?:t|s|sample|snap|snapshot|look|iter|round|dump|shot)[_-]?(\d{1,7})(?=[._-]|$)",
    re.IGNORECASE,
)
_MOMENT: Final = re.compile(
    r"(?:^|[._-])(\d{4})-?(\d\d)-?(\d\d)[T_-]?(\d\d)[-:.]?(\d\d)(?:[-:.]?(\d\d))?Z?(?=[._-]|$)"
)
_FIRST_MOMENT: Final = 10**13  # fourteen digits: a date and a time
_ADDRESS: Final = re.compile(r"(?<![\d.-])(?:ip-)?(?:\d{1,3}[.-]){3}\d{1,3}(?![\d])")
_ATTEMPT: Final = re.compile(r"attempt_(\d{1,6})", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?:^|[^0-9])(\d{1,7})$")
_FIRST_NUMBER: Final = re.compile(r"(\d{1,7})[._-]")
_COUNT: Final = re.compile(r"[._-](\d{1,3})(?=[._-]|$)")
"""Behind the rank: ``rank0.1``; longer numbers are pids."""
_OF_HOW_MANY: Final = re.compile(r"[._-]?of[._-]?\d+", re.IGNORECASE)
_HOST: Final = re.compile(
    r"(?:^|[_.])((?:node|host|ip-|gpu-|vm-|pod-)[A-Za-z0-9-]+)(?=[_.]|$)", re.IGNORECASE
)
_HOST_NUMBER: Final = re.compile(
    r"(?:^|[^a-z])(?:node|host|gpu|vm|pod|ip|pid|proc|process|epoch|step)[ _.-]?\d+$", re.IGNORECASE
)
_TOOL: Final = re.compile(r"py-?spy|pystack|faulthandler|gdb", re.IGNORECASE)
_TORN: Final = re.compile(r"non-?_?blocking|no[_-]?block|nonblock", re.IGNORECASE)
_LOG: Final = re.compile(r"(?:^|[._-])(?:stdout|stderr|log|logs|out|err)(?:[._-]|$)", re.IGNORECASE)
_ENDINGS: Final = re.compile(
    r"(?:\.(?:txt|json|pickle|pkl|log|out|err|gz|zst|bt|trace|dump|stderr|stdout|text|stack|stacks))+$",
    re.IGNORECASE,
)
_GENERIC: Final = frozenset(
    {"samples", "dumps", "dump", "stacks", "traces", "logs", "log", "nodes", "out", "tmp", "data"}
)


@dataclass(frozen=True, slots=True)
class NameFacts:
    """What a name says.

    Attributes:
        rank: the rank, ``None`` when it does not say.
        is_local: the rank may be one on its node.
        is_sure: the name says *rank*, and of nothing else; *worker* and *master* may number pods.
        is_head: the rank is that of a master, whose workers are counted from 0 once more.
        child: pid of a child process of the rank, 0 for the rank itself.
        sample: which look at the same processes, ascending; ``None`` when not said.
        node: host, ``""`` when not said.
        tool: name of the tool as written, ``""`` for none.
        is_torn: whether it says that the process was not stopped for the dump.
        bare: a trailing number that may be a rank, ``None`` without one.
        is_log: whether it is named as the output of a process, of which most says nothing.
        attempt: restart count in torchrun's log folders, ``None`` elsewhere.
        folder: the folders it lies in; name: the file's own name.
    """

    rank: int | None = None
    is_local: bool = False
    is_sure: bool = False
    is_head: bool = False
    child: int = 0
    sample: int | None = None
    node: str = ""
    tool: str = ""
    is_torn: bool = False
    bare: int | None = None
    is_log: bool = False
    attempt: int | None = None
    folder: tuple[str, ...] = ()
    name: str = ""


def read_name(parts: Sequence[str]) -> NameFacts:
    """Read a path below the place where the user pointed.

    Args:
        parts: its folders and its file name, at least one part.
    """
    *folders, name = parts
    stem = _ENDINGS.sub("", name)
    attempt = next((int(found[1]) for folder in folders if (found := _ATTEMPT.fullmatch(folder))), None)
    told = _rank_in(stem)
    behind = told.behind
    above = [] if told.rank is not None else folders
    for folder in reversed(above):
        told = _rank_in(folder)
        if told.rank is not None:
            break
    if told.rank is None and attempt is not None and len(folders) > 1:
        told = _Told(_plain(folders[-1]), is_local=True)  # torchrun's logs: attempt_0/3/stdout.log
    rank = told.rank
    child = _CHILD.search(stem)
    tool = _TOOL.search(stem)
    return NameFacts(
        rank=rank,
        is_local=told.is_local,
        is_sure=told.is_sure,
        is_head=told.is_head,
        child=int(child[1]) if child else 0,
        sample=_sample(stem, folders, behind) if rank is not None else None,
        node=_node(
            stem,
            [
                folder
                for folder in folders
                if folder not in above or not (_WORKER.search(folder) or _HEAD.search(folder))
            ],
        ),
        tool=tool[0].lower().replace("-", "") if tool else "",
        is_torn=_TORN.search(stem) is not None,
        bare=_bare(stem, folders) if rank is None else None,
        is_log=tool is None and _LOG.search(name) is not None,
        attempt=attempt,
        folder=tuple(folders),
        name=name,
    )


def time_of(sample: int | None) -> float:
    """When a look was taken, where its number is the time in its name: unix seconds, read as UTC; else 0."""
    if sample is None or sample < _FIRST_MOMENT:
        return 0.0
    try:
        return datetime.strptime(str(sample), "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:  # other digits in a row
        return 0.0


def are_ranks(numbers: Sequence[int | None]) -> bool:
    """Whether the bare numbers of all names are ranks: each has one, and they count from zero."""
    known = [number for number in numbers if number is not None]
    return bool(known) and len(known) == len(numbers) and counts_from_zero(known)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key: numbers in a name by their value, ``rank2`` before ``rank10``."""
    pieces = re.split(r"(\d+)", text)
    return tuple((0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in pieces if piece)


@dataclass(frozen=True, slots=True)
class _Told:
    """A rank in a name, how sure it is, and what stands behind it."""

    rank: int | None = None
    is_local: bool = False
    is_sure: bool = False
    is_head: bool = False
    behind: str = ""


def _rank_in(text: str) -> _Told:
    """The rank that a name tells; the last one named counts."""
    found = [match for match in _RANK.finditer(text) if not match[2] and int(match[3]) < MAX_RANKS]
    if found:
        match = next((one for one in reversed(found) if not one[1]), found[-1])
        is_local = match[1] is not None
        return _Told(int(match[3]), is_local, is_sure=not is_local, behind=text[match.end() :])
    for word in (_WORKER, _HEAD):
        matches = [match for match in word.finditer(text) if int(match[2]) < MAX_RANKS]
        if matches:
            last = matches[-1]
            return _Told(int(last[2]), is_head=word is _HEAD, behind=text[last.end() :])
    return _Told()


def _sample(stem: str, folders: Sequence[str], behind: str) -> int | None:
    moment = _MOMENT.search(stem)
    if moment:
        return _moment(moment)
    named = _SAMPLE.search(stem)
    if named:
        return int(named[1])
    count = _COUNT.search(_OF_HOW_MANY.sub("", _CHILD.sub("", behind)))
    if count:
        return int(count[1])
    for folder in reversed(folders):
        if moment := _MOMENT.search(folder):
            return _moment(moment)
        found = _SAMPLE.fullmatch(folder)
        number = int(found[1]) if found else _plain(folder)
        if number is not None:
            return number
    return None


def _moment(found: re.Match[str]) -> int:
    return int("".join(piece or "00" for piece in found.groups()))


def _node(stem: str, folders: Sequence[str]) -> str:
    """The host: named beside the rank, else the nearest folder that means nothing else."""
    named = _HOST.search(_RANK.sub("_", stem)) or _HOST.search(stem)
    if named:
        return named[1].rstrip("-")
    for folder in reversed(folders):
        means_other = (
            folder.lower() in _GENERIC
            or _RANK.search(folder)
            or _SAMPLE.fullmatch(folder)
            or _MOMENT.search(folder)
            or _ATTEMPT.fullmatch(folder)
            or _plain(folder) is not None
            or _TOOL.fullmatch(folder)
        )
        if not means_other:
            return folder
    return ""


def _bare(stem: str, folders: Sequence[str]) -> int | None:
    """A number at the end of the name, else at its beginning; no part of a date or of an address."""
    stem = _OF_HOW_MANY.sub("", _ADDRESS.sub("", _MOMENT.sub("", stem)))
    if _HOST_NUMBER.search(stem):
        return None
    found = _NUMBER.search(stem) or _FIRST_NUMBER.match(stem)
    if found:
        return int(found[1])
    return _plain(folders[-1]) if folders else None


def _plain(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) < MAX_RANKS else None
