"""The hosts that tests of several nodes run on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadline import DEADLINE
from tests.jobs import until
from tests.network import Family, Host, Network, a_network

REACH = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), timeout=float(sys.argv[2]))
except ConnectionRefusedError:  # the other host has nobody at this port, and says so
    print("reached")
except OSError as error:
    print(type(error).__name__)
"""
MAKER = """
import subprocess, sys
from pathlib import Path
from tests.network import a_network
with a_network(Path(sys.argv[1]), 1) as network:
    sleeper = subprocess.Popen(network.hosts[0].inside("sleep", "3600"))
    print(network.switch, network.hosts[0].keeper, sleeper.pid, flush=True)
    sys.stdin.read()
"""
ROOT = Path(__file__).parents[2]


def _on(host: Host, *command: str) -> str:
    done = subprocess.run(
        host.inside(*command), stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=False
    )
    return done.stdout.strip()


def _reaches(host: Host, other: str, *, seconds: float = DEADLINE) -> bool:
    return _on(host, sys.executable, "-S", "-c", REACH, other, str(seconds)) == "reached"


def _is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
def test_hosts_reach_each_other_until_a_link_is_cut_and_again_when_it_is_healed(
    tmp_path: Path, family: Family
) -> None:
    with a_network(tmp_path, 2, family=family) as network:
        one, two = network.hosts
        assert [_on(host, "hostname") for host in network.hosts] == ["node0", "node1"]
        assert _reaches(one, two.address)
        assert _reaches(two, "node0")
        network.cut(two)
        assert not _reaches(one, two.address, seconds=0.5)
        network.heal(two)
        assert _reaches(one, two.address)


def test_names_may_resolve_nowhere(tmp_path: Path) -> None:
    with a_network(tmp_path, 1, names_resolve=False) as network:
        host = network.hosts[0]
        assert _on(host, "getent", "hosts", "localhost")
        assert not _on(host, "getent", "hosts", "node0")


def test_a_link_is_slow_at_both_ends_until_it_is_healed(tmp_path: Path) -> None:
    with a_network(tmp_path, 1) as network:
        host = network.hosts[0]
        network.slow(host, "1mbit")
        assert [_limits(network, end) for end in ("host", "switch")] == [1, 1]
        network.slow(host, "2mbit")
        network.heal(host)
        assert [_limits(network, end) for end in ("host", "switch")] == [0, 0]


def _limits(network: Network, end: str) -> int:
    host = network.hosts[0]
    pid = host.keeper if end == "host" else network.switch
    shown = subprocess.run(
        ["nsenter", f"--target={pid}", "--net", "tc", "qdisc"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    return shown.stdout.count("qdisc tbf")


def test_nothing_is_left_of_a_host_that_is_switched_off(tmp_path: Path) -> None:
    with a_network(tmp_path, 2) as network:
        one, two = network.hosts
        with subprocess.Popen(two.inside("sleep", "3600")) as sleeper:
            try:
                until(lambda: _name_of(sleeper.pid) == "sleep", "the sleeper to be on its host")
                network.switch_off(two)
                until(lambda: _is_gone(sleeper.pid), "the sleeper to be gone")
            finally:
                sleeper.kill()
        assert not _reaches(one, two.address, seconds=0.5)


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_a_network_goes_with_whoever_made_it_and_all_that_runs_on_its_hosts(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as maker:
        assert maker.stdout is not None
        pids = [int(word) for word in maker.stdout.readline().split()]
        until(lambda: _name_of(pids[-1]) == "sleep", "the sleeper to be on its host")
        os.kill(maker.pid, signal.SIGKILL)
    assert len(pids) == 3
    until(lambda: all(_is_gone(pid) for pid in pids), "the network to be gone")


def test_one_line_says_what_a_network_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        pytest.fail.Exception, match=r"^tests of several hosts cannot run here: ip, tc, .*not found"
    ):
        a_network(tmp_path, 1).__enter__()
