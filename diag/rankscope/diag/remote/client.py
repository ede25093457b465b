"""Asks one agent over HTTP. It knows paths and errors, not what is asked for.

The token goes to the host of the URL and nowhere else: no redirect is followed, no proxy is used.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from rankscope.diag.errors import RankscopeError, UsageError

T = TypeVar("T")
TOKEN_VARIABLE: Final = "RANKSCOPE_TOKEN"  # noqa: S105 - the variable's name
_LONGEST_TOKEN: Final = 4096
_LARGEST: Final = 256 << 20
_SCHEMES: Final = ("http://", "https://")
_HINT: Final = f"give its file with --token-file, or the token itself in {TOKEN_VARIABLE}"


class RemoteError(RankscopeError):
    """An agent cannot be asked, or does not answer."""


class _Problem(msgspec.Struct, frozen=True):
    title: str = ""
    detail: str = ""


def is_url(name: str) -> bool:
    """Whether a name of a job is an agent's URL."""
    return name.startswith(_SCHEMES)


def token_from(file: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The token that a user gave; ``""`` for none.

    Args:
        file: of ``--token-file``, ``None`` when it was not given.
        environ: the environment.

    Raises:
        UsageError: the file cannot be read.
    """
    if file is None:
        return environ.get(TOKEN_VARIABLE, "").strip()
    try:
        with Path(file).open("rb") as opened:
            return opened.read(_LONGEST_TOKEN).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageError(f"--token-file {file}: {error.strerror or error}") from error


class AgentClient:
    """One agent's API.

    Args:
        url: where its ``agent.json`` says (``http://127.0.0.1:4242``); what is behind the port is left out.
        token: the job's.
        timeout: seconds that any step of an answer may take.
    """

    def __init__(self, url: str, token: str, *, timeout: float) -> None:
        self.url = url
        self._token = token
        self._timeout = timeout
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise UsageError(f"{url}: {error}") from error
        self._is_secure = parts.scheme == "https"
        if not self._host or parts.username is not None or parts.query:
            raise UsageError(f"{url.split('?', 1)[0]}: an agent's URL is http://HOST:PORT", hint=_HINT)
        if not token.isascii() or not token.isprintable():
            raise UsageError("the token has characters that no token has", hint=_HINT)

    def get(self, path: str, kind: type[T]) -> T:
        """What is stored, or known now.

        Raises:
            UsageError: the token is missing or wrong, or there is no such thing.
            RemoteError: no answer.
        """
        return self._ask("GET", path, kind, self._timeout)

    def post(self, path: str, kind: type[T], *, timeout: float) -> T:
        """Have something done.

        Args:
            path: of the API.
            kind: of the answer.
            timeout: seconds.

        Raises:
            UsageError: the token is missing or wrong.
            RemoteError: no answer, or a refusal.
        """
        return self._ask("POST", path, kind, timeout)

    def _ask(self, method: str, path: str, kind: type[T], timeout: float) -> T:
        status, data = self._exchange(method, path, timeout)
        if status != HTTPStatus.OK:
            raise self._refused(status, data)
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RemoteError(f"{self.url}{path}: not an answer of an agent: {error}") from error

    def _exchange(self, method: str, path: str, timeout: float) -> tuple[int, bytes]:
        make = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = make(self._host, self._port, timeout=timeout)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            data = response.read(_LARGEST + 1)
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise RemoteError(f"{self.url}: no answer of an agent ({why})") from error
        finally:
            connection.close()
        if len(data) > _LARGEST:
            raise RemoteError(f"{self.url}{path}: more than {_LARGEST} bytes")
        return response.status, data

    def _refused(self, status: int, data: bytes) -> RankscopeError:
        try:
            problem = msgspec.json.decode(data, type=_Problem)
        except (msgspec.DecodeError, UnicodeDecodeError):
            problem = _Problem()
        said = "".join(each for each in problem.detail or problem.title if each.isprintable())[:500]
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            why = "the token is not this job's" if self._token else "the job's token is needed"
            return UsageError(f"{self.url}: {why}", hint=_HINT)
        if status == HTTPStatus.NOT_FOUND:
            return UsageError(f"{self.url}: {said or 'there is no such thing'}")
        return RemoteError(f"{self.url}: {said or 'no answer'} ({status})")


def quoted(text: str) -> str:
    """A name as part of a path."""
    return quote(text, safe="")
