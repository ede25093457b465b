"""Reads torch's flight record of one rank, in JSON or as a pickle, of versions 1.x to 2.10, NCCL and gloo.

Sources: torch's ``FlightRecorderDetail.hpp`` (2.13) and dumps of real jobs. What differs between them:
JSON has the numbers of ``pg_status`` as strings, 0 for unknown times, and no ``entries`` when there is none;
``ranks`` is a string ("[0, 1]"). On gloo ``pg_config`` has one key ``""``, whose ranks are those of the
default group as long as there is no other, and ``[]`` afterwards. ``pg_id`` is local to the rank; the name of
a group is what its entries say. Version "2.10" is (2, 10): it is kept as written and nothing hangs on it.

A record that was cut off gives what was there; entries that are none are left out and counted. It knows no
files: who calls it finds the rank in a file's name when the record does not name it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from rankscope.diag.model import Collective, FlightRecord, RecordedGroup
from rankscope.diag.read.coalesced import has_groups, settle_groups
from rankscope.diag.read.plain_pickle import load_plain
from rankscope.diag.read.record_entries import MAX_NUMBER, EntryReader, Plain, number_of

_HEAD: Final = 4_096
_WORDS: Final = (
    b"pg_config",
    b"pg_status",
    b"comm_lib_version",
    b"nccl_version",
    b"profiling_name",
    b"record_id",
)
_PROTOCOL_0: Final = re.compile(rb"(?:\(dp?\d*|\(lp?\d*|[\]}]q)")
_NUMBER: Final = re.compile(r"\d{1,10}")
_MOST_RANKS: Final = 1_000_000
_LONGEST_NAME: Final = 300
_NO_VERSION: Final = "unknown"  # of a dump that does not tell it: without one it would be lines of a log
_LAST_FIELDS: Final = frozenset({"state", "retired", "is_p2p"})  # of an entry; older versions lack the last
_DEFAULT: Final = "default_pg"
_STACKS: Final = 256  # newest entries of which the stack is kept in any case: most of the time goes there
_ENTRIES: Final = re.compile(r'"entries"\s*:\s*\[')
_PARTS: Final = re.compile(r'"(pg_config|pg_status|version|rank)"\s*:\s*')
_JSON_FLAWS: Final = (msgspec.MsgspecError, RecursionError, ValueError)


def looks_like_record(head: bytes) -> bool:
    """Whether a file may be a flight record.

    Args:
        head: its first bytes, some hundred at least.

    Returns:
        True for JSON that has a record's keys, and for any pickle: what else a pickle holds is told when it
        is read, and nothing but pickles begins like one.
    """
    if head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}:
        return True
    text = head[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in {b"{", b"["} or _PROTOCOL_0.match(text):
        return any(word in text for word in _WORDS)
    return False


def parse_record(data: bytes) -> tuple[FlightRecord | None, tuple[str, ...]]:
    """Read one record.

    Args:
        data: the whole file; for the rank that wrote it see ``FlightRecord.rank``.

    Returns:
        The record, ``None`` when there is none, and one line for each thing that was not read. Never raises,
        and executes nothing that a pickle asks for.
    """
    text = data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in {b"{", b"["}:
        document, problems, is_cut = _from_json(text)
    else:
        loaded = load_plain(data)
        document, problems = loaded.value, [loaded.problem] if loaded.problem else []
        is_cut = bool(problems)
    if isinstance(document, list) and any(isinstance(one, dict) for one in document):
        document = {"entries": document}  # torch 2.2 wrote the bare list
    if not isinstance(document, dict) or not (document.keys() & {"entries", "pg_config", "pg_status"}):
        return None, tuple(f"flight record: {one}" for one in problems or ["nothing of a record in it"])
    record = _record(document, problems, is_cut=is_cut)
    return record, tuple(f"flight record: {one}" for one in problems)


def _from_json(text: bytes) -> tuple[object, list[str], bool]:
    """The document, what is wrong with it, and whether its newest entries are missing."""
    try:
        return msgspec.json.decode(text), [], False
    except _JSON_FLAWS:
        pass
    clean = text.decode("utf-8", "replace")
    try:
        return json.JSONDecoder().raw_decode(clean)[0], [], False  # a file with something behind the record
    except _JSON_FLAWS as error:
        entries, is_cut = _whole_entries(clean)
        document = {**_parts_before_entries(clean), "entries": entries} if entries else None
        return document, [f"not whole ({' '.join(str(error).split())[:100]})"], is_cut


def _whole_entries(text: str) -> tuple[list[object], bool]:
    """The entries at the head of a record that was cut off, and whether others are missing behind them."""
    found = _ENTRIES.search(text)
    decoder, entries = json.JSONDecoder(), list[object]()
    at = found.end() if found else len(text)
    while (at := text.find("{", at)) >= 0:
        try:
            entry, at = decoder.raw_decode(text, at)
        except _JSON_FLAWS:
            break
        entries.append(entry)
        after = text[at : at + 20].lstrip()[:1]
        if after != ",":
            return entries, after != "]"
    return entries, True


def _parts_before_entries(text: str) -> dict[str, object]:
    """What stands before the entries of a record that was cut off: nothing as torch writes JSON, by name."""
    found = _ENTRIES.search(text)
    head, decoder, parts = text[: found.start() if found else 0], json.JSONDecoder(), dict[str, object]()
    for match in _PARTS.finditer(head):
        with contextlib.suppress(*_JSON_FLAWS):
            parts.setdefault(match[1], decoder.raw_decode(head, match.end())[0])
    return parts


class _Config(NamedTuple):
    """The groups as ``pg_config`` has them; ``nameless`` are the members of one without a name (gloo)."""

    descriptions: dict[str, str]
    members: dict[str, tuple[int, ...]]
    nameless: list[int]


def _record(document: Plain, problems: list[str], *, is_cut: bool) -> FlightRecord:
    rows, is_torn = document.get("entries") or [], bool(problems)
    if not isinstance(rows, list):
        problems.append("its entries are no list")
        rows, is_torn = [], True
    if is_torn:
        rows = _without_torn(rows)
    config = _config(document.get("pg_config"))
    statuses = _status(document.get("pg_status"))
    reader = EntryReader({key: one.completed for key, one in statuses.items()}, config.members)
    old = len(rows) - _STACKS
    found: list[tuple[Plain, Collective]] = [
        (row, entry)
        for at, row in enumerate(rows)
        if isinstance(row, dict) and (entry := reader.read(row, is_old=at < old)) is not None
    ]
    if len(found) < len(rows):
        problems.append(f"{len(rows) - len(found)} of {len(rows)} entries not understood")
    is_whole = not is_torn and len(found) == len(rows) and _is_whole(rows, has_status=bool(statuses))
    if has_groups(found, reader.ops):
        found = settle_groups(found, is_whole=is_whole)
    version = document.get("version", "")
    return FlightRecord(
        groups=_groups(found, config, statuses, is_cut=is_cut),
        entries=tuple(entry for _, entry in found),
        is_whole=is_whole,
        version=version[:20] if isinstance(version, str) and version else _NO_VERSION,
        rank=_own_rank(document, reader.own_ranks),
        is_cut=is_cut,
    )


def _without_torn(rows: list[object]) -> list[object]:
    """Without a last entry that lacks fields: what it does not say must not be taken for "not completed"."""
    last = rows[-1] if rows else None
    if not isinstance(last, dict):
        return rows
    before = rows[-2] if len(rows) > 1 else None
    needed = before.keys() if isinstance(before, dict) else _LAST_FIELDS
    return rows if needed <= last.keys() else rows[:-1]


def _config(value: object) -> _Config:
    config = _Config({}, {}, [])
    for key, group in value.items() if isinstance(value, dict) else ():
        if not isinstance(group, dict):
            continue
        name, members = group.get("name", key), _ranks(group.get("ranks"))
        if not name:
            config.nameless.extend(members)
        elif isinstance(name, str) and len(name) <= _LONGEST_NAME:
            config.descriptions[name] = _description(group.get("desc"))
            config.members[name] = members
    return config


def _ranks(value: object) -> tuple[int, ...]:
    """``"[0, 1, 2]"``, or a list of numbers."""
    if isinstance(value, str):
        return _ranks_of(value)
    if isinstance(value, (list, tuple)) and len(value) <= _MOST_RANKS:
        return tuple(one for one in value if type(one) is int and 0 <= one <= MAX_NUMBER)
    return ()


@functools.lru_cache(maxsize=64)
def _ranks_of(text: str) -> tuple[int, ...]:
    """Every rank of a group names the same members: one tuple for all of them."""
    return tuple(int(one[0]) for one in itertools.islice(_NUMBER.finditer(text), _MOST_RANKS))


def _description(value: object) -> str:
    return value[:_LONGEST_NAME] if isinstance(value, str) and value != "undefined" else ""


class _Status(NamedTuple):
    """The last collective that was called, seen to run, and ended; -1 for none."""

    enqueued: int = -1
    started: int = -1
    completed: int = -1


def _status(value: object) -> dict[int, _Status]:
    statuses: dict[int, _Status] = {}
    for key, one in value.items() if isinstance(value, dict) else ():
        try:
            statuses[number_of(key, least=0)] = _Status(
                *(number_of(one.get(f"last_{name}_collective", -1)) for name in _Status._fields)
            )
        except (ValueError, AttributeError):
            continue
    return statuses


def _groups(
    rows: list[tuple[Plain, Collective]], config: _Config, statuses: dict[int, _Status], *, is_cut: bool
) -> tuple[RecordedGroup, ...]:
    """One group for each that has entries, then those that only the status or the configuration has.

    What the entries say of the last call is the last word only where none behind them was cut off.
    """
    seen: dict[tuple[object, str], tuple[str, int, int]] = {}
    with_peers = set[tuple[object, str]]()
    for row, entry in rows:
        key = (_pg_id(row), entry.group)
        description, called, ended = seen.get(key) or (_described(row, config, entry.group), -1, -1)
        if not entry.is_p2p:
            called = max(called, entry.seq)
            ended = max(ended, entry.seq) if entry.is_completed else ended
        else:
            with_peers.add(key)
        seen[key] = (description, called, ended)
    groups: list[RecordedGroup] = []
    for (pg_id, name), (description, called, ended) in seen.items():
        status = statuses.get(pg_id) if isinstance(pg_id, int) else None
        members = config.members.get(name, ())
        if not members and description == _DEFAULT:
            members = tuple(config.nameless)
        last = status or (_Status() if is_cut else _Status(called, -1, ended))
        # NCCL counts a collective as enqueued when its call returns.
        enqueued = max(last.enqueued, called) if status or not is_cut else -1
        is_inside = status is not None and called > 0 and called - 1 == max(status.enqueued, 0)
        is_known = not is_cut and (pg_id, name) not in with_peers
        groups.append(
            RecordedGroup(
                name,
                description,
                members,
                enqueued,
                last.started,
                last.completed,
                called if is_inside and is_known else -1,
            )
        )
    with_entries = {pg_id for pg_id, _ in seen}
    groups += [
        RecordedGroup("", "", (), *one) for pg_id, one in statuses.items() if pg_id not in with_entries
    ]
    names = {group.name for group in groups}
    groups += [
        RecordedGroup(name, config.descriptions[name], members)
        for name, members in config.members.items()
        if name not in names
    ]
    if config.nameless and not any(group.description == _DEFAULT for group in groups):
        groups.append(RecordedGroup("", "", tuple(config.nameless)))
    return tuple(groups)


def _pg_id(row: Plain) -> int | None:
    value = row.get("pg_id")
    return value if isinstance(value, int) else None


def _described(row: Plain, config: _Config, name: str) -> str:
    group = row.get("process_group")
    told = group[1] if isinstance(group, (list, tuple)) and len(group) > 1 else ""
    return _description(told) or config.descriptions.get(name, "")


def _is_whole(rows: Sequence[object], *, has_status: bool) -> bool:
    """Whether nothing is missing at its head or between: the ring had room, and nothing was left out.

    A group gets a status with its first entry: none at all means that nothing was called so far.
    """
    if not rows:
        return not has_status
    first, last = rows[0], rows[-1]
    if not isinstance(first, dict) or not isinstance(last, dict):
        return False
    return first.get("record_id") == 0 and last.get("record_id") == len(rows) - 1


def _own_rank(document: Plain, told: set[int]) -> int | None:
    try:
        return number_of(document.get("rank", document.get("global_rank")), least=0)
    except ValueError:
        return next(iter(told)) if len(told) == 1 else None
