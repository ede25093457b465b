"""What a secret looks like in a text: by the name before it, by its own form, by where it stands. Pure.

Sources of the forms: what GitHub, GitLab, Hugging Face, AWS, Google, Slack, OpenAI, Alibaba Cloud, Docker,
PyPI, npm, Stripe, NVIDIA and SendGrid document as the beginning of their tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rankscope.diag.redact.private_keys import private_keys
from rankscope.diag.redact.secret_commands import secrets_of_commands
from rankscope.diag.redact.secret_names import is_secret_name, may_be_a_number
from rankscope.diag.redact.secret_values import is_plain, value_at

_KEY: Final = re.compile(
    r"(?<![\w.%-])(?P<key>(?:(?:api|access|private|secret|encryption|signing) (?=key\b))?[\w.%-]+)"
    r"(?P<quote>\\*[\"'])?[ \t]{0,20}(?P<sign>={1,2}>?|:=?)",
    re.IGNORECASE,
)
_GAP: Final = re.compile(
    r"[ \t]*(?:(?:[|>][+-]?[ \t]*)?(?:\r?\n|\\+n)[ \t]+(?:- )?(?![\w.-]+\\*[\"']?:(?:\s|$)))?"
)
"""Between a name and its value, which may stand on the next line."""
_ENCODED: Final = re.compile(
    r"(?<![\w.-])(?P<key>[\w.-]+)%(?:25)*3[dD](?P<value>(?:(?!%(?:25)*26)[^\s\"'&<>])+)"
)
_SIGNED: Final = re.compile(r"[?&](?:sig|key|sv|se|sr)=(?P<value>[^\s&\"'\\]+)")
_BEARER: Final = re.compile(
    r"\b(?:Bearer\s+(?P<value>[\w.~+/=-]{8,})|(?:Basic|Token)\s+(?P<other>[\w.~+/=-]{8,}))", re.IGNORECASE
)
_ONLY_LETTERS: Final = re.compile(r"[a-z]+[.,:;!?)]*|[A-Z]?[a-z]+|is|for|of")
_NETRC: Final = re.compile(
    r"(?P<before>^[ \t]*|\b(?:login|user|account|machine)[ \t]+\S{1,200}[ \t]+|(?<=\s))?"
    r"\b(?:password|passwd|passphrase)[ \t]+(?P<value>[^\s\"']+)(?P<after>[ \t]*$)?",
    re.MULTILINE,
)
_URL: Final = re.compile(r"://(?P<rest>(?:(?!://)[^\s\"'<>])+)")
_AUTHORITY_END: Final = re.compile(r"[/?#\\]")
_PORT: Final = re.compile(r"[^:]*(?::\d*)?|\[[^\]]*\](?::\d*)?")
_FRONT: Final = r"(?:(?<![A-Za-z0-9])|(?<=%3D)|(?<=%3d))"
FORMS: Final = re.compile(
    rf"{_FRONT}(?:"
    r"hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|gl(?:pat|dt|rt|ptt)-[\w-]{16,}"
    r"|dckr_[op]at_[\w-]{16,}|pypi-[\w-]{16,}|npm_[A-Za-z0-9]{30,}"
    r"|sk-[\w-]{16,}|[sr]k_(?:live|test)_\w{10,}|whsec_\w{16,}|nvapi-[\w-]{16,}"
    r"|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{10,}|AIza[\w-]{30,}|ya29\.[\w-]{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])|LTAI[A-Za-z0-9]{12,}|AGE-SECRET-KEY-1\w{20,}"
    r"|hvs\.[\w-]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r")"
    r"|(?:(?<![\w-])|(?<=%3D)|(?<=%3d))eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r"|(?<=hooks\.slack\.com/services/)[\w/]+"
)
Place = tuple[int, int]


def secrets_in(text: str) -> Iterator[Place]:
    """Where secrets stand; places may overlap."""
    yield from private_keys(text)
    yield from (found.span() for found in FORMS.finditer(text))
    yield from _named(text)
    yield from _in_urls(text)
    yield from _behind_words(text)
    yield from secrets_of_commands(text)


def _named(text: str) -> Iterator[Place]:
    """Values of names: ``token=...``, ``"token": "..."``, also within JSON that is a text in JSON."""
    at = 0
    while (found := _KEY.search(text, at)) is not None:
        at = found.end()
        key = found["key"]
        if not is_secret_name(key) or (key.lower() == "pass" and found["sign"] == ":" and not found["quote"]):
            continue
        gap = _GAP.match(text, at)
        start, end = value_at(text, gap.end() if gap is not None else at, key)
        if not is_plain(text[start:end], numbers=may_be_a_number(key)):
            yield start, end
            at = max(at, end)
    for found in _ENCODED.finditer(text):
        if is_secret_name(found["key"]) and not is_plain(
            found["value"], numbers=may_be_a_number(found["key"])
        ):
            yield found.span("value")


def _in_urls(text: str) -> Iterator[Place]:
    """User and password of addresses: all up to the last ``@`` before the host."""
    for found in _URL.finditer(text):
        rest = found["rest"]
        cut = _AUTHORITY_END.search(rest)
        authority = rest if cut is None else rest[: cut.start()]
        end = authority.rfind("@")
        if end < 0 and not _PORT.fullmatch(authority):
            end = rest.rfind("@")  # a slash within a password
        if end > 0:
            yield found.start("rest"), found.start("rest") + end
    for found in _SIGNED.finditer(text):
        if not is_plain(found["value"]):
            yield found.span("value")


def _behind_words(text: str) -> Iterator[Place]:
    for found in _BEARER.finditer(text):
        group = "value" if found["value"] is not None else "other"
        if group == "value" or not _ONLY_LETTERS.fullmatch(found["other"]):
            yield found.span(group)
    for found in _NETRC.finditer(text):
        value = found["value"]
        before = found["before"]
        sure = before is not None and (before.strip() or found["after"] is not None)
        is_word = not sure and _ONLY_LETTERS.fullmatch(value)
        if not is_word and not is_plain(value, numbers=False) and value[0] not in "=:":
            yield found.span("value")
