"""Who may ask: pure decisions of a request's headers and the job's token.

It knows no HTTP library and no clock. Secrets are compared in constant time, as digests of one length.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

_COOKIE_PURPOSE: Final = b"rankscope page cookie, version 1"
_NAME_PURPOSE: Final = b"rankscope page cookie's name"
_LONGEST: Final = 1024
_OWN_FETCHES: Final = frozenset({"same-origin", "none", ""})
"""``Sec-Fetch-Site`` of what the page asks, of what a person typed, and of browsers that do not say."""
_LOCAL_NAME: Final = "localhost"


class Access:
    """What a token admits.

    The cookie is derived from the token: who reads it from a browser has not got the token, and cannot ask as
    a bearer. Its name is derived too: browsers keep one set of cookies for all ports of a host, so two jobs
    on one host would otherwise log each other's page out.
    """

    def __init__(self, token: str) -> None:
        self._bearer = _digest(token.encode())
        key = token.encode()
        self.cookie_name = "rankscope-" + hmac.new(key, _NAME_PURPOSE, hashlib.sha256).hexdigest()[:12]
        self.cookie_value = hmac.new(key, _COOKIE_PURPOSE, hashlib.sha256).hexdigest()
        self._cookie = _digest(self.cookie_value.encode())

    def is_token(self, text: str) -> bool:
        """Whether a text is the token."""
        return _same(text, self._bearer)

    def is_bearer(self, authorization: str) -> bool:
        """Whether an ``Authorization`` header carries the token."""
        scheme, _, value = authorization.partition(" ")
        # Compared in any case: what is wrong with a header shall not be seen from the time it takes.
        fits = _same(value.strip(), self._bearer)
        return fits and scheme.lower() == "bearer"

    def has_cookie(self, cookies: Mapping[str, str]) -> bool:
        """Whether a browser has been here with the token."""
        return _same(cookies.get(self.cookie_name, ""), self._cookie)


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _same(text: str, digest: bytes) -> bool:
    given = text[:_LONGEST].encode("utf-8", "surrogateescape")
    return hmac.compare_digest(_digest(given), digest)


def is_our_host(header: str, own: Iterable[str]) -> bool:
    """Whether a ``Host`` header names this server; the name of a page that was rebound to it does not.

    A name that somebody else owns may be made to resolve to this address (DNS rebinding); an address and
    ``localhost`` cannot. The port may be any one: a tunnel has its own.

    Args:
        header: as it came.
        own: this host's names and the addresses that the server is bound to.
    """
    host = _host_of(header)
    if not host:
        return False
    if host == _LOCAL_NAME or host.endswith("." + _LOCAL_NAME):
        return True
    names = {_plain(name) for name in own}
    if host in names:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback


def _host_of(header: str) -> str:
    """The host of ``host:port``, ``""`` when it is none."""
    if not header or len(header) > _LONGEST or set(header) & set("@/?#\\ \t,"):
        return ""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # a port that is none raises
    except ValueError:
        return ""
    return _plain(parts.hostname or "")


def _plain(name: str) -> str:
    """A name or address as it is compared: small letters, no dot at the end, an address in its short form."""
    text = name.lower().removesuffix(".")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def is_own_page(headers: Mapping[str, str], *, writes: bool) -> bool:
    """Whether a request that came with a cookie is one that our own page made.

    ``SameSite`` lets pages of other ports of the same host through: these are kept out here.

    Args:
        headers: of the request.
        writes: whether it asks for a change; then the origin must be told, and be ours.
    """
    if headers.get("Sec-Fetch-Site", "").lower() not in _OWN_FETCHES:
        return False
    origin = headers.get("Origin")
    if origin is None:
        return not writes
    try:
        found = urlsplit(origin)
    except ValueError:
        return False
    return found.scheme in ("http", "https") and found.netloc.lower() == headers.get("Host", "").lower()
