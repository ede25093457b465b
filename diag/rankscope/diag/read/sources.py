"""Gives each line of an input to the channel of its source, and learns sources that were not known before.

It must not know which lines are worth reading.
"""

from __future__ import annotations

import re
from typing import Final

from rankscope.diag.read import documents, faulthandler, gdb, pyspy_text, pystack
from rankscope.diag.read.channels import Channel, Found
from rankscope.diag.read.lines import Line, Origin, clean
from rankscope.diag.read.log_call_stacks import LINE as CALL_STACK
from rankscope.diag.read.prefixes import Prefixed, Prefixes, unwrap_json

# Lines that belong to nothing, after which nobody waits any longer for a silent source to go on. Lines of
# other dumps do not count: the dumps of 1,000 ranks may be written at the same time.
_IDLE_LINES: Final = 2_000
_SWEEP_LINES: Final = 256
_MOST_KEPT: Final = 4_096  # lines taken apart that are kept, and bytes of the longest
_LONGEST_KEPT: Final = 512
_LONGEST_HEADER: Final = 8_192  # characters of a line in which a header is looked for
_NUMBER: Final = re.compile(r"\d{1,6}:$")
_HEADERS: Final = (
    pyspy_text.HEADER,
    pystack.HEADER,
    faulthandler.HEADER,
    gdb.HEADER,
    documents.HEADER,
)
# What a header holds that an unknown text may stand before.
_HEADER_WORDS: Final = re.compile(
    r'\((?:idle|active|most recent)|Python v\d|for thread \d|\(LWP |\(process |"pid": '
)


class Sources:
    """All sources of one input."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._tally = found.tally
        self._prefixes = Prefixes()
        self._memo: dict[bytes, Prefixed] = {}  # lines taken apart: ranks of a job show the same ones
        self._channels: dict[str, Channel] = {}
        self._busy: dict[str, Channel] = {}
        self._last_key: str | None = None
        self._last: Channel | None = None
        self._number = 0
        self._idle = 0  # lines that belonged to nothing

    @property
    def is_busy(self) -> bool:
        """Whether the next line may belong to something that has begun."""
        return bool(self._busy)

    def body(self, raw: bytes) -> str:
        """The beginning of a line, without what stands before it."""
        return self._prefixes.split(clean(raw)).body

    def settle(self, *, is_torn: bool = False) -> None:
        """End all that is open.

        Args:
            is_torn: whether the last line that was read was the input's last, and had no end.
        """
        if is_torn and (last := next(reversed(self._channels.values()), None)) is not None:
            last.tear()
        for channel in self._channels.values():
            channel.settle()

    def read(self, raw: bytes, *, number: int) -> None:
        """Read one line.

        Args:
            raw: with its end, if it has one.
            number: its number in the input, from 1.
        """
        self._number = number
        known = self._memo.get(raw)
        if known is not None:
            self._deliver(known, may_begin=False)
            return
        prefixed = self._prefixes.split(clean(raw))
        if prefixed.origin.rank is not None:
            self._found.ranks.add(prefixed.origin.rank)
        if len(raw) <= _LONGEST_KEPT and not prefixed.stamp and not _may_teach(prefixed):
            if len(self._memo) >= _MOST_KEPT:
                self._memo.clear()
            self._memo[raw] = prefixed
        if prefixed.body.startswith('{"') and (wrapped := unwrap_json(prefixed.body)):
            for inner in wrapped[0].splitlines() or [""]:
                self._deliver(self._inside(prefixed, wrapped[1], clean(inner.encode("utf-8", "replace"))))
        else:
            self._deliver(prefixed)

    def _inside(self, outer: Prefixed, wrapper: Prefixed, text: str) -> Prefixed:
        """A line of a JSON line: its source is that of all three, the innermost rank and date count."""
        inner = self._prefixes.split(text)
        origins = (inner.origin, wrapper.origin, outer.origin)
        origin = Origin(
            " ".join(one.channel for one in reversed(origins) if one.channel),
            next((one.rank for one in origins if one.rank is not None), None),
            next((one.pid for one in origins if one.pid), 0),
        )
        return Prefixed(origin, inner.stamp or wrapper.stamp or outer.stamp, inner.body)

    def _deliver(self, line: Prefixed, *, may_begin: bool = True) -> None:
        line = self._of_its_message(self._with_its_number(line)) if self._busy else line
        key = line.origin.channel
        if may_begin and _HEADER_WORDS.search(line.body):
            learned = self._learn(line)
            if learned is not None:
                line, key = learned, learned.origin.channel
        channel = self._last if key == self._last_key else None
        if channel is None:
            channel = self._channels.pop(key, None)
            if channel is None:
                self._make_room()
                channel = Channel(line.origin, self._found)
            self._channels[key] = channel  # the longest unused one stands first
            self._last_key, self._last = key, channel
        taken = channel.feed(Line(self._number, line.body), stamp=line.stamp, is_partial=line.is_partial)
        channel.seen = self._idle
        if not taken:
            self._idle += 1
            if self._idle % _SWEEP_LINES == 0:
                self._sweep()
        if channel.is_busy:
            self._busy[key] = channel
        elif key in self._busy:
            del self._busy[key]

    def _with_its_number(self, line: Prefixed) -> Prefixed:
        """A line of a list of ranks (``3: [...]``), of which the number was taken for a task's."""
        outer, _, number = line.origin.channel.rpartition(" ")
        if _NUMBER.match(number) is None or not line.body.lstrip().startswith("["):
            return line
        channel = self._busy.get(outer)
        if channel is None or not channel.lists_ranks:
            return line
        return line._replace(
            origin=line.origin._replace(channel=outer), body=f" {number} {line.body.lstrip()}"
        )

    def _of_its_message(self, line: Prefixed) -> Prefixed:
        """A line of a stack, given to the source whose message of several lines it belongs to."""
        if CALL_STACK.match(line.body) is None:
            return line
        outer = line.origin.channel
        waiting = [key for key, one in self._busy.items() if one.awaits_stack and key.startswith(outer)]
        key = self._last_key if self._last_key in waiting else waiting[0] if len(waiting) == 1 else None
        return line if key is None else line._replace(origin=line.origin._replace(channel=key))

    def _learn(self, line: Prefixed) -> Prefixed | None:
        """The line without an unknown text before a dump's header, where there is one."""
        body = line.body[:_LONGEST_HEADER]
        for header in _HEADERS:
            found = header.search(body)
            if found is None or not body[: found.start()].strip():
                continue
            if not self._prefixes.learn(body, found.start()):
                return None
            self._memo.clear()
            return self._again(line)
        return None

    def _again(self, line: Prefixed) -> Prefixed:
        """Take a line apart once more, with what was just learned; its source's last lines with it."""
        outer = line.origin
        again = self._joined(outer, line)
        before = self._channels.get(outer.channel)
        if before is not None and again.origin.channel not in self._channels:
            self._make_room()
            self._last_key = self._last = None
            channel = self._channels[again.origin.channel] = Channel(again.origin, self._found)
            for recent in before.recent:
                split = self._prefixes.split(recent.text)
                if split.origin.channel and again.origin.channel.endswith(split.origin.channel):
                    channel.remember(Line(recent.number, split.body))
        return again

    def _joined(self, outer: Origin, line: Prefixed) -> Prefixed:
        inner = self._prefixes.split(line.body)
        origin = Origin(
            f"{outer.channel} {inner.origin.channel}".strip(),
            outer.rank if inner.origin.rank is None else inner.origin.rank,
            outer.pid or inner.origin.pid,
        )
        return Prefixed(origin, line.stamp, inner.body, line.is_partial)

    def _make_room(self) -> None:
        if len(self._channels) >= self._tally.bounds.channels:
            self._last_key = self._last = None
            key = next(iter(self._channels))
            channel = self._channels.pop(key)
            if self._busy.pop(key, None) is not None:
                self._tally.note(f"more than {self._tally.bounds.channels} sources of lines at one time")
            channel.settle()

    def _sweep(self) -> None:
        """Wait no longer for sources that have been silent."""
        for key, channel in list(self._busy.items()):
            if channel.seen < self._idle - _IDLE_LINES:
                channel.settle()
                if not channel.is_busy:
                    del self._busy[key]


def _may_teach(line: Prefixed) -> bool:
    """Whether more is to be done for a line than to take it apart: it holds others, or an unknown prefix."""
    return line.body.startswith('{"') or _HEADER_WORDS.search(line.body) is not None
