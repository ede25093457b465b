"""Hosts on one machine, joined by a switch: each with a network, addresses and a host name of its own.

    with a_network(tmp_path, 3, family="IPv6") as network:
        subprocess.Popen(network.hosts[0].inside("hostname"))
        network.cut(network.hosts[1])

A host is a process in namespaces of its own (``keeper``); the switch is another one, with the bridge. Nothing
of it is on this machine's own network, nor has a name on it, so any number of networks can be there at once;
all of it goes with the process that made it. Files and process ids are shared, as on hosts with a common
folder. Needs root, ``ip`` and ``tc`` (iproute2), ``unshare``, ``nsenter`` and ``mount``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import pytest
from tests.deadline import DEADLINE
from tests.network.keeper import kill_all

Family = Literal["IPv4", "IPv6"]
INTERFACE: Final = "eth0"
"""What a host's only interface is called, beside ``lo``."""
_KEEPER: Final = Path(__file__).with_name("keeper.py")
_NAMESPACES: Final = ("--net", "--uts", "--mount")
_TOOLS: Final = ("ip", "tc", "unshare", "nsenter", "mount")
_SECONDS: Final = 20.0
_BRIDGE: Final = "switch"


@dataclass(frozen=True)
class Host:
    """One of the hosts.

    Attributes:
        number: from 0.
        family: of its address.
        keeper: process id of the process whose namespaces these are.
    """

    number: int
    family: Family
    keeper: int

    @property
    def name(self) -> str:
        """What ``hostname`` says."""
        return _name(self.number)

    @property
    def address(self) -> str:
        """The same in every network: networks do not see each other."""
        return _address(self.number, self.family)

    @property
    def port(self) -> str:
        """The switch's end of its cable."""
        return f"port{self.number}"

    def endpoint(self, port: int) -> str:
        """The address with a port, as a URL has it."""
        return f"[{self.address}]:{port}" if self.family == "IPv6" else f"{self.address}:{port}"

    def inside(self, *command: str) -> list[str]:
        """The command on this host; the process that is started becomes it."""
        return _inside(self.keeper, *command)


@dataclass(frozen=True)
class Network:
    """The hosts, and what their links do to packets.

    Attributes:
        hosts: all of them.
        switch: process id of the process in whose network the bridge is.
    """

    hosts: tuple[Host, ...]
    switch: int

    def cut(self, host: Host) -> None:
        """From now on nothing passes to or from the host, and nobody is told: its link stays up."""
        _run(*_inside(self.switch, "ip", "link", "set", host.port, "nomaster"))

    def switch_off(self, host: Host) -> None:
        """All that runs there is gone at once, and not even the ends of its connections are told."""
        self.cut(host)
        kill_all(host.keeper)

    def slow(self, host: Host, rate: str) -> None:
        """From now on so much passes, in each direction (``tc``'s words: ``1mbit``)."""
        bucket = ("root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")
        for pid, device in self._ends(host):
            _run(*_inside(pid, "tc", "qdisc", "replace", "dev", device, *bucket))

    def heal(self, host: Host) -> None:
        """The link is as it was at first, whatever was done to it."""
        for pid, device in self._ends(host):
            # noqueue stands for nothing: what an interface of this kind has at first.
            _run(*_inside(pid, "tc", "qdisc", "replace", "dev", device, "root", "noqueue"))
        _run(*_inside(self.switch, "ip", "link", "set", host.port, "master", _BRIDGE))

    def _ends(self, host: Host) -> tuple[tuple[int, str], tuple[int, str]]:
        return (self.switch, host.port), (host.keeper, INTERFACE)


def missing() -> str:
    """Why there can be no network here, empty when there can."""
    lacking = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"{', '.join(lacking)} not found (iproute2, util-linux)"
    return "" if os.geteuid() == 0 else "network namespaces need root"


@contextmanager
def a_network(
    folder: Path, hosts: int, *, family: Family = "IPv4", names_resolve: bool = True
) -> Generator[Network]:
    """Hosts ``node0``, ``node1``, ... that reach each other; whatever runs on them is killed at the end.

    Args:
        folder: for files of the hosts.
        hosts: how many.
        family: of their addresses; of the other one there is only the loopback's, and IPv6's own of a link.
        names_resolve: whether each host finds the address of each, itself included, by its name.
    """
    if missing():
        pytest.fail(f"tests of several hosts cannot run here: {missing()}", pytrace=False)
    files = _files(folder, hosts if names_resolve else 0, family)
    with ExitStack() as stack:
        switch = stack.enter_context(_keeper("switch"))
        made = [
            Host(each, family, stack.enter_context(_keeper(_name(each), *files))) for each in range(hosts)
        ]
        _batch(switch, (f"link add {_BRIDGE} type bridge mcast_snooping 0", f"link set {_BRIDGE} up"))
        for host in made:
            _connect(host, switch)
        yield Network(tuple(made), switch)


def _connect(host: Host, switch: int) -> None:
    cable = f"link add {host.port} type veth peer name {INTERFACE} netns {host.keeper}"
    _batch(switch, (cable, f"link set {host.port} master {_BRIDGE} up"))
    # An address that is tried out first (IPv6's duplicate detection) cannot be used for a second.
    mask = "64 nodad" if host.family == "IPv6" else "24"
    _batch(host.keeper, (f"address add {host.address}/{mask} dev {INTERFACE}", f"link set {INTERFACE} up"))


def _files(folder: Path, named: int, family: Family) -> list[str]:
    """``hosts`` and ``resolv.conf``: the names of so many hosts, and nobody to ask for any other."""
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    lines += [f"{_address(number, family)} {_name(number)}" for number in range(named)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts").write_text("\n".join((*lines, "")))
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    return [str(folder / "hosts"), str(folder / "resolv.conf")]


def _name(number: int) -> str:
    return f"node{number}"


def _address(number: int, family: Family) -> str:
    """Of the blocks for tests between networks (RFC 2544) and for local use (RFC 4193)."""
    return f"198.18.0.{number + 1}" if family == "IPv4" else f"fd00:198:18::{number + 1}"


@contextmanager
def _keeper(*arguments: str) -> Generator[int]:
    command = ["unshare", *_NAMESPACES, sys.executable, "-I", "-S", str(_KEEPER), *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # it outlives a Ctrl-C at whoever made it, to clean up
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise OSError(f"no namespaces for {arguments[0]}: {process.stderr.read().strip()}")
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(DEADLINE)


def _inside(keeper: int, *command: str) -> list[str]:
    return ["nsenter", f"--target={keeper}", *_NAMESPACES, "--", *command]


def _batch(keeper: int, lines: Sequence[str]) -> None:
    _run(*_inside(keeper, "ip", "-batch", "-"), text="\n".join((*lines, "")))


def _run(*command: str, text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
