"""Flags of torchrun that say what is run, and those that only reach torch's configuration."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tests.jobs import diag_run
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig
from torch.numa.binding import AffinityMode

from rankscope.agent.commands.run import parse
from rankscope.agent.settings.resolution import resolve
from rankscope.agent.torchrun import config_of

WORKER = Path(__file__).parent / "programs" / "parity_worker.py"
RAISING = """
import json, os
said = {"message": {"message": "ValueError: the worker's own word", "extraInfo": {"timestamp": "1"}}}
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump(said, file)
os._exit(3)
"""


def configured(*flags: str) -> LaunchConfig:
    arguments = parse(["--nproc-per-node=1", *flags, str(WORKER)])
    resolve(arguments, {}).apply_to(arguments)
    return config_of(arguments)[0]


def test_flags_reach_torchs_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    class UsersLogs(DefaultLogsSpecs):
        """Log specs of a package that torch finds by its entry point."""

    entry_points = MagicMock()
    entry_points.return_value.select.return_value.select.return_value = [MagicMock()]
    entry_points.return_value.select.return_value.__getitem__.return_value.load.return_value = UsersLogs
    monkeypatch.setattr("torch.distributed.run.metadata.entry_points", entry_points)
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "9")
    config = configured("--numa-binding=node", "--logs-specs=users", "--event-log-handler=console")
    assert config.numa_options is not None
    assert config.numa_options.affinity_mode == AffinityMode.NODE
    assert isinstance(config.logs_specs, UsersLogs)
    assert config.event_log_handler == "console"
    assert config.shutdown_timeout == 9
    assert configured("--shutdown-timeout=4").shutdown_timeout == 4


def test_modules_and_paths_run_as_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "worker.py").write_text(WORKER.read_text())
    for name, command in {
        "module": ["-m", "package.worker"],
        "path": ["--run-path", str(WORKER)],
    }.items():
        folder = tmp_path / name
        flag, program = command
        environ = {"PYTHONPATH": str(tmp_path)}
        with diag_run(folder, flag, ranks=1, script=[program, str(folder)], environ=environ) as job:
            assert job.finish() == 0, job.stderr
            assert json.loads((folder / "0.json").read_text())["RANK"] == "0"


def test_the_roots_error_is_copied_to_the_error_file_that_the_agent_was_given(tmp_path: Path) -> None:
    script = tmp_path / "raising.py"
    script.write_text(RAISING)
    reply = tmp_path / "reply.json"
    environ = {"TORCHELASTIC_ERROR_FILE": str(reply)}
    with diag_run(tmp_path / "job", ranks=1, script=[str(script)], environ=environ) as job:
        assert job.finish() == 1, job.stderr
    assert json.loads(reply.read_text())["message"]["message"] == "ValueError: the worker's own word"
