"""One job that is analysed on request, hangs when told to, and has its settings changed until it restarts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import tarfile
import urllib.request
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.jobs import Job, until
from tests.scripted_jobs import actions, job_of

from rankscope.agent.control.client import ControlClient
from rankscope.agent.control.messages import Change, ControlError, Refusal, SettingsAnswer, Value
from rankscope.agent.records.replay import differences
from rankscope.diag import proc
from rankscope.diag.store.incidents import incident_folders

T = TypeVar("T")
SCRIPT = """
import os, time
from pathlib import Path
import torch
import torch.distributed as dist

folder = Path(os.environ["FOLDER"])
life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def read_shard():
    (folder / "pipe").read_bytes()

dist.init_process_group("gloo")
for step in range(10**6 if life == 0 else 3):
    dist.all_reduce(torch.ones(1))
    if life == 0 and dist.get_rank() == 1 and (folder / "pipe").exists():
        read_shard()
    time.sleep(0.05)
dist.destroy_process_group()
"""
"""Rank 1 stands still once there is a pipe that nobody writes to; the second life ends by itself."""


@dataclass
class Seen:
    """The job, and what it answered while it ran; ``incidents`` are those stored at each stage.

    Attributes:
        together: what two get who ask at the same time.
        told: names of the events before the settings were changed.
        spoken: command lines and environments of all its processes.
        served: what the API answered before and after its server was killed.
    """

    job: Job
    together: list[bytes | Refusal]
    hung: list[dict[str, Any]]
    told: list[str]
    earlier: SettingsAnswer
    confirmed: dict[str, Any]
    incidents: dict[str, list[str]]
    spoken: str
    served: list[int]
    exit_code: int = -1

    @property
    def token(self) -> str:
        return (self.job.records.path / "token").read_text().strip()


def asked(question: Coroutine[Any, Any, T]) -> T:
    """Ask in an event loop of this test's own."""
    return asyncio.run(question)


def control_of(job: Job) -> ControlClient:
    return ControlClient(str(Path(job.agent().page).with_name("control")))


def analyzed(control: ControlClient) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(asked(control.analyze(by="a test")))
    return found


async def at_once(control: ControlClient) -> list[bytes | Refusal]:
    """What two get who ask together."""

    async def one() -> bytes | Refusal:
        try:
            return await control.analyze(by="a test")
        except ControlError as error:
            return error.refusal

    return list(await asyncio.gather(one(), one()))


def changed(control: ControlClient, change: Mapping[str, Value]) -> SettingsAnswer:
    return asked(control.change_settings(change, by="a test"))


def stored(job: Job) -> list[str]:
    return [one.path.name for one in incident_folders(job.records.incidents)]


def spoken_by(job: Job) -> str:
    """What anybody on the host, or a worker, can read of the job's processes."""
    pids = [job.pid, *proc.descendants(job.pid)]
    words = [word for pid in pids for word in proc.command_line(pid)]
    return "\n".join([*words, *(str(proc.environ(pid)) for pid in pids)])


def status_of(job: Job) -> int:
    """What the API says to whoever has the token."""
    token = Path(job.agent().token_file).read_text().strip()
    request = urllib.request.Request(
        f"{job.agent().api}/v1/settings", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        status: int = answer.status
        return status


def is_served(job: Job) -> bool:
    try:
        return status_of(job) == 200
    except OSError:
        return False


def kill_server(job: Job) -> None:
    """End the health server as the kernel would."""
    (server,) = [
        pid
        for pid in proc.descendants(job.pid)
        if any("rankscope.agent.health.server" in word for word in proc.command_line(pid))
    ]
    os.kill(server, signal.SIGKILL)
    until(lambda: proc.start_ticks(server) is None, "the server's end")


def _is_hung(control: ControlClient, answers: list[dict[str, Any]]) -> bool:
    """Whether an analysis finds anything; it is kept."""
    answers.append(analyzed(control))
    return bool(answers[-1]["verdict"] != "Healthy")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("control")
    with job_of(folder, SCRIPT, "--diagnose-after=600", "--log-capture=on") as job:
        job.wait_for_event("cycle.training")
        control, incidents = control_of(job), dict[str, list[str]]()
        spoken, served = spoken_by(job), [status_of(job)]
        kill_server(job)
        together = asked(at_once(control))
        incidents["healthy"] = stored(job)
        os.mkfifo(folder / "pipe")
        hung: list[dict[str, Any]] = []
        until(lambda: _is_hung(control, hung), "a hang")
        hung = [hung[-1], analyzed(control)]
        incidents["hung"], told = stored(job), [event.name for event in job.events()]
        until(lambda: is_served(job), "a server that is started again")
        served.append(status_of(job))
        earlier = changed(control, {"diagnose_after": 1})
        job.wait_for_event("incident.confirmed")
        incidents["confirmed"] = stored(job)
        confirmed = analyzed(control)
        incidents["asked again"] = stored(job)
        changed(control, {"max-num-of-job-restart": 1, "job-hang-interval": 5})
        job.wait_for_event("restart.begun")
        changed(control, {"diagnose-after": 600, "job-hang-interval": None})
        found = Seen(job, together, hung, told, earlier, confirmed, incidents, spoken, served)
        found.exit_code = job.finish()
        yield found


def test_of_two_who_ask_at_once_one_is_answered_and_the_other_is_told_when(seen: Seen) -> None:
    (answer,) = [one for one in seen.together if isinstance(one, bytes)]
    (refusal,) = [one for one in seen.together if isinstance(one, Refusal)]
    assert json.loads(answer)["verdict"] == "Healthy"
    assert refusal.kind == "busy"
    assert refusal.retry_after is not None
    assert refusal.retry_after >= 1


def test_an_analysis_of_a_job_that_is_well_leaves_an_event_and_no_incident(seen: Seen) -> None:
    event = seen.job.events("analyzed")[0]
    assert (event.subject, event.data["verdict"], event.data["by"]) == (None, "Healthy", "a test")
    assert seen.incidents["healthy"] == []


def test_a_hang_is_explained_at_once_although_nobody_suspects_anything(seen: Seen) -> None:
    found = seen.hung[0]
    assert (found["verdict"], found["culprits"]) == ("RankNonCommHang", [1])
    assert found["location"]["function"] == "read_shard"
    assert next(iter(found)) == "schema"
    assert seen.incidents["hung"] == [found["incident"]]


def test_looking_is_not_acting(seen: Seen) -> None:
    assert not {"suspected", "incident.confirmed", "decision"} & set(seen.told)


def test_who_asks_again_gets_the_same_incident(seen: Seen) -> None:
    assert seen.hung[1]["incident"] == seen.hung[0]["incident"]


def test_a_shorter_limit_makes_the_suspicion_come_at_once(seen: Seen) -> None:
    assert seen.earlier.changed == {"diagnose-after": Change(600.0, 1.0)}
    names = [event.name for event in seen.job.events()]
    assert names.index("settings.changed") < names.index("suspected")
    suspected = seen.job.events("suspected")[0]
    assert suspected.data["limit"] == 1.0


def test_an_analysis_of_what_is_published_names_its_incident(seen: Seen) -> None:
    (confirmed,) = seen.job.events("incident.confirmed")
    assert seen.confirmed["incident"] == confirmed.subject
    assert seen.incidents["asked again"] == seen.incidents["confirmed"]


def test_restarts_that_are_allowed_while_the_job_hangs_are_made_and_counted(seen: Seen) -> None:
    assert actions(seen.job) == ["restart"]
    assert seen.exit_code == 0
    last = seen.job.events("cycle.started")[-1]
    assert last.data["restart_count"] == 1  # what torch tells its workers is the same: they have ended


def test_the_log_gives_the_same_decision_when_it_is_asked_again(seen: Seen) -> None:
    diagnoses = {one.path.name: one.diagnosis() for one in incident_folders(seen.job.records.incidents)}
    assert list(differences(seen.job.events(), diagnoses)) == []


def test_the_page_is_named_at_the_start_and_the_token_is_not(seen: Seen) -> None:
    agent = seen.job.agent()
    assert agent.token_file == str(seen.job.records.path / "token")
    assert f"page on {agent.api}/ (token in {agent.token_file})" in seen.job.stderr
    assert stat.S_IMODE(Path(agent.token_file).stat().st_mode) == 0o600
    files = [path for path in seen.job.folder.rglob("*") if path.is_file() and path.name != "token"]
    assert not [path for path in files if seen.token.encode() in path.read_bytes()]
    assert "rankscope.agent.health.server" in seen.spoken
    assert seen.token not in seen.spoken


def test_a_server_that_was_killed_has_the_token_again(seen: Seen) -> None:
    assert seen.served == [200, 200]


def test_a_bundle_has_no_token_and_pruning_takes_it_away(seen: Seen) -> None:
    done = seen.job.diag("bundle", seen.job.run_id, "-o", str(seen.job.folder / "bundle.tar.gz"))
    assert done.returncode == 0, done.stderr
    (bundle,) = seen.job.folder.glob("bundle*")
    assert b"never in a bundle" in done.stdout + done.stderr
    assert seen.token.encode() not in _unpacked(bundle)
    assert seen.job.diag("prune", "--max-size=1K").returncode == 0
    assert not seen.job.records.path.exists()


def _unpacked(bundle: Path) -> bytes:
    with tarfile.open(bundle) as archive:
        files = [archive.extractfile(member) for member in archive.getmembers()]
        return b"".join(file.read() for file in files if file is not None)
