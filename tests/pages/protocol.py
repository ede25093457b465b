"""The keys and the waits of the protocol of many nodes, from where they are declared."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Final

from tests.pages.parts import table

from rankscope.agent.nodes import keys as declared
from rankscope.agent.nodes.limits import Limits

_KEY: Final = re.compile(r"^ {4}(\S+) {2,}(\S.*?) {2,}(\S.*)$", re.MULTILINE)

_ATTRIBUTE: Final = re.compile(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", re.MULTILINE)


def keys() -> str:
    """Every key: who writes it, and when it goes."""
    rows = _KEY.findall(declared.__doc__ or "")
    return table(
        ["key", "written by", "deleted"],
        [[f"`{key}`", who, gone.replace("``", "`")] for key, who, gone in rows[1:]],
    )


def waits() -> str:
    """Every wait, in seconds."""
    limits = Limits()
    meanings = {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(Limits.__doc__ or "")}
    rows = [
        [f"`{one.name}`", f"{getattr(limits, one.name):g}", meanings[one.name].rstrip(".")]
        for one in fields(Limits)
    ]
    return table(["wait", "seconds, or number", "what for"], rows)
