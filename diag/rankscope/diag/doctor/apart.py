"""Runs checks in processes of their own, all at once, each with a deadline.

A look at a share that does not answer blocks its process in the kernel, where not even SIGKILL ends it. So
the process is left, and the check says that it got no answer; ``diag doctor`` itself never waits in a
system call that a device may hold. It must not know what is checked.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rankscope.diag.doctor import Finding, unknown

_BLOCK_BYTES: Final = 1 << 16
_MOST_BYTES: Final = 1 << 20
_KILL_SECONDS: Final = 1.0
_FINDINGS: Final = msgspec.json.Decoder(list[Finding])


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        what: its subject, for the line that says that it did not answer.
        run: makes the findings; may raise, may block.
        needed: whether diagnosis needs what it looks at.
        timeout: seconds it may take.
    """

    what: str
    run: Callable[[], Sequence[Finding]]
    needed: bool = False
    timeout: float = 10.0


@dataclass(slots=True)
class _Running:
    check: Check
    pid: int
    fd: int
    deadline: float
    received: bytes = b""


def run_apart(checks: Sequence[Check]) -> Generator[Sequence[Finding]]:
    """Run checks at the same time and give each one's findings, in the order of the checks.

    As many at a time as this process may have descriptors and children for; one that cannot be started even
    alone is not known. Every process is ended, and collected if it can be, when its findings have been given
    or the generator is closed. To be called before this process has threads: it forks.
    """
    waiting, running = deque(checks), deque[_Running]()
    try:
        while waiting or running:
            trouble = _start_some(waiting, running)
            if running:
                found = _result(running[0])
                _end([running.popleft()])
                yield found
            else:
                check = waiting.popleft()
                yield [unknown(check.what, f"cannot be started: {trouble}", needed=check.needed)]
    finally:
        _end(running)


def _start_some(waiting: deque[Check], running: deque[_Running]) -> str:
    """Start what can be started now; returns why no more could."""
    while waiting:
        try:
            running.append(_start(waiting[0], [one.fd for one in running]))
        except OSError as error:
            return error.strerror or str(error)
        waiting.popleft()
    return ""


def _start(check: Check, others: Sequence[int]) -> _Running:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        # Nothing of the parent may run in here: no exit handler, no flush of what it has yet to print.
        with contextlib.suppress(BaseException):
            _child(check, writing, (reading, *others))
        os._exit(0)
    os.close(writing)
    return _Running(check, pid, reading, time.monotonic() + check.timeout)


def _child(check: Check, writing: int, unneeded: Sequence[int]) -> None:
    os.setpgid(0, 0)
    for fd in unneeded:  # the check may need them: their number is limited
        os.close(fd)
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        findings = list(check.run())
    except Exception as error:  # noqa: BLE001 - the edge of a process: whatever it is, it is told
        findings = [unknown(check.what, f"{type(error).__name__}: {error}", needed=check.needed)]
    data = msgspec.json.encode(findings)
    while data:
        data = data[os.write(writing, data) :]


def _result(one: _Running) -> Sequence[Finding]:
    ready = select.poll()
    ready.register(one.fd, select.POLLIN)
    while len(one.received) < _MOST_BYTES:
        if not ready.poll(max(0.0, one.deadline - time.monotonic()) * 1000):
            why = f"no answer in {one.check.timeout:g} s"
            return [unknown(one.check.what, why, needed=one.check.needed)]
        data = os.read(one.fd, _BLOCK_BYTES)
        if not data:
            break
        one.received += data
    try:
        return _FINDINGS.decode(one.received)
    except msgspec.MsgspecError:
        why = "the check's process ended without an answer"
        return [unknown(one.check.what, why, needed=one.check.needed)]


def _end(running: Iterable[_Running]) -> None:
    """End what still runs; what the kernel holds is left to it."""
    deadline = time.monotonic() + _KILL_SECONDS
    for one in running:
        with contextlib.suppress(OSError):
            os.killpg(one.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(one.pid, signal.SIGKILL)
        os.close(one.fd)
    for one in running:
        while _lives(one.pid) and time.monotonic() < deadline:
            time.sleep(0.001)


def _lives(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    return False
