"""What ``diag doctor`` makes of facts, of hosts too that are at hand nowhere: Yama, hidepid, old torch."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path

import pytest

from rankscope.diag.commands.doctor import EXIT_MISSING, EXIT_READY, EXIT_UNKNOWN, exit_code
from rankscope.diag.doctor import Finding, unknown
from rankscope.diag.doctor.folders import (
    Place,
    file_system_of,
    judge_runtime,
    judge_shared_memory,
    judge_store,
)
from rankscope.diag.doctor.gpus import judge_gpus
from rankscope.diag.doctor.limits import judge_clock, judge_core_files, judge_files, judge_locked_memory
from rankscope.diag.doctor.shared import Marker, judge_shared
from rankscope.diag.doctor.torch_features import Torch, judge_torch
from rankscope.diag.doctor.tracing import Rights, Trial, judge_rights, judge_trial
from rankscope.diag.doctor.visibility import Visible, hidepid_of, judge_visibility

GIB = 1 << 30
READS = Trial("/bin/py-spy", "py-spy 0.4.3", child=0.02, other=0.02)
READS_CHILDREN = Trial("/bin/py-spy", "py-spy 0.4.3", child=0.02, other_error="Permission denied")
READS_NOTHING = Trial("/bin/py-spy", "py-spy 0.4.3", child_error="Permission denied", other_error="the same")


def only(findings: Sequence[Finding]) -> Finding:
    (finding,) = findings
    return finding


def statuses(findings: Sequence[Finding]) -> dict[str, str]:
    return {finding.what: finding.status for finding in findings}


def test_a_tool_that_reads_both_processes_is_ok_and_says_how_long_it_took() -> None:
    finding = only(judge_trial("py-spy", READS, Rights()))
    assert (finding.status, finding.remedy) == ("ok", "")
    assert "in 20 ms" in finding.value


@pytest.mark.parametrize("tool", ["py-spy", "pystack"])
def test_py_spy_is_needed_and_pystack_is_missed(tool: str) -> None:
    expected = "fail" if tool == "py-spy" else "warn"
    missing = only(judge_trial(tool, Trial(None), Rights()))
    assert (missing.status, missing.value) == (expected, "not installed")
    assert missing.remedy.startswith(f"pip install {tool}")
    assert only(judge_trial(tool, READS_NOTHING, Rights())).status == expected


def test_in_a_container_the_remedy_is_what_docker_and_kubernetes_want() -> None:
    finding = only(judge_trial("py-spy", READS_NOTHING, Rights(container="Docker")))
    assert "--cap-add=SYS_PTRACE" in finding.remedy
    assert 'add: ["SYS_PTRACE"]' in finding.remedy
    assert "Permission denied" in finding.value


def test_yama_explains_why_only_children_are_read() -> None:
    finding = only(judge_trial("py-spy", READS_CHILDREN, Rights(yama=1)))
    assert finding.status == "warn"
    assert "kernel.yama.ptrace_scope=0" in finding.remedy


@pytest.mark.parametrize(
    ("yama", "has_capability", "status"),
    [
        (None, False, "ok"),
        (0, False, "ok"),
        (1, False, "warn"),
        (1, True, "ok"),
        (2, False, "fail"),
        (2, True, "ok"),
        (3, False, "fail"),
        (3, True, "fail"),
    ],
)
def test_yamas_scopes(yama: int | None, *, has_capability: bool, status: str) -> None:
    findings = judge_rights(Rights(yama=yama, has_capability=has_capability))
    assert statuses(findings)["yama"] == status
    assert all(finding.remedy for finding in findings if finding.status != "ok")


@pytest.mark.parametrize(
    ("rights", "status"),
    [
        (Rights(has_capability=True, is_root=True), "ok"),
        (Rights(), "ok"),
        (Rights(is_root=True), "warn"),
        (Rights(container="Kubernetes", seccomp=2), "warn"),
    ],
)
def test_a_missing_capability_matters_to_root_and_in_containers(rights: Rights, status: str) -> None:
    assert statuses(judge_rights(rights))["ptrace"] == status


def test_hidden_processes_matter_unless_one_is_root() -> None:
    hidden = Visible("2", processes=12)
    assert only(judge_visibility(hidden, is_root=False)).status == "warn"
    assert only(judge_visibility(hidden, is_root=True)).status == "ok"
    assert only(judge_visibility(Visible("", unreadable=3), is_root=False)).status == "warn"
    assert only(judge_visibility(Visible(None), is_root=True)).status == "fail"
    own = only(judge_visibility(Visible("", is_namespace=True), is_root=True))
    assert own.status == "ok"
    assert "shareProcessNamespace" in own.remedy


def test_the_option_of_the_mount_of_proc_is_read() -> None:
    other = b"22 26 0:5 / /host/proc rw - proc proc rw,hidepid=1\n"
    ours = b"23 26 0:6 / /proc rw,nosuid shared:12 - proc proc rw,gid=4,hidepid=invisible\n"
    assert hidepid_of(other + ours) == "invisible"
    assert hidepid_of(b"23 26 0:6 / /proc rw - proc proc rw\n") == ""
    assert hidepid_of(other) is None
    assert hidepid_of(b"\n - \nx y - proc\n") is None


def test_one_run_time_folder_is_enough_and_the_others_are_told() -> None:
    good, bad = Place("/dev/shm", kind="tmpfs"), Place("/run/user/0", "Read-only file system")
    assert statuses(judge_runtime([good], Place("/tmp"))) == {"run-time folder": "ok"}
    mixed = judge_runtime([bad, good], Place("/tmp"))
    assert mixed[0].status == "warn"
    assert "not below /run/user/0: Read-only file system" in mixed[0].value
    assert only(judge_runtime([bad], Place("/tmp"))).status == "fail"
    taken = judge_runtime([good], Place("/tmp", "/tmp/rankscope-0 is not a private folder"))
    assert statuses(taken) == {"run-time folder": "ok", "capture locks": "warn"}


@pytest.mark.parametrize(
    ("place", "status"),
    [
        (Place("/x", kind="ext4", free_bytes=9 * GIB, free_inodes=10**6), "ok"),
        (Place("/x", kind="btrfs", free_bytes=9 * GIB), "ok"),
        (Place("/x", kind="ext4", free_bytes=GIB // 2, free_inodes=10**6), "warn"),
        (Place("/x", kind="ext4", free_bytes=9 * GIB, free_inodes=20), "warn"),
        (Place("/x", kind="ext4", free_bytes=4096, free_inodes=10**6), "fail"),
        (Place("/x", "Read-only file system", kind="ext4", free_bytes=9 * GIB), "fail"),
    ],
)
def test_the_store_needs_room(place: Place, status: str) -> None:
    finding = only(judge_store(place))
    assert finding.status == status
    assert bool(finding.remedy) == (status != "ok")


def test_dockers_64_mib_of_shared_memory_are_few() -> None:
    finding = only(judge_shared_memory(Place("/dev/shm", kind="tmpfs", free_bytes=64 << 20)))
    assert finding.status == "warn"
    assert "--shm-size" in finding.remedy
    assert only(judge_shared_memory(Place("/dev/shm", free_bytes=8 * GIB))).status == "ok"
    assert only(judge_shared_memory(Place("/dev/shm", "No such file or directory"))).status == "warn"


def test_a_folder_lies_on_the_innermost_mount() -> None:
    mounts = b"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:9 / /data rw - nfs4 server:/x rw\n"
    assert file_system_of(Path("/data/a"), mounts) == "nfs4"
    assert file_system_of(Path("/database"), mounts) == "ext4"
    assert file_system_of(Path("/data"), b"junk\n") == ""


def test_other_hosts_markers_prove_that_a_folder_is_shared() -> None:
    ours, theirs = Marker("a", 0.0), Marker("b", 60.0)

    def judge(*markers: Marker, kind: str = "nfs4", skew: float = 0.0) -> Sequence[Finding]:
        return judge_shared("shared folder /data", markers, host="a", kind=kind, skew=skew)

    assert only(judge(ours, theirs)).status == "ok"
    assert "also seen from b" in only(judge(ours, theirs)).value
    assert not only(judge(ours)).known
    assert only(judge(ours, Marker("b", 7200.0), kind="ext4")).status == "warn"
    assert "--shared /data" in only(judge(ours, kind="ext4")).remedy
    late = judge(ours, theirs, skew=-3.0)
    assert late[1].value.startswith("-3.0 s")


def test_limits() -> None:
    assert only(judge_files(1024, 4096)).status == "warn"
    assert only(judge_files(65536, 65536)).status == "ok"
    assert only(judge_files(resource.RLIM_INFINITY, resource.RLIM_INFINITY)).value.startswith("unlimited")
    assert only(judge_locked_memory(65536, has_rdma=False)).status == "ok"
    assert only(judge_locked_memory(65536, has_rdma=True)).status == "warn"
    assert only(judge_locked_memory(resource.RLIM_INFINITY, has_rdma=True)).status == "ok"
    assert only(judge_clock(0x40)).status == "warn"
    assert only(judge_clock(0x2001)).status == "ok"
    assert only(judge_clock(None)).status == "ok"
    assert only(judge_core_files(0, "core")).value == "none (ulimit -c 0)"
    assert only(judge_core_files(0, "|/usr/bin/coredumper %p")).value == "handed to /usr/bin/coredumper"
    assert only(judge_core_files(-1, "core.%p")).value == "written to 'core.%p'"
    assert only(judge_core_files(-1, "|")).value == "handed to "


def test_torch_is_judged_by_its_version_and_its_names() -> None:
    good = judge_torch(Torch("2.13.0+cpu", "/x/torch", backends=("gloo",)))
    assert statuses(good) == {"torch": "ok", "torch features": "ok"}
    assert only(judge_torch(Torch("2.5.1", "/x/torch"))).status == "warn"
    assert judge_torch(Torch("2.7a0+git1", "/x/torch"))[0].status == "ok"
    poor = judge_torch(Torch("2.6.0", "/x/torch", missing=(("step hook", "steps"),)))
    assert statuses(poor)["torch features"] == "warn"
    assert "no step hook: lost is steps" in poor[1].value


def test_no_gpu_is_no_fault_and_a_silent_one_is_told() -> None:
    assert only(judge_gpus(0, names=None, driver="")).value == "none"
    two = only(judge_gpus(2, names=["H200", "H200"], driver="570"))
    assert (two.status, two.value) == ("ok", "2 x H200, driver 570")
    silent = only(judge_gpus(8, names=None, driver=""))
    assert (silent.status, silent.remedy.split(" (")[0]) == ("warn", "pip install nvidia-ml-py")
    assert "GPU is lost" in only(judge_gpus(8, names=None, driver="", error="GPU is lost")).value


def test_what_is_missing_outranks_what_is_not_known() -> None:
    fine = Finding("a", "ok", "x")
    lost = Finding("b", "fail", "x", needed=True)
    dark = unknown("c", "no answer in 3 s", needed=True)
    assert exit_code([fine, Finding("d", "warn", "x"), unknown("e", "why")]) == EXIT_READY
    assert exit_code([fine, dark]) == EXIT_UNKNOWN
    assert exit_code([dark, lost, fine]) == EXIT_MISSING
