"""One process context a worker: what torch's agent sees of them, with real commands."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.async_factory import attempts, ends_of, handlers_of_before, shell
from tests.jobs import until
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes
from torch.numa.binding import AffinityMode, NumaOptions

from rankscope.agent.async_mode.contexts import Contexts
from rankscope.agent.logs.process import LogCapture
from rankscope.agent.logs.specs import CapturedLogsSpecs
from rankscope.agent.workers.process_context import exit_codes, leads_groups, log_files, noted_exit_codes


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    with handlers_of_before():
        yield


@pytest.fixture
def specs(tmp_path: Path) -> DefaultLogsSpecs:
    return DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), redirects=Std.ALL)


def test_a_failed_worker_is_started_again_and_the_others_keep_their_processes(
    specs: DefaultLogsSpecs,
) -> None:
    started = shell(specs, "echo $RANK $TORCHELASTIC_RESTART_COUNT; exec sleep 600", "echo out; exit 3")
    try:
        first = started.pids()
        ends = ends_of(started)
        assert {rank: end.code for rank, end in ends.items()} == {1: 3}
        failure = started.failure(1, ends[1])
        assert (failure.local_rank, failure.pid, failure.exitcode) == (1, first[1], 3)
        started.release(1)
        assert started.wait(0) is None
        started.start_again(1, {**started.env(1), "RANK": "1"}, restarts=1)
        assert started.pids()[0] == first[0]
        assert started.pids()[1] != first[1]
        assert {rank: end.code for rank, end in ends_of(started).items()} == {1: 3}
        assert [rank for rank, code in exit_codes(started).items() if code is None] == [0]
        assert leads_groups(started)
    finally:
        started.close(signal.SIGTERM, 10)
    assert noted_exit_codes(started) == {0: -signal.SIGTERM, 1: 3}
    # torch's name for restart 1, beside everybody's first folder.
    assert (attempts(specs) / "attempt_0" / "1" / "stdout.log").read_text() == "out\n"
    assert (attempts(specs) / "attempt_1" / "1" / "stdout.log").read_text() == "out\n"
    assert (attempts(specs) / "attempt_0" / "0" / "stdout.log").read_text() == "0 0\n"
    assert not (attempts(specs) / "attempt_1" / "0").exists()


def test_two_workers_with_the_same_count_of_restarts_leave_each_others_logs_alone(
    specs: DefaultLogsSpecs,
) -> None:
    started = shell(specs, "echo zero; exit 1", "echo one; exit 1")
    try:
        ends_of(started, 2)
        for rank in (0, 1):
            started.release(rank)
            started.start_again(rank, started.env(rank), restarts=1)
            ends_of(started)
    finally:
        started.close()
    found = {path.read_text() for path in attempts(specs).glob("attempt_1/*/stdout.log")}
    assert found == {"zero\n", "one\n"}
    assert log_files(started, 1)[-1].endswith("attempt_1/1/stdout.log")


def test_the_rest_of_a_failed_workers_group_ends_before_its_successor_starts(
    specs: DefaultLogsSpecs, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    script = f"sleep 600 & echo $! > {child}.part; mv {child}.part {child}; wait"
    started = shell(specs, script)
    try:
        until(child.exists, "the worker's child")
        os.kill(started.pids()[0], signal.SIGKILL)
        assert ends_of(started)[0].code == -signal.SIGKILL
        pid = int(child.read_text())
        until(lambda: not runs(pid), "the child of a killed worker to end")
    finally:
        started.close()


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_what_a_worker_started_outlives_it_when_it_ended_well(
    specs: DefaultLogsSpecs, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    started = shell(specs, f"sleep 600 & echo $! > {child}")
    try:
        assert ends_of(started)[0].code == 0
        pid = int(child.read_text())
        assert runs(pid)
    finally:
        started.close()
    os.kill(pid, signal.SIGKILL)


def test_closing_signals_all_before_it_waits_for_any(specs: DefaultLogsSpecs, tmp_path: Path) -> None:
    # Each ends by itself once all have been told to: one that were waited for alone would be killed.
    told = " && ".join(f"[ -e {tmp_path}/{rank} ]" for rank in range(3))
    trap = f"trap 'echo > {tmp_path}/$RANK; until {told}; do :; done; exit 0' TERM"
    script = f"{trap}; echo ready; while :; do sleep 600 & wait $!; done"
    started = shell(specs, script, script, script)
    logs = list(attempts(specs).glob("attempt_0/*/stdout.log"))
    until(lambda: all(log.read_text() for log in logs), "the traps")
    started.close(signal.SIGTERM, 10)
    assert set(exit_codes(started).values()) == {0}


@pytest.mark.parametrize("is_ended", [True, False], ids=["ended", "endless"])
def test_closing_ends_whatever_follows_the_logs_of_a_worker(tmp_path: Path, is_ended: bool) -> None:
    """Whoever ends just before the agent does was never let go; whoever nothing ends is left to itself."""
    threads = threading.active_count()
    specs = DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), tee=Std.ALL)
    started = shell(specs, "exit 7" if is_ended else "exec sleep 600")
    assert threading.active_count() > threads
    pid = started.pids()[0]
    if is_ended:
        ends_of(started)
    else:
        # The agent does so when the kernel holds a worker.
        started._close = lambda **_kwargs: None  # type: ignore[method-assign]
    started.close()
    assert threading.active_count() == threads
    assert runs(pid) is not is_ended
    if not is_ended:
        os.kill(pid, signal.SIGKILL)
        ends_of(started)


def test_a_command_that_cannot_be_started_takes_those_before_it_along(specs: DefaultLogsSpecs) -> None:
    begun: list[Any] = []

    def start(**kwargs: Any) -> Any:
        if begun:
            raise FileNotFoundError("gone")
        begun.append(start_processes(**kwargs))
        return begun[0]

    with pytest.raises(FileNotFoundError):
        Contexts(
            start,
            name="worker",
            entrypoint="/bin/sleep",
            args={0: ("600",), 1: ("600",)},
            envs={0: {}, 1: {}},
            logs_specs=specs,
        )
    assert begun[0].subprocess_handlers[0].proc.returncode == -signal.SIGTERM


def test_a_start_without_a_folder_for_its_output_is_told_and_the_earlier_output_stays(
    specs: DefaultLogsSpecs, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    started = shell(specs, "echo life $TORCHELASTIC_RESTART_COUNT; exit 1")
    try:
        ends_of(started)
        started.release(0)
        (attempts(specs) / "attempt_1").write_text("no folder can be made here")
        started.start_again(0, started.env(0), restarts=1)
        ends_of(started)
    finally:
        started.close()
    assert (attempts(specs) / "attempt_0" / "0" / "stdout.log").read_text() == "life 0\n"
    assert capfd.readouterr().out == "life 1\n"
    assert "no new folder for the output of local rank 0" in caplog.text


def test_tee_shows_each_worker_under_its_own_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), tee=Std.OUT)
    started = shell(specs, "echo zero", "echo one; exit 1", duplicate_stdout_filters=["one"])
    try:
        ends_of(started, 2)
        for rank in (0, 1):
            started.release(rank)
        started.start_again(1, started.env(1), restarts=1)
        ends_of(started)
        started.release(1)
    finally:
        started.close()
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == ["[worker0]:zero", "[worker1]:one", "[worker1]:one"]
    filtered = sorted(attempts(specs).glob("attempt_*/1/filtered_stdout.log"))
    assert [path.read_text() for path in filtered] == ["[worker1]:one\n"] * 2


def test_captured_output_of_a_later_start_goes_to_a_folder_of_its_own(tmp_path: Path) -> None:
    events: list[str] = []
    capture = LogCapture(tmp_path / "fifos", events.append, one_console=False)
    assert capture.start()
    specs = CapturedLogsSpecs(capture, tmp_path / "logs", local_ranks_filter={7})
    started = shell(
        specs, "echo zero; echo err >&2; exec sleep 600", "echo one $TORCHELASTIC_RESTART_COUNT; exit 1"
    )
    try:
        ends_of(started)
        started.release(1)
        started.start_again(1, started.env(1), restarts=1)
        ends_of(started)
        started.release(1)
    finally:
        started.close()
        capture.finish(10.0)
    logs = {
        str(path.relative_to(tmp_path / "logs")): path.read_text()
        for path in (tmp_path / "logs").rglob("*.log")
    }
    assert logs == {
        "attempt_0/0/stdout.log": "zero\n",
        "attempt_0/0/stderr.log": "err\n",
        "attempt_0/1/stdout.log": "one 0\n",
        "attempt_1/1/stdout.log": "one 1\n",
    }
    assert events == []


def test_each_worker_is_bound_to_the_cpus_of_its_own_gpu(
    specs: DefaultLogsSpecs, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There is no GPU here: torch's own function is asked which one it was to look for.
    asked: list[int] = []

    def bind(command_args: tuple[str, ...], *, gpu_index: int, numa_options: object) -> tuple[str, ...]:
        asked.append(gpu_index)
        assert numa_options == options
        return command_args

    options = NumaOptions(affinity_mode=AffinityMode.NODE)
    monkeypatch.setattr("torch.numa.binding._maybe_wrap_command_args_with_numa_binding", bind)
    started = shell(specs, "exit 0", "exit 0", numa_options=options)
    try:
        assert {end.code for end in ends_of(started, 2).values()} == {0}
    finally:
        started.close()
    assert asked == [0, 1]
