"""Two places with a network of their own and a link between them, for the time of one trial.

Network namespaces ``near`` and ``far``, each with an address on a bridge of this host, through which they
also reach the store. What the link does to packets is set while the job runs. Everything has a name drawn for
the trial and is deleted at the end; deleting the namespaces takes the interfaces in them along. Needs root
and the commands ``ip``, ``tc`` (iproute2) and ``nsenter``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.draw import Draw
from tests.faults.rows import Command

_SECONDS: Final = 20.0
INTERFACE: Final = "rs0"
"""What a place's only interface is called inside of it."""
_TOOLS: Final = ("ip", "tc", "nsenter")


@dataclass(frozen=True)
class Places:
    """The names and addresses of one trial.

    Attributes:
        token: in every name.
    """

    token: str

    @property
    def subnet(self) -> str:
        """The first three bytes of all addresses: of the block for tests between networks (RFC 2544)."""
        number = int(self.token, 16)
        return f"198.{18 + (number >> 8 & 1)}.{number & 255}"

    @property
    def bridge(self) -> str:
        """On this host."""
        return f"rsb{self.token}"

    def namespace(self, place: str) -> str:
        """Of a place, ``near`` or ``far``."""
        return f"rankscope-{self.token}-{place}"

    def port(self, place: str) -> str:
        """The end of a place's cable on this host."""
        return f"rs{place[0]}{self.token}"

    @property
    def store(self) -> str:
        """This host's address as the places see it."""
        return f"{self.subnet}.1"


def places_of(folder: Path) -> Places:
    """The places of a trial, known by its folder: the same wherever they are asked for in this process."""
    digest = hashlib.blake2b(f"{os.getpid()} {folder}".encode(), digest_size=4).hexdigest()
    return Places(digest)


def missing() -> str:
    """Why there can be no places here, empty when there can."""
    lacking = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"{', '.join(lacking)} not found (iproute2, util-linux)"
    return "" if os.geteuid() == 0 else "network namespaces need root"


@contextmanager
def two_places(folder: Path, _draw: Draw) -> Generator[None]:
    """Make them, and delete them whatever happens in between.

    Raises:
        OSError: they cannot be made here.
    """
    if missing():
        raise OSError(missing())
    places = places_of(folder)
    try:
        _make(places)
        yield
    finally:
        for place in ("near", "far"):
            _run("ip", "netns", "delete", places.namespace(place), check=False)
            _run("ip", "link", "delete", places.port(place), check=False)
        _run("ip", "link", "delete", places.bridge, check=False)


def _make(places: Places) -> None:
    _run("ip", "link", "add", places.bridge, "type", "bridge")
    _run("ip", "address", "add", f"{places.store}/24", "dev", places.bridge)
    _run("ip", "link", "set", places.bridge, "up")
    for number, place in enumerate(("near", "far"), start=2):
        namespace, port = places.namespace(place), places.port(place)
        _run("ip", "netns", "add", namespace)
        cable = ("name", INTERFACE, "netns", namespace)
        _run("ip", "link", "add", port, "type", "veth", "peer", *cable)
        _run("ip", "link", "set", port, "master", places.bridge, "up")
        inside = ("ip", "-netns", namespace)
        _run(*inside, "address", "add", f"{places.subnet}.{number}/24", "dev", INTERFACE)
        _run(*inside, "link", "set", INTERFACE, "up")
        _run(*inside, "link", "set", "lo", "up")


def limit_link(folder: Path, rate: str) -> None:
    """From now on so much passes between the places, in each direction (``tc``'s words: ``20mbit``)."""
    places = places_of(folder)
    bucket = ("root", "tbf", "rate", rate, "burst", "32kb", "latency", "400ms")
    _run("tc", "qdisc", "add", "dev", places.port("far"), *bucket)
    _run("tc", "-netns", places.namespace("far"), "qdisc", "add", "dev", INTERFACE, *bucket)


def swallow(folder: Path) -> None:
    """From now on nothing passes, and nobody is told: the cable is no part of the bridge any more."""
    _run("ip", "link", "set", places_of(folder).port("far"), "nomaster")


def placed(command: Command, folder: Path, draw: Draw) -> list[str]:
    """The command in its place: the drawn rank is far from all others. For torchrun's ``--no-python``."""
    places = places_of(folder)
    wrapper = folder / "place"
    wrapper.write_text(
        "#!/bin/sh\n"
        f"place={places.namespace('near')}\n"
        f'[ "$LOCAL_RANK" = {draw.rank} ] && place={places.namespace("far")}\n'
        f"export MASTER_ADDR={places.store} GLOO_SOCKET_IFNAME={INTERFACE}\n"
        'exec nsenter --net="/run/netns/$place" "$@"\n'
    )
    wrapper.chmod(0o700)
    return [str(wrapper), sys.executable, *command(folder, draw)]


def _run(*command: str, check: bool = True) -> None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:  # one that does not end keeps the rest from being undone
        if check:
            raise OSError(f"{' '.join(command)}: no end within {_SECONDS} s") from error
        return
    if check and done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}")
