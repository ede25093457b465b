"""Everything beside torch's own: the same command line under torchrun and ``diag run``, the same agent made
by torch's class and by ours. The table of all that is shown is docs/reference/torch-parity.md.
"""

# torch's @prof is an untyped decorator: pyright takes the methods it wraps for variables.
# pyright: reportIncompatibleVariableOverride=false, reportCallIssue=false

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch.distributed.elastic.rendezvous.registry as rendezvous_registry
from tests.jobs import Job, diag_run, torchrun
from torch.distributed.elastic.agent.server.api import WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousParameters

from rankscope.agent import DiagElasticAgent
from rankscope.agent.rendezvous.store import FreshStoreRendezvous
from rankscope.agent.workers.process_context import exit_codes, function_processes, leads_groups

WORKER = Path(__file__).parent / "programs" / "parity_worker.py"
RANKS = 2
FLAGS = (
    *("--role=trainer", "--virtual-local-rank", "--redirects=1:3", "--tee=0:3", "--local-ranks-filter=0"),
    *("--duplicate-stdout-filters=loss", "--duplicate-stderr-filters=loss", "--monitor-interval=0.05"),
    *("--signals-to-handle=SIGTERM,SIGUSR2", "--shutdown-timeout=5", "--max-restarts=2"),
)
PREFIX = "[${role_name}${local_rank} rank ${rank}]:"
# What differs from launch to launch, and what is ours (docs/reference/environment.md).
VOLATILE = {"MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID", "PWD", "_"}
OURS = {"TORCHELASTIC_TIMER_FILE", "TORCH_FR_BUFFER_SIZE", "PYTHONPATH"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    """The same workers under torchrun and under ``diag run``, ended."""
    jobs: dict[str, Job] = {}
    for name, run in (("torchrun", torchrun), ("diag run", diag_run)):
        folder = tmp_path_factory.mktemp("parity")
        flags = (*FLAGS, f"--log-dir={folder / 'logs'}")
        environ = {
            "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${hostname} " * (name == "diag run") + PREFIX,
            "CUDA_VISIBLE_DEVICES": "5,6",
        }
        with run(folder, *flags, ranks=RANKS, script=[str(WORKER), str(folder)], environ=environ) as job:
            assert job.finish() == 0, job.stderr
            jobs[name] = job
    return jobs


def environment(job: Job, rank: int) -> dict[str, str]:
    found: dict[str, str] = json.loads((job.folder / f"{rank}.json").read_text())
    folder = str(job.folder)
    return {
        name: value.replace(folder, "FOLDER")
        for name, value in found.items()
        if name not in VOLATILE | OURS and not name.startswith("RANKSCOPE_")
    }


@pytest.mark.parametrize("rank", range(RANKS))
def test_workers_get_the_environment_that_torchrun_gives(both: dict[str, Job], rank: int) -> None:
    ours, torchs = (environment(both[name], rank) for name in ("diag run", "torchrun"))
    for name in ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",):
        ours.pop(name)
        torchs.pop(name)
    assert ours == torchs
    assert (ours["ROLE_NAME"], ours["LOCAL_RANK"], ours["TORCHELASTIC_MAX_RESTARTS"]) == ("trainer", "0", "2")
    assert ours["CUDA_VISIBLE_DEVICES"] == ("5", "6")[rank]


def test_log_files_lie_where_torchrun_puts_them_filtered_ones_too(both: dict[str, Job]) -> None:
    def files(job: Job) -> dict[str, str]:
        (run,) = (job.folder / "logs").iterdir()
        host = f"{socket.gethostname()} "  # in the template of one of them
        paths = sorted(run.rglob("*.log"))
        return {str(path.relative_to(run)): path.read_text().removeprefix(host) for path in paths}

    ours, torchs = files(both["diag run"]), files(both["torchrun"])
    assert ours == torchs
    assert {name: text for name, text in ours.items() if "filtered" in name} == {
        f"attempt_0/filtered_{stream}.log": "[trainer0 rank 0]:loss is 7\n" for stream in ("stdout", "stderr")
    }


def test_prefixes_have_torchs_macros_and_the_host_s_name(both: dict[str, Job]) -> None:
    """Of local rank 0 alone: the others are not shown (``--local-ranks-filter``)."""
    prefix = "[trainer0 rank 0]:"
    lines = ("loss is 7", "a word of something else")
    assert both["torchrun"].stdout.splitlines() == [prefix + line for line in lines]
    host = socket.gethostname()
    assert both["diag run"].stdout.splitlines() == [f"{host} {prefix}{line}" for line in lines]


# The agent in torch's place, as torch's own tests make it.


def a_spec(tmp_path: Path, **changes: Any) -> WorkerSpec:
    parameters = RendezvousParameters(
        "c10d", "localhost:0", f"parity-{os.getpid()}-{tmp_path.name}", min_nodes=1, max_nodes=1
    )
    fields: dict[str, Any] = {
        "role": "trainer",
        "local_world_size": RANKS,
        "entrypoint": "/bin/true",
        "rdzv_handler": rendezvous_registry.get_rendezvous_handler(parameters),
        "max_restarts": 1,
        "monitor_interval": 0.05,
    }
    return WorkerSpec(**(fields | changes))


def make(kind: type[LocalElasticAgent], spec: WorkerSpec, tmp_path: Path, **more: Any) -> Any:
    return kind(spec=spec, logs_specs=DefaultLogsSpecs(log_dir=str(tmp_path)), **more)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where records would be."""
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_making_an_agent_does_no_more_than_torchs(home: Path, tmp_path: Path) -> None:
    spec = Mock(spec=WorkerSpec)  # without a role, a run id that is no text: torch's tests make such
    spec.max_restarts, spec.local_world_size, spec.rdzv_handler = 3, 1, Mock()
    entrypoint = spec.entrypoint
    agent = make(DiagElasticAgent, spec, tmp_path, shutdown_timeout=150, exit_barrier_timeout=500)
    assert (agent._shutdown_timeout, agent._exit_barrier_timeout) == (150, 500)
    assert agent._remaining_restarts == 3
    assert spec.entrypoint is entrypoint
    assert not home.exists()


def test_an_agent_that_never_ran_passes_its_shutdown_on(home: Path, tmp_path: Path) -> None:
    agent = make(DiagElasticAgent, a_spec(tmp_path), tmp_path)
    agent._pcontext = pcontext = MagicMock()
    agent._shutdown(death_sig=signal.SIGTERM, timeout=150)
    pcontext.close.assert_called_once_with(signal.SIGTERM, 150)
    assert not home.exists()


def test_what_stands_in_for_torchs_processes_is_taken_as_it_is() -> None:
    stand_in = Mock()
    assert function_processes(stand_in) == ()
    assert exit_codes(stand_in) == {}
    assert not leads_groups(stand_in)


def counting(kind: type[LocalElasticAgent]) -> type[LocalElasticAgent]:
    """An agent that writes down how often torch's seams are called."""

    class Counting(kind):  # type: ignore[misc, valid-type]  # a class is given
        calls: list[str]

        def _stop_workers(self, worker_group: WorkerGroup, *args: Any, **kwargs: Any) -> None:
            self.calls.append("stop")
            super()._stop_workers(worker_group, *args, **kwargs)

        def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
            self.calls.append("start")
            ids: dict[int, Any] = super()._start_workers(worker_group)
            return ids

    return Counting


FAILS_ONCE = (
    "import os, sys; sys.exit(os.environ['RANK'] == '1' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')"
)


@pytest.mark.usefixtures("home")
def test_a_subclass_sees_its_workers_started_and_stopped_as_often_as_torchs(tmp_path: Path) -> None:
    seen: dict[str, list[str]] = {}
    for kind in (LocalElasticAgent, DiagElasticAgent):
        (tmp_path / kind.__name__).mkdir()
        spec = a_spec(tmp_path / kind.__name__, entrypoint=sys.executable, args=("-c", FAILS_ONCE))
        agent = make(counting(kind), spec, tmp_path / kind.__name__)
        agent.calls = seen[kind.__name__] = []
        result = agent.run()
        assert not result.is_failed()
        assert result.return_values == {0: None, 1: None}
        spec.rdzv_handler.shutdown()
    assert seen["DiagElasticAgent"] == seen["LocalElasticAgent"] == ["start", "stop", "start"]


def timer_file_in_workers(tmp_path: Path, environ: dict[str, str]) -> list[str | None]:
    """What workers of an agent made by itself have in ``TORCHELASTIC_TIMER_FILE``."""
    spec = a_spec(tmp_path, entrypoint=sys.executable, args=(str(WORKER), str(tmp_path)))
    agent = make(DiagElasticAgent, spec, tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        assert not agent.run().is_failed()
    spec.rdzv_handler.shutdown()
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(RANKS)]
    assert all(one["RANKSCOPE_PIPE"] for one in found)
    return [one.get("TORCHELASTIC_TIMER_FILE") for one in found]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("asked", [True, False])
def test_an_agent_made_by_itself_sets_torchs_timer_variable_only_where_torch_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, asked: bool
) -> None:
    monkeypatch.delenv("TORCHELASTIC_TIMER_FILE", raising=False)
    found = timer_file_in_workers(tmp_path, {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"} if asked else {})
    assert all(found) if asked else found == [None] * RANKS


@pytest.mark.usefixtures("home")
def test_identical_workers_are_numbered_without_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_ELASTIC_WORKER_IDENTICAL", "1")
    spec = a_spec(tmp_path)
    ours = make(DiagElasticAgent, spec, tmp_path)._assign_worker_ranks(None, 1, 3, spec)
    torchs = make(LocalElasticAgent, spec, tmp_path)._assign_worker_ranks(None, 1, 3, spec)
    assert [one.global_rank for one in ours] == [2, 3]
    assert [(one.role_rank, one.world_size) for one in ours] == [
        (one.role_rank, one.world_size) for one in torchs
    ]


@pytest.mark.usefixtures("home")
def test_workers_of_an_agent_made_by_itself_meet_in_a_fresh_store_after_a_restart(tmp_path: Path) -> None:
    write = "import os, pathlib; pathlib.Path(os.environ['TORCHELASTIC_RESTART_COUNT'] + os.environ['RANK'])"
    write += ".write_text(os.environ['MASTER_PORT']); " + FAILS_ONCE
    where = f"import os; os.chdir({str(tmp_path)!r}); {write}"
    spec = a_spec(tmp_path, entrypoint=sys.executable, args=("-c", where))
    assert not make(DiagElasticAgent, spec, tmp_path).run().is_failed()
    assert isinstance(spec.rdzv_handler, FreshStoreRendezvous)
    spec.rdzv_handler.shutdown()
    ports = {name: (tmp_path / name).read_text() for name in ("00", "01", "10", "11")}
    assert ports["00"] == ports["01"]
    assert ports["10"] == ports["11"]
    assert ports["00"] != ports["10"]
