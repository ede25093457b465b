"""The open TCP connections of a process and what waits in them, from ``/proc``: no tracing, nothing is sent.

Source of the columns: ``get_tcp4_sock`` in ``net/ipv4/tcp_ipv4.c``: the queues are ``write_seq - snd_una``
and ``rcv_nxt - copied_seq``, ``retrnsmt`` is ``icsk_retransmits``, which an acknowledgement sets back to 0.
The tables are those of the process's own network namespace. What the numbers mean is not known here.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from rankscope.diag.model import Connection

MAX_CONNECTIONS: Final = 256
"""Connections kept of one process, those in which something waits first."""
_ESTABLISHED: Final = b"01"
_MOST_DESCRIPTORS: Final = 8192
_MOST_BYTES: Final = 4 << 20
"""Of a table: a host with tens of thousands of connections must not hold up a look."""
_COLUMNS: Final = 10
_SOCKET: Final = "socket:["


class ConnectionTables:
    """The tables of the network namespaces that one look meets, each read once. For one thread.

    On a host with much memory reading one takes milliseconds, however few connections there are.
    """

    def __init__(self) -> None:
        self._known: dict[str, Mapping[bytes, Connection]] = {}

    def of(self, pid: int) -> tuple[Connection, ...]:
        """The connections of a process, empty when it is gone or may not be read."""
        inodes = _sockets(pid)
        if not inodes:
            return ()
        try:
            network = os.readlink(f"/proc/{pid}/ns/net")  # noqa: PTH115 - hot path
        except OSError:
            network = f"of process {pid}"
        if network not in self._known:
            self._known[network] = dict(_open_connections(pid))
        table = self._known[network]
        found = [table[inode] for inode in inodes if inode in table]
        found.sort(key=lambda one: (-one.retries, -one.unacknowledged - one.unread, one.local, one.remote))
        return tuple(found[:MAX_CONNECTIONS])


def read_connections(pid: int) -> tuple[Connection, ...]:
    """The connections of one process."""
    return ConnectionTables().of(pid)


def _open_connections(pid: int) -> Iterator[tuple[bytes, Connection]]:
    for name in ("tcp", "tcp6"):
        for line in _table(f"/proc/{pid}/net/{name}").splitlines()[1:]:
            found = read_line(line)
            if found is not None:
                yield found


def _table(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - hot path
            return file.read(_MOST_BYTES)
    except OSError:
        return b""


def read_line(line: bytes) -> tuple[bytes, Connection] | None:
    """The socket's inode and the connection of one line of ``/proc/net/tcp``; ``None`` when not open."""
    columns = line.split(None, _COLUMNS)
    if len(columns) < _COLUMNS or columns[3] != _ESTABLISHED:
        return None
    try:
        sent, _, received = columns[4].partition(b":")
        return columns[9], Connection(
            local=_address(columns[1]),
            remote=_address(columns[2]),
            unacknowledged=int(sent, 16),
            unread=int(received, 16),
            retries=int(columns[6], 16),
        )
    except ValueError:
        return None


def _address(text: bytes) -> str:
    """``0100007F:1F90`` is ``127.0.0.1:8080``: words of the host's byte order, the port is not."""
    host, _, port = text.partition(b":")
    words = [int(host[at : at + 8], 16) for at in range(0, len(host), 8)]
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return f"{address}:{int(port, 16)}"


def _sockets(pid: int) -> frozenset[bytes]:
    """The inodes of its sockets."""
    folder = f"/proc/{pid}/fd"
    found: set[bytes] = set()
    try:
        names = os.listdir(folder)[:_MOST_DESCRIPTORS]  # noqa: PTH208 - hot path
    except OSError:
        return frozenset()
    for name in names:
        with contextlib.suppress(OSError):
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - hot path
            if target.startswith(_SOCKET):
                found.add(target[len(_SOCKET) : -1].encode())
    return frozenset(found)
