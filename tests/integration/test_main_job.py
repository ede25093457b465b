"""The main job, end to end: real training runs that hang, crash or do well, under ``diag run``."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from tests.jobs import Job, diag_run, python_without_tools, torchrun, train_flags, until

FAULT_STEP = 30
STEPS = 60


PROGRAMS = Path(__file__).parent / "programs"


def test_a_hang_without_restarts_left_fails_with_75_and_names_the_culprit(tmp_path: Path) -> None:
    flags = ("--max-restarts=0", "--job-hang-interval=9", "--diagnose-after=4")
    with diag_run(
        tmp_path, *flags, ranks=2, fault="lock", fault_rank=0, fault_step=FAULT_STEP, steps=STEPS
    ) as job:
        assert job.finish() == 75
        assert job.decision().action == "fail"
        assert job.diagnosis().culprits == (0,)
        assert job.diagnosis().kind == "lock"
        assert "ChildFailedError" in job.stderr
        assert "exitcode  : 75" in job.stderr
        (ended,) = job.events("job.ended")
        assert ended.data["exit_code"] == 75


def test_a_healthy_job_is_left_alone_and_prints_what_it_prints_under_torchrun(tmp_path: Path) -> None:
    with torchrun(tmp_path / "plain", ranks=2, steps=30) as plain:
        assert plain.finish() == 0
    with diag_run(tmp_path / "watched", ranks=2, steps=30) as job:
        assert job.finish() == 0
        assert job.stdout == plain.stdout
        assert [event.type.removeprefix("rankscope.") for event in job.events()] == [
            "job.started",
            "cycle.started",
            "cycle.training",
            "cycle.ended",
            "job.ended",
        ]
        workers_said = [line for line in job.stderr.splitlines() if not _is_the_agents(line)]
        assert workers_said == []


def _is_the_agents(line: str) -> bool:
    return line.startswith("rankscope: ") or "torch/distributed/" in line


def test_a_worker_that_is_a_shell_script_is_seen_through(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text('#!/bin/sh\n"$PYTHON" "$@"\n')
    script.chmod(0o700)
    training = train_flags(tmp_path, fault="data_loading", fault_rank=1, fault_step=FAULT_STEP, steps=STEPS)
    flags = ("--no-python", "--job-hang-interval=9", "--diagnose-after=4")
    with diag_run(
        tmp_path / "job", *flags, environ={"PYTHON": sys.executable}, ranks=2, script=[str(script), *training]
    ) as job:
        assert job.finish() == 75
        assert job.diagnosis().culprits == (1,)
        assert all(rank.observed and rank.progress and rank.progress.step for rank in job.snapshot().ranks)


def test_a_job_that_trains_is_called_healthy(tmp_path: Path) -> None:
    with diag_run(tmp_path, ranks=2, steps=1000) as job:
        until(lambda: "step 5 " in job.stdout, "some steps")
        code, diagnosis = job.analyze_json(job.run_id)
        assert (code, diagnosis["verdict"], diagnosis["culprits"]) == (0, "Healthy", [])
        assert {rank["state"] for rank in diagnosis["ranks"]} == {"running"}


@pytest.mark.parametrize("flags", [(), ("--run-path",)], ids=["commands", "functions"])
def test_a_crash_keeps_the_stacks_of_those_who_wait(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with diag_run(
        tmp_path, *flags, ranks=2, fault="crash", fault_rank=1, fault_step=FAULT_STEP, steps=STEPS
    ) as job:
        assert job.finish() == 1
        diagnosis = job.diagnosis()
        assert (diagnosis.verdict, diagnosis.kind, diagnosis.culprits) == ("Exited", "dead", (1,))
        assert "the loss is not a number" in diagnosis.summary
        snapshot = job.snapshot()
        assert all(rank.observed and rank.threads for rank in snapshot.ranks)
        assert diagnosis.location is not None
        assert (diagnosis.location.function, diagnosis.location.rank) == ("inject", 1)
        assert "ValueError: the loss is not a number" in job.stderr
        (failed,) = [event for event in job.events("worker.failed") if event.data["rank"] == 1]
        assert failed.data["exit_code"] == 1


def test_a_killed_worker_is_named_and_the_job_restarts(tmp_path: Path) -> None:
    flags = ("--max-restarts=1",)
    with diag_run(
        tmp_path, *flags, ranks=2, fault="killed", fault_rank=1, fault_step=FAULT_STEP, steps=40
    ) as job:
        assert job.finish() == 0
        diagnosis = job.diagnosis()
        assert (diagnosis.verdict, diagnosis.culprits) == ("Exited", (1,))
        assert "SIGKILL" in diagnosis.summary
        assert job.decision().action == "restart"
        assert len(job.events("restart")) == 1


def test_without_the_probe_a_hang_is_noticed_by_the_processes_alone(tmp_path: Path) -> None:
    environ = {"RANKSCOPE_PROBE": "0"}
    flags = ("--max-restarts=0", "--job-hang-interval=22")
    with diag_run(
        tmp_path,
        *flags,
        environ=environ,
        ranks=2,
        fault="data_loading",
        fault_rank=1,
        fault_step=FAULT_STEP,
        steps=STEPS,
    ) as job:
        assert job.finish() == 75
        diagnosis = job.diagnosis()
        assert (diagnosis.verdict, diagnosis.culprits) == ("RankNonCommHang", (1,))
        assert all(rank.progress is None for rank in job.snapshot().ranks)


def test_a_job_under_plain_torchrun_is_analysed_by_pid(tmp_path: Path) -> None:
    with torchrun(tmp_path, ranks=2, fault="frozen", fault_rank=0, fault_step=FAULT_STEP, steps=STEPS) as job:
        stopped = Stopped(job.pid)
        until(stopped.found, "a stopped worker")
        code, diagnosis = job.analyze_json("--pid", str(job.pid))
        assert code == 3
        assert (diagnosis["verdict"], diagnosis["kind"], diagnosis["culprits"]) == (
            "RankNonCommHang",
            "frozen",
            [0],
        )
        alone = job.diag("analyze", "--json")
        assert alone.returncode == 3
        assert stopped.found()


class Stopped:
    """Finds a stopped child of a process."""

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def found(self) -> bool:
        children = Path(f"/proc/{self.parent}/task/{self.parent}/children").read_text().split()
        for child in children:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                    return True
        return False


def test_a_port_in_use_costs_the_health_server_and_nothing_else(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with diag_run(tmp_path, f"--diag-port={port}", ranks=1, steps=5) as job:
            assert job.finish() == 0
            (line,) = [line for line in job.stderr.splitlines() if "health server" in line]
            assert str(port) in line


def test_an_unwritable_home_costs_the_records_and_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    environ = {"RANKSCOPE_HOME": str(blocked / "below")}
    with diag_run(tmp_path / "job", environ=environ, ranks=1, steps=5) as job:
        assert job.finish() == 0
        assert "step 4" in job.stdout
        (line,) = [line for line in job.stderr.splitlines() if "cannot write records" in line]
        assert str(blocked) in line


def test_without_tools_the_ranks_tell_their_stacks_and_the_record_says_what_they_lack(tmp_path: Path) -> None:
    python = python_without_tools(tmp_path / "environment")
    environ = {"PATH": os.defpath}
    flags = ("--max-restarts=0", "--job-hang-interval=9", "--diagnose-after=4")
    with diag_run(
        tmp_path / "job",
        *flags,
        environ=environ,
        python=python,
        ranks=2,
        fault="data_loading",
        fault_rank=1,
        steps=STEPS,
    ) as job:
        assert job.finish() == 75
        seen = job.snapshot().ranks
        assert [rank.source for rank in seen] == ["faulthandler"] * 2
        assert all("py-spy" in (rank.reason or "") for rank in seen)
        assert (job.diagnosis().verdict, job.diagnosis().culprits) == ("RankNonCommHang", (1,))


def test_an_expired_timer_is_evidence_first_and_its_signal_last(tmp_path: Path) -> None:
    program = str(PROGRAMS / "timed_job.py")
    with diag_run(tmp_path, ranks=1, script=[program]) as job:
        assert job.finish() == 1
        names = [event.type.removeprefix("rankscope.") for event in job.events()]
        assert names.index("suspected") < names.index("incident.confirmed") < names.index("worker.failed")
        (confirmed,) = job.events("incident.confirmed")
        assert confirmed.data["reason"] == "timer epoch of rank 0 expired"
        (failed,) = job.events("worker.failed")
        assert failed.data["exit_code"] == -signal.SIGKILL
        decided = job.events("decision")[0]
        assert "timer 'epoch' of process" in str(decided.data["reason"])
        assert names.index("incident.confirmed") < names.index("decision") < names.index("worker.failed")


def test_a_worker_blocked_in_the_kernel_ends_the_job_with_75_and_no_restart(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    environ = {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "1"}
    script = [str(PROGRAMS / "blocked_job.py"), str(pipe)]
    try:
        with diag_run(tmp_path / "job", "--max-restarts=3", environ=environ, ranks=1, script=script) as job:
            assert job.finish() == 75
            assert job.decision().action == "fail"
            assert job.diagnosis().kind == "frozen"
            assert not job.events("restart")
    finally:
        # The child that never came to exec blocks all signals but SIGKILL: let it go.
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--no-such-flag", "train.py"], "--no-such-flag"),
        (["--nproc-per-node", "2", "/no/such/script.py"], "no such script: /no/such/script.py"),
        (["--no-python", "no-such-command-anywhere"], "no such command: no-such-command-anywhere"),
        (["--job-hang-interval", "soon", __file__], "--job-hang-interval 'soon'"),
        (["--max-restarts", "many", __file__], "--max-restarts"),
        (["--nproc-per-node", "some", __file__], "some"),
    ],
)
def test_a_wrong_command_line_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    job = Job(tmp_path, "never")
    done = job.diag("run", *arguments)
    assert done.returncode == 2
    lines = done.stderr.decode().strip().splitlines()
    assert len(lines) == 1, lines
    assert expected in lines[0]


def test_a_signal_that_ends_a_suspected_job_leaves_an_incident(tmp_path: Path) -> None:
    with diag_run(
        tmp_path, ranks=2, fault="data_loading", fault_rank=1, fault_step=FAULT_STEP, steps=STEPS
    ) as job:
        job.wait_for_event("suspected")
        job.signal(signal.SIGTERM)
        job.finish()
        assert job.diagnosis().culprits == (1,)
        (ended,) = job.events("job.ended")
        assert ended.data["result"] == "stopped by SIGTERM"
