"""A process that is a host: it lives in namespaces of its own (network, host name, mounts) until told to end.

Started in them by ``unshare``, as ``keeper.py NAME [HOSTS RESOLVER]``: takes the name, puts the files in the
place of ``/etc/hosts`` and ``/etc/resolv.conf``, brings ``lo`` up, says ``ready``. Its standard input ends
with whoever made the network, however that ends: then it kills everything that runs in its network, and goes.
The namespaces have no name anywhere, so they go with the last process in them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_POLL = 0.01


def kill_all(keeper: int) -> None:
    """Kill all that runs in the network of a keeper, but itself."""
    while left := _inhabitants(keeper):  # again until there is none: they start others
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL)


def _inhabitants(keeper: int) -> list[int]:
    """One that has ended and waits for its parent is in no network any more."""
    ours = Path(f"/proc/{keeper}/ns/net").stat().st_ino
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "ns/net").stat().st_ino == ours and int(path.name) != keeper:
                found.append(int(path.name))
    return found


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=20)


def main(name: str, *files: str) -> None:
    """Be the host ``name``."""
    socket.sethostname(name)
    for file, place in zip(files, ("/etc/hosts", "/etc/resolv.conf"), strict=False):
        if Path(place).exists():
            _run("mount", "--bind", file, place)
    _run("ip", "link", "set", "lo", "up")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    kill_all(os.getpid())


if __name__ == "__main__":
    main(*sys.argv[1:])
