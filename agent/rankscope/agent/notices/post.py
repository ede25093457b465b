"""One POST, in a process of its own that whoever started it ends at its deadline. Standard library only.

Redirects are not followed: they would carry the event, and perhaps its headers, elsewhere. Certificates are
verified (the system's, ``SSL_CERT_FILE``, ``SSL_CERT_DIR``), proxies are those of the environment. Of an
answer only the status and ``Retry-After`` are read, and from Slack one word; what is reported of a failure
never holds a part of the address, a header or an answer.
"""

from __future__ import annotations

import email.utils
import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from typing import IO, Final

Report = dict[str, object]
"""``reason`` (empty: delivered), ``again``, ``wait``: see ``lane.Outcome``."""
_AGAIN: Final = frozenset({408, 425, 429})
_SERVER_ERROR: Final = 500
_REDIRECTS: Final = range(300, 400)
_SLACK_WORD: Final = re.compile(r"[a-z]+(_[a-z]+)+")
_LONGEST_WORD: Final = 60
MAX_WAIT: Final = 1e6
"""Seconds; more than that in a ``Retry-After`` is no number to reckon with."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to post, and what to send along; all of it secret."""

    url: str
    headers: Sequence[tuple[str, str]]
    is_slack: bool


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - as the standard library calls it
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Leave every 3xx as the error it then is."""


def make_opener() -> urllib.request.OpenerDirector:
    """Reads certificates and proxies: once, before anything is sent (20 ms)."""
    https = urllib.request.HTTPSHandler(context=ssl.create_default_context())
    return urllib.request.build_opener(urllib.request.ProxyHandler(), https, _NoRedirect())


def post(
    opener: urllib.request.OpenerDirector,
    address: Address,
    body: bytes,
    *,
    content_type: str,
    timeout: float,
    report: Callable[[Report], None],
) -> None:
    """Post ``body`` once.

    Args:
        opener: of ``make_opener``.
        address: where to.
        body: what.
        content_type: of the body.
        timeout: seconds without a byte; the whole is for the caller to bound.
        report: told how it went, again when more is known.
    """
    headers = {"User-Agent": "rankscope", "Content-Type": content_type, **dict(address.headers)}
    request = urllib.request.Request(address.url, data=body, headers=headers, method="POST")  # noqa: S310 - http(s) only
    try:
        with opener.open(request, timeout=timeout):
            report({"reason": ""})
    except urllib.error.HTTPError as answer:
        with answer:
            judged = judge(answer.code, answer.headers.get("Retry-After"), now=time.time())
            report(judged)
            word = _slack_word(answer) if address.is_slack else ""
        if word and word not in address.url:
            report({**judged, "reason": f"{judged['reason']}: {word}"})
    except Exception as error:  # noqa: BLE001 - the process's edge; the text of others' errors may hold the address
        report({"reason": explain(error), "again": not _is_untrusted(error)})


def judge(status: int, retry_after: str | None, *, now: float) -> Report:
    """What an answer means; ``now`` in unix seconds, for a date in ``Retry-After``."""
    reason = f"HTTP {status} {http.client.responses.get(status, '')}".rstrip()
    if status in _REDIRECTS:
        return {"reason": f"{reason}: redirects are not followed", "again": False}
    again = status in _AGAIN or status >= _SERVER_ERROR
    wait = retry_seconds(retry_after, now=now) if again and retry_after else None
    if wait:
        reason += f", asks to wait {wait:.0f} s"
    return {"reason": reason, "again": again, "wait": wait}


def retry_seconds(text: str, *, now: float) -> float | None:
    """A ``Retry-After`` (RFC 9110, 10.2.3) in seconds, ``None`` when it is neither a number nor a date."""
    text = text.strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return min(float(text), MAX_WAIT)
    try:
        seconds = email.utils.parsedate_to_datetime(text).timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(seconds, 0.0), MAX_WAIT)


def _is_untrusted(error: Exception) -> bool:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return isinstance(cause, ssl.SSLCertVerificationError)


def explain(error: BaseException) -> str:
    """An error in words that hold nothing of the address."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {getattr(cause, 'reason', '') or 'no reason given'}"
    if isinstance(cause, socket.gaierror):
        return f"the host's name is not found: {cause.strerror}"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, http.client.HTTPException | ConnectionResetError):
        return f"no whole answer: {_NAMES.get(type(cause), type(cause).__name__)}"
    if isinstance(cause, OSError) and cause.strerror:
        return f"no connection: {cause.strerror}"
    return f"not sent: {type(cause).__name__}"


_NAMES: Final[Mapping[type[BaseException], str]] = {
    http.client.RemoteDisconnected: "the server closed the connection",
    ConnectionResetError: "the server reset the connection",
    http.client.BadStatusLine: "its first line is no HTTP",
    http.client.LineTooLong: "a line of it is too long",
}


def _slack_word(answer: urllib.error.HTTPError) -> str:
    """Slack's name for what is wrong (``invalid_payload``); nothing else is repeated."""
    try:
        text = answer.read(_LONGEST_WORD + 1).decode("ascii")
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    return text if len(text) <= _LONGEST_WORD and _SLACK_WORD.fullmatch(text) else ""
