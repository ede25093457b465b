"""``diag doctor`` on this host, and on the same host with something really missing."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import socket
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.deadline import DEADLINE

from rankscope.diag import proc

ROOT = Path(__file__).parents[2]
DOCTOR = "import sys\nfrom rankscope.diag.commands.doctor import main\nsys.exit(main(sys.argv[1:]))"


class Answer:
    """What ``diag doctor --json`` said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.stdout, done.stderr
        self.code = done.returncode
        self.data: dict[str, Any] = json.loads(done.stdout)
        self.findings: dict[str, dict[str, Any]] = {each["what"]: each for each in self.data["findings"]}


def doctor(
    *flags: str,
    env: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
    python: str = sys.executable,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", DOCTOR, *flags],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        env={**os.environ, "PYTHONPATH": path_of_imports(), **(env or {})},
        preexec_fn=before,
    )


def path_of_imports(*first: Path) -> str:
    rooms = (ROOT / room for room in ("diag", "agent", "watchdog"))
    return os.pathsep.join(map(str, (*first, *rooms, sysconfig.get_path("purelib"))))


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """An environment whose torch cannot be imported: its import takes most of the time here."""
    folder = tmp_path / "no-torch"
    folder.mkdir()
    (folder / "torch.py").write_text("raise ImportError('there is none')")
    return {"PYTHONPATH": path_of_imports(folder), "RANKSCOPE_HOME": str(tmp_path / "home")}


def test_a_good_host_is_found_good_and_nothing_is_left_behind(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    shared_memory = set(Path("/dev/shm").iterdir())
    answer = Answer(doctor("--json", env={"RANKSCOPE_HOME": str(home)}))
    needed = {what: each["status"] for what, each in answer.findings.items() if each["needed"]}
    assert needed == {
        "py-spy": "ok",
        "/proc": "ok",
        "run-time folder": "ok",
        "store": "ok",
        "loopback": "ok",
    }
    assert answer.code == 0
    assert answer.findings["pystack"]["status"] == "ok"
    assert answer.findings["torch features"]["status"] == "ok"
    assert answer.data["host"] == socket.gethostname()
    assert list(tmp_path.iterdir()) == []
    assert not [name for name in set(Path("/dev/shm").iterdir()) - shared_memory if "doctor" in name.name]
    assert not [pid for pid in proc.process_table() if "rankscope_doctor_waits_here" in command(pid)]


def command(pid: int) -> str:
    return " ".join(proc.command_line(pid))


def test_lines_have_status_subject_value_and_remedy(without_torch: dict[str, str]) -> None:
    done = doctor(env=without_torch)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ok    py-spy            py-spy ")
    assert (
        lines[-2]
        == "warn  torch             cannot be imported: there is none; diag analyze works, diag run does not"
    )
    assert lines[-1].startswith("                        -> pip install torch ")
    assert done.stderr == ""


def test_without_tools_the_host_is_not_ready(tmp_path: Path, without_torch: dict[str, str]) -> None:
    python = tmp_path / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    answer = Answer(doctor("--json", env={**without_torch, "PATH": ""}, python=str(python)))
    assert answer.code == 3
    assert answer.findings["py-spy"]["value"] == "not installed"
    assert answer.findings["pystack"]["status"] == "warn"


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))


def test_with_few_descriptors_checks_take_turns(without_torch: dict[str, str]) -> None:
    answer = Answer(doctor("--json", env=without_torch, before=few_files))
    assert {each["what"] for each in answer.data["findings"] if not each["known"]} == set()
    assert answer.findings["open files"]["status"] == "warn"
    assert answer.code == 0


def no_children() -> None:
    """Not as root, whom this limit does not bind."""
    if os.geteuid() == 0:
        nobody = 65534
        os.setgroups([])
        os.setresgid(nobody, nobody, nobody)
        os.setresuid(nobody, nobody, nobody)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


NO_FORK = """
import os, sys
from rankscope.diag.commands import doctor
from rankscope.diag.doctor import folders, gpus, limits, shared, torch_features, tracing, visibility
from tests.integration.test_doctor import no_children
no_children()
sys.exit(doctor.main(["--json"]))
"""


def test_a_check_that_cannot_be_started_is_not_known() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_FORK],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        cwd=ROOT,
    )
    answer = Answer(done)
    assert answer.code == 5
    assert {each["known"] for each in answer.data["findings"]} == {False}
    assert answer.findings["py-spy"]["value"].startswith("could not find out: cannot be started: ")


def test_several_ports_are_all_tried(without_torch: dict[str, str]) -> None:
    with contextlib.closing(socket.create_server(("", 0))) as taken:
        port = taken.getsockname()[1]
        answer = Answer(doctor("--json", "--port", str(port), "--port", "1", env=without_torch))
    assert answer.findings[f"port {port}"]["status"] == "warn"
    assert "port 1" in answer.findings


def deny_tracing() -> None:
    """A seccomp filter as Docker's profile for old kernels has it: ptrace and process_vm_readv give EPERM."""
    numbers = {"x86_64": (101, 310), "aarch64": (117, 270)}[platform.machine()]
    load, equal, answer = 0x20, 0x15, 0x06
    allow, deny = 0x7FFF0000, 0x00050000 | 1
    program = [(load, 0, 0, 0)]
    program += [(equal, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    program += [(answer, 0, 0, allow), (answer, 0, 0, deny)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filters = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.c_char_p(filters)) == 0  # PR_SET_SECCOMP


def test_without_ptrace_it_says_so_and_what_a_container_needs(without_torch: dict[str, str]) -> None:
    answer = Answer(doctor("--json", env=without_torch, before=deny_tracing))
    assert answer.code == 3
    assert answer.findings["py-spy"]["status"] == "fail"
    assert "cannot read a process of its own" in answer.findings["py-spy"]["value"]
    assert "seccomp" in answer.findings["ptrace"]["value"]


def drop_capabilities() -> None:
    """Nothing but the user's own rights, also for root after exec."""
    libc = ctypes.CDLL(None)
    for capability in range(64):
        libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP; EPERM for who has none to drop


def test_without_capabilities_its_own_processes_are_read(without_torch: dict[str, str]) -> None:
    answer = Answer(doctor("--json", env=without_torch, before=drop_capabilities))
    assert answer.findings["py-spy"]["status"] == "ok"
    assert "CAP_SYS_PTRACE" in answer.findings["ptrace"]["value"]
    assert "all processes seen" not in answer.findings["ptrace"]["value"]


def test_a_store_that_cannot_be_written_is_missing(tmp_path: Path, without_torch: dict[str, str]) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0o500)
    env = {**without_torch, "RANKSCOPE_HOME": str(closed / "home")}
    answer = Answer(doctor("--json", env=env, before=drop_capabilities))
    assert answer.code == 3
    assert answer.findings["store"]["value"].endswith(": Permission denied")
    assert list(closed.iterdir()) == []


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_a_store_without_room_is_missing(without_torch: dict[str, str]) -> None:
    answer = Answer(doctor("--json", env=without_torch, before=limit_files))
    assert answer.code == 3
    assert answer.findings["store"]["status"] == "fail"
    assert "cannot be written to its end" in answer.findings["store"]["value"]


def test_a_shared_folder_lists_who_else_was_there(tmp_path: Path, without_torch: dict[str, str]) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    what = f"shared folder {shared}"
    alone = Answer(doctor("--json", "--shared", str(shared), env=without_torch))
    assert "no other host" in alone.findings[what]["value"]
    (shared / ".rankscope-doctor-host-node-7").write_text("node-7")
    both = Answer(doctor("--json", "--shared", str(shared), env=without_torch))
    assert "also seen from node-7" in both.findings[what]["value"]
    assert sorted(path.name for path in shared.iterdir()) == sorted(
        [f".rankscope-doctor-host-{socket.gethostname()}", ".rankscope-doctor-host-node-7"]
    )
    missing = Answer(doctor("--json", "--shared", str(tmp_path / "none"), env=without_torch))
    assert (missing.code, missing.findings[f"shared folder {tmp_path / 'none'}"]["status"]) == (3, "fail")


def test_a_check_that_hangs_is_left_at_its_deadline(tmp_path: Path, without_torch: dict[str, str]) -> None:
    """A pipe where a marker should be holds whoever opens it, as a share that does not answer does."""
    os.mkfifo(tmp_path / ".rankscope-doctor-host-other")
    started = time.monotonic()
    answer = Answer(doctor("--json", "--timeout", "3", "--shared", str(tmp_path), env=without_torch))
    assert answer.code == 5
    finding = answer.findings[f"shared folder {tmp_path}"]
    assert finding["value"] == "could not find out: no answer in 3 s"
    assert not finding["known"]
    assert answer.findings["store"]["status"] == "ok"
    assert time.monotonic() - started < DEADLINE


def test_a_taken_port_is_told(without_torch: dict[str, str]) -> None:
    with contextlib.closing(socket.create_server(("", 0))) as server:
        port = server.getsockname()[1]
        answer = Answer(doctor("--json", "--port", str(port), env=without_torch))
        assert answer.findings[f"port {port}"]["value"] == "Address already in use"
        assert answer.code == 0


@pytest.mark.parametrize("flags", [("--port", "0"), ("--timeout", "-1"), ("--bogus",)])
def test_a_wrong_command_line_is_refused(flags: Sequence[str]) -> None:
    code = "import sys\nfrom rankscope.diag.main import main\nsys.exit(main(['doctor', *sys.argv[1:]]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *flags], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("diag doctor: ")
    assert done.stdout == ""
