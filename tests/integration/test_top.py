"""``diag top`` on real terminals, beside real processes that write a real progress page."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.paged_job import DEADLINE, PagedJob, a_paged_job
from tests.screen_of import MAIN, OnTerminal, Screen, on_terminal
from tests.standing import stand_still

QUICK = "--interval=0.2"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[PagedJob]:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    with a_paged_job(tmp_path, [0.05, -1.0]) as made:
        yield made


def diag(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words], capture_output=True, text=True, timeout=DEADLINE, check=False
    )


def rows(screen: Screen) -> list[list[str]]:
    found = [line.split() for line in screen.text().splitlines()]
    return [words for words in found if words and words[0].isdecimal() and len(words) > 8]


def shows_rates(screen: Screen) -> bool:
    found = rows(screen)
    return len(found) == 2 and found[0][3] not in ("-", "0") and found[0][6] != "-"


def shown(top: OnTerminal) -> None:
    top.wait_for(shows_rates, "rates of both ranks")


def test_it_shows_each_rank_and_leaves_the_terminal_as_it_was(job: PagedJob) -> None:
    with on_terminal("top", "run-7", QUICK) as top:
        shown(top)
        lines = top.screen.text().splitlines()
        assert lines[0].startswith("diag top run-7  2 ranks")
        assert lines[2].split() == [
            "RANK*",
            "STATE",
            "STEP",
            "STEPS/S",
            "SINCE",
            "COMM",
            "CPU%",
            "RSS",
            "WHERE",
        ]
        assert "collective 1, pg 0" in lines[4]
        assert lines[-1].startswith("q quit")
        assert all(len(line) <= 80 for line in lines)
        top.press(b"q")
        assert top.end() == 0
        assert top.is_restored


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(job: PagedJob, number: int, status: int) -> None:
    with on_terminal("top", "run-7", QUICK) as top:
        shown(top)
        if number == signal.SIGINT:
            top.press(b"\x03")
        else:
            top.process.send_signal(number)
        assert top.end() == status
        assert top.is_restored
        assert b"Traceback" not in top.screen.received


def test_stopped_it_gives_the_terminal_back_and_takes_it_again(job: PagedJob) -> None:
    with on_terminal("top", "run-7", QUICK) as top:
        shown(top)
        # A group whose parent is in another session is orphaned, and would not be stopped by SIGTSTP.
        stand_still(top.process.pid)
        top.screen.resize(80, 24)
        top.process.send_signal(signal.SIGCONT)
        shown(top)
        top.press(b"\x1a")
        top.wait_for(lambda screen: screen.received.count(b"\x1b[?1049l") == 1, "the first screen")
        shown(top)
        top.press(b"q")
        assert top.end() == 0
        assert top.is_restored


def test_a_screen_that_grew_or_shrank_is_drawn_anew(job: PagedJob) -> None:
    with on_terminal("top", "run-7", QUICK) as top:
        shown(top)
        top.resize(60, 5)
        top.wait_for(lambda screen: screen.text().splitlines()[-1].startswith("q quit"), "five lines")
        assert len(rows(top.screen)) == 1
        top.resize(100, 30)
        shown(top)
        top.press(b"q")
        assert top.end() == 0


def test_only_lines_that_changed_are_written(job: PagedJob) -> None:
    with on_terminal("top", "run-7", QUICK) as top:
        shown(top)
        cleared = top.screen.cleared
        seen = len(top.screen.received)
        times = {top.screen.text().splitlines()[0]}
        top.wait_for(
            lambda screen: (
                len(times | {screen.text().splitlines()[0]}) > 1 and len(screen.received) > seen + 200
            ),
            "another second",
        )
        fresh = top.screen.received[seen:]
        assert top.screen.cleared == cleared
        assert b"WHERE" not in fresh
        assert b"q quit" not in fresh


def test_keys_sort_move_pause_and_help(job: PagedJob) -> None:
    with on_terminal("top", "run-7", QUICK) as top:
        shown(top)
        top.press(b"s")
        top.wait_for(lambda screen: "SINCE*" in screen.text(), "sorted by the time since progress")
        assert [row[0] for row in rows(top.screen)] == ["1", "0"]
        top.press(b"r")
        top.wait_for(lambda screen: [row[0] for row in rows(screen)] == ["0", "1"], "turned around")
        top.press(b"p")
        top.wait_for(lambda screen: "PAUSED" in screen.text(), "paused")
        top.press(b"h")
        top.wait_for(lambda screen: "keys and columns" in screen.text(), "help")
        top.press(b"q")
        top.wait_for(lambda screen: "RANK" in screen.text(), "the ranks again")
        top.press(b"q")
        assert top.end() == 0


def test_enter_shows_the_stack_of_the_rank_under_the_cursor(job: PagedJob) -> None:
    with on_terminal("top", "run-7", QUICK) as top:
        shown(top)
        top.press(b"\x1b[B\x1b[B\r")
        top.wait_for(
            lambda screen: "stack of rank 1" in screen.text() and "load_batch (" in screen.text(), "the stack"
        )
        top.press(b"q")
        shown(top)
        top.press(b"q")
        assert top.end() == 0


def test_what_the_agent_has_found_stands_above_the_ranks(job: PagedJob) -> None:
    with on_terminal("top", "run-7", QUICK) as top:
        shown(top)
        job.event("slow", verdict="Healthy", summary="all ranks alike", culprits=[])
        job.event("suspected", reason="no progress for 8 s", ranks=[1], waiting=[0])
        top.wait_for(lambda screen: "suspected: no progress for 8 s" in screen.text(), "the suspicion")
        assert [row[1] for row in rows(top.screen)] == ["waiting", "suspected"]
        job.event(
            "incident.confirmed", verdict="RankNonCommHang", summary="rank 1 \x1b[31mis\n stuck", culprits=[1]
        )
        top.wait_for(lambda screen: "RankNonCommHang: rank 1" in screen.text(), "the verdict")
        assert r"\x1b[31mis\n stuck" in top.screen.text()
        assert [row[1] for row in rows(top.screen)] == ["waiting", "hung"]
        job.event("incident.recovered", seconds=9)
        top.wait_for(lambda screen: "RankNonCommHang" not in screen.text(), "that it is over")


def test_a_rank_that_ended_is_said_to_have(job: PagedJob) -> None:
    with on_terminal("top", "run-7", QUICK) as top:
        shown(top)
        job.ranks[1].kill()
        top.wait_for(lambda screen: "exited" in screen.text(), "the end of rank 1")


def test_no_color_draws_without_colours(job: PagedJob) -> None:
    with on_terminal("top", "run-7", QUICK, environ={"NO_COLOR": "1"}) as top:
        shown(top)
        job.event("suspected", reason="no progress", ranks=[1], waiting=[])
        top.wait_for(lambda screen: "suspected:" in screen.text(), "the suspicion")
        assert not [code for code in top.screen.sgr if code.partition(";")[2] or code.startswith("3")]


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_be_drawn_on_gets_it_once(job: PagedJob, term: str) -> None:
    with on_terminal("top", "run-7", QUICK, environ={"TERM": term}) as top:
        assert top.end() == 0
        assert b"\x1b" not in top.screen.received
        assert "collective 1, pg 0" in top.screen.text()


def test_piped_it_prints_once(job: PagedJob) -> None:
    done = diag("top", "run-7", QUICK)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["diag", lines[1].split()[0], "RANK*", "0", "1"]


def test_the_same_as_json(job: PagedJob) -> None:
    done = diag("top", "run-7", "--json")
    told = json.loads(done.stdout)
    first, second = told["ranks"]
    assert (told["job"], told["world_size"]) == ("run-7", 2)
    assert 10 < first["steps_per_second"] < 25
    assert (second["where"], second["communication"]) == ("collective 1, pg 0", 1.0)
    assert second["step"] == 1
    assert second["seconds_since_progress"] > 0
    assert first["rss_bytes"] > 1 << 20


def test_processes_of_others_are_shown_without_a_page(job: PagedJob) -> None:
    done = diag("top", "--pid", f"{job.ranks[0].pid},{job.ranks[1].pid}", "--json")
    told = json.loads(done.stdout)
    assert [row["pid"] for row in told["ranks"]] == [rank.pid for rank in job.ranks]
    assert [row["step"] for row in told["ranks"]] == [None, None]
    assert all(row["where"].startswith(("asleep", "at work")) for row in told["ranks"])


def test_a_job_that_does_not_run_is_one_line(job: PagedJob, tmp_path: Path) -> None:
    (tmp_path / "jobs" / "old" / "nodes").mkdir(parents=True)
    for name in ("old", "no-such-job"):
        done = diag("top", name)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("diag top: ")
