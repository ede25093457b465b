"""Secrets on command lines within a text: behind flags with a telling name, or of some programs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rankscope.diag.redact.secret_names import is_secret_name, may_be_a_number, secret_flag
from rankscope.diag.redact.secret_values import is_plain, value_at

_FLAG: Final = re.compile(r"(?<![\w-])--?(?P<name>[A-Za-z][\w-]*)[ \t]+(?![-\s])")
_COMMAND: Final = re.compile(
    r"(?<![\w.-])(?P<program>sshpass|mysql\w{0,20}|mariadb[\w-]{0,20}|mongo\w{0,20}|redis-cli|ldap\w{1,20}"
    r"|curl|wget|docker|podman|nerdctl|helm|skopeo|oras|az)[ \t](?P<rest>[^\n|;]*)"
)
_WANDB: Final = re.compile(
    r"\bwandb(?:[ \t]+|\.)login[ \t(]+(?:--?\w[\w-]*(?:=\S+)?[ \t]+){0,8}(?:key=)?[\"']?"
    r"(?P<value>[0-9a-zA-Z_]{20,})"
)
_LOOKED_AT: Final = 50
"""Words of a command that are taken for another program."""


def secrets_of_commands(text: str) -> Iterator[tuple[int, int]]:
    """Where they stand."""
    for found in _FLAG.finditer(text):
        name = found["name"]
        if is_secret_name(name):
            yield from _value(text, found.end(), numbers=may_be_a_number(name))
    for found in _COMMAND.finditer(text):
        words = found["rest"].split()
        programs = {found["program"], *words[:_LOOKED_AT]}  # sshpass starts another one
        flags = {flag.pattern for one in programs if (flag := secret_flag(one, words)) is not None}
        if flags:
            wanted = re.compile(rf"(?<!\S)(?:{'|'.join(sorted(flags))})(?:[ \t]+|=)?(?!-)(?=\S)")
            for one in wanted.finditer(text, *found.span("rest")):
                yield from _value(text, one.end(), numbers=False)
    yield from (found.span("value") for found in _WANDB.finditer(text))


def _value(text: str, at: int, *, numbers: bool) -> Iterator[tuple[int, int]]:
    start, end = value_at(text, at)
    if not is_plain(text[start:end], numbers=numbers):
        yield start, end
