"""Connections of a process as the kernel shows them: real sockets, and lines of ``/proc/net/tcp``."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs import until

from rankscope.diag.capture.connections import ConnectionTables, read_connections, read_line
from rankscope.diag.model import Connection


@pytest.fixture(params=["127.0.0.1", "::1"])
def ends(request: pytest.FixtureRequest) -> Generator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection of this process."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((request.param, 0), family=family))
        one = stack.enter_context(socket.create_connection(listening.getsockname()[:2]))
        other = stack.enter_context(listening.accept()[0])
        yield one, other


def test_what_has_arrived_and_is_not_read_is_the_receivers(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    one.sendall(b"x" * 100)
    until(lambda: _of(other).unread == 100, "the bytes to arrive", seconds=10)
    assert _of(one).unacknowledged == 0
    assert _of(one).retries == 0
    assert (_of(one).local, _of(one).remote) == (_of(other).remote, _of(other).local)
    other.recv(100)
    assert _of(other).unread == 0


def test_what_no_longer_fits_is_still_the_senders(ends: tuple[socket.socket, socket.socket]) -> None:
    one, other = ends
    one.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            one.send(b"x" * 65_536)
    assert _of(one).unacknowledged > 0
    assert _of(other).unread > 0


def _of(end: socket.socket) -> Connection:
    port = end.getsockname()[1]
    return next(one for one in read_connections(os.getpid()) if one.local.endswith(f":{port}"))


def test_a_process_has_none_but_its_own(ends: tuple[socket.socket, socket.socket]) -> None:
    """Its child lives in the same network, and has not inherited them."""
    port = ends[0].getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        tables = ConnectionTables()
        assert any(one.local.endswith(f":{port}") for one in tables.of(os.getpid()))
        assert not any(one.local.endswith(f":{port}") for one in tables.of(child.pid))


def test_a_process_that_is_gone_has_none() -> None:
    assert read_connections(2**22 + 1) == ()


def test_a_line_is_read_by_its_columns() -> None:
    line = b"  1: 0100007F:1F90 0200A8C0:C350 01 00000060:00000005 01:00000014 00000006   0 0 77 2 0000 20"
    assert read_line(line) == (b"77", Connection("127.0.0.1:8080", "192.168.0.2:50000", 96, 5, 6))
    assert read_line(line.replace(b" 01 ", b" 06 ", 1)) is None  # closed
    assert read_line(line[:60]) is None


@given(st.binary(max_size=200))
def test_a_line_of_anything_is_no_connection_or_one(line: bytes) -> None:
    read_line(line)
    read_line(line + b" 01 a:b 0 0 0 0 77 ")
