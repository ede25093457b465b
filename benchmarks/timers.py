"""Rows about timers (NUMBERS.md): what a pair of calls costs the caller, and a burst from eight processes.

Ours and torch's run in turn, several times, each server in a process of its own; medians are compared.
Run as a program this module is one of those processes: ``serve`` or ``write``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.row import Row
from rankscope.watchdog.timers import FileTimerClient, FileTimerServer, TimerClient, expires

WRITERS: Final = 8
BURST: Final = 1_000_000
_PAIRS: Final = 1_000
# torch's client raises once some 400 requests lie in the pipe: few at a time, and its server sleeps between.
_TORCH_PAIRS: Final = 50
_TORCH_REST: Final = 0.3
_ROUNDS: Final = 9
_DEADLINE: Final = 120.0
_ROOT: Final = Path(__file__).parent.parent


def rows() -> list[Row]:
    """Measure everything: about a minute on two cores."""
    # In a thread: torch's `expires` looks at the caller's whole stack, and the frozen modules under a program
    # started by `python -m` cost it several times what a training script's do.
    with ThreadPoolExecutor(1) as pool:
        pairs = pool.submit(_pair_rows).result()
    return [*pairs, _burst_row()]


def _pair_rows() -> list[Row]:
    """The pair as users write it, ``with expires(after=60):``, which is where the bar's 240 us come from.

    The bare calls stand beside it: two system calls alone are 0.6 us, torch's pair has six.
    """
    from torch.distributed.elastic.timer.api import expires as torch_expires
    from torch.distributed.elastic.timer.file_based_local_timer import FileTimerClient as TorchClient

    with tempfile.TemporaryDirectory() as folder:
        our_path, torch_path = f"{folder}/ours", f"{folder}/torch"
        with _serving("ours", our_path), _serving("torch", torch_path):
            ours, torchs = FileTimerClient(our_path), TorchClient(torch_path)

            def our_block() -> None:
                with expires(after=60, client=ours):
                    pass

            def torch_block() -> None:
                with torch_expires(after=60, client=torchs):
                    pass

            return [
                _pair_row("timer acquire + release, caller's cost", our_block, torch_block, bar=40),
                _pair_row(
                    "the same, client's calls alone", lambda: _pair(ours), lambda: _pair(torchs), bar=None
                ),
            ]


def _pair_row(name: str, our: Callable[[], None], peer: Callable[[], None], *, bar: int | None) -> Row:
    ours: list[float] = []
    peers: list[float] = []
    for _ in range(_ROUNDS):
        ours.append(_seconds(our, times=_PAIRS))
        peers.append(_seconds(peer, times=_TORCH_PAIRS))
        time.sleep(_TORCH_REST)
    ratio = statistics.median(peers) / statistics.median(ours)
    return Row(
        name,
        f"{statistics.median(ours) * 1e6:.2f} us",
        f"{statistics.median(peers) * 1e6:.1f} us",
        ratio,
        f">= {bar}x cheaper" if bar else "none",
        bar is None or ratio >= bar,
    )


def _burst_row() -> Row:
    with tempfile.TemporaryDirectory() as folder:
        server = FileTimerServer(f"{folder}/ours", "bench", on_expired=lambda _pid, _requests: None)
        server.start()
        try:
            raised, seconds = _burst("ours", f"{folder}/ours", BURST, server)
            received = server.counts().requests
        finally:
            server.stop()
        with _serving("torch", f"{folder}/torch"):
            torch_raised, _ = _burst("torch", f"{folder}/torch", WRITERS * 2_000, None)
    rate = received / seconds
    return Row(
        f"burst of {BURST:,} timer requests from {WRITERS} processes",
        f"{rate:,.0f}/s, {BURST - received:,} lost, {raised} raise",
        f"{torch_raised} of {WRITERS} raise within 2,000 each",
        0.0,
        "none lost, none raises, >= 200,000/s",
        received == BURST and raised == 0 and rate >= 200_000,
    )


def _burst(kind: str, path: str, requests: int, server: FileTimerServer | None) -> tuple[int, float]:
    """Let the writers loose at once; returns how many raised and the seconds until all was read."""
    command = [sys.executable, "-m", "benchmarks.timers", "write", kind, path, str(requests // WRITERS)]
    writers = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=_ROOT
        )
        for _ in range(WRITERS)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        start = time.monotonic()
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.close()
        raised = sum(writer.wait(_DEADLINE) != 0 for writer in writers)
        if server is not None:
            _wait_for_quiet(server, requests)
        return raised, time.monotonic() - start
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            if writer.stdout is not None:
                writer.stdout.close()


def _wait_for_quiet(server: FileTimerServer, requests: int) -> None:
    until = time.monotonic() + 10
    while server.counts().requests < requests and time.monotonic() < until:
        time.sleep(0.005)


def _seconds(call: Callable[[], None], *, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def _pair(client: TimerClient) -> None:
    client.acquire("train.py#120", time.time() + 60)
    client.release("train.py#120")


def _client(kind: str, path: str) -> TimerClient:
    if kind == "ours":
        return FileTimerClient(path)
    from torch.distributed.elastic.timer.file_based_local_timer import FileTimerClient as TorchClient

    return TorchClient(path)


@contextmanager
def _serving(kind: str, path: str) -> Generator[None, None, None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.timers", "serve", kind, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


def _serve(kind: str, path: str) -> None:
    if kind == "ours":
        ours = FileTimerServer(path, "bench", on_expired=lambda _pid, _requests: None)
        ours.start()
    else:
        from torch.distributed.elastic.timer.file_based_local_timer import FileTimerServer as TorchServer

        torchs = TorchServer(path, "bench", max_interval=0.1)
        torchs.start()
    print("ready", flush=True)
    threading.Event().wait()


def _write(kind: str, path: str, requests: int) -> None:
    client = _client(kind, path)
    print("ready", flush=True)
    sys.stdin.read()
    for _ in range(requests // 2):
        client.acquire("train.py#120", time.time() + 600)
        client.release("train.py#120")
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(*sys.argv[2:4])
    else:
        _write(sys.argv[2], sys.argv[3], int(sys.argv[4]))
