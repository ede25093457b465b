"""What the agent gives its server for the API: where the records lie, and the secret that opens them.

A file of mode 0600 in the agent's private run-time folder, written whole and renamed: it may come long after
the server has started (a token may come from another node), a server that starts again finds it, and nothing
of it is on a command line.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

SUFFIX: Final = ".api"
_LARGEST: Final = 64 * 1024


class Peer(msgspec.Struct, frozen=True):
    """Another agent of the job.

    Attributes:
        node: its name.
        api: URL at which it can be asked, with the same token.
        network: where the URL is of loopback, which network's; ``""`` for any other one.
    """

    node: str
    api: str
    network: str = ""


class ApiOffer(msgspec.Struct, frozen=True):
    """What the API needs.

    Attributes:
        job_folder: where the job's records lie.
        node: the name of this agent's folder there.
        token: the job's token.
        control: path of the agent's control socket, ``""`` for none.
        token_file: where a user finds the token, for messages.
        host_names: further names of this host that a ``Host`` header may have.
        peers: the other agents of the job, as far as they are known.
    """

    job_folder: str
    node: str
    token: str
    control: str = ""
    token_file: str = ""
    host_names: tuple[str, ...] = ()
    peers: tuple[Peer, ...] = ()

    def __repr__(self) -> str:
        """Without the token: it must not get into a log by accident."""
        return f"ApiOffer(job_folder={self.job_folder!r}, node={self.node!r}, control={self.control!r})"


def offer_path(status_path: Path) -> Path:
    """Where the offer lies: beside the status page."""
    return status_path.with_name(status_path.name + SUFFIX)


def write_offer(path: Path, offer: ApiOffer) -> None:
    """Make ``offer`` what the server works with.

    Raises:
        OSError: the run-time folder cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(offer))
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def remove_offer(path: Path) -> None:
    """Take the offer back."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


class OfferReader:
    """The server's end: the offer as it is now, read again only when the file is another one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._offer: ApiOffer | None = None

    def read(self) -> ApiOffer | None:
        """The offer, ``None`` while there is none (3 us)."""
        try:
            found = self._path.stat()
        except OSError:
            self._seen, self._offer = None, None
            return None
        seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        if seen != self._seen:
            self._offer = self._load()
            self._seen = seen
        return self._offer

    def _load(self) -> ApiOffer | None:
        try:
            data = self._path.read_bytes()[:_LARGEST]
            return msgspec.json.decode(data, type=ApiOffer)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None
