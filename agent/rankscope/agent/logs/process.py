"""Log capture as the agent uses it: open streams before workers start, watch the drain, finish at the end.

Holds every FIFO open itself, so that the death of the drain never reaches a worker, and starts a new drain
with the same streams. Where the agent's stdout and stderr are one place (``2>&1``, a terminal), so are a
worker's. Knows nothing of torch; what is written where is told by the caller.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from rankscope.agent.logs import fifos
from rankscope.agent.logs.counters import SLOTS
from rankscope.agent.logs.drain_process import Message
from rankscope.agent.logs.stream import Limits
from rankscope.agent.logs.supervision import SupervisedDrain

StreamName = Literal["stdout", "stderr"]
StreamKey = tuple[int, StreamName]
"""Local rank and stream."""

_CONSOLES: Final[dict[StreamName, int]] = {"stdout": 1, "stderr": 2}
_LISTEN: Final = 0.1
_LEAVE: Final = 1.0


@dataclass(frozen=True, slots=True)
class CapturedStream:
    """One stream of one worker.

    Attributes:
        local_rank: whose.
        name: stdout or stderr.
        file: where it is kept; appended to, made when the first byte comes; its folder must exist.
        on_console: whether it is shown on the agent's own stream of that name.
    """

    local_rank: int
    name: StreamName
    file: Path
    on_console: bool = True

    @property
    def key(self) -> StreamKey:
        """Local rank and stream."""
        return self.local_rank, self.name


@dataclass(frozen=True, slots=True)
class Finished:
    """How log capture ended.

    Attributes:
        unshown_bytes: output that the console did not take, None when the drain did not answer.
        unfiled_bytes: output that the files did not take in time, None likewise.
        process_ended: the drain has ended; False while somebody, a worker's child perhaps, holds a pipe open.
    """

    unshown_bytes: int | None
    unfiled_bytes: int | None
    process_ended: bool


@dataclass(frozen=True, slots=True)
class _Open:
    stream: CapturedStream
    fifo: Path
    slot: int
    keep_alive: int


class LogCapture:
    """Captures the output of one agent's workers, over all their attempts.

    Methods may be called from any thread; ``start`` and ``open`` belong to the main thread, ``check`` to
    the watch thread. None raises for anything that a disk, a terminal or a process does.
    """

    def __init__(
        self,
        fifo_dir: Path,
        on_event: Callable[[str], None],
        *,
        limits: Limits | None = None,
        one_console: bool | None = None,
    ) -> None:
        """Prepare; nothing is made before ``start``.

        Args:
            fifo_dir: folder for the FIFOs, private to this agent; made, and removed at the end.
            on_event: gets one line for what a person should know; called without any lock held.
            limits: how much may wait, and how long.
            one_console: stdout and stderr lead to the same place; None to look at descriptors 1 and 2.
        """
        self._wanted_dir = fifo_dir
        self._one_console = _is_one_console() if one_console is None else one_console
        self._on_event = on_event
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._events: list[str] = []
        self._folder: Path | None = None
        self._drain: SupervisedDrain | None = None
        self._open: dict[StreamKey, _Open] = {}
        self._slots = itertools.cycle(range(SLOTS))
        self._opened: set[int] = set()
        self._refused: dict[int, str] = {}
        self._finished: Message | None = None
        self._lost_bytes = 0

    @property
    def drain_pid(self) -> int | None:
        """Process of the drain, None when there is none."""
        drain = self._drain
        return drain.pid if drain else None

    def start(self) -> bool:
        """Make the folder and start the drain; False, said once, when output cannot be captured here."""
        with self._reporting():
            try:
                self._folder = fifos.make_fifo_folder(self._wanted_dir)
                self._drain = SupervisedDrain(self._limits)
            except OSError as error:
                self._release()
                self._say(f"log capture is off: {error}; workers write to the console themselves")
                return False
            return True

    def open(self, streams: Sequence[CapturedStream], *, timeout: float = 5.0) -> dict[StreamKey, Path]:
        """Have streams read before their workers start; an earlier stream of the same key is let go.

        Args:
            streams: of the workers about to start.
            timeout: seconds to wait for the drain.

        Returns:
            The FIFO that each worker is to write to; empty when output cannot be captured, which is said.
            With one place for both, a worker's stderr is its stdout's FIFO, and file: only so their order
            is kept.
        """
        with self._reporting():
            if self._drain is None:
                return {}
            leading = self._leading(streams)
            try:
                opened = self._make([stream for stream in streams if leading[stream.key] == stream.key])
                reason = self._announce(opened, time.monotonic() + timeout)
            except OSError as error:
                opened, reason = [], str(error)
            if reason is None:
                return {key: self._open[leader].fifo for key, leader in leading.items()}
            self._say(f"output is not captured: {reason}; workers write to the console themselves")
            for stream in streams:
                self._let_go(stream.key)
            return {}

    def leave_out(self, reason: str) -> None:
        """Capture nothing of the workers about to start, and say why; earlier streams are let go.

        ``sizes`` and ``files`` are empty until the next ``open``.
        """
        with self._reporting():
            for key in tuple(self._open):
                self._let_go(key)
            self._say(f"output is not captured: {reason}; workers write to the console themselves")

    def check(self) -> None:
        """Look after the drain: pass on what it says, replace it when it died or stands still.

        Called every tick, at least every two seconds; returns at once, also while another thread opens.
        """
        with self._reporting(wait=False) as mine:
            if not mine or self._drain is None:
                return
            self._listen()
            unread = any(fifos.waiting_bytes(one.keep_alive) for one in self._open.values())
            if self._drain.stands_still(busy=unread) and self._drain.alive():
                self._say("the log drain stood still and is replaced")
                self._drain.kill()
            if not self._drain.alive() and not self._replace():
                self._make_room()

    def sizes(self) -> dict[StreamKey, int]:
        """Bytes that each stream's worker has written so far in its current attempt; touches no file.

        Counts what still lies in the pipe too; off by what is just being moved. Streams that share a FIFO
        are one, under the name of stdout.
        """
        with self._lock:
            drain = self._drain
            if drain is None:
                return {}
            return {
                key: drain.counters.seen_bytes(one.slot) + fifos.waiting_bytes(one.keep_alive)
                for key, one in self._open.items()
            }

    def files(self) -> dict[StreamKey, Path]:
        """The file of each stream of the current attempt, by the keys of ``sizes``."""
        with self._lock:
            return {key: one.stream.file for key, one in self._open.items()}

    def finish(self, timeout: float = 10.0, *, console_idle: float | None = None) -> Finished:
        """After the workers' end: wait until what they wrote is in the files and on the console.

        The drain then goes on alone while anybody holds a pipe open, and ends when the last one has closed.
        An exception that a signal's handler raises in here ends the wait, leaves the rest to the drain for
        ``Limits.linger`` seconds and goes on to the caller.

        Args:
            timeout: seconds for pipes and files. A console gets all the time it needs while it takes
                bytes.
            console_idle: seconds without a byte taken after which a console is given up,
                ``Limits.console_idle`` by default.
        """
        idle = self._limits.console_idle if console_idle is None else console_idle
        with self._reporting():
            if self._drain is None:
                return Finished(None, None, process_ended=True)
            ended, interrupted = False, True
            try:
                self._ask_to_finish(timeout, idle)
                interrupted = False
            finally:
                drain, self._drain = self._drain, None
                self._release()
                if interrupted:
                    self._say("interrupted while output was still shown; its end may be missing here")
                ended = drain.leave(0.0 if interrupted else _LEAVE)
            return self._result(ended=ended, console_idle=idle)

    def _ask_to_finish(self, timeout: float, console_idle: float) -> None:
        for _ in range(2):
            if self._drain is None or (not self._drain.alive() and not self._replace()):
                return
            self._drain.send({"finish": timeout, "idle": console_idle})
            if self._waited_for_finish(self._drain, time.monotonic() + timeout):
                return
            # It has died in the middle; what is left in the pipes is the next one's.
            self._drain.kill()

    def _waited_for_finish(self, drain: SupervisedDrain, deadline: float) -> bool:
        """Wait for the drain's answer while it moves; False when it has died."""
        while self._finished is None:
            try:
                message = drain.receive(_LISTEN)
            except EOFError:
                return False
            if message is not None:
                self._take(message)
            elif drain.stands_still(busy=True) and time.monotonic() >= deadline:
                break
        return True

    def _result(self, *, ended: bool, console_idle: float) -> Finished:
        if self._finished is None:
            self._say("the log drain did not finish in time; the end of the output may be missing")
            return Finished(None, None, process_ended=ended)
        counts = cast("dict[str, int]", self._finished["finished"])
        unshown, unfiled = counts["unshown"], counts["unfiled"]
        if unshown or unfiled:
            idle = f"the console took nothing for {console_idle:g} s; " if unshown else ""
            self._say(
                f"output left at the end: {idle}{unshown} bytes not shown, {unfiled} bytes not in the files"
            )
        return Finished(unshown, unfiled, process_ended=ended)

    def _leading(self, streams: Sequence[CapturedStream]) -> dict[StreamKey, StreamKey]:
        """Whose FIFO each stream gets: its own, or its worker's stdout's."""
        wanted = {stream.key: stream.on_console for stream in streams}
        leading: dict[StreamKey, StreamKey] = {}
        for stream in streams:
            stdout: StreamKey = (stream.local_rank, "stdout")
            shared = self._one_console and wanted.get(stdout) == stream.on_console
            leading[stream.key] = stdout if shared else stream.key
        return leading

    def _make(self, streams: Sequence[CapturedStream]) -> list[_Open]:
        if self._folder is None or self._drain is None:
            raise FileNotFoundError("log capture is not started")
        made: list[_Open] = []
        for stream in streams:
            self._let_go(stream.key)
            used = {one.slot for one in self._open.values()}
            slot = next(slot for slot in self._slots if slot not in used)
            self._drain.counters.clear(slot)
            fifo = self._folder / f"{slot}-{stream.local_rank}-{stream.name}"
            one = _Open(stream, fifo, slot, fifos.make_fifo(fifo))
            self._open[stream.key] = one
            made.append(one)
        for one in made:
            fifos.widen(one.keep_alive, pipes=len(self._open))
        return made

    def _announce(self, opened: Sequence[_Open], deadline: float) -> str | None:
        slots = {one.slot for one in opened}
        self._opened -= slots
        self._refused.clear()
        for _ in range(2):
            if self._drain is not None and self._drain.alive():
                for one in opened:
                    self._send_open(one)
            elif not self._replace():
                break
            self._wait_until(lambda: slots <= self._opened | self._refused.keys(), deadline)
            if slots <= self._opened:
                return None
            if self._refused or time.monotonic() >= deadline:
                break
        return "; ".join(sorted(set(self._refused.values()))) or "the log drain does not answer"

    def _send_open(self, one: _Open) -> None:
        if self._drain is None:
            return
        console = _CONSOLES[one.stream.name] if one.stream.on_console else 0
        self._drain.send(
            {
                "open": str(one.fifo),
                "slot": one.slot,
                "file": str(one.stream.file.absolute()),
                "console": console,
                "resume": self._drain.counters.seen_bytes(one.slot) > 0,
            }
        )

    def _wait_until(self, reached: Callable[[], bool], deadline: float) -> bool:
        while not reached():
            try:
                message = self._drain.receive(deadline - time.monotonic()) if self._drain else None
            except EOFError:
                return reached()
            if message is None:
                return False
            self._take(message)
        return True

    def _listen(self) -> None:
        with contextlib.suppress(EOFError):
            while self._drain and (message := self._drain.receive(0)) is not None:
                self._take(message)

    def _take(self, message: Message) -> None:
        if "opened" in message:
            self._opened.add(cast("int", message["opened"]))
        elif "failed" in message:
            self._refused[cast("int", message["failed"])] = str(message["reason"])
        elif "finished" in message:
            self._finished = message
        elif "event" in message:
            self._say(str(message["event"]))

    def _replace(self) -> bool:
        try:
            if self._drain is None or not self._drain.replace():
                return False
        except OSError as error:
            self._say(f"the log drain has ended and cannot be started again: {error}")
            return False
        lost = f"; {self._lost_bytes} bytes of output are lost" if self._lost_bytes else ""
        self._lost_bytes = 0
        self._say(f"the log drain ended and was started again; output of that moment may be missing{lost}")
        for one in self._open.values():
            self._send_open(one)
        return True

    def _make_room(self) -> None:
        # Without a drain a worker would block at a full pipe: rather lose output than hold it.
        for one in self._open.values():
            if fifos.is_half_full(one.keep_alive):
                self._lost_bytes += fifos.discard(one.keep_alive)

    def _let_go(self, key: StreamKey) -> None:
        one = self._open.pop(key, None)
        if one is not None:
            os.close(one.keep_alive)
            one.fifo.unlink(missing_ok=True)

    def _release(self) -> None:
        for key in tuple(self._open):
            self._let_go(key)
        if self._folder is not None:
            fifos.remove_folder(self._folder)
            self._folder = None

    def _say(self, text: str) -> None:
        self._events.append(text)

    @contextlib.contextmanager
    def _reporting(self, *, wait: bool = True) -> Generator[bool]:
        """Hold the lock, unless it is taken and we do not wait; afterwards pass on what is to be said."""
        mine = self._lock.acquire(blocking=wait)
        try:
            yield mine
        finally:
            events: list[str] = []
            if mine:
                events, self._events = self._events, []
                self._lock.release()
            for event in events:
                self._on_event(event)


def _is_one_console() -> bool:
    try:
        return os.path.sameopenfile(1, 2)
    except OSError:
        return False
