"""Loads a pickle of plain values: dicts, lists, strings, bytes, numbers, ``None``. Executes nothing.

Two steps. A scan walks the opcodes, at C speed where their size is fixed and over short strings (a record of
2,000 collectives with stacks has 400,000), and refuses what does more than make a plain value: names to
import, calls, extension codes, persistent ids, buffers, huge numbers and memo slots. What is left goes to C's
unpickler, with one change: whatever makes a tuple is rewritten to make a list. A list cannot be the key of a
dict; tuples as keys can be made to collide, or to nest until the C stack ends. What else may be a key
(strings, bytes, numbers of 64 bits) is safe to hash; a flight record has only strings.

The value may share parts, or contain itself: read it at fixed depths, do not walk it. Sets, bytearrays and
the escaped strings of Python 2 are refused too. This module knows nothing of flight records.
"""

from __future__ import annotations

import functools
import io
import itertools
import pickle
import re
import sys
from dataclasses import dataclass
from typing import Final

MAX_BYTES: Final = 128 << 20  # the 2,000 entries that torch keeps by default take 0.3-1 MB
MAX_CONTAINERS: Final = 2_000_000  # 240 bytes each at most; a record has about 10 an entry
MAX_TUPLES: Final = 200_000  # each costs a call; a record has one an entry
_MEMO_SLOTS: Final = 1 << 22  # C's unpickler allocates up to the highest slot that is named
_NUMBER_BYTES: Final = 9  # 64 bits and a sign
_NUMBER_CHARACTERS: Final = 40
_NUMBER_DIGITS: Final = 22  # of 64 bits, with a sign and Python 2's "L"
_OPEN_AT_MOST: Final = 64  # containers open at once in what is read of a cut pickle

# Opcodes of fixed size that make or move plain values, and strings of ASCII below 256 bytes, each length on
# its own; what makes a tuple ends a run. Numbers are those of 8 bytes, the times of entries; a dict that is
# begun, with its memo slot, goes in one piece.
_TEXTS: Final = b"|".join(
    re.escape(bytes([size])) + rb"\x00\x00\x00[\x00-\x7f]{%d}" % size for size in range(256)
)
_RUN: Final = (
    rb"(?:[hKq].|\}r..[\x00-\x3f]\x00\(|[()\]}aeldsuN\x88\x89\x94]|r..[\x00-\x3f]\x00|X(?:%s)|M.."
    rb"|[Jj]....|\x8a\x08.{8}|G.{8}|[012])"
    rb"{0,1000}%s"
) % (_TEXTS, b"+" * (sys.version_info >= (3, 11)))  # there, it remembers no way back: a quarter of the time
_TUPLE: Final = ord("t")
_TUPLES: Final = frozenset(b"\x85\x86\x87")  # of one, two and three
_INTO_LIST: Final = b"Q"  # a persistent id, of which the input can have none: a call of ours
_CLOSE: Final = b"t\x86\x85Q"
_STOP: Final = ord(".")
_LONG1: Final = 0x8A
_SIGNS: Final = (b"\x00", b"\xff")  # of a number of 64 bits in nine bytes
_FRAME: Final = 0x95
_STRINGS: Final = {ord("X"): 4, 0x8C: 1, 0x8D: 8}  # opcode: bytes of its length field
_NUMBERS: Final = {_LONG1: 1, 0x8B: 4}
_LENGTHS: Final = {**_STRINGS, **_NUMBERS, ord("B"): 4, ord("C"): 1, 0x8E: 8, ord("T"): 4, ord("U"): 1}
_LINES: Final = frozenset(b"ILFVSgp")
_WIDTHS: Final = {
    **dict.fromkeys(b"()]}aeldsuN012\x88\x89\x94", 1),  # met here where a run got too long
    **dict.fromkeys(b"hKq\x80", 2),
    ord("M"): 3,
    **dict.fromkeys(b"Jjr", 5),
    **dict.fromkeys((ord("G"), _FRAME), 9),
}
_REFUSED: Final = {
    ord("c"): "a name to import (GLOBAL)",
    0x93: "a name to import (STACK_GLOBAL)",
    ord("i"): "an object to make (INST)",
    ord("o"): "an object to make (OBJ)",
    0x81: "an object to make (NEWOBJ)",
    0x92: "an object to make (NEWOBJ_EX)",
    ord("R"): "a call (REDUCE)",
    ord("b"): "an object's state (BUILD)",
    0x82: "an extension code (EXT1)",
    0x83: "an extension code (EXT2)",
    0x84: "an extension code (EXT4)",
    ord("P"): "a persistent id (PERSID)",
    ord("Q"): "a persistent id (BINPERSID)",
    0x97: "a buffer from elsewhere (NEXT_BUFFER)",
    0x98: "a buffer (READONLY_BUFFER)",
    0x96: "a bytearray (BYTEARRAY8)",
    0x8F: "a set (EMPTY_SET)",
    0x90: "a set (ADDITEMS)",
    0x91: "a set (FROZENSET)",
    ord("r"): "a memo slot beyond the limit",
}


@dataclass(frozen=True, slots=True)
class Unpickled:
    """What a pickle holds.

    Attributes:
        value: the value; of a cut pickle its outermost container with what had come; ``None`` when refused.
        problem: one line that says why there is no value, or not all of it; ``""`` when it is whole.
    """

    value: object = None
    problem: str = ""


class _RefusedError(Exception):
    """The pickle holds more than plain values, or is over a limit."""


def load_plain(data: bytes) -> Unpickled:
    """Load one pickle of any protocol (0 to 5); what stands after its end is not looked at.

    Never raises, and executes nothing. Time and memory grow with the length of the data, not with what it
    says, and the length and the number of containers have limits (``MAX_BYTES``, ``MAX_CONTAINERS``).
    """
    try:
        _check_size(data)
        stream, is_cut = _scan(data)
        unpickler = _Unpickler(stream)
        try:
            return Unpickled(unpickler.load())
        except (pickle.UnpicklingError, EOFError):
            if not is_cut or unpickler.outermost is None:
                raise
            return Unpickled(unpickler.outermost, f"the pickle is cut off after {len(data)} bytes")
    except _RefusedError as error:
        return Unpickled(problem=f"pickle refused, nothing of it was executed: {error}")
    except Exception as error:  # noqa: BLE001  torn bytes make C's unpickler raise a dozen kinds
        return Unpickled(problem=f"not a whole pickle ({' '.join(str(error).split())[:120]})")


class _Unpickler(pickle.Unpickler):
    """C's unpickler, for a stream that was scanned and rewritten."""

    def __init__(self, stream: bytes) -> None:
        # C reads a file without peek() one opcode a call.
        super().__init__(io.BufferedReader(io.BytesIO(stream)), encoding="utf-8", errors="replace")
        self.outermost: object = None

    def find_class(self, module: str, name: str) -> object:
        raise _RefusedError(f"it names {module}.{name}")

    def persistent_load(self, pid: tuple[object, ...]) -> object:
        """Make a list of what would be a tuple; close what a cut left open: ``((target, items),)``."""
        if len(pid) == 1 and type(pid[0]) is tuple and pid[0]:  # no input makes a tuple in a tuple
            return self._close(*pid[0])
        return list(pid)

    def _close(self, target: object, items: tuple[object, ...]) -> object:
        """Put what a cut left open into what it belongs to; its last part may be half of a pair."""
        if type(target) is dict:
            keys = itertools.takewhile(lambda key: type(key) is str, items[::2])
            target.update(zip(keys, items[1::2]))  # noqa: B905  a last key may be alone
        elif type(target) is list:
            target.extend(items)
        else:
            return target  # a tuple was being made: its items are lost with it
        self.outermost = target
        return target


def _check_size(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise _RefusedError(f"{len(data)} bytes, more than {MAX_BYTES}")
    if len(data) > MAX_CONTAINERS and _containers(data) > MAX_CONTAINERS:
        raise _RefusedError(f"more than {MAX_CONTAINERS} containers")


def _containers(data: bytes) -> int:
    """No fewer than there are, at C speed: counted with the bytes of operands among them.

    What is made from a mark (``t``, ``l``, ``d``, letters of any text) needs one each.
    """
    return len(data) - len(data.translate(None, b"(]})\x85\x86\x87"))


@functools.cache
def _run() -> re.Pattern[bytes]:
    """Compiled when the first pickle is read: that takes some milliseconds."""
    return re.compile(_RUN, re.DOTALL)


def _scan(data: bytes) -> tuple[bytes, bool]:
    """The stream for C's unpickler, and whether the pickle was cut off: then what is open gets closed."""
    pieces: list[bytes] = []
    names: list[str] = []
    match, size = _run().match, len(data)
    start = at = tuples = 0
    while True:
        run = match(data, at)
        at = run.end() if run else at
        if at >= size:
            break
        code = data[at]
        if code in _TUPLES:
            tuples += 1
            if tuples > MAX_TUPLES:
                raise _RefusedError(f"more than {MAX_TUPLES} tuples")
            at += 1
            pieces += (data[start:at], _INTO_LIST)
            start = at
            continue
        if code in (_TUPLE, _STOP):
            pieces += (data[start:at], b"l" if code == _TUPLE else b".")
            start = at = at + 1
            if code == _STOP:
                return b"".join(pieces), False
            continue
        end = _end_of(data, at, names=names)
        if end > size:
            break
        if code in _STRINGS:
            names[:] = (*names[-1:], data[at + 1 + _STRINGS[code] : end].decode("utf-8", "replace"))
            text = names[-1].encode()
            pieces += (data[start:at], b"X", len(text).to_bytes(4, "little"), text)
            start = end
        elif code == _FRAME:
            pieces.append(data[start:at])  # a cut would make it promise too much
            start = end
        at = end
    return b"".join((*pieces, data[start:at], _CLOSE * _OPEN_AT_MOST)), True


def _end_of(data: bytes, at: int, *, names: list[str]) -> int:
    """Where the opcode at ``at`` ends, beyond the data when it was cut off; raises for what is refused."""
    code, size = data[at], len(data)
    beyond = size + 1
    if code in _LINES:
        end = data.find(b"\n", at, size if code in b"SV" else at + _NUMBER_CHARACTERS)
        if end < 0:
            if code in b"SV" or size < at + _NUMBER_CHARACTERS:
                return beyond
            raise _RefusedError(f"a number of more than {_NUMBER_CHARACTERS} characters")
        _check_line(code, data[at + 1 : end])
        return end + 1
    if code in _LENGTHS:
        width = _LENGTHS[code]
        length = int.from_bytes(data[at + 1 : at + 1 + width], "little")
        end = at + 1 + width + length
        if at + 1 + width > size:
            return beyond
        is_long = length == _NUMBER_BYTES and end <= size and data[end - 1 : end] not in _SIGNS
        if code in _NUMBERS and (length > _NUMBER_BYTES or is_long):
            raise _RefusedError(f"a number of {length} bytes")
        return end
    width = _WIDTHS.get(code, 0)
    if width and at + width > size:
        return beyond
    if width and (code != ord("r") or int.from_bytes(data[at + 1 : at + 5], "little") < _MEMO_SLOTS):
        return at + width
    raise _RefusedError(_reason(data, at, names=names))


def _check_line(code: int, line: bytes) -> None:
    if code in b"IL" and len(line) > _NUMBER_DIGITS:
        raise _RefusedError(f"a number of more than {_NUMBER_DIGITS} characters")
    if code == ord("p") and not (line.isdigit() and int(line) < _MEMO_SLOTS):
        raise _RefusedError(_REFUSED[ord("r")])
    if code == ord("S") and b"\\" in line:
        raise _RefusedError("an escaped string of Python 2")


def _reason(data: bytes, at: int, *, names: list[str]) -> str:
    code = data[at]
    reason = _REFUSED.get(code)
    if reason is None:
        return f"byte {code:#04x} at {at} is no opcode: not a pickle"
    if code in b"ci":
        names = [line.decode("ascii", "replace") for line in data[at + 1 : at + 200].split(b"\n")[:2]]
    if code in (*b"ci", 0x93) and len(names) == 2:  # noqa: PLR2004
        reason += ": " + ".".join(names).encode("ascii", "replace").decode()[:80]
    return reason
