"""The process that delivers: it forks one child a try, and ends it, with its group, at its deadline.

Why a process: a name server, a TLS handshake or a program on a lost share can hang without end, and whoever
waits for it must be one that can be killed. It must not be a thread of the agent either: workers that are
functions may be forked from it, and would inherit the locks such a thread holds; and while a program is being
started, ``subprocess`` holds the GIL until the file system has answered. Here a child is forked first and
starts the program itself. Standard library only, one thread.

Packets (``SOCK_SEQPACKET``): a JSON line, then the body::

    agent  {"targets": [{"url": text, "headers": [[name, value]], "slack": bool} | {"words": [text]}],
            "cwd": path}
           {"try": n, "target": index, "seconds": s, "type": content type} + body
    desk   {"done": n, "reason": text, "again": bool, "wait": s|null, "output": text}
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Final, TypedDict, cast, final

from rankscope.agent.notices import child
from rankscope.agent.notices.post import Address, Report, make_opener, post

PACKET_BYTES: Final = 128 * 1024
"""Longest packet either way."""
_OUTPUT_BYTES: Final = 2000
"""Of a command's output its end is kept."""
_READ_BYTES: Final = 64 * 1024
_READS: Final = 16
_TICK: Final = 0.05
_IDLE: Final = 5.0
_KILLED_TIMEOUT: Final = 1.0
_IGNORED: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


@final
class AddressWords(TypedDict):
    """A webhook as the agent tells it."""

    url: str
    headers: list[tuple[str, str]]
    slack: bool


@final
class CommandWords(TypedDict):
    """A command as the agent tells it."""

    words: list[str]


class Try:
    """One try: a child, what it says, and how it ended."""

    def __init__(self, number: int, seconds: float, pid: int, output: int, *, is_command: bool) -> None:
        self.number = number
        self.pid = pid
        self.output = output
        self.is_command = is_command
        self._seconds = seconds
        self.deadline = time.monotonic() + seconds
        self._said = b""
        self.is_silent = False
        self._timed_out = False
        self._killed_by = 0.0
        os.set_blocking(output, False)

    def read(self) -> None:
        """Take what there is to read, so much in one turn; of much output only the end is kept."""
        for _ in range(_READS):
            try:
                data = os.read(self.output, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self.is_silent = True
                return
            self._said = (self._said + data)[-_OUTPUT_BYTES:]

    def see_to(self, now: float) -> Report | None:
        """How it went once it has ended; a try that is late is ended."""
        if child.has_ended(self.pid):
            self.read()
            child.kill(self.pid)  # what it left running; its number is taken until it is reaped
            _, status = os.waitpid(self.pid, 0)
            return self._report(os.waitstatus_to_exitcode(status))
        if not self._timed_out and now >= self.deadline:
            self._timed_out, self._killed_by = True, now + _KILLED_TIMEOUT
        if self._timed_out:
            child.kill(self.pid)
            if now >= self._killed_by:
                return self._report(None)  # the kernel ends it when it can
        return None

    def _report(self, code: int | None) -> Report:
        if not self.is_command:
            return self._of_the_post(code)
        output = self._said.decode("utf-8", "replace").strip()
        if self._timed_out:
            return {"reason": f"not done in {self._seconds:g} s", "again": True, "output": output}
        if code == 0:
            return {"reason": ""}
        if code in child.NOT_STARTED:
            return {"reason": f"cannot be started (exit code {code})", "again": False, "output": output}
        how = f"exit code {code}" if code is not None and code > 0 else f"signal {-(code or 0)}"
        return {"reason": how, "again": True, "output": output}

    def _of_the_post(self, code: int | None) -> Report:
        for line in reversed(self._said.split(b"\n")[:-1]):
            return cast("Report", json.loads(line))
        if self._timed_out:
            return {"reason": f"no answer in {self._seconds:g} s", "again": True}
        return {"reason": f"the try was ended (status {code})", "again": True}


class Desk:
    """Carries out the tries that the agent asks for until the agent goes."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._agent = os.getppid()
        self._opener = make_opener()
        self._targets: list[AddressWords | CommandWords] = []
        self._cwd = "/"
        self._tries: list[Try] = []

    def run(self) -> None:
        """Work until the agent closes its end, or has ended; then every try is ended too."""
        try:
            while os.getppid() == self._agent and self._turn():
                pass
        finally:
            for each in self._tries:
                child.kill(each.pid)

    def _turn(self) -> bool:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        for each in self._tries:
            if not each.is_silent:
                poll.register(each.output, select.POLLIN)
        ready = {fd for fd, _ in poll.poll((_TICK if self._tries else _IDLE) * 1000)}
        for each in self._tries:
            if each.output in ready:
                each.read()
        now = time.monotonic()
        for each in tuple(self._tries):
            if (report := each.see_to(now)) is not None:
                self._tries.remove(each)
                os.close(each.output)
                self._send({"done": each.number, **report})
        return self._control.fileno() not in ready or self._listen()

    def _send(self, message: Report) -> None:
        self._control.send(json.dumps(message).encode())

    def _listen(self) -> bool:
        packet = self._control.recv(PACKET_BYTES)
        if not packet:
            return False
        head, _, body = packet.partition(b"\n")
        message = json.loads(head)
        if "targets" in message:
            self._targets, self._cwd = message["targets"], message["cwd"]
        else:
            self._begin(message["try"], message["target"], message["seconds"], message["type"], body)
        return True

    def _begin(self, number: int, target: int, seconds: float, content_type: str, body: bytes) -> None:
        told = self._targets[target]
        try:
            pid, output = child.start(self._act(told, body, content_type, seconds), also_close=self._control)
        except OSError as error:
            self._send({"done": number, "reason": f"no process for it: {error.strerror}", "again": True})
            return
        self._tries.append(Try(number, seconds, pid, output, is_command="words" in told))

    def _act(
        self, told: AddressWords | CommandWords, body: bytes, content_type: str, seconds: float
    ) -> Callable[[int], None]:
        """What the child is to do."""
        if "words" in told:
            return child.command(told["words"], body, cwd=self._cwd)
        address = Address(told["url"], told["headers"], told["slack"])

        def act(output: int) -> None:
            post(
                self._opener,
                address,
                body,
                content_type=content_type,
                timeout=seconds,
                report=lambda report: _write_line(output, report),
            )

        return act


def _write_line(output: int, report: Report) -> None:
    os.write(output, json.dumps(report).encode() + b"\n")


def main(arguments: list[str]) -> None:
    """Serve the agent at the other end of the socket whose descriptor is the only argument."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    child.name_process("rankscope-notes")
    with socket.socket(fileno=int(arguments[0])) as control:
        Desk(control).run()
