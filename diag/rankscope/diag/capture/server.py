"""Torch's C++ worker server in a process: finds its address and asks it, also while the GIL is held.

Ours lies in the private folder; a job's own is named by ``TORCH_WORKER_SERVER_SOCKET``, or is the socket
that the server's thread waits on (torch's debug server listens on a free port that nobody else knows). No
other port is ever connected to. What the answers mean is not known here.
"""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from rankscope.diag.discover.namespaces import beyond_root, own_number
from rankscope.diag.proc_files import read_all, read_file
from rankscope.watchdog.answers import socket_file

SOCKET_VARIABLE: Final = "TORCH_WORKER_SERVER_SOCKET"
_THREAD_NAME: Final = b"pt_workerserver\n"
_ACCEPT: Final = {"x86_64": (b"288", b"43"), "aarch64": (b"242", b"202")}
"""Numbers of accept4 and accept."""
_LISTENING: Final = "0A"
_PING_SECONDS: Final = 2.0
_RECORD_SECONDS: Final = 5.0
_MOST_BYTES: Final = 1 << 26
_POLL_SECONDS: Final = 0.005
_CHUNK: Final = 1 << 16
_COUNTER_PREFIX: Final = "pytorch.wait_counter."

Address = str | tuple[str, int]
"""Path of a Unix socket, or host and port."""


class _Counter(msgspec.Struct):
    active_count: int = 0


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What the server said.

    Attributes:
        answers: whether it answered a ping, ``None`` when there is none to be found or nobody listens.
        record: its flight record as JSON, empty when it gave none.
        counters: calls that still wait, by name of torch's wait counter.
    """

    answers: bool | None = None
    record: bytes = b""
    counters: dict[str, int] = field(default_factory=dict[str, int])


def ask_server(address: Address, *, deadline: float) -> ServerAnswer:
    """Ask for everything.

    Args:
        address: of the server.
        deadline: ``time.monotonic()`` after which nothing is waited for.
    """
    try:
        if _ask(address, "ping", deadline=_soon(_PING_SECONDS, deadline)) is None:
            return ServerAnswer()
    except TimeoutError:
        return ServerAnswer(answers=False)
    except OSError:
        return ServerAnswer()
    record, counters = b"", b""
    with contextlib.suppress(OSError):
        record = _ask(address, "fr_trace_json", deadline=_soon(_RECORD_SECONDS, deadline)) or b""
    with contextlib.suppress(OSError):
        counters = _ask(address, "wait_counter_values", deadline=_soon(_PING_SECONDS, deadline)) or b""
    return ServerAnswer(True, record, _waiting(counters))


def find_server(pid: int, *, folders: Sequence[str], environ: Mapping[str, str] | None) -> Address | None:
    """Address of a process's worker server, ``None`` when it has none or it cannot be found."""
    paths = [socket_file(folder, own_number(pid)) for folder in folders]
    named = (environ or {}).get(SOCKET_VARIABLE)
    if named:
        paths.append(_reached(pid, named))
    for path in paths:
        if Path(path).is_socket():
            return path
    return _listening_address(pid)


def _soon(seconds: float, deadline: float) -> float:
    return min(time.monotonic() + seconds, deadline)


def _ask(address: Address, handler: str, *, deadline: float) -> bytes | None:
    """The body of an answer, ``None`` when it is none.

    Raises:
        TimeoutError: no answer until the deadline.
        OSError: nobody listens.
    """
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    if not isinstance(address, str) and ":" in address[0]:
        family = socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        _connect(connection, address, deadline=deadline)
        connection.sendall(
            f"POST /handler/{handler} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        answer = bytearray()
        while len(answer) < _MOST_BYTES:
            _limit(connection, deadline)
            chunk = connection.recv(_CHUNK)
            if not chunk:
                break
            answer += chunk
    head, blank, body = bytes(answer).partition(b"\r\n\r\n")
    return body if blank and head.split(b" ", 2)[1:2] == [b"200"] else None


def _connect(connection: socket.socket, address: Address, *, deadline: float) -> None:
    while True:
        _limit(connection, deadline)
        try:
            return connection.connect(address)
        except BlockingIOError:  # a Unix socket whose queue is full: the server holds 5
            time.sleep(_POLL_SECONDS)


def _limit(connection: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    connection.settimeout(left)


def _waiting(text: bytes) -> dict[str, int]:
    try:
        counters = msgspec.json.decode(text, type=dict[str, _Counter]) if text else {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return {
        name.removeprefix(_COUNTER_PREFIX): counter.active_count
        for name, counter in counters.items()
        if counter.active_count > 0
    }


def _listening_address(pid: int) -> Address | None:
    """By the descriptor that the server's thread accepts on (its system call; needs the right to trace)."""
    calls = _ACCEPT.get(platform.machine(), ())
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - hot path
    except OSError:
        return None
    for thread in threads:
        task = f"/proc/{pid}/task/{thread}"
        if read_file(f"{task}/comm") != _THREAD_NAME:
            continue
        number, *arguments = (read_file(f"{task}/syscall") or b"").split() or [b""]
        if number not in calls or not arguments:
            continue
        with contextlib.suppress(OSError, ValueError):
            inode = os.readlink(f"{task}/fd/{int(arguments[0], 16)}")  # noqa: PTH115 - hot path
            found = _address_of(pid, inode.removeprefix("socket:[").removesuffix("]"))
            if found is not None:
                return found
    return None


def _address_of(pid: int, inode: str) -> Address | None:
    for line in _lines(f"/proc/{pid}/net/unix"):
        if len(line) > 7 and line[6] == inode:  # noqa: PLR2004 - the path is the eighth column
            return _reached(pid, line[7])
    if _network(pid) != _network(os.getpid()):
        return None
    for name, host in (("tcp6", "::1"), ("tcp", "127.0.0.1")):
        for line in _lines(f"/proc/{pid}/net/{name}"):
            if len(line) > 9 and line[9] == inode and line[3] == _LISTENING:  # noqa: PLR2004 - the inode is the tenth column
                return host, int(line[1].rpartition(":")[2], 16)
    return None


def _reached(pid: int, path: str) -> str:
    """A path that the process names, absolute or from its working directory, as it is reached from here."""
    return beyond_root(pid, path) if path.startswith("/") else f"/proc/{pid}/cwd/{path}"


def _lines(path: str) -> list[list[str]]:
    return [line.split() for line in (read_all(path) or b"").decode("utf-8", "replace").splitlines()]


def _network(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""
