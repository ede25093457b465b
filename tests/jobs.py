"""Real training jobs for the tests: launched by ``diag run`` or torchrun, each with a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import deadline

from rankscope.agent import demo
from rankscope.diag.model import Decision, Diagnosis, JobSnapshot
from rankscope.diag.store.events import TYPE_PREFIX, Event, read_events
from rankscope.diag.store.incidents import IncidentFolder, incident_folders
from rankscope.diag.store.job import AgentFile, JobFolder, job_folder

TRAIN = Path(demo.__file__).with_name("train.py")
"""Not imported: torch takes seconds, and the process that watches a job needs none."""
DEADLINE = deadline.DEADLINE
"""Makes the ranks of small jobs cost a third of what they cost, see there."""
_ANY_PORT = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
"""Without them every torchrun would want port 29500."""


def until(condition: Callable[[], bool], what: str, *, seconds: float = DEADLINE) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.02)


class Job:
    """One job in its own process group; ``folder`` holds its records, checkpoint and output."""

    def __init__(self, folder: Path, run_id: str) -> None:
        self.folder = folder
        self.run_id = run_id
        self.home = folder / "home"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: list[str], environ: Mapping[str, str] | None = None) -> None:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RANKSCOPE_", "TORCHELASTIC_"))
        }
        env = {
            **inherited,
            "OMP_NUM_THREADS": "1",
            "RANKSCOPE_HOME": str(self.home),
            **(environ or {}),
        }
        with (self.folder / "stdout").open("wb") as out, (self.folder / "stderr").open("wb") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def records(self) -> JobFolder:
        return job_folder(self.run_id, self.home)

    def finish(self) -> int:
        assert self.process is not None
        return self.process.wait(DEADLINE)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    @property
    def stdout(self) -> str:
        return (self.folder / "stdout").read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def events(self, name: str | None = None) -> list[Event]:
        found: list[Event] = []
        for path in sorted(self.records.path.glob("nodes/*/events.jsonl")):
            found += read_events(path)[0]
        return [event for event in found if name is None or event.type == TYPE_PREFIX + name]

    def wait_for_event(self, name: str) -> Event:
        def there() -> bool:
            assert self.process is not None
            if self.events(name):
                return True
            assert self.process.poll() is None, f"the job ended without {name}:\n{self.stderr[-3000:]}"
            return False

        until(there, f"event {name}")
        return self.events(name)[0]

    def agent(self) -> AgentFile:
        (agent,) = self.records.agents()
        return agent

    def incident(self) -> IncidentFolder:
        return incident_folders(self.records.incidents)[-1]

    def diagnosis(self) -> Diagnosis:
        return self.incident().diagnosis()

    def decision(self) -> Decision:
        decision = self.incident().decision()
        assert decision is not None
        return decision

    def snapshot(self, which: str = "a") -> JobSnapshot:
        snapshot = self.incident().snapshot(which)
        assert snapshot is not None
        return snapshot

    def diag(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        env = {**os.environ, "RANKSCOPE_HOME": str(self.home), "COLUMNS": "120"}
        command = [sys.executable, "-c", "import sys; from rankscope.diag.main import main; sys.exit(main())"]
        return subprocess.run(
            [*command, *arguments], env=env, capture_output=True, timeout=DEADLINE, check=False
        )

    def analyze_json(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = self.diag("analyze", "--json", *arguments)
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)

    def end(self) -> None:
        """End whatever is left of the job."""
        if self.process is None:
            return
        pids = [worker.pid for agent in self.records.agents() for worker in agent.workers]
        if self.process.poll() is None:
            # Its whole group: workers that are functions carry no mark in their environment.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(DEADLINE)
        for pid in pids:
            end_process(pid, self.run_id)


def end_process(pid: int, run_id: str) -> None:
    """Kill a worker that outlived its agent; the pid may be somebody else's by now."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        if f"TORCHELASTIC_RUN_ID={run_id}".encode() in environ:
            os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def last_line(job: Job) -> str:
    """What the job said last on stderr."""
    lines = job.stderr.strip().splitlines()
    return lines[-1] if lines else "nothing on stderr"


def train_flags(folder: Path, **options: object) -> list[str]:
    """The demonstration's training script with its options."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return [str(TRAIN), f"--checkpoint={folder / 'checkpoint.pt'}", *flags]


@contextmanager
def diag_run(
    folder: Path,
    *flags: str,
    ranks: int = 3,
    script: list[str] | None = None,
    environ: Mapping[str, str] | None = None,
    python: str = sys.executable,
    **options: object,
) -> Generator[Job]:
    """A job under ``diag run``; ended at the end whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(folder, f"test-{os.getpid()}-{folder.name}")
    words = [f"--nproc-per-node={ranks}", f"--rdzv-id={job.run_id}", *flags]
    job.start(
        [python, "-m", "rankscope.agent", *words, *(script or train_flags(folder, **options))],
        environ,
    )
    try:
        yield job
    finally:
        job.end()


@contextmanager
def torchrun(
    folder: Path,
    *flags: str,
    ranks: int = 3,
    script: list[str] | None = None,
    environ: Mapping[str, str] | None = None,
    **options: object,
) -> Generator[Job]:
    """The same job under plain torchrun, ended with its workers at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(folder, f"plain-{os.getpid()}-{folder.name}")
    words = [f"--nproc-per-node={ranks}", f"--rdzv-id={job.run_id}", *_ANY_PORT, *flags]
    job.start(
        [sys.executable, "-m", "torch.distributed.run", *words, *(script or train_flags(folder, **options))],
        environ,
    )
    try:
        yield job
    finally:
        # torchrun ends its workers on SIGTERM, a stopped one by SIGKILL after its time-out.
        if job.process is not None and job.process.poll() is None:
            job.process.terminate()
            job.process.wait(DEADLINE)


def python_without_tools(folder: Path) -> str:
    """The same environment seen from another folder of commands, one without py-spy; its Python."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    (folder / "pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text())
    return str(folder / "bin" / "python")
