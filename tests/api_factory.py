"""A stored job served by a real server process, with its token, for the tests of the API."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.health_factory import Reply, a_page, a_server, ask
from tests.history_factory import a_job_file, a_log, an_incident

from rankscope.agent.health.offer import ApiOffer, offer_path, write_offer
from rankscope.agent.health.status import StatusWriter
from rankscope.diag.store.events import sequence_text
from rankscope.diag.store.job import JobFolder

TOKEN = "test-token-0123456789-abcdefghijklmnopqrs"
INCIDENTS = ("20261129T164000Z-0fb3f9c", "20261129T165000Z-1ab0000")
_SETTINGS = {
    "job-hang-interval": {"value": 180.0, "source": "--job-hang-interval"},
    "webhook": {"value": ["https://example.org/..."], "source": "default"},
}


def a_stored_job(root: Path, name: str = "run-7") -> JobFolder:
    """A job of two nodes that was restarted after an incident."""
    folder = JobFolder(root / name)
    a_job_file(folder)
    log = a_log("vm").agent(settings=_SETTINGS).launch().trains().fails(2, incident=INCIDENTS[0])
    log.restart_begins().launch(2).restart_done().trains().write(folder)
    a_log("vm2").agent().launch().trains().write(folder)
    for number, incident in enumerate(INCIDENTS):
        an_incident(folder, incident, at=1100.0 + 600 * number)
    return folder


@dataclass
class ServedByHand:
    """A server, the job that it serves, and what its agent would hold."""

    address: tuple[str, int]
    pid: int
    folder: JobFolder
    page: StatusWriter
    run_time: Path
    token: str = TOKEN
    written: int = field(default=1000)

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        token: str | None = None,
    ) -> Reply:
        """Ask with the token."""
        bearer = {"Authorization": f"Bearer {self.token if token is None else token}"}
        return ask(self.address, path, method=method, headers=bearer | (headers or {}), body=body)

    def happens(self, name: str, node: str = "vm", **data: object) -> str:
        """One more event of a node; its id."""
        self.written += 1
        log = a_log(node)
        log.number = self.written - 1
        log.at = float(self.written)
        event = log.event(name, data).events[0]
        assert event.sequence == sequence_text(self.written)
        with (self.folder.node(node) / "events.jsonl").open("ab") as file:
            import msgspec

            file.write(msgspec.json.encode(event) + b"\n")
        return event.id


@contextmanager
def a_served_job(
    tmp_path: Path, *, control: str = "", folder: JobFolder | None = None, **settings: float
) -> Generator[ServedByHand]:
    """A real server process over a stored job."""
    job = folder or a_stored_job(tmp_path / "jobs")
    run_time = tmp_path / "run"
    run_time.mkdir(mode=0o700, exist_ok=True)
    page = a_page(run_time / "status")
    offer = offer_path(page.path)
    write_offer(offer, ApiOffer(str(job.path), "vm", TOKEN, control=control))
    given: dict[str, object] = {"offer": str(offer), "api_shared": True, **settings}
    with a_server(page.path, agent_pid=None, **given) as server:
        yield ServedByHand(server.address, server.process.pid, job, page, run_time)


def descendants(pid: int) -> list[int]:
    """Processes below one, by number."""
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def open_files(pid: int) -> int:
    """How many descriptors a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
