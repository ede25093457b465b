"""What a key of ``diag top`` has started ends with it, however soon the next key comes."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path
from typing import Final

import pytest
from tests.deadline import DEADLINE
from tests.jobs import until

from rankscope.diag.top import panels as panels_module
from rankscope.diag.top.panels import Panels


class HeldPopen(subprocess.Popen[str]):
    """A real child whose starter is held until it may go on."""

    born: list[HeldPopen]
    started: threading.Event
    may_go_on: threading.Event

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[call-overload]  # passed on as they are
        self.born.append(self)
        self.started.set()
        assert self.may_go_on.wait(DEADLINE)


DEAF: Final = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[-1], "w").close()
signal.pause()
"""


def test_a_child_that_does_not_end_when_it_is_asked_to_is_ended_at_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(panels_module, "_MAIN", DEAF)
    monkeypatch.setattr(panels_module, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(panels_module, "_END_SECONDS", 0.1)
    children: list[subprocess.Popen[str]] = []

    class NotedPopen(subprocess.Popen[str]):
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)  # type: ignore[call-overload]  # passed on as they are
            children.append(self)

    monkeypatch.setattr(subprocess, "Popen", NotedPopen)
    panels = Panels(lambda: None)
    panels.ask_analysis([str(tmp_path / "deaf")], 80)
    until((tmp_path / "deaf").exists, "the child to be deaf", seconds=DEADLINE)
    panels.close()
    assert [child.wait(DEADLINE) for child in children] == [-signal.SIGKILL]


@pytest.mark.parametrize("then", ["another key", "the end"])
def test_a_child_that_was_dropped_while_it_was_being_started_is_ended(
    monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    monkeypatch.setattr(HeldPopen, "born", [], raising=False)
    monkeypatch.setattr(HeldPopen, "started", threading.Event(), raising=False)
    monkeypatch.setattr(HeldPopen, "may_go_on", threading.Event(), raising=False)
    monkeypatch.setattr(panels_module, "_MAIN", "import signal; signal.pause()")
    monkeypatch.setattr(subprocess, "Popen", HeldPopen)
    panels = Panels(lambda: None)
    try:
        panels.ask_analysis(["run-7"], 80)
        assert HeldPopen.started.wait(DEADLINE)
        (child,) = HeldPopen.born
        if then == "another key":
            panels.ask_stack(None)
            HeldPopen.may_go_on.set()
            panels.close()
        else:
            closing = threading.Thread(target=panels.close)
            closing.start()
            HeldPopen.may_go_on.set()
            closing.join(DEADLINE)
        assert child.returncode is not None, "it outlives what started it"
    finally:
        HeldPopen.may_go_on.set()
        for one in HeldPopen.born:
            one.kill()
            one.wait(DEADLINE)
