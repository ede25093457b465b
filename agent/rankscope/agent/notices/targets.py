"""Where notices go, read from the settings; and how little of it may be shown.

The user's name, the path and the query of a webhook are secrets (Slack's are in the path), and so are its
headers: they come from a file or the environment and stand in no error, no event, no ``repr``.
"""

from __future__ import annotations

import base64
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from rankscope.diag.errors import UsageError

WebhookFormat = Literal["cloudevents", "slack"]
_UNUSABLE: Final = "an address"
_LONGEST_FILE: Final = 16 * 1024
_HEADER: Final = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x20-\x7e]+)")
_OURS: Final = frozenset(
    {"connection", "content-length", "content-type", "expect", "host", "transfer-encoding", "user-agent"}
)
_HINT: Final = "@FILE or env:NAME with the address in the first line, and headers below it"


@dataclass(frozen=True, slots=True)
class Webhook:
    """One address that events are posted to.

    Attributes:
        label: what may be shown of it.
        headers: sent with it, ``Authorization`` for instance.
    """

    label: str
    format: WebhookFormat
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Command:
    """A program that gets each event on its standard input.

    Attributes:
        label: what may be shown of it.
        words: the program's path and its arguments.
    """

    label: str
    words: tuple[str, ...] = field(repr=False)


Target = Webhook | Command


def read_targets(
    webhooks: Sequence[str], webhook_format: WebhookFormat, command: str, environ: Mapping[str, str]
) -> tuple[Target, ...]:
    """Read what the settings name; files and variables are read now, once.

    Args:
        webhooks: each ``@FILE``, ``env:NAME`` or an address.
        webhook_format: what is posted to them.
        command: words as a shell has them, no shell; empty for none.
        environ: for ``env:NAME`` and for ``PATH``.

    Raises:
        UsageError: one of them cannot be used; says which, and nothing that is secret.
    """
    found: list[Target] = []
    for number, text in enumerate(webhooks, 1):
        ordinal = f" {number}" if len(webhooks) > 1 else ""
        found.append(_read_webhook(text.strip(), ordinal, webhook_format, environ))
    if command.strip():
        found.append(_read_command(command, environ))
    return tuple(found)


def shown_webhook(text: str) -> str:
    """What may be shown of a ``--webhook``: where it is read from, or the server alone."""
    text = text.strip()
    if text.startswith(("@", "env:")):
        return text
    try:
        return _server(urlsplit(text))
    except ValueError:
        return _UNUSABLE


def is_open(text: str) -> bool:
    """Whether a ``--webhook`` as typed is itself the secret."""
    return not text.strip().startswith(("@", "env:"))


def _server(url: SplitResult) -> str:
    if url.scheme not in ("http", "https") or not url.hostname:
        return _UNUSABLE
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"{url.scheme}://{host}" + (f":{url.port}" if url.port is not None else "")


def _read_webhook(text: str, ordinal: str, form: WebhookFormat, environ: Mapping[str, str]) -> Webhook:
    where = f"--webhook{ordinal} {text}" if not is_open(text) else f"--webhook{ordinal}"
    if text.startswith("@"):
        content = _read_file(text[1:], where)
    elif text.startswith("env:"):
        content = environ.get(text[4:], "")
        if not content.strip():
            raise UsageError(f"{where}: there is no such variable, or it is empty", hint=_HINT)
    else:
        content = text
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    if not lines:
        raise UsageError(f"{where}: it is empty", hint=_HINT)
    url, label, headers = _read_url(lines[0], where)
    return Webhook(f"webhook{ordinal} {label}", form, url, (*headers, *_read_headers(lines[1:], where)))


def _read_file(name: str, where: str) -> str:
    try:
        with Path(name).expanduser().open("rb") as file:
            data = file.read(_LONGEST_FILE + 1)
    except (OSError, ValueError, RuntimeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
        raise UsageError(f"{where}: cannot be read ({why})", hint=_HINT) from None
    if len(data) > _LONGEST_FILE:
        raise UsageError(f"{where}: longer than {_LONGEST_FILE} bytes", hint=_HINT)
    return data.decode("utf-8", "replace")


def _read_url(text: str, where: str) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """The address without user and password, what may be shown of it, and the header they become."""
    try:
        url = urlsplit(text)
        label = _server(url)
        (url.hostname or "").encode("idna")  # raises where a name has an empty or endless part
    except (ValueError, UnicodeError):
        url, label = urlsplit(""), _UNUSABLE
    if label == _UNUSABLE or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise UsageError(
            f"{where}: an http or https address in printable ASCII expected, such as https://host/path",
            hint=_HINT,
        )
    bare = url._replace(netloc=url.netloc.rpartition("@")[2], fragment="").geturl()
    if url.username is None:
        return bare, label, ()
    word = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return bare, label, (("Authorization", f"Basic {base64.b64encode(word.encode()).decode()}"),)


def _read_headers(lines: Sequence[str], where: str) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    for number, line in enumerate(lines, 2):
        found = _HEADER.fullmatch(line)
        if found is None or found[1].lower() in _OURS:
            raise UsageError(
                f"{where}: line {number} is no header that can be sent, such as 'Authorization: Bearer ...'",
                hint=_HINT,
            )
        headers.append((found[1], found[2]))
    return tuple(headers)


def _read_command(text: str, environ: Mapping[str, str]) -> Command:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--notify-command: {error}") from None
    path = shutil.which(words[0], path=environ.get("PATH")) if words else None
    if path is None:
        name = words[0] if words else text
        raise UsageError(
            f"--notify-command: no such command: {name}",
            hint="a program and its arguments, without a shell; for a shell: sh -c '...'",
        )
    return Command(f"command {Path(path).name}", (str(Path(path).absolute()), *words[1:]))
