"""Notices to commands: what they get, and how they are ended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.health_factory import eventually
from tests.notices_factory import (
    PATIENT,
    QUICK,
    SECRET,
    a_script,
    an_event,
    is_alive,
    noted,
    read,
    sending,
    settings,
)


def test_a_command_gets_the_event_on_its_standard_input_and_almost_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/of-the-user")
    monkeypatch.setenv("API_TOKEN", SECRET)
    script = a_script(tmp_path / "tell", f'cat > {tmp_path}/event; env > {tmp_path}/env; pwd > "$1"')
    with sending(settings(command=f"{script} {tmp_path}/args"), limits=PATIENT) as sent:
        sent.offer(an_event(1))
        eventually((tmp_path / "args").exists, "the command runs")
        sent.all_arrive()
    text = (tmp_path / "event").read_text()
    assert text.endswith("}\n")
    event = json.loads(text)
    assert (event["id"], event["job"], event["specversion"]) == ("id-1", "run-7", "1.0")
    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert "HOME" in names
    assert names <= {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PWD", "SHLVL", "_"}
    assert (tmp_path / "args").read_text().strip() == str(Path.cwd())


def test_a_command_that_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    script = a_script(tmp_path / "tell", f"echo >> {tmp_path}/ran")
    long = an_event(1, "message", content="x" * 60_000)
    with sending(settings(command=script), limits=PATIENT) as sent:
        sent.offer(long, an_event(2))
        eventually(lambda: read(tmp_path / "ran") == "\n\n", "both runs are over")
        sent.all_arrive()


def test_a_command_that_fails_is_tried_again_and_its_last_words_are_kept(tmp_path: Path) -> None:
    script = a_script(tmp_path / "tell", f"echo >> {tmp_path}/ran; echo no route >&2; exit 3")
    with sending(settings(command=script), limits=replace(PATIENT, tries=2)) as sent:
        sent.offer(an_event(1))
        (failed,) = sent.fails(1)
    assert failed["target"] == "command tell"
    assert (failed["reason"], failed["output"], failed["tries"]) == ("exit code 3", "no route", 2)
    assert read(tmp_path / "ran") == "\n\n"


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = a_script(tmp_path / "tell", f'trap "" TERM\necho said\nsleep 1000 &\necho $! >> {pids}\nwait')
    with sending(settings(command=script), limits=replace(QUICK, tries=1, try_seconds=3)) as sent:
        sent.offer(an_event(1))
        child = noted(pids)
        (failed,) = sent.fails(1)
        assert failed["reason"] == "not done in 3 s"
        assert failed["output"] == "said"
        eventually(lambda: not is_alive(child), "the command's child has ended")


def test_what_a_command_leaves_running_is_ended_with_it(tmp_path: Path) -> None:
    script = a_script(tmp_path / "tell", f"sleep 1000 &\necho $! > {tmp_path}/pid")
    with sending(settings(command=script), limits=PATIENT) as sent:
        sent.offer(an_event(1))
        left = noted(tmp_path / "pid")
        eventually(lambda: not is_alive(left), "what it left has ended")
        sent.all_arrive()


def test_a_command_that_has_gone_is_not_tried_again(tmp_path: Path) -> None:
    script = a_script(tmp_path / "tell", "exit 0")
    with sending(settings(command=script), limits=PATIENT) as sent:
        Path(script).unlink()
        sent.offer(an_event(1))
        (failed,) = sent.fails(1)
    assert (failed["reason"], failed["tries"]) == ("cannot be started (exit code 127)", 1)
    assert failed["output"] == "No such file or directory"


def test_a_command_that_talks_without_end_is_ended_and_little_of_it_kept(tmp_path: Path) -> None:
    script = a_script(tmp_path / "tell", "exec yes")
    with sending(settings(command=script), limits=replace(QUICK, tries=1, try_seconds=2)) as sent:
        sent.offer(an_event(1))
        (failed,) = sent.fails(1)
    assert failed["reason"] == "not done in 2 s"
    assert 0 < len(str(failed["output"])) <= 2000


def test_a_command_that_kills_itself_is_tried_again(tmp_path: Path) -> None:
    script = a_script(tmp_path / "tell", "kill -9 $$")
    with sending(settings(command=script), limits=replace(PATIENT, tries=2)) as sent:
        sent.offer(an_event(1))
        (failed,) = sent.fails(1)
    assert (failed["reason"], failed["tries"]) == ("signal 9", 2)
