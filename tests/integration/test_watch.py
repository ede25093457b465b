"""``diag watch`` beside real jobs that plain torchrun launched: what it says, and that it leaves no trace."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import DEADLINE, Job, diag_run, torchrun, until

from rankscope.agent.commands.watch import EXIT_ENDED, EXIT_HANG, main
from rankscope.diag import proc
from rankscope.diag.capture.locks import lock_folder
from rankscope.diag.commands.analyze import EXIT_USAGE
from rankscope.diag.errors import UsageError
from rankscope.diag.proc_files import read_file, status_number
from rankscope.diag.store.incidents import incident_folders
from rankscope.diag.store.job import JobFolder

VERB = "import sys; from rankscope.agent.commands.watch import main; sys.exit(main(sys.argv[1:]))"
PROGRAMS = Path(__file__).parent / "programs"
HEALTHY = Path(__file__).parents[1] / "faults" / "programs"
HIDDEN = """
import ctypes, sys, time
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE
print("ready", flush=True)
sys.stdin.readline()
"""


class Watcher:
    """One ``diag watch --json`` process; its events are read from its output."""

    def __init__(self, folder: Path, *words: str, before: Callable[[], None] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.home = folder / "watched"
        self._out, self._err = folder / "watch.out", folder / "watch.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-c", VERB, "--json", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "RANKSCOPE_HOME": str(self.home)},
                start_new_session=True,
                preexec_fn=before,  # noqa: PLW1509 - no thread runs here
            )

    @property
    def said(self) -> str:
        return self._err.read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._out.read_text().splitlines() if line.endswith("}")]
        return [event for event in lines if event["type"] == f"rankscope.{name}"]

    def wait_for(self, name: str, number: int = 1) -> dict[str, Any]:
        def there() -> bool:
            assert self.process.poll() is None or len(self.events(name)) >= number, self.said[-3000:]
            return len(self.events(name)) >= number

        until(there, f"event {name} number {number}")
        return self.events(name)[number - 1]

    def finish(self) -> int:
        return self.process.wait(DEADLINE)

    @property
    def records(self) -> JobFolder:
        (path,) = (self.home / "jobs").iterdir()
        return JobFolder(path)


@contextmanager
def watching(folder: Path, *words: str, before: Callable[[], None] | None = None) -> Generator[Watcher]:
    watcher = Watcher(folder / "beside", *words, before=before)
    try:
        yield watcher
    finally:
        if watcher.process.poll() is None:
            watcher.process.kill()
            watcher.process.wait(DEADLINE)


@contextmanager
def torchrun_of(folder: Path, *command: str, ranks: int = 2, flags: tuple[str, ...] = ()) -> Generator[Job]:
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(folder, f"plain-{os.getpid()}-{folder.name}")
    words = [
        f"--nproc-per-node={ranks}",
        f"--rdzv-id={job.run_id}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
    ]
    job.start([sys.executable, "-m", "torch.distributed.run", *words, *flags, *command])
    try:
        yield job
    finally:
        if job.process is not None and job.process.poll() is None:
            job.process.terminate()
            job.process.wait(DEADLINE)


def ranks_of(job: Job) -> tuple[int, ...]:
    return proc.children(job.pid)


def wait_for_ranks(job: Job, number: int) -> None:
    until(lambda: len(ranks_of(job)) == number, "the ranks")


def untouched(pid: int) -> bool:
    """Whether a process sleeps or runs, and nobody traces it."""
    status = read_file(f"/proc/{pid}/status", 1 << 16)
    entry = proc.process_table().get(pid)
    return entry is not None and entry.state in "SR" and status_number(status, b"\nTracerPid:") == 0


def in_session(leader: int) -> list[int]:
    return [pid for pid in proc.process_table() if _session(pid) == leader]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def test_a_hang_is_noticed_and_explained_with_rank_and_line(tmp_path: Path) -> None:
    with torchrun(tmp_path, fault="data_loading", fault_rank=1, fault_step=40, steps=400) as job:
        wait_for_ranks(job, 3)
        with watching(tmp_path, "--once-hung", "--diagnose-after", "6", str(job.pid)) as watcher:
            assert watcher.finish() == EXIT_HANG
        assert all(map(untouched, ranks_of(job)))
        (incident,) = incident_folders(watcher.records.incidents)
        found = incident.diagnosis()
        assert (found.verdict, found.kind, found.culprits) == ("RankNonCommHang", "data_loading", (1,))
        assert found.location is not None
        assert (found.location.function, found.location.source) == ("read_shard", "pipe.read_bytes()")
        assert "rank 1 is stuck in read_shard" in watcher.said
        assert [event["job"] for event in watcher.events("incident.confirmed")] == [found.job]


def test_a_healthy_job_with_pauses_raises_nothing_and_ends_the_watch(tmp_path: Path) -> None:
    pauses = ["--alone", "--meet=barrier", "--seconds=10", "--steps=60", "--every=30"]
    with torchrun_of(tmp_path, str(HEALTHY / "evaluating_job.py"), *pauses, ranks=3) as job:
        wait_for_ranks(job, 3)
        with watching(tmp_path, job.run_id) as watcher:
            assert watcher.finish() == EXIT_ENDED
        assert job.finish() == 0
    assert watcher.events("suspected") == []
    assert len(watcher.events("job.ended")) == 1
    assert not watcher.records.incidents.exists()


def test_a_restart_is_followed(tmp_path: Path) -> None:
    program = [str(PROGRAMS / "two_lives_job.py"), str(tmp_path)]
    with torchrun_of(tmp_path, *program, flags=("--max-restarts=1",)) as job:
        wait_for_ranks(job, 2)
        first = ",".join(map(str, ranks_of(job)))
        with watching(tmp_path, first) as watcher:
            watcher.wait_for("cycle.started")
            (tmp_path / "fail").touch()
            again = watcher.wait_for("cycle.started", 2)
            told = {name: again["data"][name] for name in ("restart_count", "world_size", "ranks", "number")}
            assert told == {"restart_count": 1, "world_size": 2, "ranks": [0, 1], "number": 2}
            until(lambda: pids_told(watcher) == set(ranks_of(job)), "the new workers in agent.json")
            (tmp_path / "stop").touch()
            assert watcher.finish() == EXIT_ENDED
        assert job.finish() == 0


def pids_told(watcher: Watcher) -> set[int]:
    (agent,) = watcher.records.agents()
    return {worker.pid for worker in agent.workers}


def test_a_wrapper_is_no_rank_and_those_it_starts_later_are_watched(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"read line < {tmp_path}/go; {sys.executable} -m torch.distributed.run --nproc-per-node=2 "
    script += f"--master-port=0 {PROGRAMS / 'two_lives_job.py'} {tmp_path}; true"
    job = Job(tmp_path, "in-a-shell")
    job.start(["bash", "-c", script])
    try:
        with watching(tmp_path, str(job.pid)) as watcher:
            until(lambda: "waiting for one" in watcher.said, "the watch to wait")
            (tmp_path / "go").write_text("go\n")
            assert watcher.wait_for("cycle.started")["data"]["ranks"] == [0, 1]
            (tmp_path / "stop").touch()
            assert watcher.finish() == EXIT_ENDED
        assert job.finish() == 0
        assert len(watcher.events("cycle.started")) == 1
    finally:
        (tmp_path / "stop").touch()
        if job.process is not None and job.process.poll() is None:
            os.killpg(job.pid, signal.SIGTERM)
            job.process.wait(DEADLINE)


def test_what_a_watch_leaves_behind_hides_no_running_job(tmp_path: Path) -> None:
    with torchrun_of(tmp_path, str(PROGRAMS / "two_lives_job.py"), str(tmp_path)) as job:
        wait_for_ranks(job, 2)
        with watching(tmp_path, job.run_id) as watcher:
            watcher.wait_for("cycle.started")
            watcher.process.send_signal(signal.SIGINT)
            assert watcher.finish() == EXIT_ENDED
        job.home = watcher.home
        code, diagnosis = job.analyze_json(job.run_id)
        assert (diagnosis["job"], diagnosis["observed"]) == (job.run_id, "0-1")
        assert code != EXIT_USAGE


def hidden_rank(log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen([sys.executable, "-c", HIDDEN], stdin=subprocess.PIPE, stdout=out)


def drop_ptrace() -> None:
    """Root gives up the right to trace; nobody else has it."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 19, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_SYS_PTRACE


def test_of_processes_that_nobody_may_look_at_the_silence_is_told_without_a_culprit(tmp_path: Path) -> None:
    logs = [tmp_path / f"rank{rank}.log" for rank in range(2)]
    ranks = [hidden_rank(log) for log in logs]
    try:
        until(lambda: all(log.stat().st_size for log in logs), "the ranks")
        words = ["--diagnose-after", "6", "--log-file", str(tmp_path / "*.log"), "--once-hung"]
        named = ",".join(str(rank.pid) for rank in ranks)
        with watching(tmp_path, *words, named, before=drop_ptrace) as watcher:
            confirmed = watcher.wait_for("incident.confirmed")
            assert confirmed["data"]["verdict"] == "Unknown"
            assert confirmed["data"]["culprits"] == []
            assert all(rank.poll() is None for rank in ranks)
            for rank in ranks:
                rank.communicate(b"go\n", DEADLINE)
            assert watcher.finish() == EXIT_ENDED
        (incident,) = incident_folders(watcher.records.incidents)
        assert [one.rank for one in incident.diagnosis().unobserved] == [0, 1]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait(DEADLINE)
            assert rank.stdin is not None
            rank.stdin.close()


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Generator[Job]:
    """A job of two ranks that hangs, at which several watches look one after the other."""
    folder = tmp_path_factory.mktemp("hung")
    with torchrun(folder, fault="lock", fault_rank=0, fault_step=20, steps=400, ranks=2) as job:
        wait_for_ranks(job, 2)
        yield job


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_watch_that_is_ended_in_the_middle_of_a_look_leaves_no_trace(
    tmp_path: Path, hung: Job, number: signal.Signals
) -> None:
    with watching(tmp_path, "--diagnose-after", "5", str(hung.pid)) as watcher:
        watcher.wait_for("suspected")
        watcher.process.send_signal(number)
        code = watcher.finish()
        assert code == (-number if number == signal.SIGKILL else EXIT_ENDED)
        until(lambda: not in_session(watcher.process.pid), "the end of all it had started")
    ranks = ranks_of(hung)
    assert len(ranks) == 2
    until(lambda: all(map(untouched, ranks)), "ranks that nobody holds")
    if number != signal.SIGKILL:
        assert not [pid for pid in ranks if (lock_folder() / f"{pid}.lock").exists()]


def test_a_job_of_ours_is_read_by_its_page_and_keeps_its_records(tmp_path: Path) -> None:
    with diag_run(tmp_path, fault="data_loading", fault_rank=1, fault_step=30, steps=60, ranks=2) as job:
        job.wait_for_event("cycle.started")
        until(lambda: (known := job.records.job()) is not None and known.world_size == 2, "the job file")
        written = job.records.job_file.read_bytes()
        with watching(tmp_path, "--once-hung", str(job.records.path)) as watcher:
            assert watcher.finish() == EXIT_HANG
        assert job.records.job_file.read_bytes() == written
        assert [agent.pid for agent in job.records.agents()] == [job.pid]
        (confirmed,) = watcher.events("incident.confirmed")
        assert confirmed["data"]["culprits"] == [1]
        snapshot = next(
            one.snapshot("a")
            for one in incident_folders(job.records.incidents)
            if one.id == confirmed["subject"]
        )
        assert snapshot is not None
        assert [rank.progress.step for rank in snapshot.ranks if rank.progress] == [30, 30]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["no-such-job-anywhere"], "no training process"),
        (["4194304"], "no training process"),
        (["--pid", "one"], "process ids expected"),
        (["--pid", "1", "a-job"], "not both"),
        (["--pid", ","], "process ids expected"),
        (["1,x"], "numbers as in 12,13 are expected"),
        (["a-job", "--log-file="], "--log-file"),
        (["--log-file", "*.log"], "needs a job"),
        (["--diagnose-after", "-1"], "--diagnose-after"),
    ],
)
def test_a_wrong_command_line_is_one_line(words: list[str], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        main(words)
