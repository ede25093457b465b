"""``diag bundle``: what is in the archive, what is not, and that it is read again with the same verdict."""

from __future__ import annotations

import getpass
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import msgspec
import pytest
import zstandard
from tests.deadline import DEADLINE
from tests.history_factory import a_job_file, a_log, an_incident
from tests.screen_of import MAIN

from rankscope.diag.bundle.unpacked import is_bundle
from rankscope.diag.model import (
    Collective,
    Connection,
    FlightRecord,
    Frame,
    FrameVariables,
    JobSnapshot,
    RankSnapshot,
    ThreadStack,
)
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder, job_folder

BAD_MEMBERS = {
    "evil": "run-7/../../../escaped",
    "strange": "run-7/link",
    "deep": "run-7/nodes/vm/agent.json/y",
}
INCIDENT = "20261129T164000Z-0fb3f9c"
SECRETS = ("t0ken-of-the-job-123", "s3cr3tvalue", "Hunter2Hunter2", "local-variable-value")
PEOPLE = ("alice", "bob-the-builder")


def diag(*words: str, home: Path, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        env={**os.environ, "RANKSCOPE_HOME": str(home), **more},
        cwd=cwd,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )


def a_rank(rank: int, function: str, line: int, node: str) -> RankSnapshot:
    frame = Frame(function, "/home/alice/train.py", line, source="login(password='Hunter2Hunter2')")
    values = (("key", "'local-variable-value'"), ("src", "2"))
    main = ThreadStack(
        100 + rank, "MainThread", (frame,), is_main=True, variables=(FrameVariables(0, values),)
    )
    record = FlightRecord(entries=(Collective("0", 3, "all_reduce", frames=(frame,)),))
    return RankSnapshot(
        rank,
        node=node,
        pid=100 + rank,
        threads=(main,),
        source="py-spy",
        record=record,
        connections=(Connection("10.1.2.3:4242", "10.1.2.4:29500"),),
    )


def a_full_job(home: Path, run_id: str = "run-7") -> JobFolder:
    """A job with everything that must not leave."""
    folder = job_folder(run_id, home)
    a_job_file(folder, ended=50.0, result="failed")
    job = json.loads(folder.job_file.read_text())
    job["command"] = ["/home/alice/train.py", "--api-key", "s3cr3tvalue", "--store=https://u:s3cr3tvalue@h/x"]
    folder.job_file.write_text(json.dumps(job))
    log = (
        a_log("gpu-node-17")
        .agent(command=job["command"])
        .launch()
        .event("message", {"content": "alice says password=s3cr3tvalue on gpu-node-17"})
    )
    path = log.ends(1, "failed").write(folder)
    path.write_bytes(path.read_bytes() + b'{"id": "torn", "data": {"content": "token=s3cr3tval')
    an_incident(folder, INCIDENT)
    ranks = (a_rank(0, "all_reduce", 10, "gpu-node-17"), a_rank(1, "load_batch", 8, "gpu-node-17"))
    for which, at in (("a", 1.0), ("b", 5.0)):
        IncidentFolder(folder.incidents / INCIDENT).write_snapshot(which, JobSnapshot(run_id, at, 2, ranks))
    logs = folder.node("gpu-node-17") / "logs" / "attempt_0" / "0"
    logs.mkdir(parents=True)
    (logs / "stdout.log").write_text(
        "x" * 100_000 + "\nMY_SETTING=s3cr3tvalue\nloss 0.3 by bob-the-builder\n"
    )
    said = ["Bearer s3cr3tvalue from /home/bob-the-builder/x.py", "MY_SETTING=s3cr3tvalue", "see"]
    said.append(json.dumps({"token": "s3cr3tvalue", "url": "https://bob:s3cr@tvalue@host/p"}))
    (logs / "error.json").write_text(
        json.dumps({"message": dict(zip(("message", "a", "b", "c"), said, strict=True))})
    )
    (folder.path / "token").write_text("t0ken-of-the-job-123")
    (folder.path / "notes.txt").write_text("s3cr3tvalue")
    (folder.path / "link").symlink_to("/etc/passwd")
    (folder.node("gpu-node-17") / ".lock").touch()
    return folder


def content_of(data: bytes) -> dict[str, bytes]:
    """The files of an archive by name, unpacked."""
    if data[:4] == b"\x28\xb5\x2f\xfd":
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name.endswith(".zst"):
                content = zstandard.ZstdDecompressor().decompress(content)
            found[member.name] = content
    return found


@pytest.mark.parametrize("end", ["tar.gz", "tar.zst"])
def test_nothing_that_must_not_leave_is_in_it(tmp_path: Path, end: str) -> None:
    a_full_job(tmp_path / "home")
    target = tmp_path / f"ticket.{end}"
    done = diag("bundle", "run-7", "-o", str(target), home=tmp_path / "home")
    assert done.returncode == 0, done.stderr
    files = content_of(target.read_bytes())
    everything = b"\n".join((*files.values(), *(name.encode() for name in files), done.stdout, done.stderr))
    for word in (*SECRETS, *PEOPLE, "gpu-node-17", "10.1.2.3", "10.1.2.4", "s3cr3tval", "root:x:"):
        assert word.encode() not in everything, word
    assert next(iter(files)) == "run-7/MANIFEST.json"
    manifest = json.loads(files["run-7/MANIFEST.json"])
    assert [f"run-7/{file['name']}" for file in manifest["files"]] == list(files)[1:]
    assert {one["name"]: one["reason"] for one in manifest["left_out"]} == {
        "link": "a link, or no file",
        "notes.txt": "no file of Rankscope's",
        "token": "it is a key: never in a bundle",
    }
    assert set(manifest["removed"]) == {"environment", "hosts", "local variables", "secrets", "users"}
    log = next(file for file in manifest["files"] if file["name"].endswith("stdout.log"))
    assert log["note"].startswith("the last ")
    assert files["run-7/" + log["name"]].decode().splitlines()[-1] == "loss 0.3 by user-2"


def test_it_is_listed_before_it_is_written_and_the_same_job_gives_the_same_bytes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    a_full_job(home)
    first, second = tmp_path / "1.tar.gz", tmp_path / "2.tar.gz"
    dry = diag("bundle", "run-7", "--dry-run", home=home, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]
    for target in (first, second):
        assert diag("bundle", "run-7", "-o", str(target), home=home).stdout == dry.stdout
    assert first.read_bytes() == second.read_bytes()
    lines = dry.stdout.decode().splitlines()
    assert any(line.endswith("job.json  (removed: secrets 2, users 1)") for line in lines)
    assert any(line.strip().startswith("left out  token") for line in lines)


def test_hosts_stay_and_logs_do_not_when_that_is_asked_for(tmp_path: Path) -> None:
    a_full_job(tmp_path / "home")
    done = diag("bundle", "run-7", "--keep-hosts", "--no-logs", "-o", "-", home=tmp_path / "home")
    files = content_of(done.stdout)
    assert "run-7/nodes/gpu-node-17/agent.json" in files
    assert not [name for name in files if "/logs/" in name]
    snapshot = files[f"run-7/incidents/{INCIDENT}/snapshot-a.json.zst"]
    assert b"10.1.2.3:4242" in snapshot
    assert b"alice" not in snapshot
    assert b"left out  nodes/gpu-node-17/logs/attempt_0/0/stdout.log: --no-logs" in done.stderr


@pytest.mark.parametrize("words", [(), ("--user-code", "/nowhere")], ids=["as stored", "judged anew"])
def test_analyze_reads_it_again_with_the_same_verdict(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    a_full_job(home)
    assert diag("bundle", "run-7", home=home, cwd=tmp_path).returncode == 0
    of_job = diag("analyze", "run-7", "--json", *words, home=home)
    # Where it is read, the job itself is not known.
    of_bundle = diag("analyze", "run-7.tar.gz", "--json", *words, home=tmp_path / "other", cwd=tmp_path)
    assert of_bundle.returncode == of_job.returncode, of_bundle.stderr
    stored, read = json.loads(of_job.stdout), json.loads(of_bundle.stdout)
    for name in ("verdict", "kind", "severity", "confidence", "culprits", "rule", "world_size", "observed"):
        assert read[name] == stored[name]
    history = diag("history", "run-7.tar.gz", "--json", home=tmp_path / "other", cwd=tmp_path)
    assert json.loads(history.stdout)["result"] == "failed"
    assert list(temporary.iterdir()) == []


def test_a_bundle_of_a_job_that_runs_here_is_read_as_it_was_stored(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = a_full_job(home)
    agent = folder.node("gpu-node-17") / "agent.json"
    told = json.loads(agent.read_text())
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    told |= {"pid": os.getpid(), "start_ticks": ticks}
    told["workers"] = [{"rank": 0, "local_rank": 0, "pid": os.getpid(), "start_ticks": ticks}]
    agent.write_text(json.dumps(told))
    assert diag("bundle", "run-7", home=home, cwd=tmp_path).returncode == 0
    done = diag("analyze", "run-7.tar.gz", "--json", home=home, cwd=tmp_path)
    assert json.loads(done.stdout)["incident"] == INCIDENT


def test_what_cannot_be_read_is_said_and_half_a_job_is_bundled(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = a_full_job(home)
    (folder.incidents / INCIDENT / "snapshot-b.json.zst").write_bytes(b"torn")
    folder.job_file.write_text('{"run_id": "run-7", "command": ["--token=s3cr3tval')
    done = diag("bundle", "run-7", "-o", "-", home=home)
    files = content_of(done.stdout)
    assert b"snapshot-b.json.zst: cannot be unpacked, and so not redacted" in done.stderr
    assert b"s3cr3tval" not in files["run-7/job.json"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("bundle", "no-such-job"), "no such job"),
        (("bundle", "run-7", "-o", "x.zip"), "ends in .tar.gz or .tar.zst"),
        (("bundle", "run-7", "-o", "nowhere/x.tar.gz"), "there is no folder nowhere"),
    ],
)
def test_a_wrong_command_line_is_one_line(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    a_full_job(tmp_path / "home")
    done = diag(*words, home=tmp_path / "home", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert says in line


@pytest.mark.parametrize("end", ["cut", "evil", "strange", "deep"])
def test_a_damaged_or_dishonest_archive_is_one_line(tmp_path: Path, end: str) -> None:
    home = tmp_path / "home"
    a_full_job(home)
    path = tmp_path / "run-7.tar.gz"
    diag("bundle", "run-7", home=home, cwd=tmp_path)
    if end == "cut":
        path.write_bytes(path.read_bytes()[:-200])
    else:
        manifest = content_of(path.read_bytes())["run-7/MANIFEST.json"]
        with tarfile.open(path, "w:gz") as tar:
            first = tarfile.TarInfo("run-7/MANIFEST.json")
            first.size = len(manifest)
            tar.addfile(first, io.BytesIO(manifest))
            bad = tarfile.TarInfo(BAD_MEMBERS[end])
            bad.type = tarfile.SYMTYPE if end == "strange" else tarfile.REGTYPE
            bad.linkname = "/etc/passwd"
            tar.addfile(bad, io.BytesIO())
    done = diag("analyze", str(path), home=home)
    assert done.returncode == 2
    assert b"the bundle is damaged" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("**/escaped"))


def test_a_job_whose_name_is_no_text_is_bundled_and_read_again(tmp_path: Path) -> None:
    folder = a_full_job(tmp_path / "home").path
    odd = folder.rename(tmp_path / os.fsdecode(b"run-\xff"))
    (odd / "job.json").write_text("torn")
    done = diag("bundle", str(odd), "-o", "ticket.tar.gz", home=tmp_path / "home", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = json.loads(next(iter(content_of((tmp_path / "ticket.tar.gz").read_bytes()).values())))
    assert manifest["job"] == "run-\\udcff"
    again = diag("analyze", "ticket.tar.gz", "--json", home=tmp_path / "other", cwd=tmp_path)
    assert json.loads(again.stdout)["incident"] == INCIDENT


def test_a_manifest_that_never_ends_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "run-7.tar.gz"
    for size, is_one in ((1 << 10, True), (65 << 20, False)):
        manifest = b'{"format": "rankscope-bundle"}'.rjust(size)
        with tarfile.open(path, "w:gz", compresslevel=1) as tar:
            first = tarfile.TarInfo("run-7/MANIFEST.json")
            first.size = size
            tar.addfile(first, io.BytesIO(manifest))
        assert is_bundle(str(path)) == is_one


def test_what_ci_tells_of_this_user_and_host_is_in_no_bundle(tmp_path: Path) -> None:
    folder = a_full_job(tmp_path / "home")
    log = folder.node("gpu-node-17") / "logs" / "attempt_0" / "0" / "stdout.log"
    key = "cafe-babe-0123-4567"
    log.write_text(f"on {socket.gethostname()} as {getpass.getuser()} with {key}\n")
    done = diag("bundle", "run-7", "-o", "-", home=tmp_path / "home", MY_SERVICE_TOKEN=key)
    text = content_of(done.stdout)["run-7/nodes/node-1/logs/attempt_0/0/stdout.log"]
    assert key.encode() not in text
    assert socket.gethostname().encode() not in text
    assert msgspec.json.decode(content_of(done.stdout)["run-7/job.json"])["run_id"] == "run-7"
