"""The process that reads workers' pipes; ``drain_process`` starts it, it imports the standard library only.

Its main thread does nothing but empty pipes and talk to the agent, so that nothing a disk or a terminal does
reaches a worker; files and consoles have threads of their own. It outlives the agent as long as a worker
holds a pipe open. The agent's end of the talk is ``process``; messages are JSON, one a packet::

    agent  {"open": fifo, "slot": n, "file": path, "console": 0|1|2, "resume": bool}
           {"finish": seconds, "idle": seconds a console may take nothing}
    drain  {"opened": slot}  {"failed": slot, "reason": text}  {"event": text}
           {"finished": {"unshown": bytes, "unfiled": bytes}}
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rankscope.agent.logs import fifos
from rankscope.agent.logs.console import Console
from rankscope.agent.logs.counters import Counters
from rankscope.agent.logs.files import FileWriter
from rankscope.agent.logs.finish import Finish
from rankscope.agent.logs.stream import Limits, Stream

MESSAGE_BYTES: Final = 64 * 1024
"""Longest message either way."""
_TRACE_CHARACTERS: Final = 4000
_READ_BYTES: Final = 256 * 1024
_TICK: Final = 0.01
_SLOW_TICK: Final = 0.1
_TICK_COUNTED: Final = 0.1
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Drain:
    """Reads the pipes that the agent names until all of them are closed and the agent needs it no more."""

    def __init__(self, control: socket.socket, counters: Counters, limits: Limits) -> None:
        self._control = control
        self._counters = counters
        self._limits = limits
        self._work = threading.Condition()
        self._files = FileWriter(self._work, counters, limits, self._say)
        self._consoles = self._open_consoles()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._streams: dict[int, Stream] = {}
        self._closed: list[Stream] = []
        self._paused: set[int] = set()
        self._stalled = 0.0
        self._operations_then = 0
        self._ticked = time.monotonic()
        self._finish: Finish | None = None
        self._agent_gone = False
        self._dismissed = False
        self._folders: set[Path] = set()

    def _open_consoles(self) -> dict[int, Console]:
        usable: dict[int, os.stat_result] = {}
        for fd in (1, 2):
            with contextlib.suppress(OSError):
                usable[fd] = os.fstat(fd)
        consoles = {fd: Console(fd, self._work, self._counters, self._limits, self._say) for fd in usable}
        if len(usable) == 2 and os.path.samestat(usable[1], usable[2]):  # noqa: PLR2004 - stdout and stderr
            # One place for both (2>&1, a terminal): one thread, so that they do not tear each other's lines.
            consoles[2] = consoles[1]
        return consoles

    def run(self) -> None:
        """Work until there is nothing left to do."""
        self._files.start()
        for console in set(self._consoles.values()):
            console.start()
        linger_until: float | None = None
        while True:
            for fd, _ in self._poll.poll(self._timeout_ms()):
                if fd == self._control.fileno():
                    self._receive()
                elif fd in self._streams:
                    self._read(self._streams[fd])
            self._sweep()
            self._tick()
            if (self._agent_gone or self._dismissed) and not self._streams:
                now = time.monotonic()
                linger_until = linger_until or now + self._limits.linger
                if not self._closed or now >= linger_until:
                    break
        if self._agent_gone and not self._dismissed:
            self._remove_pipes()

    def _timeout_ms(self) -> int | None:
        if self._unemptied():
            return 0
        if self._paused or self._finish:
            return int(_TICK * 1000)
        return int(_SLOW_TICK * 1000) if self._closed else None

    def _tick(self) -> None:
        now = time.monotonic()
        self._counters.set_beat(self._counters.beat() + 1)
        # Counted in small steps: a drain that was itself stopped for a minute has not seen the disk stall.
        elapsed, self._ticked = min(now - self._ticked, _TICK_COUNTED), now
        with self._work:
            self._resume_paused(elapsed)
            self._forget_done()
            finish = self._finish
            if finish is not None and finish.is_over(now, elapsed=elapsed):
                answer = {"unshown": finish.unshown_bytes(), "unfiled": finish.unfiled_bytes()}
                self._finish = None
                self._dismissed = True
                self._send({"finished": answer})

    def _resume_paused(self, elapsed: float) -> None:
        if not self._paused:
            self._stalled = 0.0
            return
        moved = self._files.operations != self._operations_then
        self._operations_then = self._files.operations
        self._stalled = 0.0 if moved else self._stalled + elapsed
        for fd in tuple(self._paused):
            stream = self._streams[fd]
            if self._stalled >= self._limits.stall:
                self._files.give_up(stream, f"no answer from its file system for {self._limits.stall:g} s")
            if stream.unfiled_bytes < self._limits.memory_bytes:
                self._paused.discard(fd)
                self._poll.register(fd, select.POLLIN)

    def _forget_done(self) -> None:
        for stream in [stream for stream in self._closed if stream.done]:
            self._closed.remove(stream)
            self._files.remove(stream)
            for console in self._consoles.values():
                console.remove(stream)

    def _receive(self) -> None:
        try:
            packet = self._control.recv(MESSAGE_BYTES)
        except OSError:
            packet = b""
        if not packet:
            self._agent_gone = True
            self._poll.unregister(self._control)
            return
        message = json.loads(packet)
        if "open" in message:
            self._open(message)
        elif "finish" in message:
            self._begin_finish(float(message["finish"]), console_idle=float(message["idle"]))

    def _open(self, message: Mapping[str, str | int]) -> None:
        fifo, slot = str(message["open"]), int(message["slot"])
        try:
            fd = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._send({"failed": slot, "reason": f"{fifo}: {error.strerror}"})
            return
        console = self._consoles.get(int(message["console"]))
        stream = Stream(
            slot=slot,
            fifo=fifo,
            fd=fd,
            file=str(message["file"]),
            has_console=console is not None,
            resumed=bool(message["resume"]),
        )
        self._folders.add(Path(fifo).parent)
        with self._work:
            self._streams[fd] = stream
            self._files.add(stream)
            if console is not None:
                console.add(stream)
            self._work.notify_all()
        self._poll.register(fd, select.POLLIN)
        self._send({"opened": slot})

    def _begin_finish(self, seconds: float, *, console_idle: float) -> None:
        with self._work:
            self._finish = Finish(
                deadline=time.monotonic() + seconds,
                console_idle=console_idle,
                reading=self._streams.values(),
                ended=self._closed,
                consoles=set(self._consoles.values()),
            )

    def _sweep(self) -> None:
        for stream in self._unemptied():
            self._read(stream)

    def _unemptied(self) -> list[Stream]:
        # The poll wakes for bytes only: whether a pipe is empty shows when it is read once more.
        asked = self._finish.unread if self._finish else {}
        return [s for s in self._streams.values() if (s.more or s in asked) and s.fd not in self._paused]

    def _read(self, stream: Stream) -> None:
        try:
            data = os.read(stream.fd, _READ_BYTES)
        except BlockingIOError:
            self._found_empty(stream)
            return
        except OSError as error:
            self._say(f"output of {stream.file} ends: {error.strerror}")
            data = b""
        with self._work:
            if data:
                self._take(stream, data)
            else:
                self._close(stream)
            self._work.notify_all()

    def _found_empty(self, stream: Stream) -> None:
        if self._finish:
            self._finish.note_read(stream, 0)
        if stream.more:
            with self._work:
                stream.more = False
                self._work.notify_all()

    def _take(self, stream: Stream, data: bytes) -> None:
        stream.append(data)
        stream.more = len(data) == _READ_BYTES
        stream.trim(self._limits)
        self._counters.set_seen(stream.slot, self._counters.seen_bytes(stream.slot) + len(data))
        if self._finish:
            self._finish.note_read(stream, len(data))
        if stream.unfiled_bytes >= self._limits.memory_bytes:
            self._paused.add(stream.fd)
            self._poll.unregister(stream.fd)

    def _close(self, stream: Stream) -> None:
        if self._finish:
            self._finish.note_read(stream, 0)
        stream.ended = True
        self._poll.unregister(stream.fd)
        del self._streams[stream.fd]
        os.close(stream.fd)
        self._closed.append(stream)

    def _remove_pipes(self) -> None:
        for folder in self._folders:
            fifos.remove_folder(folder)

    def _say(self, text: str) -> None:
        self._send({"event": text})

    def _send(self, message: Mapping[str, object]) -> None:
        packet = json.dumps(message).encode()
        # An agent that is stopped or gone is not waited for.
        with contextlib.suppress(OSError):
            self._control.send(packet[:MESSAGE_BYTES], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def main(arguments: list[str]) -> None:
    """Run as the drain: descriptors of the control socket and of the counters, limits as JSON."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text("rankscope-drain")
    control = socket.socket(fileno=int(arguments[0]))
    status = 0
    try:
        Drain(control, Counters(int(arguments[1])), Limits(**json.loads(arguments[2]))).run()
    except Exception:  # noqa: BLE001 - the process's edge; the agent starts the next one
        status = 1
        with contextlib.suppress(OSError):
            text = traceback.format_exc()[-_TRACE_CHARACTERS:]
            control.send(json.dumps({"event": f"the log drain failed: {text}"}).encode(), socket.MSG_DONTWAIT)
    # A console's thread may be blocked for good: nothing waits for it.
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
