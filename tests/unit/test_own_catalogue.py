"""A catalogue of the user's own: where it is found, what a mistake costs, and what it does to a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.classify_factory import a_job, a_rank, judge, torch_frame, user

from rankscope.diag.commands import analyze
from rankscope.diag.errors import UsageError
from rankscope.diag.model import Frame, JobSnapshot
from rankscope.diag.own_catalogue import found_catalogue, named_catalogue, user_code_paths
from rankscope.diag.store.files import make_folders
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import job_folder

SYNC = torch_frame("sync_grads", "acme/comm.py")
RIGHT = '[[frames]]\nlabel = "collective"\nfiles = ["acme/comm.py"]\nfunctions = ["sync_*"]\n'
WRONG = '[[frames]]\nlabel = "colective"\nfunctions = ["f"]\n'
PACKAGE = "/opt/venv/lib/python3.11/site-packages/acme"

Answer = dict[str, Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.setenv("RANKSCOPE_HOME", str(path))
    return path


def dump(folder: Path, rank: int, *frames: str) -> None:
    """A py-spy dump of one rank's main thread, leaf first."""
    pid = 100 + rank
    lines = [f"Process {pid}: python train.py", "Python v3.11.7 (/usr/bin/python3.11)", ""]
    lines += [f'Thread {pid} (idle): "MainThread"', *(f"    {frame}" for frame in frames)]
    lines += ["    <module> (/srv/train.py:30)"]
    folder.mkdir(exist_ok=True)
    (folder / f"rank{rank}.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Two ranks in a library of the user's own that nobody knows, a third saves a checkpoint of it."""
    folder = tmp_path / "dumps"
    inside = f"{PACKAGE}/comm.py"
    for rank in (0, 1):
        dump(folder, rank, f"sync_grads ({inside}:3)", "train_step (/srv/train.py:11)")
    dump(folder, 2, f"write_shard ({PACKAGE}/ckpt.py:8)", "train_step (/srv/train.py:14)")
    return folder


def stored_incident(job: str, before: JobSnapshot, after: JobSnapshot) -> IncidentFolder:
    """What an agent leaves of a hang: looks, and the diagnosis of then."""
    incident = IncidentFolder(job_folder(job).incidents / "20261129T164000Z-3f9c")
    make_folders(incident.path)
    incident.write_snapshot("a", before)
    incident.write_snapshot("b", after)
    incident.write_diagnosis(judge(before, after))
    return incident


@pytest.fixture
def answered(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    def ask(*words: str) -> Answer:
        analyze.main([*words, "--json"])
        return dict(json.loads(capsys.readouterr().out))

    return ask


def test_a_file_in_the_store_s_root_counts_for_every_job(home: Path) -> None:
    (home / "catalogue.toml").write_text(RIGHT)
    assert found_catalogue(say=pytest.fail).label(SYNC) == "collective"


def test_a_job_s_own_file_is_asked_before_the_one_for_all_jobs(home: Path, tmp_path: Path) -> None:
    (home / "catalogue.toml").write_text(RIGHT)
    (tmp_path / "catalogue.toml").write_text(RIGHT.replace("collective", "checkpoint"))
    assert found_catalogue(tmp_path, say=pytest.fail).label(SYNC) == "checkpoint"


def test_without_a_file_the_catalogue_is_the_packaged_one() -> None:
    assert found_catalogue(say=pytest.fail).label(SYNC) is None


def test_a_mistake_in_a_found_file_costs_its_entry_and_one_line(home: Path) -> None:
    (home / "catalogue.toml").write_text(WRONG + RIGHT)
    said: list[str] = []
    assert found_catalogue(say=said.append).label(SYNC) == "collective"
    path = home / "catalogue.toml"
    assert said == [f"{path}:2: there is no label 'colective'; did you mean collective? (left out)"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"# caf\xe9\n", ":1: no UTF-8; save the file as UTF-8"),
        (b"#" * (1 << 20) + b"\n", ": larger than 1 MiB, which no catalogue is;"),
    ],
)
def test_a_found_file_that_is_no_text_is_told_and_left_out(home: Path, data: bytes, told: str) -> None:
    (home / "catalogue.toml").write_bytes(data)
    said: list[str] = []
    found_catalogue(say=said.append)
    assert len(said) == 1
    assert said[0].startswith(f"{home / 'catalogue.toml'}{told}")


def test_a_folder_or_a_pipe_of_that_name_is_no_catalogue_and_holds_nobody(home: Path) -> None:
    (home / "catalogue.toml").mkdir()
    found_catalogue(say=pytest.fail)


def test_a_byte_order_mark_and_dos_line_ends_are_no_mistakes(home: Path) -> None:
    (home / "catalogue.toml").write_bytes(b"\xef\xbb\xbf" + RIGHT.replace("\n", "\r\n").encode())
    assert found_catalogue(say=pytest.fail).label(SYNC) == "collective"


@pytest.mark.parametrize(("name", "told"), [("none.toml", "does not exist"), (".", "is no file")])
def test_a_named_file_that_cannot_be_read_is_an_error(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        named_catalogue(tmp_path / name)


def test_all_mistakes_of_a_named_file_are_told_at_once(tmp_path: Path, dumps: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(WRONG + WRONG)
    with pytest.raises(UsageError) as caught:
        analyze.main([str(dumps), "--catalogue", str(file)])
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == ["2", "5"]


def test_a_named_catalogue_turns_ranks_at_work_into_ranks_that_wait(
    tmp_path: Path, dumps: Path, answered: Callable[..., Answer]
) -> None:
    assert answered(str(dumps))["culprits"] == []
    file = tmp_path / "mine.toml"
    file.write_text(RIGHT)
    found = answered(str(dumps), "--catalogue", str(file))
    assert (found["culprits"], found["rule"]) == ([2], "8")
    assert found["location"]["function"] == "train_step"


def test_the_culprit_s_line_is_looked_for_in_installed_code_that_is_the_user_s_own(
    tmp_path: Path, dumps: Path, answered: Callable[..., Answer]
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(RIGHT)
    found = answered(str(dumps), "--catalogue", str(file), "--user-code", PACKAGE)
    place = found["location"]
    assert (place["function"], place["file"], place["line"]) == ("write_shard", f"{PACKAGE}/ckpt.py", 8)


def test_a_user_table_in_a_file_does_the_same_for_every_look(
    home: Path, dumps: Path, answered: Callable[..., Answer]
) -> None:
    (home / "catalogue.toml").write_text(RIGHT + f'[user]\npaths = ["{PACKAGE}/*"]\n')
    assert answered(str(dumps))["location"]["function"] == "write_shard"


def test_what_the_catalogue_did_not_know_is_in_the_answer_for_machines_and_people(
    dumps: Path, answered: Callable[..., Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = answered(str(dumps))["unknown_frames"]
    assert [(one["function"], one["file"], one["count"], one["ranks"]) for one in unknown] == [
        ("sync_grads", "acme/comm.py", 2, "0-1"),
        ("write_shard", "acme/ckpt.py", 1, "2"),
    ]
    analyze.main([str(dumps)])
    assert "acme/comm.py" not in capsys.readouterr().out.partition("that the catalogue does not know")[2]
    analyze.main([str(dumps), "--full"])
    told = capsys.readouterr().out.partition("frames that the catalogue does not know")[2]
    assert "count 2  ranks 0-1: sync_grads (acme/comm.py)" in told


def test_a_stored_incident_is_judged_anew_with_a_catalogue(
    tmp_path: Path, answered: Callable[..., Answer]
) -> None:
    waiting = [a_rank(rank).stuck_in(SYNC, user("train_step", 11)) for rank in (0, 1)]
    stuck = a_rank(2).stuck_in(user("pack", 14))
    before, after = (a_job(*waiting, stuck, seconds=seconds) for seconds in (0.0, 4.0))
    incident = stored_incident("run-7", before, after)
    file = tmp_path / "mine.toml"
    file.write_text(RIGHT)
    assert answered("run-7")["culprits"] == []
    assert answered("run-7", "--catalogue", str(file))["culprits"] == [2]
    assert answered(str(incident.path), "--catalogue", str(file))["culprits"] == [2]
    (job_folder("run-7").path / "catalogue.toml").write_text(RIGHT)
    assert answered("run-7", "--user-code", PACKAGE)["culprits"] == [2]


def test_a_path_is_known_as_it_was_given_whole_and_behind_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    assert user_code_paths(["linked"]) == ["linked", str(tmp_path / "linked"), str(tmp_path / "real")]
    catalogue = found_catalogue(say=pytest.fail).with_user_code(["torch"])
    assert catalogue.is_user_code(Frame("f", "torch/mine.py", 1))
