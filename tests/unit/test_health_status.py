"""The status page: what one side writes, the other side reads, whatever happens in between."""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

import msgspec
import pytest

from rankscope.agent.health.cell import SLOT_HEADER_SIZE, SeqCell
from rankscope.agent.health.status import (
    STATUS_LIMIT_BYTES,
    Check,
    HealthStatus,
    PhaseRecord,
    StatusPageError,
    StatusReader,
    StatusWriter,
    Suspicion,
    WorkerHealth,
)


def a_status(workers: int = 2, **changes: object) -> HealthStatus:
    ranks = tuple(WorkerHealth(rank, rank, 100 + rank, "running") for rank in range(workers))
    status = HealthStatus(job="run-7", node="host-a", pid=1, workers=ranks)
    return msgspec.structs.replace(status, **changes)


def test_a_new_page_says_starting_and_nothing_else(tmp_path: Path) -> None:
    writer = StatusWriter(tmp_path / "page")
    view = StatusReader(writer.path).read()
    assert view.phase == PhaseRecord("starting", None)
    assert view.status is None
    assert (view.stamps.main_ns, view.stamps.watch_ns) == (0, 0)
    assert view.stamps.created_ns > 0


def test_what_is_written_is_read(tmp_path: Path) -> None:
    writer = StatusWriter(tmp_path / "page")
    reader = StatusReader(writer.path)
    status = a_status(suspected=Suspicion("no progress", (1,)), checks={"disk": Check("warn", "97 % full")})
    writer.stamp_main(11)
    writer.stamp_watch(-12)
    writer.phase("rendezvous", 99.5)
    writer.publish(status)
    view = reader.read()
    assert (view.stamps.main_ns, view.stamps.watch_ns) == (11, -12)
    assert view.phase == PhaseRecord("rendezvous", 99.5)
    assert view.status == status
    assert view.published_ns >= view.stamps.created_ns


def test_the_longest_phase_record_fits(tmp_path: Path) -> None:
    writer = StatusWriter(tmp_path / "page")
    writer.phase("exit_barrier", 1.7976931348623157e308)
    assert StatusReader(writer.path).read().phase == PhaseRecord("exit_barrier", 1.7976931348623157e308)


def test_a_status_that_is_too_large_is_published_without_its_workers(tmp_path: Path) -> None:
    writer = StatusWriter(tmp_path / "page")
    workers = STATUS_LIMIT_BYTES // 50
    writer.publish(a_status(workers, checks={"disk": Check("pass", "x" * STATUS_LIMIT_BYTES)}))
    status = StatusReader(writer.path).read().status
    assert status is not None
    assert status.workers == ()
    assert status.checks["status"].status == "warn"
    assert f"{workers} workers" in status.checks["status"].output


def test_a_writer_that_stops_halfway_leaves_the_last_record(tmp_path: Path) -> None:
    page = mmap.mmap(-1, 4096)
    cell = SeqCell(page, (0, 64, 128))
    cell.write(b"first")
    cell.write(b"second")
    # The next record goes to the slot at 64 + 128: its data is there, the rest is not written any more.
    at = 64 + 128 + SLOT_HEADER_SIZE
    page[at : at + 4] = b"torn"
    assert cell.read() == (2, b"second")


def test_a_record_that_is_damaged_is_not_returned(tmp_path: Path) -> None:
    page = mmap.mmap(-1, 4096)
    cell = SeqCell(page, (0, 64, 128))
    cell.write(b"first")
    at = 64 + 128 + SLOT_HEADER_SIZE
    page[at : at + 1] = b"F"
    assert cell.read() == (0, b"")


def test_a_reader_never_sees_half_of_one_and_half_of_another(tmp_path: Path) -> None:
    writer = StatusWriter(tmp_path / "page")
    reader = StatusReader(writer.path)
    stop = threading.Event()

    def publish() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            writer.publish(HealthStatus(job=f"{count}" * 200, node=f"{count}", pid=1, restart_count=count))

    threads = [threading.Thread(target=publish, name=f"rankscope-test-{n}") for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2000):
            status = reader.read().status
            assert status is None or status.job == status.node * 200
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def test_the_page_is_for_its_user_alone(tmp_path: Path) -> None:
    writer = StatusWriter(tmp_path / "page")
    assert writer.path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["page"]  # noqa: PTH208 - names are enough


def test_closing_removes_the_file_and_late_stamps_do_no_harm(tmp_path: Path) -> None:
    writer = StatusWriter(tmp_path / "page")
    writer.close()
    writer.close()
    writer.stamp_main(1)
    writer.publish(a_status())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StatusWriter(tmp_path / "missing" / "page")


@pytest.mark.parametrize("content", [b"", b"RSHS", b"\0" * 1_000_000])
def test_a_file_that_is_no_page_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "page").write_bytes(content)
    with pytest.raises(StatusPageError):
        StatusReader(tmp_path / "page")
