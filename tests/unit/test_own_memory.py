"""The agent's threads share the memory that they have held."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Twelve threads hold memory at the same time; an arena is a mapping that begins at a multiple of 64 MiB.
ARENAS = """
import ctypes, sys, threading
from rankscope.agent.own_memory import share_arenas
if sys.argv[1] == "shared":
    share_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
here = threading.Barrier(13)
def hold():
    libc.malloc(1000)
    here.wait()
    here.wait()
for _ in range(12):
    threading.Thread(target=hold).start()
here.wait()
lines = [line.split() for line in open("/proc/self/maps")]
begins = [int(line[0].split("-")[0], 16) for line in lines if line[1] == "rw-p" and len(line) == 5]
print(sum(begin % (64 << 20) == 0 for begin in begins))
here.wait()
"""


def arenas(how: str, **environ: str) -> int:
    plain = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    done = subprocess.run(
        [sys.executable, "-c", ARENAS, how], env=plain | environ, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(arenas("not") < 3, reason="this C library gives a thread no arena of its own")
def test_threads_share_arenas() -> None:
    assert arenas("shared") <= 1  # beside the heap


def test_what_the_user_asked_for_holds() -> None:
    assert arenas("shared", MALLOC_ARENA_MAX="1") == 0
