"""What a host whose own name does not resolve is called where nodes meet: by its address.

torch asks for the host's own name, to see whether the endpoint is this host and to tell the others where it
is, and fails where nobody knows that name. By the same way it is found where other nodes reach this one. It
must not know how nodes meet.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from functools import partial
from typing import Final

import psutil
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent.bounded_call import TookTooLongError, within

log = logging.getLogger(__name__)
_ANY_PORT: Final = 9
"""Nothing is sent to it."""
_LOOK_UP_SECONDS: Final = 2.0


def host_for_others(config: LaunchConfig) -> str:
    """The address at which other nodes of the job reach this one, ``""`` where there are none, or no such.

    Args:
        config: of the launch: ``--local-addr``, else where packets to the rendezvous leave from.
    """
    if config.max_nodes == 1:
        return ""
    look_up = partial(_outward, config.local_addr or "", config.rdzv_endpoint)
    try:
        return within(_LOOK_UP_SECONDS, look_up, name="rankscope-address")
    except (TookTooLongError, ValueError):  # torch complains of such an endpoint itself
        return ""


def _outward(local: str, endpoint: str) -> str:
    if local:
        found = sorted(_resolved(local))
    elif endpoint:
        found = [_plain(_towards(parse_rendezvous_endpoint(endpoint, default_port=_ANY_PORT)[0]))]
    else:
        found = []
    return next((one for one in found if one and not ipaddress.ip_address(one).is_loopback), "")


def name_by_address(parameters: RendezvousParameters) -> None:
    """Give torch what it would ask the host's own name for, where that does not resolve.

    Args:
        parameters: of the rendezvous; what the user has given stays.
    """
    name = socket.gethostname()
    if parameters.local_addr or _resolved(name) or not parameters.endpoint:
        return
    host, _port = parse_rendezvous_endpoint(parameters.endpoint, default_port=_ANY_PORT)
    address = _towards(host)
    if not address:
        return
    log.warning(
        "the name of this host, %s, does not resolve: nodes meet it at %s (--local-addr)", name, address
    )
    parameters.local_addr = address
    # On the own host torch asks for no name, and an agent that finds the port taken goes to whoever has it.
    is_local = all(ipaddress.ip_address(one).is_loopback for one in _resolved(host))
    if parameters.get_as_bool("is_host") is None and not is_local:
        parameters.config["is_host"] = bool(_resolved(host) & _own())


def _resolved(host: str) -> frozenset[str]:
    """The addresses of a host, none where nobody knows it."""
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    except OSError:
        return frozenset()
    return frozenset(_plain(str(one[4][0])) for one in found)


def _own() -> frozenset[str]:
    """The addresses of this host."""
    return frozenset(_plain(one.address) for links in psutil.net_if_addrs().values() for one in links)


def _plain(address: str) -> str:
    """Without the interface that an address of a link has behind it."""
    text = address.partition("%")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:  # of hardware
        return text


def _towards(host: str) -> str:
    """The address that packets to a host leave from, ``""`` where there is no way to it."""
    try:
        found = socket.getaddrinfo(host, _ANY_PORT, proto=socket.IPPROTO_UDP)
    except OSError:
        return ""
    for family, kind, protocol, _name, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(address)  # of a datagram socket: a route is looked up, nothing is sent
                return str(probe.getsockname()[0])
            except OSError:
                continue
    return ""
