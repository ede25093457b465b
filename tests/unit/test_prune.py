"""Which jobs go, and that removing one leaves no half of it, and touches nothing outside of the folder."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest
from tests.history_factory import a_job_file, a_log

from rankscope.diag import proc
from rankscope.diag.history.here import Here
from rankscope.diag.history.state import JobState
from rankscope.diag.jobs_list.model import JobRow
from rankscope.diag.prune.plan import (
    CHANGED,
    ELSEWHERE,
    INCIDENTS,
    NEWEST,
    NOT_A_JOB,
    RUNS,
    Limits,
    Plan,
    Stored,
    plan_of,
)
from rankscope.diag.prune.remove import ASIDE, NotRemovedError, opened, remove_job, remove_remains
from rankscope.diag.prune.sizes import folder_bytes
from rankscope.diag.prune.stored import is_left_over, may_still_go, stored_of
from rankscope.diag.store.job import AgentFile, job_folder

DAY = 86400.0
NOW = 100 * DAY
HERE = Here("vm", "aaaaaaaa")


def a_job(name: str, days: float, *, state: JobState = "ended", size: int = 10, incidents: int = 0) -> Stored:
    return Stored(JobRow(name, state, incidents=incidents), NOW - days * DAY, size)


JOBS = [a_job("a", 50), a_job("b", 40, incidents=1), a_job("c", 20), a_job("d", 1)]


def gone(limits: Limits, jobs: list[Stored] | None = None) -> str:
    return "".join(job.row.job for job in plan(limits, jobs).goes)


def plan(limits: Limits, jobs: list[Stored] | None = None) -> Plan:
    return plan_of(JOBS if jobs is None else jobs, limits, now=NOW)


def test_what_is_older_goes_the_oldest_first() -> None:
    assert gone(Limits(older_than=30 * DAY)) == "ab"


def test_the_oldest_go_until_the_rest_is_small_enough() -> None:
    assert gone(Limits(max_size_bytes=25)) == "ab"
    assert gone(Limits(max_size_bytes=40)) == ""
    assert gone(Limits(older_than=45 * DAY, max_size_bytes=15)) == "abc"


def test_keep_alone_chooses_and_beside_others_protects() -> None:
    assert gone(Limits(keep=1)) == "abc"
    assert gone(Limits(keep=0)) == "abcd"
    assert gone(Limits(keep=3, older_than=30 * DAY)) == "a"
    assert [reason for _, reason in plan(Limits(keep=3, older_than=30 * DAY)).stays] == [NEWEST]


def test_jobs_with_incidents_stay_when_that_is_asked_for() -> None:
    found = plan(Limits(older_than=30 * DAY, keep_incidents=True))
    assert [job.row.job for job in found.goes] == ["a"]
    assert [(job.row.job, reason) for job, reason in found.stays] == [("b", INCIDENTS)]


@pytest.mark.parametrize(
    ("state", "days", "reason"),
    [
        ("running", 90, RUNS),
        ("silent", 0.9, ELSEWHERE),
        ("silent", 1.1, None),
        ("silent", -5, ELSEWHERE),
        ("damaged", 0.9, CHANGED),
        ("damaged", 1.1, None),
        ("killed", 0.1, None),
    ],
)
def test_what_runs_or_may_run_elsewhere_never_goes(state: JobState, days: float, reason: str | None) -> None:
    found = plan(Limits(keep=0), [a_job("x", days, state=state)])
    assert [why for _, why in found.stays] == ([reason] if reason else [])


def test_a_folder_that_is_no_job_stays_and_counts_for_nothing() -> None:
    photos = Stored(JobRow("photos", "damaged"), NOW - 99 * DAY, 1000, is_job=False)
    found = plan(Limits(keep=0), [*JOBS, photos])
    assert [job.row.job for job in found.goes] == ["a", "b", "c", "d"]
    assert found.stays == ((photos, NOT_A_JOB),)
    assert gone(Limits(max_size_bytes=40), [*JOBS, photos]) == ""
    young = Stored(JobRow("young", "damaged"), NOW, 1, is_job=False)
    assert gone(Limits(keep=1), [*JOBS, young]) == "abc"


def test_what_a_newer_version_wrote_is_left_to_it(tmp_path: Path) -> None:
    for text in ('{"schema": 99, "run_id": "x", "created": "", "command": []}', '{"schema": 99, "new": 1}'):
        folder = a_folder(tmp_path / "x" / str(len(text)))
        (folder / "job.json").write_text(text)
        old = stored_of(folder, HERE, now=time.time() + 9 * DAY)
        (why,) = (reason for _, reason in plan_of([old], Limits(keep=0), now=time.time() + 9 * DAY).stays)
        assert why.startswith("written by a newer version (schema 99, known is 1)")
        assert any("schema 99" in note for note in old.row.notes)


def test_what_is_no_job_is_told_by_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    assert not stored_of(tmp_path / "photos", HERE, now=NOW).is_job
    assert not may_still_go(tmp_path / "photos")
    assert stored_of(a_folder(tmp_path / "job"), HERE, now=NOW).is_job


def test_limits_that_say_nothing_choose_nothing() -> None:
    assert not Limits().chooses
    assert not Limits(keep_incidents=True).chooses
    assert Limits(keep=0).chooses


def a_folder(path: Path) -> Path:
    (path / "nodes" / "vm").mkdir(parents=True)
    (path / "nodes" / "vm" / "events.jsonl").write_text("{}")
    return path


def test_a_job_is_gone_with_all_that_is_in_it_and_links_are_not_followed(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    precious = a_folder(tmp_path / "precious")
    (a_folder(jobs / "a") / "link").symlink_to(precious)
    (jobs / "linked").symlink_to(precious)
    with opened(jobs) as folder:
        remove_job(folder, "a", may_go=lambda _aside: True)
        with pytest.raises(NotRemovedError, match="a link or a file"):
            remove_job(folder, "linked", may_go=lambda _aside: True)
    assert [path.name for path in jobs.iterdir()] == ["linked"]
    assert (precious / "nodes" / "vm" / "events.jsonl").exists()


def test_a_job_that_comes_to_life_is_put_back(tmp_path: Path) -> None:
    a_folder(tmp_path / "a")
    seen: list[bool] = []

    def revived(aside: str) -> bool:
        seen.append((tmp_path / "a").exists())
        assert aside.startswith(ASIDE)
        return False

    with opened(tmp_path) as folder, pytest.raises(NotRemovedError, match="started"):
        remove_job(folder, "a", may_go=revived)
    assert seen == [False]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_where_the_records_lie_is_said_when_the_name_was_taken_again(tmp_path: Path) -> None:
    a_folder(tmp_path / "a")

    def made_again(_aside: str) -> bool:
        (tmp_path / "a").mkdir()
        return False

    with opened(tmp_path) as folder, pytest.raises(NotRemovedError) as caught:
        remove_job(folder, "a", may_go=made_again)
    assert str(caught.value).endswith("its records lie in a~2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a~2"]
    assert (tmp_path / "a~2" / "nodes" / "vm" / "events.jsonl").exists()


def test_what_an_earlier_run_was_interrupted_at_goes_too(tmp_path: Path) -> None:
    for name in (f"{ASIDE}0123456789ab", f"{ASIDE}old", f"{ASIDE}0123456789ab.kept", "a"):
        a_folder(tmp_path / name)
    with opened(tmp_path) as folder:
        assert remove_remains(folder, may_go=lambda _aside: True) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{ASIDE}0123456789ab.kept",
        f"{ASIDE}old",
        "a",
    ]


def test_what_another_run_has_put_aside_stays_while_it_may_be_a_job_that_runs(tmp_path: Path) -> None:
    folder = job_folder("run-7", tmp_path)
    a_job_file(folder)
    a_log().agent().launch().write(folder)
    agent = AgentFile("vm", os.getpid(), proc.start_ticks(os.getpid()) or 0, "running")
    (folder.node("vm") / "agent.json").write_bytes(msgspec.json.encode(agent))
    running = folder.path.rename(folder.path.with_name(f"{ASIDE}00000000000a"))
    half = running.with_name(f"{ASIDE}00000000000b")
    (half / "logs").mkdir(parents=True)
    jobs = running.parent
    with opened(jobs) as opened_jobs:
        assert remove_remains(opened_jobs, may_go=lambda aside: is_left_over(jobs / aside)) == 1
    assert list(jobs.iterdir()) == [running]


def test_a_folder_of_jobs_that_is_replaced_by_a_link_is_still_the_one_that_was_opened(tmp_path: Path) -> None:
    jobs, precious = tmp_path / "jobs", tmp_path / "precious"
    a_folder(jobs / "a")
    a_folder(precious / "a")
    with opened(jobs) as folder:
        jobs.rename(tmp_path / "old")
        jobs.symlink_to(precious)
        remove_job(folder, "a", may_go=lambda _aside: True)
    assert (precious / "a").is_dir()
    assert list((tmp_path / "old").iterdir()) == []


def test_a_size_is_what_the_disk_gives_without_following_links(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(1 << 20))
    folder = a_folder(tmp_path / "job")
    before = folder_bytes(folder)
    (folder / "link").symlink_to(big)
    assert folder_bytes(folder) - before < 1 << 16
    shutil.copy(big, folder / "copy")
    assert folder_bytes(folder) - before >= 1 << 20
    assert folder_bytes(tmp_path / "nowhere") == 0
