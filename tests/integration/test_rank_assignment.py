"""``--rank-assignment`` with real agents: ranks as asked for, and one clear line when they cannot be."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.jobs import diag_run
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent import DiagElasticAgent, launch
from rankscope.agent.commands.run import main
from rankscope.agent.own_session import own_settings
from rankscope.agent.session import Session
from rankscope.diag.errors import UsageError

SHOWS = """
import os
names = ("LOCAL_RANK", "RANK", "ROLE_RANK", "WORLD_SIZE")
print("ranks", *(os.environ[name] for name in names), flush=True)
"""


def test_workers_have_the_ranks_that_were_named(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SHOWS)
    with diag_run(tmp_path, "--rank-assignment=explicit:1,0", ranks=2, script=[str(script)]) as job:
        assert job.finish() == 0
        assert sorted(re.findall("ranks (.*)", job.stdout)) == ["0 1 1 2", "1 0 0 2"]
        (started,) = job.events("cycle.started")
        assert started.data["ranks"] == [1, 0]


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ("offset:1", "rank 0 is given to nobody; rank 2 is outside of 0-1 (2 workers in all)"),
        ("no_such_module_anywhere:place", "no_such_module_anywhere:place: ModuleNotFoundError"),
        ("os:no_such_function", "os:no_such_function: AttributeError"),
        ("os:getcwd", "os:getcwd failed: TypeError"),
    ],
)
def test_ranks_that_cannot_be_are_refused_before_anything_is_started(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    scheme: str,
    said: str,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SHOWS)
    home = tmp_path / "home"
    monkeypatch.setenv("RANKSCOPE_HOME", str(home))
    assert main([f"--rank-assignment={scheme}", "--nproc-per-node=2", str(script)]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("diag run: ")]
    assert said in line
    assert not home.exists()


def launched() -> None:
    config = LaunchConfig(1, 1, 2, run_id="refused", rdzv_backend="c10d", rdzv_endpoint="localhost:0")
    launch(config, "/bin/true")()


def made_by_itself() -> None:
    meeting = RendezvousParameters("c10d", "localhost:0", "refused", min_nodes=1, max_nodes=1)
    spec = WorkerSpec("trainer", 2, get_rendezvous_handler(meeting), entrypoint="/bin/true")
    DiagElasticAgent(spec=spec, logs_specs=DefaultLogsSpecs()).run()


def test_an_agent_refuses_the_ranks_of_a_session_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path / "home"))
    meeting = RendezvousParameters("c10d", "localhost:0", "refused", min_nodes=1, max_nodes=1)
    spec = WorkerSpec("trainer", 2, get_rendezvous_handler(meeting), entrypoint="/bin/true")
    settings = replace(own_settings(0), rank_assignment="explicit:0,1,2")
    session = Session(run_id="refused", command=["true"], settings=settings, nodes="1:1")
    try:
        with pytest.raises(UsageError, match="names 3 ranks for 2 workers"):
            DiagElasticAgent(spec=spec, logs_specs=DefaultLogsSpecs(), session=session)
    finally:
        session.close(result="failed", exit_code=1)


@pytest.mark.parametrize("run", [launched, made_by_itself])
def test_programs_are_refused_as_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[[], None]
) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RANKSCOPE_RANK_ASSIGNMENT", "explicit:0,1,2")
    before = threading.active_count()
    with pytest.raises(UsageError, match="names 3 ranks for 2 workers"):
        run()
    assert threading.active_count() == before
    assert not (tmp_path / "home").exists()
