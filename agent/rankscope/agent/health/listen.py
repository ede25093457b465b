"""The listening socket of the health server: which address, and what is said when it cannot be had.

The agent holds the socket and hands it to each server process. So a port in use is known before any
process is started, the port stays ours while a server that died is started again, and requests that come
meanwhile wait in the kernel's queue instead of being refused.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import weakref
from pathlib import Path
from typing import Final

from rankscope.diag.errors import RankscopeError

BACKLOG: Final = 512
_LAST_PORT: Final = 65535
LOOPBACK: Final = "127.0.0.1"


class HealthError(RankscopeError):
    """The health server cannot be had; the job goes on without it."""


def default_host(port: int) -> str:
    """All interfaces when a port was asked for (a kubelet asks from outside), else loopback.

    Returns:
        ``"::"`` (both address families, one socket) where the host has IPv6, else ``"0.0.0.0"``.
    """
    if port == 0:
        return LOOPBACK
    return "::" if _has_dual_stack() else "0.0.0.0"  # noqa: S104 - asked for by naming a port


def open_listener(host: str | None, port: int) -> socket.socket:
    """Bind and listen.

    Args:
        host: name or address, ``None`` for ``default_host``.
        port: 0 for a free one.

    Raises:
        HealthError: the port is taken, not allowed or out of range, or the host is not one of ours.
    """
    asked = host or default_host(port)
    if not 0 <= port <= _LAST_PORT:
        raise HealthError(f"health server: port {port} is not between 0 and {_LAST_PORT}")
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            asked, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise HealthError(f"health server: cannot listen on {asked} port {port}: {_told(error)}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(asked != "::"))
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        hint = "choose another --diag-port, or 0 for a free one" if error.errno == errno.EADDRINUSE else ""
        raise HealthError(
            f"health server: cannot listen on {asked} port {port}: {_told(error)}", hint=hint
        ) from error
    _listeners.add(listener)
    return listener


def bound_address(listener: socket.socket) -> tuple[str, int]:
    """Host and port that a listener has."""
    name = listener.getsockname()
    return str(name[0]), int(name[1])


def is_loopback(listener: socket.socket) -> bool:
    """Whether nobody from elsewhere can reach a listener."""
    return names_loopback(bound_address(listener)[0])


def names_loopback(host: str) -> bool:
    """Whether a host that somebody named is this one alone; asks no name service."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def own_network() -> str:
    """Names this host's network, or that of the container: two processes of one name share their loopback."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/net').readlink()}"
    except OSError:
        return f"unknown/{os.getpid()}"  # nobody else's


def own_names(*listeners: socket.socket) -> tuple[str, ...]:
    """This host's names, and the addresses of these listeners, as a ``Host`` header may have them.

    Asks no name service: that may take a minute.
    """
    name = socket.gethostname()
    addresses = [bound_address(one)[0] for one in listeners]
    return tuple(dict.fromkeys([name, name.split(".", 1)[0], *addresses]))


def _told(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _has_dual_stack() -> bool:
    if not socket.has_dualstack_ipv6():
        return False
    # The kernel may know IPv6 and yet have no address of it (disable_ipv6): then binding fails.
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


_listeners: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _forget_listeners() -> None:
    for listener in list(_listeners):
        listener.close()


# A worker forked from the agent must not hold the port open after the agent has gone.
os.register_at_fork(after_in_child=_forget_listeners)
