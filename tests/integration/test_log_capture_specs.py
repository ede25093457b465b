"""Log capture inside a process: what it holds and leaves, and how torch starts workers with it."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.logs_factory import is_alive, until
from torch.distributed.elastic.multiprocessing import PContext, start_processes

from rankscope.agent.logs.process import CapturedStream, LogCapture
from rankscope.agent.logs.specs import CapturedLogsSpecs, close_writing_ends
from rankscope.watchdog import environment
from rankscope.watchdog.probe.entry import redirect


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def capture(tmp_path: Path, events: list[str]) -> Iterator[LogCapture]:
    capture = LogCapture(tmp_path / "fifos", events.append, one_console=False)
    assert capture.start()
    yield capture
    capture.finish(5.0)


@pytest.fixture
def capture_of_one(tmp_path: Path, events: list[str]) -> Iterator[LogCapture]:
    """As if the agent's stdout and stderr were one terminal."""
    capture = LogCapture(tmp_path / "fifos", events.append, one_console=True)
    assert capture.start()
    yield capture
    capture.finish(5.0)


def descriptors() -> set[str]:
    folder = Path("/proc/self/fd")
    # The listing's own descriptor is gone by the time it is read.
    return {entry.name for entry in folder.iterdir() if os.path.lexists(entry)}


def a_stream(folder: Path, rank: int = 0) -> CapturedStream:
    return CapturedStream(rank, "stdout", folder / f"{rank}.log", on_console=False)


def test_the_end_leaves_no_descriptor_thread_process_or_folder(tmp_path: Path, events: list[str]) -> None:
    before, threads = descriptors(), threading.active_count()
    capture = LogCapture(tmp_path / "fifos", events.append)
    assert capture.start()
    fifo = capture.open([a_stream(tmp_path)])[0, "stdout"]
    fifo.write_bytes(b"hello")
    pid = capture.drain_pid
    assert pid
    until(lambda: capture.sizes() == {(0, "stdout"): 5}, "the size")
    assert capture.files() == {(0, "stdout"): tmp_path / "0.log"}
    finished = capture.finish(20.0)
    assert (finished.unshown_bytes, finished.unfiled_bytes, finished.process_ended) == (0, 0, True)
    assert (tmp_path / "0.log").read_bytes() == b"hello"
    assert descriptors() == before
    assert threading.active_count() == threads
    assert not is_alive(pid)
    assert not (tmp_path / "fifos").exists()
    assert events == []
    assert (capture.sizes(), capture.files(), capture.drain_pid) == ({}, {}, None)
    capture.check()
    assert capture.open([a_stream(tmp_path)]) == {}


def test_many_attempts_cost_the_drain_no_descriptors(capture: LogCapture, tmp_path: Path) -> None:
    def descriptors_of_the_drain() -> int:
        return len(list(Path(f"/proc/{capture.drain_pid}/fd").iterdir()))

    at_first = 0
    for attempt in range(12):
        fifo = capture.open([a_stream(tmp_path)])[0, "stdout"]
        fifo.write_bytes(b"%d\n" % attempt)
        until(lambda: capture.sizes()[0, "stdout"] in (2, 3), "the size")
        at_first = at_first or descriptors_of_the_drain()
    # Those of attempts that are over are closed a moment later: on a busy host several are open at once.
    until(
        lambda: descriptors_of_the_drain() <= at_first + 4, "the descriptors of earlier attempts to be closed"
    )
    whole = b"".join(b"%d\n" % attempt for attempt in range(12))
    file = tmp_path / "0.log"
    until(lambda: file.exists() and file.read_bytes() == whole, "the file")
    assert len(list((tmp_path / "fifos").iterdir())) == 1


def test_a_place_without_fifos_means_no_capture_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    before = descriptors()
    capture = LogCapture(tmp_path / "file" / "fifos", events.append)
    assert not capture.start()
    assert len(events) == 1
    assert capture.open([a_stream(tmp_path)]) == {}
    capture.check()
    capture.finish(1.0)
    assert len(events) == 1
    assert descriptors() == before


def test_a_drain_that_cannot_start_means_no_capture_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "absent"))
    before = descriptors()
    capture = LogCapture(tmp_path / "fifos", events.append)
    assert not capture.start()
    assert len(events) == 1
    assert descriptors() == before
    assert not (tmp_path / "fifos").exists()


def test_workers_of_a_drain_that_cannot_be_replaced_are_never_held(
    capture: LogCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    fifo = capture.open([a_stream(tmp_path)])[0, "stdout"]
    pid = capture.drain_pid
    assert pid
    monkeypatch.setattr("sys.executable", str(tmp_path / "absent"))
    os.kill(pid, 9)
    writer = threading.Thread(target=lambda: fifo.write_bytes(b"x" * (8 << 20)))
    writer.start()

    def written() -> bool:
        capture.check()
        return not writer.is_alive()

    until(written, "the writer's end without a drain")
    writer.join()
    assert any("cannot be started again" in event for event in events)


def test_an_attempt_of_the_same_number_keeps_the_files_of_the_one_before(
    capture: LogCapture, tmp_path: Path
) -> None:
    specs = CapturedLogsSpecs(capture, tmp_path / "logs")
    seen: list[str] = []
    for _ in range(3):
        envs = {0: {"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_RUN_ID": "run"}}
        dest = specs.reify(envs)
        Path(dest.stdouts[0]).write_bytes(b"x")
        seen.append(dest.error_files[0])
        assert envs[0]["TORCHELASTIC_ERROR_FILE"] == dest.error_files[0]
        assert envs[0]["TORCHELASTIC_RESTART_COUNT"] == "0"
    wanted = [tmp_path / "logs" / f"attempt_0{more}" / "0" for more in ("", ".1", ".2")]
    assert seen == [str(folder / "error.json") for folder in wanted]
    for folder in wanted:
        until((folder / "stdout.log").exists, "the file")


def test_without_capture_torch_gets_what_it_would_get_anyway(tmp_path: Path, events: list[str]) -> None:
    specs = CapturedLogsSpecs(LogCapture(tmp_path / "fifos", events.append), tmp_path / "logs")
    dest = specs.reify({0: {}, 1: {}})
    assert dest.stdouts == dest.stderrs == {0: "", 1: ""}
    assert sorted(dest.error_files) == [0, 1]


def test_a_place_where_no_folder_can_be_made_costs_the_capture_of_that_attempt_only(
    capture: LogCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    logs = tmp_path / "logs"
    specs = CapturedLogsSpecs(capture, logs, local_ranks_filter={0})
    specs.reify({0: {}, 1: {}})
    assert len(capture.sizes()) == 4
    shutil.rmtree(logs)
    logs.touch()
    for count in (1, 2):
        envs = {rank: {"TORCHELASTIC_RESTART_COUNT": str(count)} for rank in range(2)}
        dest = specs.reify(envs)
        assert (dest.stdouts, dest.stderrs) == ({0: "", 1: os.devnull}, {0: "", 1: os.devnull})
        for rank in range(2):
            Path(dest.error_files[rank]).write_text("error")
            assert dest.error_files[rank].startswith(str(tmp_path / "tmp" / "torchelastic_"))
            assert envs[rank]["TORCHELASTIC_ERROR_FILE"] == dest.error_files[rank]
        assert (capture.sizes(), capture.files()) == ({}, {})
        assert len(events) == count
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    reason = f"no folder for it (Not a directory: {logs})"
    assert set(events) == {f"output is not captured: {reason}; workers write to the console themselves"}
    logs.unlink()
    assert specs.reify({0: {"TORCHELASTIC_RESTART_COUNT": "3"}}).error_files == {
        0: str(logs / "attempt_3" / "0" / "error.json")
    }
    assert len(capture.sizes()) == 2


def test_without_any_place_for_error_files_workers_start_all_the_same(
    capture: LogCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    specs = CapturedLogsSpecs(capture, tmp_path / "logs", local_ranks_filter={1})
    (tmp_path / "logs").rmdir()
    (tmp_path / "logs").touch()
    envs: dict[int, dict[str, str]] = {0: {}, 1: {}}
    dest = specs.reify(envs)
    assert dest.error_files == {0: os.devnull, 1: os.devnull}
    assert dest.stdouts == dest.stderrs == {0: os.devnull, 1: ""}
    assert envs[0]["TORCHELASTIC_ERROR_FILE"] == ""
    assert len(events) == 1


@pytest.fixture
def signals() -> Iterator[None]:
    """torch's start of workers replaces the handlers of the process it runs in."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_binary_workers_write_into_their_files(capture: LogCapture, tmp_path: Path) -> None:
    specs = CapturedLogsSpecs(capture, tmp_path / "logs", local_ranks_filter={1})
    envs = {rank: {"WHO": str(rank)} for rank in range(2)}
    context = start_processes(
        "worker",
        "/bin/sh",
        args=dict.fromkeys(range(2), ("-c", "echo out $WHO; echo err $WHO >&2")),
        envs=envs,
        logs_specs=specs,
    )
    close_writing_ends(context)
    run(context)
    assert capture.finish(20.0).process_ended
    for rank in range(2):
        folder = tmp_path / "logs" / "attempt_0" / str(rank)
        assert (folder / "stdout.log").read_text() == f"out {rank}\n"
        assert (folder / "stderr.log").read_text() == f"err {rank}\n"


@pytest.mark.usefixtures("signals")
def test_workers_whose_folder_cannot_be_made_run(
    capture: LogCapture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    specs = CapturedLogsSpecs(capture, tmp_path / "logs")
    (tmp_path / "logs").rmdir()
    (tmp_path / "logs").symlink_to("/proc/self/fdinfo")
    done = tmp_path / "done"
    context = start_processes(
        "worker", "/bin/sh", args={0: ("-c", f": >{done}")}, envs={0: {}}, logs_specs=specs
    )
    run(context)
    assert done.exists()
    assert len(events) == 1


@pytest.mark.usefixtures("signals")
def test_binary_workers_with_one_place_for_both_streams_keep_their_order(
    capture_of_one: LogCapture, tmp_path: Path
) -> None:
    specs = CapturedLogsSpecs(capture_of_one, tmp_path / "logs")
    loop = "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"
    context = start_processes("worker", "/bin/sh", args={0: ("-c", loop)}, envs={0: {}}, logs_specs=specs)
    close_writing_ends(context)
    run(context)
    folder = tmp_path / "logs" / "attempt_0" / "0"
    assert capture_of_one.files() == {(0, "stdout"): folder / "stdout.log"}
    assert set(capture_of_one.sizes()) == {(0, "stdout")}
    assert capture_of_one.finish(20.0).process_ended
    expected = "".join(f"out {i}\nerr {i}\n" for i in range(500))
    assert (folder / "stdout.log").read_text() == expected
    assert not (folder / "stderr.log").exists()


def test_function_workers_with_one_place_for_both_streams_get_one_fifo(
    capture_of_one: LogCapture, tmp_path: Path
) -> None:
    specs = CapturedLogsSpecs(capture_of_one, tmp_path / "logs", function_entrypoint=True)
    envs: dict[int, dict[str, str]] = {0: {}, 1: {}}
    specs.reify(envs)
    for env in envs.values():
        assert env[environment.STDOUT] == env[environment.STDERR]
    assert envs[0][environment.STDOUT] != envs[1][environment.STDOUT]


def entry(word: str) -> str:
    """A worker that is a function."""
    redirect(environment.STDOUT, fd=1)
    print("function says", word)
    return word


@pytest.mark.usefixtures("signals")
def test_function_workers_write_into_their_files(capture: LogCapture, tmp_path: Path) -> None:
    specs = CapturedLogsSpecs(capture, tmp_path / "logs", function_entrypoint=True, local_ranks_filter={7})
    envs: dict[int, dict[str, str]] = {0: {}}
    context = start_processes(
        "worker", entry, args={0: ("hello",)}, envs=envs, logs_specs=specs, start_method="spawn"
    )
    assert set(envs[0]) >= {environment.STDOUT, environment.STDERR}
    assert run(context) == {0: "hello"}
    capture.finish(20.0)
    assert (tmp_path / "logs" / "attempt_0" / "0" / "stdout.log").read_text() == "function says hello\n"


def run(context: PContext) -> dict[int, object]:
    try:
        result = context.wait(timeout=60, period=0.05)
    finally:
        context.close()
    assert result
    assert not result.failures
    return result.return_values
