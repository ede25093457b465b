"""The job's token: one secret, made by the first agent of a job, in a file that only its user can read.

It is the only place that makes one. Nothing here puts it on a command line, into an environment or a log.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from rankscope.diag.errors import RankscopeError
from rankscope.diag.store.files import make_folders

FILE_NAME: Final = "token"
_BYTES: Final = 32
_SHORTEST: Final = 16
"""Characters of a token that somebody made: fewer can be guessed."""
_LONGEST: Final = 512
_ALLOWED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=")
"""Characters of a bearer token (RFC 6750, ``b64token``)."""


class TokenError(RankscopeError):
    """There is no token that can be used; the job runs without the paths that need one."""


def job_token(path: Path, *, given: Path | None = None) -> str:
    """The token of a job: the one that is there, else a new one.

    Args:
        path: ``<job>/token``.
        given: a file that the user named instead (``--token-file``); its mode is the user's business, since
            mounted secrets often are readable by a group.

    Raises:
        TokenError: it cannot be read or made, others may read it, or it is no token.
    """
    if given is not None:
        return _read(given, private=False)
    try:
        return _read(path, private=True)
    except FileNotFoundError:
        pass
    try:
        _make(path)
        return _read(path, private=True)
    except OSError as error:
        raise TokenError(f"no token: {path}: {error.strerror or error}") from error


def keep_token(path: Path, token: str) -> None:
    """Put another node's token in the place of the own one.

    Raises:
        TokenError: it is none, or cannot be kept there.
    """
    if not is_token(token):
        raise TokenError("no token: another node has told one that is none")
    try:
        beside = _written(path, token)
        try:
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise TokenError(f"no token: {path}: {error.strerror or error}") from error


def read_token(path: Path) -> str:
    """A token that somebody else made.

    Raises:
        TokenError: it cannot be read, or is no token.
    """
    try:
        return _read(path, private=False)
    except FileNotFoundError as error:
        raise TokenError(f"no token: there is no file {path}") from error


def _make(path: Path) -> None:
    """Write a new one beside and link it into place: of several agents the first wins, and none sees half.

    Raises:
        OSError: the folder cannot be written.
    """
    make_folders(path.parent)
    beside = _written(path, secrets.token_urlsafe(_BYTES))
    try:
        with contextlib.suppress(FileExistsError):
            _link(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _written(path: Path, token: str) -> Path:
    """A file beside ``path`` with the token in it.

    Raises:
        OSError: it cannot be written; then it is not there.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    return beside


def _link(beside: Path, path: Path) -> None:
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:  # a share without hard links: the last of several agents wins there
        if not path.exists():
            beside.replace(path)


def _read(path: Path, *, private: bool) -> str:
    """The token in a file.

    Raises:
        FileNotFoundError: there is none, and one is wanted that we may make.
        TokenError: anything else.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if private else 0))
    except FileNotFoundError as error:
        if private:
            raise
        raise TokenError(f"no token: there is no file {path}") from error
    except OSError as error:
        raise TokenError(f"no token: {path}: {error.strerror or error}") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise TokenError(f"no token: {path} is no regular file")
        if private and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
            raise TokenError(
                f"no token: others may read or have made {path}", hint="remove the file; a new one is made"
            )
        text = os.read(fd, _LONGEST + 2).decode("ascii", "replace").strip()
    except OSError as error:
        raise TokenError(f"no token: {path}: {error.strerror or error}") from error
    finally:
        os.close(fd)
    if not is_token(text):
        raise TokenError(
            f"no token: {path} holds none: {_SHORTEST} to {_LONGEST} letters, digits and -._~+/= expected"
        )
    return text


def is_token(text: str) -> bool:
    """Whether a text can be a token: long enough, and what a header may carry."""
    return _SHORTEST <= len(text) <= _LONGEST and _ALLOWED.issuperset(text)
