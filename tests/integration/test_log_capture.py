"""Log capture with real agents, workers, disks and consoles, most of them in trouble."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.logs_factory import DEADLINE, Agent, an_agent, is_alive, read_all, until
from tests.standing import stand_still

from rankscope.agent.logs.stream import Limits

MIB = 1 << 20
# Forty lines a write, fewer than PIPE_BUF bytes: each write is whole in the pipe or not there at all.
LINES = """
import os
for i in range(0, {n}, 40):
    os.write(1, b''.join(b'{r} %09d %s\\n' % (j, b'x' * 87) for j in range(i, i + 40)))
"""
JUNK = """
import os, random
random.seed(1)
os.write(1, random.randbytes(300_000))
for i in range(101): os.write(1, b'\\r%3d%%|' % i)
os.write(1, b'\\nno newline at the end \\xff\\x00')
os.write(2, b'error \\xc3')
"""
FLOOD = "import os\nfor i in range({n}): os.write(1, b'%09d\\n' % i * 100)"


def lines(rank: int, n: int) -> bytes:
    return b"".join(b"%d %09d " % (rank, i) + b"x" * 87 + b"\n" for i in range(n))


def first_difference(found: bytes, expected: bytes) -> tuple[int, bytes, bytes] | None:
    """Where two outputs part, and what each has around there; pytest would compare 25 MiB for minutes."""
    if found == expected:
        return None
    at = next(
        (i for i, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other),
        min(len(found), len(expected)),
    )
    around = slice(max(0, at - 200), at + 200)
    return at, found[around], expected[around]


def flood(n: int) -> bytes:
    return b"".join(b"%09d\n" % i * 100 for i in range(n))


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        with suppress(OSError):
            os.close(fd)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 64 KiB, or, where none can be mounted, one whose log is /dev/full."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "rankscope-test", str(folder)]
    mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    if not mounted:
        (folder / "0-stdout.log").symlink_to("/dev/full")
    yield folder
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_every_byte_reaches_file_and_console_untouched(tmp_path: Path) -> None:
    expected = subprocess.run(["python3", "-c", JUNK], capture_output=True, check=True)
    with an_agent(tmp_path, [JUNK], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:
        out, err = agent.process.communicate(timeout=DEADLINE)
        assert agent.report("codes") == [0]
        finished = agent.report("finished")
    assert out == expected.stdout
    assert err == expected.stderr
    assert agent.file(0).read_bytes() == expected.stdout
    assert agent.file(0, "stderr").read_bytes() == expected.stderr
    del finished["sizes"]
    assert finished == {
        "unshown": 0,
        "unfiled": 0,
        "process_ended": True,
        "left": None,
    }
    assert agent.events == []


def test_fifty_megabytes_of_two_ranks_arrive_complete_and_with_whole_lines(tmp_path: Path) -> None:
    n = 250_000
    workers = [LINES.format(n=n, r=rank) for rank in range(2)]
    # A worker that the host keeps waiting in the middle of a line is waited for, so that none is torn.
    limits = Limits(hold=DEADLINE)
    with an_agent(tmp_path, workers, stdout=subprocess.PIPE, limits=limits) as agent:
        out, _ = agent.process.communicate(timeout=120)
        assert agent.report("codes") == [0, 0]
    shown = out.splitlines(keepends=True)
    for rank in range(2):
        assert first_difference(agent.file(rank).read_bytes(), lines(rank, n)) is None
        of_rank = b"".join(line for line in shown if line.startswith(b"%d " % rank))
        assert first_difference(of_rank, lines(rank, n)) is None
    assert len(out) == 2 * len(lines(0, n))


def test_one_place_for_both_streams_keeps_the_order_in_which_a_worker_wrote(tmp_path: Path) -> None:
    source = "import os\nfor i in range(20_000): os.write(1 + i % 2, b'%09d\\n' % i)"
    out = tmp_path / "console"
    with (
        out.open("wb") as console,
        an_agent(tmp_path, [source], stdout=console.fileno(), stderr=subprocess.STDOUT) as agent,
    ):
        assert agent.process.wait(DEADLINE) == 0
        sizes = agent.report("finished")["sizes"]
    expected = b"".join(b"%09d\n" % i for i in range(20_000))
    assert out.read_bytes() == expected
    assert agent.file(0).read_bytes() == expected
    assert not agent.file(0, "stderr").exists()
    assert sizes == {"0-stdout": len(expected)}


def test_two_places_for_the_streams_get_a_file_each(tmp_path: Path) -> None:
    source = "import os\nos.write(1, b'out\\n')\nos.write(2, b'err\\n')"
    with an_agent(tmp_path, [source], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:
        assert agent.process.communicate(timeout=DEADLINE) == (b"out\n", b"err\n")
        assert agent.report("finished")["sizes"] == {"0-stdout": 4, "0-stderr": 4}
    assert (agent.file(0).read_bytes(), agent.file(0, "stderr").read_bytes()) == (b"out\n", b"err\n")


def test_a_full_disk_loses_the_file_but_neither_worker_nor_console(full_disk: Path) -> None:
    with an_agent(full_disk, [LINES.format(n=30_000, r=0)], stdout=subprocess.PIPE) as agent:
        out, _ = agent.process.communicate(timeout=DEADLINE)
        assert agent.report("codes") == [0]
        agent.report("finished")
        assert first_difference(out, lines(0, 30_000)) is None
        assert [
            event for event in agent.events if "0-stdout.log is no longer written" in event
        ] == agent.events
        assert len(agent.events) == 1
        if agent.file(0).is_file():
            kept = agent.file(0).read_bytes()
            assert kept == out[: len(kept)]


def test_a_folder_that_is_gone_loses_the_file_only(tmp_path: Path) -> None:
    (tmp_path / "0-stdout.log").mkdir()
    with an_agent(tmp_path, ["print('hello')"], stdout=subprocess.PIPE) as agent:
        out, _ = agent.process.communicate(timeout=DEADLINE)
        agent.report("finished")
    assert out == b"hello\n"
    assert len(agent.events) == 1


def test_a_file_system_that_does_not_answer_holds_a_worker_for_the_stall_time_only(tmp_path: Path) -> None:
    # A pipe that nobody reads takes 64 KiB and then blocks its writer, as a lost share does.
    os.mkfifo(tmp_path / "0-stdout.log")
    limits = Limits(memory_bytes=8 * MIB, stall=0.3)
    with an_agent(tmp_path, [FLOOD.format(n=20_000)], stdout=subprocess.PIPE, limits=limits) as agent:
        out, _ = agent.process.communicate(timeout=DEADLINE)
        assert agent.report("codes") == [0]
        agent.report("finished")
    notes = re.findall(rb"\[rankscope: (\d+) bytes of output not shown, not kept, .*\]\n", out)
    shown = re.sub(rb"\[rankscope: .*\]\n", b"", out)
    assert len(shown) + sum(map(int, notes)) == len(flood(20_000))
    assert any("no answer from its file system" in event for event in agent.events)


def test_a_blocked_console_that_recovers_shows_everything(tmp_path: Path, pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    with an_agent(tmp_path, [FLOOD.format(n=20_000)], stdout=writing) as agent:
        os.close(writing)
        assert agent.report("codes") == [0]
        until(lambda: agent.file(0).stat().st_size == len(flood(20_000)), "the file while nobody reads")
        assert first_difference(read_all(reading), flood(20_000)) is None
        assert agent.report("finished")["unshown"] == 0


def test_a_console_that_lags_too_far_says_how_much_it_misses(tmp_path: Path, pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    limits = Limits(kept_bytes=MIB, backlog_bytes=4 * MIB)
    with an_agent(tmp_path, [FLOOD.format(n=20_000)], stdout=writing, limits=limits) as agent:
        os.close(writing)
        assert agent.report("codes") == [0]
        until(lambda: agent.file(0).stat().st_size == len(flood(20_000)), "the file while nobody reads")
        out = read_all(reading)
    note = re.search(rb"\[rankscope: (\d+) bytes of output not shown, complete in (.*)\]\n", out)
    assert note
    assert Path(note[2].decode()) == agent.file(0)
    assert len(re.findall(rb"\[rankscope", out)) == 1
    expected, missing = flood(20_000), int(note[1])
    shown = len(out) - len(note[0])
    assert shown + missing == len(expected)
    assert out[note.end() :] == expected[-(len(out) - note.end()) :]
    assert expected.startswith(out[: note.start()])


def test_a_console_that_stays_blocked_does_not_hold_the_end(tmp_path: Path, pipe: tuple[int, int]) -> None:
    _, writing = pipe
    limits = Limits(linger=0.2, console_idle=0.5)
    with an_agent(tmp_path, [FLOOD.format(n=3_000)], stdout=writing, limits=limits, finish=1.0) as agent:
        assert agent.report("codes") == [0]
        finished = agent.report("finished")
        assert agent.process.wait(DEADLINE) == 0
        assert finished["unshown"] > 0
        assert finished["unfiled"] == 0
        assert first_difference(agent.file(0).read_bytes(), flood(3_000)) is None
        assert any(
            f"the console took nothing for 0.5 s; {finished['unshown']} bytes not shown" in event
            for event in agent.events
        )
        drain = _drain_of(tmp_path)
        until(lambda: not is_alive(drain), "the drain's end")


def test_a_slow_console_gets_everything_however_long_it_takes(tmp_path: Path, pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    limits = Limits(kept_bytes=MIB, console_idle=2.0)
    # Far more than one page, and far more than may stay in memory.
    with an_agent(tmp_path, [FLOOD.format(n=6_000)], stdout=writing, limits=limits, finish=0.2) as agent:
        os.close(writing)
        agent.report("finishing")
        out = b""
        for _ in range(6):
            # Slower than both the time to finish and the time that it may take nothing, all in all.
            later = time.monotonic() + 0.4
            until(partial(_is_past, later), "the slow reader")
            out += os.read(reading, 4096)
        out += read_all(reading)
        finished = agent.report("finished")
    assert first_difference(out, flood(6_000)) is None
    assert (finished["unshown"], finished["unfiled"], finished["process_ended"]) == (0, 0, True)
    assert agent.events == []


def test_a_signal_ends_the_wait_for_a_console(tmp_path: Path, pipe: tuple[int, int]) -> None:
    _, writing = pipe
    limits = Limits(linger=0.2)
    with an_agent(tmp_path, [FLOOD.format(n=3_000)], stdout=writing, limits=limits) as agent:
        drain = _drain_of(tmp_path)
        agent.report("finishing")
        until(lambda: _size(agent) == len(flood(3_000)), "the file")
        agent.process.send_signal(signal.SIGINT)
        assert agent.report("interrupted") is None
        assert agent.process.wait(DEADLINE) == 0
        until(lambda: not is_alive(drain), "the drain's end")
    assert [event for event in agent.events if event.startswith("interrupted")] == agent.events
    assert len(agent.events) == 1


def test_a_drain_that_is_stopped_for_good_does_not_hold_the_end(tmp_path: Path) -> None:
    worker, go = _steered(tmp_path)
    limits = Limits(stuck=1.0)
    with an_agent(tmp_path, [worker], stdout=subprocess.PIPE, limits=limits, finish=0.2) as agent:
        drain = _drain_of(tmp_path)
        with go.open("w"):
            stand_still(drain)
        finished = agent.report("finished")
        assert agent.process.wait(DEADLINE) == 0
        os.kill(drain, signal.SIGCONT)
    assert finished["unshown"] is None
    assert any("did not finish in time" in event for event in agent.events)


def test_a_console_whose_reader_has_gone_leaves_the_files_whole(
    tmp_path: Path, pipe: tuple[int, int]
) -> None:
    reading, writing = pipe
    os.close(reading)
    with an_agent(tmp_path, [FLOOD.format(n=3_000)], stdout=writing) as agent:
        assert agent.report("codes") == [0]
        agent.report("finished")
        assert first_difference(agent.file(0).read_bytes(), flood(3_000)) is None
        assert any("no longer shown" in event for event in agent.events)


def test_a_stopped_agent_does_not_hold_its_workers(tmp_path: Path) -> None:
    source = "input_ = open({go!r}).read()\n" + FLOOD.format(n=5_000) + "\nopen({done!r}, 'w')"
    go, done = tmp_path / "go", tmp_path / "done"
    os.mkfifo(go)
    worker = source.format(go=str(go), done=str(done)).replace("{n}", "5000")
    out = tmp_path / "console"
    with out.open("wb") as console, an_agent(tmp_path, [worker], stdout=console.fileno()) as agent:
        stand_still(agent.process.pid)
        go.write_text("go")
        until(done.exists, "the worker's end while the agent is stopped")
        until(lambda: out.stat().st_size == len(flood(5_000)), "the console while the agent is stopped")
        os.kill(agent.process.pid, signal.SIGCONT)
        assert agent.report("codes") == [0]
        agent.report("finished")
    assert first_difference(out.read_bytes(), flood(5_000)) is None


def _steered(folder: Path) -> tuple[str, Path]:
    """A worker that prints each line it reads from a pipe, and ends with the pipe."""
    go = folder / "go"
    os.mkfifo(go)
    return f"for line in open({str(go)!r}): print('said', line, end='', flush=True)", go


def test_a_killed_drain_is_replaced_and_the_worker_goes_on(tmp_path: Path) -> None:
    worker, go = _steered(tmp_path)
    out = tmp_path / "console"
    with out.open("wb") as console, an_agent(tmp_path, [worker], stdout=console.fileno()) as agent:
        with go.open("w", buffering=1) as steering:
            steering.write("before\n")
            until(lambda: out.read_bytes() == b"said before\n", "output before")
            os.kill(_drain_of(tmp_path), signal.SIGKILL)
            steering.write("after\n")
            until(lambda: out.read_bytes() == b"said before\nsaid after\n", "output after")
        assert agent.report("codes") == [0]
        finished = agent.report("finished")
    assert agent.file(0).read_bytes() == b"said before\nsaid after\n"
    assert finished["sizes"]["0-stdout"] == len(b"said before\nsaid after\n")
    assert [event for event in agent.events if "started again" in event] == agent.events
    assert len(agent.events) == 1


def test_a_drain_that_stands_still_is_replaced(tmp_path: Path) -> None:
    worker, go = _steered(tmp_path)
    limits = Limits(stuck=0.3)
    with an_agent(tmp_path, [worker], stdout=subprocess.PIPE, limits=limits) as agent:
        until(lambda: _drain_of(tmp_path) > 0, "the drain")
        stand_still(_drain_of(tmp_path))
        with go.open("w", buffering=1) as steering:
            steering.write("here\n")
            until(lambda: agent.file(0).exists(), "the next drain")
        out, _ = agent.process.communicate(timeout=DEADLINE)
        agent.report("finished")
    assert out == b"said here\n"
    assert any("stood still" in event for event in agent.events)


def test_what_a_killed_drain_had_not_shown_is_shown_by_the_next(
    tmp_path: Path, pipe: tuple[int, int]
) -> None:
    reading, writing = pipe
    worker, go = _steered(tmp_path)
    worker = FLOOD.format(n=3_000) + "\n" + worker
    with an_agent(tmp_path, [worker], stdout=writing) as agent:
        os.close(writing)
        until(lambda: _size(agent) == len(flood(3_000)), "the file")
        os.kill(_drain_of(tmp_path), signal.SIGKILL)
        with go.open("w") as steering:
            steering.write("end\n")
        out = read_all(reading)
        agent.report("finished")
    # What lay in the console's pipe when the drain was killed in the middle of a write is shown twice.
    expected = flood(3_000) + b"said end\n"
    assert out.endswith(b"said end\n")
    overlap = len(out) - len(expected)
    assert 0 <= overlap <= 64 * 1024
    until_killed = next((i for i, byte in enumerate(expected) if out[i] != byte), len(expected))
    assert out[until_killed:] == expected[until_killed - overlap :]
    assert agent.file(0).read_bytes() == expected


def test_the_death_of_the_agent_does_not_reach_a_worker(tmp_path: Path) -> None:
    worker, go = _steered(tmp_path)
    out = tmp_path / "console"
    with out.open("wb") as console, an_agent(tmp_path, [worker], stdout=console.fileno()) as agent:
        drain = _drain_of(tmp_path)
        with go.open("w", buffering=1) as steering:
            agent.process.kill()
            agent.process.wait()
            for number in range(3):
                steering.write(f"{number}\n")
            until(lambda: out.read_bytes().endswith(b"said 2\n"), "output without agent")
        until(lambda: not is_alive(drain), "the drain's end after its workers'")
    assert agent.file(0).read_bytes() == b"said 0\nsaid 1\nsaid 2\n"
    assert not (tmp_path / "fifos").exists()


def test_a_grandchild_that_keeps_the_pipe_does_not_hold_the_end_and_is_still_heard(tmp_path: Path) -> None:
    child, go = _steered(tmp_path)
    worker = (
        "import subprocess, sys\nprint('worker', flush=True)\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}])"
    )
    out = tmp_path / "console"
    with out.open("wb") as console, an_agent(tmp_path, [worker], stdout=console.fileno()) as agent:
        drain = _drain_of(tmp_path)
        with go.open("w", buffering=1) as steering:
            finished = agent.report("finished")
            assert agent.process.wait(DEADLINE) == 0
            assert (finished["unshown"], finished["unfiled"]) == (0, 0)
            assert not finished["process_ended"]
            assert out.read_bytes() == b"worker\n"
            steering.write("late\n")
            until(lambda: out.read_bytes() == b"worker\nsaid late\n", "the grandchild's output")
        until(lambda: not is_alive(drain), "the drain's end")
    assert agent.events == []


def test_signals_that_end_the_agent_do_not_end_the_drain(tmp_path: Path) -> None:
    worker, go = _steered(tmp_path)
    with an_agent(tmp_path, [worker], stdout=subprocess.PIPE) as agent:
        drain = _drain_of(tmp_path)
        assert os.getsid(drain) == drain
        with go.open("w", buffering=1) as steering:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(drain, number)
            steering.write("still\n")
        out, _ = agent.process.communicate(timeout=DEADLINE)
        agent.report("finished")
    assert out == b"said still\n"
    assert agent.events == []


def _is_past(moment: float) -> bool:
    return time.monotonic() >= moment


def _size(agent: Agent) -> int:
    with suppress(FileNotFoundError):
        return agent.file(0).stat().st_size
    return 0


def _drain_of(folder: Path) -> int:
    """The drain that reads the FIFOs of this folder, 0 when there is none."""
    wanted = str(folder / "fifos")
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and (process / "comm").read_text() == "rankscope-drain\n":
                links = [os.readlink(fd) for fd in (process / "fd").iterdir()]  # noqa: PTH115 - a pipe
                if any(link.startswith(wanted) for link in links):
                    return int(process.name)
    return 0
