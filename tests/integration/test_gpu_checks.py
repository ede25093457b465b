"""The process that asks NVIDIA's driver: the real one without a GPU, and others that hang or crash."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.health_factory import eventually, is_gone

from rankscope.agent.checks.gpu_facts import GpuFacts, GpuReport
from rankscope.agent.checks.gpu_process import (
    AGAIN_AFTER,
    DEADLINE,
    FIRST_DEADLINE,
    KILL_DEADLINE,
    GpuProcess,
    reader_command,
)
from rankscope.agent.health.model import Check

FINE = GpuReport(gpus=(GpuFacts(0, name="NVIDIA H100"),))
HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()


def says(*reports: GpuReport, then: str = "sys.stdin = open('/dev/zero'); signal.pause()") -> list[str]:
    """A stand-in for the reader: it writes reports, and then does something else."""
    lines = "".join(msgspec.json.encode(report).decode() + "\n" for report in reports)
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import os, signal, sys\nos.write(1, {lines!r}.encode())\n{then}",
    ]


class Clock:
    """Polls at times that the test sets."""

    def __init__(self, process: GpuProcess) -> None:
        self.process = process
        self.now = 1000.0

    def poll(self, after: float = 0.0) -> dict[str, Check]:
        self.now += after
        return dict(self.process.poll(self.now))

    def pid(self) -> int:
        assert self.process._process is not None
        return self.process._process.pid

    def hears(self, name: str, status: str, words: str) -> None:
        def there() -> bool:
            check = self.poll().get(name)
            return check is not None and check.status == status and words in check.output

        eventually(there, f"{name} to be {status}: {words}")


@pytest.fixture(name="begun")
def _begun() -> Iterator[list[GpuProcess]]:
    begun: list[GpuProcess] = []
    yield begun
    for process in begun:
        process.close()


def start(begun: list[GpuProcess], command: list[str]) -> Clock:
    begun.append(GpuProcess(command))
    clock = Clock(begun[-1])
    clock.poll()
    return clock


@pytest.mark.skipif(HAS_DRIVER, reason="there is a driver of NVIDIA here")
def test_without_a_gpu_the_real_reader_says_not_present_ends_and_is_not_started_again(
    begun: list[GpuProcess],
) -> None:
    clock = start(begun, reader_command())
    pid = clock.pid()
    clock.hears("gpu", "pass", "not present (no driver library of NVIDIA)")
    eventually(lambda: clock.poll() == clock.poll() and is_gone(pid), "the reader has ended")
    for _ in range(3):
        assert clock.poll(2 * AGAIN_AFTER) == {
            "gpu": Check("pass", "not present (no driver library of NVIDIA)")
        }
    assert begun[0]._process is None


def test_what_the_reader_says_is_judged_and_its_last_line_holds(begun: list[GpuProcess]) -> None:
    lost = GpuReport(gpus=(GpuFacts(0, name="NVIDIA H100", is_lost=True),))
    clock = start(begun, says(FINE, lost))
    clock.hears("gpu:0:bus", "fail", "fallen off the bus")


def test_a_driver_that_never_answers_costs_no_poll_and_the_reader_its_life(begun: list[GpuProcess]) -> None:
    clock = start(begun, says())
    pid = clock.pid()
    assert clock.poll(FIRST_DEADLINE) == {"gpu": Check("pass", "being asked")}
    assert clock.poll(1.0)["gpu"].status == "fail"
    assert "has not answered for 91 s" in clock.poll()["gpu"].output
    eventually(lambda: clock.poll() != {} and is_gone(pid), "the reader has been killed")
    eventually(lambda: clock.poll() != {} and begun[0]._process is None, "its end is seen")
    assert clock.poll(AGAIN_AFTER - 1)["gpu"].status == "fail"
    clock.poll(1.0)
    assert clock.pid() != pid


def test_a_driver_that_stops_answering_is_noticed_and_one_that_answers_again_is_fine(
    begun: list[GpuProcess],
) -> None:
    clock = start(begun, says(FINE))
    clock.hears("gpu:0", "pass", "NVIDIA H100")
    assert clock.poll(DEADLINE)["gpu:0"].status == "pass"
    assert clock.poll(1.0)["gpu"].status == "fail"
    eventually(lambda: clock.poll() != {} and begun[0]._process is None, "its end is seen")
    clock.poll(AGAIN_AFTER)
    clock.hears("gpu:0", "pass", "NVIDIA H100")


def test_a_reader_that_cannot_be_killed_is_left_and_said_and_no_other_is_started() -> None:
    killed: list[int] = []
    # In an uninterruptible sleep SIGKILL changes nothing: here it is not sent.
    process = GpuProcess(says(), kill=killed.append)
    clock = Clock(process)
    clock.poll()
    pid = clock.pid()
    try:
        clock.poll(FIRST_DEADLINE + 1)
        assert killed == [pid]
        clock.poll(KILL_DEADLINE)
        assert f"process {pid}, which asked it, cannot be killed" in clock.poll(1.0)["gpu"].output
        for _ in range(3):
            clock.poll(2 * AGAIN_AFTER)
            assert clock.pid() == pid
        assert killed == [pid]
        process.close()
        assert not is_gone(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_reader_that_crashes_is_said_and_started_again_later(begun: list[GpuProcess]) -> None:
    clock = start(begun, says(then="os.kill(os.getpid(), signal.SIGSEGV)"))
    clock.hears("gpu", "warn", "ended with -11")
    assert clock.poll(AGAIN_AFTER - 1)["gpu"].status == "warn"
    assert begun[0]._process is None
    clock.poll(1.0)
    assert clock.pid()


def test_no_process_is_one_warning(begun: list[GpuProcess]) -> None:
    clock = start(begun, ["/nothing/here"])
    assert clock.poll()["gpu"].status == "warn"


def test_half_a_line_and_what_is_no_report_are_not_taken_for_one(begun: list[GpuProcess]) -> None:
    ends = 'os.write(1, b\'nonsense\\n{"gpus": 7}\\n{"gpus":\')'
    clock = start(begun, says(FINE, then=ends))
    eventually(lambda: clock.poll() != {} and begun[0]._process is None, "it has ended")
    assert clock.poll()["gpu:0"] == Check("pass", "NVIDIA H100")


def test_closing_leaves_no_process() -> None:
    process = GpuProcess(says(FINE))
    clock = Clock(process)
    clock.poll()
    pid = clock.pid()
    process.close()
    assert is_gone(pid)
    process.close()
    assert dict(process.poll(2000.0)) == {"gpu": Check("pass", "being asked")}


PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.readline()
"""


# The real reader and the real pynvml over a library that answers as NVIDIA's does.


@pytest.fixture(name="nvml", scope="module")
def _nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).parents[1] / "data" / "nvml_stub.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, source], check=True)
    return library.parent


@pytest.fixture(name="driver")
def _driver(nvml: Path, monkeypatch: pytest.MonkeyPatch, begun: list[GpuProcess]) -> Callable[[str], Clock]:
    def asked(how: str) -> Clock:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml))
        monkeypatch.setenv("NVML_STUB", how)
        return start(begun, reader_command())

    return asked


def test_two_healthy_gpus_are_read(driver: Callable[[str], Clock]) -> None:
    clock = driver("")
    clock.hears("gpu:1", "pass", "Stub GPU")
    assert clock.poll() == {"gpu:0": Check("pass", "Stub GPU"), "gpu:1": Check("pass", "Stub GPU")}


@pytest.mark.parametrize(
    ("how", "name", "status", "words"),
    [
        ("lost", "gpu:1:bus", "fail", "fallen off the bus"),
        ("reset", "gpu:1:driver", "fail", "asks for a reset"),
        ("ecc", "gpu:1:ecc", "warn", "3 uncorrectable memory errors"),
        ("remap", "gpu:1:ecc", "fail", "replaced"),
        ("hot", "gpu:1:thermal", "warn", "at 93 degrees"),
        ("narrow", "gpu:1:pcie-width", "warn", "PCIe x8 of x16"),
        ("slow", "gpu:1:pcie-generation", "warn", "PCIe generation 3 of 5"),
        ("mismatch", "gpu", "warn", "version mismatch"),
        ("unloaded", "gpu", "pass", "not present (its driver is not loaded)"),
        ("none", "gpu", "pass", "not present (the driver knows of none)"),
    ],
)
def test_what_the_library_says_becomes_a_check(
    driver: Callable[[str], Clock], how: str, name: str, status: str, words: str
) -> None:
    clock = driver(how)
    clock.hears(name, status, words)
    assert how in ("mismatch", "unloaded", "none") or clock.poll()["gpu:0"].status == "pass"


def test_a_library_that_hangs_holds_nobody(driver: Callable[[str], Clock]) -> None:
    clock = driver("hang")
    pid = clock.pid()
    assert clock.poll(FIRST_DEADLINE + 1)["gpu"].status == "fail"
    eventually(lambda: clock.poll() != {} and is_gone(pid), "the reader has been killed")


def test_an_xid_is_told_with_the_next_reading_by_the_gpu_that_had_it(
    nvml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml))
    monkeypatch.setenv("NVML_STUB", "xid")
    program = (
        "import msgspec, pynvml\n"
        "from rankscope.agent.checks.gpu_reader import GpuReader\n"
        "pynvml.nvmlInit()\n"
        "reader = GpuReader(pynvml, 2)\n"
        "for _ in range(3): reader.listen()\n"
        "print(msgspec.json.encode(reader.read()).decode())\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environ)
    first, second = msgspec.json.decode(ran.stdout, type=tuple[GpuFacts, ...])
    assert first.xids == ()
    assert [(xid.number, xid.count) for xid in second.xids] == [(79, 2)]
    assert first.listens
    assert second.listens


def test_the_reader_ends_with_whoever_started_it(nvml: Path) -> None:
    environ = {**os.environ, "LD_LIBRARY_PATH": str(nvml), "NVML_STUB": ""}
    command = [sys.executable, "-c", PARENT, *reader_command()]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as agent:
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        assert not is_gone(pid)
        agent.kill()
    eventually(lambda: is_gone(pid), "the reader has ended")
