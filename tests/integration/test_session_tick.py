"""A turn of the watch, as the health server sees it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rankscope.agent.health.status import StatusReader
from rankscope.agent.own_session import own_settings
from rankscope.agent.session import Session


def test_that_the_agent_lives_does_not_depend_on_what_there_is_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path / "home"))
    session = Session(run_id="tick", command=["true"], settings=own_settings(0), nodes="1:1")
    try:
        session.services.start_health()
        page = Path(session.services.answers_path).parent / "status"
        reader = StatusReader(page)

        def fails(*_arguments: object) -> None:
            raise OSError("no such check")

        monkeypatch.setattr(session.host_checks, "poll", fails)
        before = time.monotonic_ns()
        with pytest.raises(OSError, match="no such check"):  # the watch thread says so, and goes on
            session.on_tick(time.monotonic(), session.watch.detector)
        assert reader.read().stamps.watch_ns >= before
        reader.close()
    finally:
        session.close(result="failed", exit_code=1)
