"""What holds for every verb of ``diag``: it starts fast, ends quietly, and leaves nothing half done."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from tests.deadline import DEADLINE
from tests.history_factory import a_job_file, a_log, an_incident
from tests.screen_of import MAIN, on_terminal

from rankscope.diag.main import SUMMARIES

HEAVY: Final = (
    "torch pandas plotly jinja2 pyarrow rich numpy aiohttp rankscope.diag.classify rankscope.diag.capture"
)
LOADED: Final = f"""
import sys
from rankscope.diag.main import main
try:
    sys.exit(main())
finally:
    print([name for name in {HEAVY.split()!r} if name in sys.modules], file=sys.stderr)
"""
VERBS: Final = sorted(SUMMARIES)
NO_TORCH: Final = [verb for verb in VERBS if verb != "run"]  # run's flags are torch's
JOB: Final = "run-7"
ANSWERS: Final[list[tuple[str, ...]]] = [
    ("jobs",),
    ("jobs", "--json"),
    ("history", JOB),
    ("history", JOB, "--json"),
    ("history", JOB, "--csv", "moments"),
    ("analyze", JOB),
    ("analyze", JOB, "--json"),
    ("bundle", JOB, "--dry-run"),
    ("bundle", JOB, "--dry-run", "--json"),
    ("bundle", JOB, "-o", "-"),
    ("prune", "--keep", "0", "--dry-run"),
    ("completion", "bash"),
    ("report", JOB, "-o", "-"),
]
"""Answers of verbs that need no training job."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs that have ended, one of them with more to say than a pipe holds."""
    root = tmp_path_factory.mktemp("home")
    for name in (JOB, "other"):
        from rankscope.diag.store.job import job_folder

        folder = job_folder(name, root)
        a_job_file(folder, ended=50.0, result="failed")
        log = a_log().agent().launch()
        for number in range(2000):
            log.event("message", {"content": f"message {number} of a job that has much to say {'.' * 40}"})
        log.ends(1, "failed").write(folder)
        an_incident(folder, "20261129T164000Z-0fb3f9c")
    return root


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "RANKSCOPE_HOME": str(home)}


def shell(script: str, *words: str, home: Path, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a script with the command as ``"$@"``."""
    return subprocess.run(
        ["bash", "-c", script, "bash", sys.executable, "-c", MAIN, *words],
        env=environment(home),
        cwd=cwd,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.parametrize("verb", NO_TORCH)
def test_help_loads_nothing_that_takes_long(verb: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, verb, "--help"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout.startswith(f"usage: diag {verb}")


@pytest.mark.parametrize("words", ANSWERS, ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(home: Path, tmp_path: Path, words: Sequence[str]) -> None:
    done = shell('"$@" | head -c 1; echo "${PIPESTATUS[0]}"', *words, home=home, cwd=tmp_path)
    status = int(done.stdout[1:])
    assert status in (0, 3)  # 3 is analyze's own, of a hang
    assert b"Traceback" not in done.stderr
    assert b"Broken pipe" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("words", [one for one in ANSWERS if one[0] != "completion"], ids=" ".join)
def test_a_closed_stdout_is_status_1_and_a_line(home: Path, tmp_path: Path, words: Sequence[str]) -> None:
    done = shell('"$@" >&-', *words, home=home, cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.endswith(b"the answer cannot be written: standard output is closed")
    assert b"Traceback" not in done.stderr


@pytest.fixture
def odd_home(tmp_path: Path) -> Path:
    """Jobs whose names are no text, no ASCII, or control a terminal."""
    from rankscope.diag.store.job import JobFolder

    for name in ("bytes-\udcff", "caf\u00e9 \U0001f600", "esc-\x1b[31m"):
        folder = JobFolder(tmp_path / "home" / "jobs" / name)
        folder.path.mkdir(parents=True)
        a_log().agent().launch().ends().write(folder)
    return tmp_path / "home"


@pytest.mark.parametrize(
    "words", [("jobs",), ("jobs", "--json"), ("prune", "--keep", "0", "--json", "--dry-run")]
)
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_no_name_of_a_job_ends_an_answer(
    odd_home: Path, tmp_path: Path, words: Sequence[str], encoding: str
) -> None:
    done = shell(f'PYTHONIOENCODING={encoding} "$@"', *words, home=odd_home, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    if "--json" in words:
        read = [json.loads(line) for line in done.stdout.decode("ascii").splitlines()]
        jobs = read if len(read) > 1 else read[0]["removed"]
        assert sorted(one["job"] for one in jobs) == ["bytes-\\udcff", "caf\u00e9 \U0001f600", "esc-\x1b[31m"]
    else:
        assert b"bytes-\\udcff" in done.stdout


@pytest.mark.parametrize("verb", ["top", "history", "bundle", "export", "report"])
def test_a_name_that_controls_a_terminal_is_said_inert(odd_home: Path, tmp_path: Path, verb: str) -> None:
    more = {"top": ["--once"], "export": ["-o", "x"]}.get(verb, [])
    done = shell('"$@"', verb, "esc", *more, home=odd_home, cwd=tmp_path)
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("export", JOB, "-o", "home/jobs"),
        ("export", JOB, "-o", "home/jobs/run-7/tables"),
        ("export", JOB, "-o", "home"),
        ("bundle", JOB, "-o", "home/jobs/run-7/x.tar.gz"),
        ("report", JOB, "-o", "home/jobs/run-7/job.json"),
        ("report", JOB, "-o", "link.html"),
        ("report", JOB, "-o", "elsewhere/job.json"),
        ("analyze", JOB, "--html", "home/jobs/run-7/job.json"),
        ("analyze", JOB, "--folded", "home/jobs/x"),
        ("analyze", JOB, "--speedscope", "home/jobs/run-7/nodes/vm/x"),
        ("snapshot", "-o", "home/jobs"),
    ],
    ids=" ".join,
)
def test_nothing_is_written_among_the_stored_jobs(home: Path, tmp_path: Path, words: Sequence[str]) -> None:
    shutil.copytree(home, tmp_path / "home")
    shutil.copytree(home / "jobs" / JOB, tmp_path / "elsewhere")
    (tmp_path / "link.html").symlink_to(tmp_path / "home" / "jobs" / JOB / "job.json")
    before = sorted(tmp_path.rglob("*"))
    done = shell('"$@"', *words, home=tmp_path / "home", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert "name a place outside of it" in line
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_that_is_named_leads_to_the_file_that_is_written(home: Path, tmp_path: Path) -> None:
    (tmp_path / "target.html").write_text("old")
    (tmp_path / "link.html").symlink_to("target.html")
    done = shell('"$@"', "report", JOB, "-o", "link.html", home=home, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, b"report: link.html (replaced)")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "target.html").read_text().startswith("<!")


def test_a_name_that_nobody_gave_replaces_nothing(home: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert shell('"$@"', "report", JOB, home=home, cwd=tmp_path).returncode == 0
        assert shell('"$@"', "bundle", JOB, home=home, cwd=tmp_path).returncode == 0
    names = ["report-run-7-2.html", "report-run-7.html", "run-7-2.tar.gz", "run-7.tar.gz"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_an_export_that_fails_leaves_no_empty_folders(home: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    done = shell(
        'ulimit -f 0; trap "" XFSZ; "$@"', "export", JOB, "-o", "there/new/set", home=home, cwd=tmp_path
    )
    assert done.returncode == 1
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "there"]


def test_a_bundle_into_a_full_device_says_that_it_is_full(home: Path, tmp_path: Path) -> None:
    done = shell('"$@"', "bundle", JOB, "-o", "/dev/full", home=home, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(b"No space left on device")


@pytest.mark.parametrize(
    "words", [one for one in ANSWERS if one[-1] != "-" and one[0] != "completion"], ids=" ".join
)
def test_a_full_disk_is_status_1_and_a_line(home: Path, tmp_path: Path, words: Sequence[str]) -> None:
    done = shell('"$@" > /dev/full', *words, home=home, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(b"the answer cannot be written: No space left on device")
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("verb", NO_TORCH)
def test_a_wrong_flag_is_one_line_that_says_where_help_is(verb: str, home: Path, tmp_path: Path) -> None:
    done = shell('"$@"', verb, "--no-such-flag", home=home, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"diag {verb}: ")
    assert f"diag {verb} --help" in line


SLOW: Final[list[tuple[str, ...]]] = [
    ("jobs",),
    ("bundle", JOB, "-o", "x.tar.gz"),
    ("history", JOB),
    ("prune", "--max-size", "1G"),
    ("report", JOB, "-o", "x.html"),
    ("analyze", JOB),
]


@pytest.mark.parametrize("words", SLOW, ids=" ".join)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle_leaves_nothing_half_done(
    tmp_path: Path, words: Sequence[str], number: int, status: int
) -> None:
    """The verb is held in the middle by a FIFO in the place of a file that it wants to read."""
    from rankscope.diag.store.job import job_folder

    folder = job_folder(JOB, tmp_path / "home")
    a_job_file(folder)
    a_log().agent().launch().write(folder)
    an_incident(folder, "1")
    work = tmp_path / "work"
    work.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HELD, *words],
        env=environment(tmp_path / "home"),
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"in the middle\n"
        held.send_signal(number)
        out, err = held.communicate(timeout=DEADLINE)
    assert held.returncode == status
    assert (out, err) == (b"", b"")
    assert list(work.iterdir()) == []


HELD: Final = """
import sys, threading
from rankscope.diag.store import files
real = files.read_regular
def held(path, **limits):
    if str(path).endswith(("events.jsonl", "diagnosis.json")):
        print("in the middle", flush=True)
        threading.Event().wait(60)
    return real(path, **limits)
files.read_regular = held
from rankscope.diag.main import main
sys.exit(main())
"""


AT_ONCE: Final = """
import sys
from rankscope.diag import waiting_bar
waiting_bar._PATIENCE = 0
from rankscope.diag.main import main
sys.exit(main())
"""


def test_long_work_shows_a_bar_on_a_terminal_and_none_in_a_pipe(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / "jobs" / f"job-{number}" / "nodes").mkdir(parents=True)
    of_ours = {"RANKSCOPE_HOME": str(tmp_path)}
    with on_terminal("jobs", environ=of_ours, columns=200, lines=50, main=AT_ONCE, strict=False) as shown:
        assert shown.end() == 0
        assert b"reading jobs" in shown.screen.received
    done = shell('"$@"', "jobs", home=tmp_path, cwd=tmp_path)
    assert done.stderr == b""
    assert len(done.stdout.splitlines()) == 21


def test_many_jobs_are_listed_quickly(tmp_path: Path) -> None:
    """No absolute time as a mark: compared with reading the same files and nothing more."""
    from rankscope.diag.store.job import job_folder

    first = job_folder("job-0", tmp_path)
    a_job_file(first, ended=50.0, result="succeeded")
    a_log().agent().launch().fails(2).restart_begins().restart_done().launch(2).ends().write(first)
    an_incident(first, "20261129T164000Z-0fb3f9c")
    for number in range(1, 1000):
        shutil.copytree(first.path, tmp_path / "jobs" / f"job-{number}")
    begin = time.process_time()
    for path in (tmp_path / "jobs").rglob("*"):
        if path.is_file():
            path.read_bytes()
    plain = time.process_time() - begin
    done = subprocess.run(
        [sys.executable, "-c", TIMED, "jobs", "--json"],
        env=environment(tmp_path),
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 1000
    assert json.loads(lines[0])["restarts"] == 1
    assert float(done.stderr) < 10 * plain + 1


TIMED: Final = """
import sys, time
from rankscope.diag.main import main
code = main()
print(time.process_time(), file=sys.stderr)
sys.exit(code)
"""
