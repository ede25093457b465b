"""What a wait is for, by name: the key in the store, the file, the lock.

Read from what is at hand: the text of the user's line, the local variables of the frames above it, what the
kernel says of the blocked call. A hint for the reader; no verdict rests on it.
"""

from __future__ import annotations

import re
from typing import Final

from rankscope.diag.classify.position import Position, source_of
from rankscope.diag.classify.view import JobView, RankView
from rankscope.diag.model import Evidence, Kind

_TEXT: Final = re.compile(r"""(?<![\w"'])[rbuf]{0,2}(["'])(?P<text>(?:(?!\1).){1,200})\1""")
_KEY_CALL: Final = re.compile(r"\.\s*(?:get|wait|multi_get)\s*\(\s*\[?\s*(?P<rest>.*)")
_LOCK: Final = re.compile(r"\bwith\s+(?P<with>[\w.\[\]]+)|(?P<acquired>[\w.\[\]]+)\.acquire\s*\(")
_PATH: Final = re.compile(r"/|\.\w{1,8}$")
_KEYS: Final = ("key", "keys", "store_key")
_FILES: Final = (
    "path",
    "filename",
    "file_name",
    "filepath",
    "file",
    "name",
    "f",
    "lock_file_path",
    "checkpoint_path",
)
_DEPTH: Final = 4  # frames whose local variables are looked at
_LONGEST: Final = 120
_BUILD_LOCK: Final = "the lock file that FileBaton.wait sees, of a build that none of them does"
_FILE_KINDS: Final[frozenset[Kind]] = frozenset({"checkpoint", "storage", "compile", "data_loading"})


def thing_of(job: JobView, view: RankView, kind: Kind) -> str:
    """``the key "plan"``, ``the file /mnt/x.pt``, ``the lock cache_lock``; empty when nothing names it."""
    position, facts = view.position, view.latest.facts
    if position is None:
        return ""
    frame = position.user_frame
    text = (source_of(frame, job.source_line) if frame is not None else None) or ""
    if kind in ("store_wait", "startup"):
        return _named("key", _key_in(text) or _variable(position, _KEYS))
    known = facts.blocked_in.partition(" ")[2] if facts is not None and position.thread.is_main else ""
    if kind in _FILE_KINDS:
        named = _named("file", known or _path_in(text) or _path(_variable(position, _FILES)))
        return named or (_BUILD_LOCK if waits_for_a_build(position) else "")
    if kind == "lock":
        found = _LOCK.search(text)
        return _named("lock", (found["with"] or found["acquired"]) if found else "") or _named("file", known)
    return ""


def waits_for_a_build(position: Position) -> bool:
    """Whether it is in torch's wait for the file that another process takes away at the end of its build."""
    return any(frame.file.endswith("torch/utils/file_baton.py") for frame in position.thread.frames)


def thing_evidence(view: RankView, thing: str) -> list[Evidence]:
    """The same as evidence, where it is known."""
    source = view.latest.source or "stack"
    return [Evidence(source, f"what it waits for: {thing}", view.rank)] if thing else []


def _named(noun: str, name: str) -> str:
    shown = name if len(name) <= _LONGEST else name[:_LONGEST] + "..."
    quoted = f'"{shown}"' if noun == "key" else shown
    return f"the {noun} {quoted}" if shown else ""


def _key_in(text: str) -> str:
    called = _KEY_CALL.search(text)
    found = _TEXT.match(called["rest"]) if called else None
    return found["text"] if found else ""


def _path_in(text: str) -> str:
    texts = (found["text"] for found in _TEXT.finditer(text))
    return next((one for one in texts if _path(one) and "{" not in one), "")


def _path(text: str) -> str:
    return text if _PATH.search(text) and " " not in text else ""


def _variable(position: Position, names: tuple[str, ...]) -> str:
    """The printed value of the first local variable of such a name, nearest to the leaf."""
    for variables in sorted(position.thread.variables, key=lambda one: one.frame):
        if not 0 <= variables.frame < _DEPTH:
            continue
        values = dict(variables.values)
        for name in names:
            value = values.get(name, "").strip()
            inner = re.fullmatch(r"""(?:\w*Path\()?[rbu]?(["'])(?P<text>.*)\1\)?""", value)
            if inner is not None and inner["text"]:
                return inner["text"]
    return ""
