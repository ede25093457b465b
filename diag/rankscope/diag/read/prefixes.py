"""Takes off what launchers and log collectors put before every line, and says whose line it is.

Known beforehand, in any order and several on one line: torchrun's ``[rank2]:`` and ``[default2]:``, Ray's
``(RayWorker pid=123, ip=10.0.0.1)``, Kubernetes' ``[pod/name-0/container]`` and compose's ``name-0  | ``,
Slurm's ``12: ``, mpirun's ``[1,3]<stdout>:``, the container runtime's date with ``stdout F``, docker's and
other JSON lines, syslog's date and program, and bare dates. Anything else is learned: where a dump's header
stands behind an unknown text, lines behind the same text (its dates may differ) belong together.

A channel is all of that without the dates. A **global rank** is taken only where the text surely is one:
torch's own ``[rank2]:``, a JSON line's ``"rank": 2``, and ``rank 2``, ``rank=2`` or ``[Rank 2]`` in a learned
prefix when no word like *local*, *node* or *tp* stands before it. A number in ``[default2]:``, ``worker-2``,
``12: `` or ``[1,3]<stdout>:`` is a local rank, a pod or a task: each is a channel and no rank.
It must not know what the lines say.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from rankscope.diag.read.lines import Origin

_DEEPEST: Final = 8  # prefixes on one line; four were seen
_LEARNED: Final = 64  # prefixes learned from headers and kept at one time
_LONGEST: Final = 200  # characters of a learned one
_STAMP: Final = (
    r"(?:\d{4}[-/]\d\d[-/]\d\d(?:[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d{10}\.\d{1,9})"
)
_ANY_STAMP: Final = re.compile(_STAMP)
# A date alone, perhaps bracketed. The container runtime adds the stream and F (full) or P (partial).
_DATE: Final = re.compile(
    rf"(?P<date>\[?{_STAMP}\]?)(?:(?: (?P<stream>stdout|stderr) (?P<part>[FP]))(?: |$)| (?:- |\| )?|(?=\[))"
)
_SYSLOG: Final = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) ([\w.-]{1,64} [\w./-]{1,64}(?:\[(\d{1,9})\])?:)"
)
# The journal's: a date of its own form stands before it.
_JOURNAL: Final = re.compile(r"[\w.-]{1,64} [\w./-]{1,64}\[(\d{1,9})\]:")
_PROGRAM: Final = re.compile(r"[\w./-]\[(\d{1,9})\]:?\s*$")
"""``python3[4000]:`` names a process, and no rank."""
_RANK: Final = re.compile(r"\[rank(\d{1,7})\]:")
_ROLE: Final = re.compile(r"\[[A-Za-z][\w.-]{0,63}?\d{1,7}\]:")
_RAY: Final = re.compile(
    r"\((?:[\w.:<>=-]{1,80} ){0,4}?[\w.:<>=-]{0,80}(?:\([^()]{0,80}\))? ?"
    r"pid=(\d{1,9})(?:, ip=[\w.:%-]{1,64})?\)"
)
_POD: Final = re.compile(r"\[(?:pod/)?[\w.-]{1,253}/[\w.-]{1,253}(?:/[\w.-]{1,253})?\]")
_COMPOSE: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,252} +\|")
# srun pads to the widest task; four columns and more are the numbering of a Rust backtrace.
_SLURM: Final = re.compile(r"(?:\d{1,6}| \d{1,2}| {2}\d):(?![\d:])")
_MPI: Final = re.compile(r"\[[\w.@-]{0,80},\d{1,7}\]<std(?:out|err|diag)>:")
_CHANNELS: Final = (_ROLE, _POD, _COMPOSE, _SLURM, _MPI)
# Two letters are enough to say of most lines that nothing stands before them.
_ANY_KNOWN: Final = re.compile(r"[\[(]|\d|[A-Z][a-z]{2} [ \d]\d |[A-Za-z][\w.-]* +\|| \d{1,2}:| {2}\d:")
_REPEATED: Final = re.compile(r" *\[repeated \d+x across cluster\](?: \(Ray deduplicates logs .*)?$")
_RANK_WORD: Final = re.compile(
    r"(?:^|[\[(<|,;:{ ])(?P<before>[\w-]* ?)\b[Rr](?:ank|ANK)(?:[ =:_-]| = |: )?(\d{1,7})(?!\w)"
)
_NOT_GLOBAL: Final = re.compile(
    r"(?:local|node|group|role|machine|agent|host|tp|pp|dp|ep|cp|sp|mp)[ _-]?$", re.IGNORECASE
)


class Prefixed(NamedTuple):
    """A line taken apart.

    Attributes:
        origin: whose line it is.
        stamp: the first date that stood before it, ``""`` for none.
        body: what was left; its own indentation is kept, with at most one blank more.
        is_partial: whether the container runtime broke the line here.
    """

    origin: Origin
    stamp: str
    body: str
    is_partial: bool = False


_NOWHERE: Final = Origin()
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeError)


_NOTHING: Final = msgspec.Raw(b"null")


class _JsonLine(msgspec.Struct):
    """A line that a log collector wrapped (docker's ``log``, others' ``message``), and where it came from.

    What tells of the source may be of any type: it is looked at one by one.
    """

    log: str | None = None
    message: str | None = None
    msg: str | None = None
    text: str | None = None
    stream: str | None = None
    time: str | int | float | None = None
    rank: msgspec.Raw = _NOTHING
    global_rank: msgspec.Raw = _NOTHING
    local_rank: msgspec.Raw = _NOTHING
    pod: msgspec.Raw = _NOTHING
    pod_name: msgspec.Raw = _NOTHING
    container: msgspec.Raw = _NOTHING
    container_name: msgspec.Raw = _NOTHING
    container_id: msgspec.Raw = _NOTHING
    host: msgspec.Raw = _NOTHING
    hostname: msgspec.Raw = _NOTHING
    node: msgspec.Raw = _NOTHING
    task: msgspec.Raw = _NOTHING
    pid: msgspec.Raw = _NOTHING
    kubernetes: msgspec.Raw = _NOTHING
    labels: msgspec.Raw = _NOTHING


class _JsonPod(msgspec.Struct):
    """Where a line came from, as collectors on Kubernetes write it (``kubernetes``, ``labels``)."""

    pod_name: msgspec.Raw = _NOTHING
    pod: msgspec.Raw = _NOTHING
    container_name: msgspec.Raw = _NOTHING
    container: msgspec.Raw = _NOTHING
    host: msgspec.Raw = _NOTHING
    node_name: msgspec.Raw = _NOTHING


_JSON_POD: Final = msgspec.json.Decoder(_JsonPod)
_JSON_VALUE: Final[msgspec.json.Decoder[str | int | None]] = msgspec.json.Decoder(str | int | None)
_JSON_LINE: Final = msgspec.json.Decoder(_JsonLine)


class _Learned(NamedTuple):
    """A prefix learned from a header: how to find it again, and what it tells."""

    shape: re.Pattern[str]
    name: str
    rank: int | None
    pid: int


class _Taken:
    """What the prefixes of one line have told so far."""

    __slots__ = ("is_partial", "names", "pid", "rank", "stamp")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rank: int | None = None
        self.pid = 0
        self.stamp = ""
        self.is_partial = False

    def known(self, text: str, at: int) -> re.Match[str] | None:
        """The prefix at ``at`` if it is one of those known beforehand."""
        if date := _DATE.match(text, at):
            self.stamp = self.stamp or date["date"]
            if date["stream"]:
                self.names.append(date["stream"])
                self.is_partial = date["part"] == "P"
            return date
        if found := _RANK.match(text, at):
            self.names.append(found[0])
            self.rank = int(found[1])
        elif found := _RAY.match(text, at):
            self.names.append(found[0])
            self.pid = int(found[1])
        elif found := _SYSLOG.match(text, at):
            self.names.append(found[1])
            self.pid = int(found[2] or 0)
        elif self.stamp and (found := _JOURNAL.match(text, at)):
            self.names.append(found[0])
            self.pid = int(found[1])
        else:
            found = next((one for pattern in _CHANNELS if (one := pattern.match(text, at))), None)
            if found:
                self.names.append(found[0].strip())
        return found


class Prefixes:
    """Takes lines apart; remembers what it has learned from headers."""

    def __init__(self) -> None:
        self._learned: dict[str, _Learned] = {}

    def split(self, text: str) -> Prefixed:
        """The line without what stands before it."""
        if not (self._learned or _ANY_KNOWN.match(text)):
            return Prefixed(_NOWHERE, "", text)
        taken = _Taken()
        at = 0
        for _ in range(_DEEPEST):
            end = self._take(taken, text, at)
            if end is None and at and text.startswith(" ", at):
                end = self._take(taken, text, at + 1)
            if end is None:
                break
            at = end
        if not at:
            return Prefixed(_NOWHERE, "", text)
        body = text[at:]
        if taken.pid and "[repeated " in body:
            body = _REPEATED.sub("", body)
        origin = Origin(" ".join(taken.names), taken.rank, taken.pid)
        return Prefixed(origin, taken.stamp, body, taken.is_partial)

    def _take(self, taken: _Taken, text: str, at: int) -> int | None:
        """Take the prefix at ``at``; where it ends, ``None`` when there is none."""
        found = taken.known(text, at)
        if found is not None:
            return found.end()
        for learned in self._learned.values():
            if found := learned.shape.match(text, at):
                taken.names.append(learned.name)
                taken.rank = learned.rank if taken.rank is None else taken.rank
                taken.pid = taken.pid or learned.pid
                return found.end()
        return None

    def learn(self, body: str, end: int) -> bool:
        """Remember that ``body[:end]``, before a dump's header, is what stands before a source's lines.

        Returns:
            Whether it is short enough for that.
        """
        prefix = body[:end]
        if not 0 < end <= _LONGEST or not prefix.strip():
            return False
        name = _ANY_STAMP.sub("", prefix).strip()
        if name in self._learned:
            self._learned[name] = self._learned.pop(name)  # the longest unused one goes first
            return True
        if len(self._learned) >= _LEARNED:
            del self._learned[next(iter(self._learned))]
        pieces = [re.escape(piece) for piece in _ANY_STAMP.split(prefix.rstrip())]
        shape = re.compile(_STAMP.join(pieces))
        process = _PROGRAM.search(prefix)
        self._learned[name] = _Learned(shape, name, _named_rank(prefix), int(process[1]) if process else 0)
        return True


def _named_rank(prefix: str) -> int | None:
    for found in _RANK_WORD.finditer(prefix):
        if not _NOT_GLOBAL.search(found["before"]):
            return int(found[2])
    return None


def unwrap_json(text: str) -> tuple[str, Prefixed] | None:
    """What a log collector wrapped into one JSON object, ``None`` when the line is no such object.

    Returns:
        The text, which may be of several lines, and the line it came from (``body`` empty).
    """
    if not (text.startswith('{"') and text.endswith("}")):
        return None
    try:
        line = _JSON_LINE.decode(text)
    except _UNREADABLE:
        return None
    for inner in (line.log, line.message, line.msg, line.text):
        if inner is not None:
            stamp = line.time if isinstance(line.time, str) else ""
            return inner, Prefixed(_json_origin(line), stamp, "")
    return None


def _json_origin(line: _JsonLine) -> Origin:
    """Whose line it is: all that tells its source makes the channel."""
    rank = next(
        (one for raw in (line.global_rank, line.rank) if (one := _json_number(raw)) is not None), None
    )
    names = [line.stream or "json"]
    if rank is not None:
        names.append(f"rank={rank}")
    for word, raw in (
        ("pod", line.pod),
        ("pod", line.pod_name),
        ("container", line.container),
        ("container", line.container_name),
        ("container", line.container_id),
        ("host", line.host),
        ("host", line.hostname),
        ("node", line.node),
        ("task", line.task),
        ("local_rank", line.local_rank),
    ):
        names += _json_name(word, raw)
    for inner in (line.kubernetes, line.labels):
        names += _json_pod(inner)
    pid = _json_number(line.pid) or 0
    if pid:
        names.append(f"pid={pid}")
    return Origin(" ".join(names), rank, pid)


def _json_pod(raw: msgspec.Raw) -> list[str]:
    if raw == _NOTHING:
        return []
    try:
        pod = _JSON_POD.decode(raw)
    except _UNREADABLE:
        return []
    return [
        *_json_name("pod", pod.pod_name),
        *_json_name("pod", pod.pod),
        *_json_name("container", pod.container_name),
        *_json_name("container", pod.container),
        *_json_name("host", pod.host),
        *_json_name("node", pod.node_name),
    ]


def _json_value(raw: msgspec.Raw) -> str | int | None:
    if raw == _NOTHING:
        return None
    try:
        return _JSON_VALUE.decode(raw)
    except _UNREADABLE:
        return None


def _json_name(word: str, raw: msgspec.Raw) -> list[str]:
    value = _json_value(raw)
    return [] if value is None or value == "" else [f"{word}={str(value)[:_LONGEST]}"]


def _json_number(raw: msgspec.Raw) -> int | None:
    """A number, also one that is written as text."""
    value = _json_value(raw)
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None  # noqa: PLR2004
    return value if value is not None and 0 <= value < 1 << 31 else None
