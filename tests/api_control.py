"""An agent's control socket as the API's server finds it: the real listener, with made-up answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tests.history_factory import BEGAN, a_hang, a_log

from rankscope.agent.control.listener import ControlListener
from rankscope.agent.control.messages import (
    Analyze,
    Change,
    ChangeSettings,
    InForce,
    RecordsAnswer,
    Refusal,
    Request,
    SettingsAnswer,
    Value,
    refused,
)
from rankscope.diag.store.events import iso_time

Reply = Callable[[msgspec.Raw | Refusal], None]
KNOWN: dict[str, Value] = {"job-hang-interval": 180.0, "diagnose-after": "auto"}
UNWRITTEN = "20261129T170000Z-0000000"


@dataclass
class Agent:
    """What it was asked; ``is_busy`` has the next analysis wait until ``finish`` is called."""

    path: str
    asked: list[Request] = field(default_factory=list[Request])
    is_busy: bool = False
    waiting: list[Reply] = field(default_factory=list[Reply])

    def answer(self, request: Request, reply: Reply) -> None:
        self.asked.append(request)
        match request:
            case Analyze():
                if self.waiting:
                    raise refused("busy", "an analysis is under way", retry_after=5)
                if self.is_busy:
                    self.waiting.append(reply)
                else:
                    reply(_raw(a_hang("", time=iso_time(BEGAN))))
            case ChangeSettings(change):
                unknown = [name for name in change if name not in KNOWN]
                if unknown:
                    raise refused("bad_request", f"{unknown[0]}: no setting that can be changed")
                changed = {name: Change(KNOWN[name], value) for name, value in change.items()}
                settings = {name: InForce(value, "default", True) for name, value in KNOWN.items()}
                reply(_raw(SettingsAnswer(changed, settings)))
            case _:
                event = (
                    a_log("vm").passes(500).event("message", {"rank": 0, "content": "unwritten"}).events[0]
                )
                event = msgspec.structs.replace(event, id="vm-unwritten")
                reply(_raw(RecordsAnswer("no space left", (event,), (a_hang(UNWRITTEN),))))

    def finish(self) -> None:
        for reply in self.waiting:
            reply(_raw(a_hang("", time=iso_time(BEGAN))))
        self.waiting.clear()


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


@contextmanager
def a_control(path: Path) -> Generator[Agent]:
    """A control socket that answers."""
    agent = Agent(str(path))
    listener = ControlListener(path, agent.answer)
    listener.start()
    try:
        yield agent
    finally:
        agent.finish()
        listener.close()
