"""What tools say of processes that they cannot read."""

from __future__ import annotations

import pytest
from tests.reading_factory import PREFIXES, log, read, real, wrapped


@pytest.mark.parametrize(
    ("scenario", "name", "pid", "trouble"),
    [
        (
            "crash",
            "rank0.pyspy.txt.stderr",
            0,
            (
                "py-spy: Failed to get process executable name. Check that the process is running.: "
                "No such file or directory (os error 2)"
            ),
        ),
        (
            "sigstop",
            "rank1.pyspy.txt.stderr",
            9698,
            (
                "py-spy: Failed to get stack traces: Failed to suspend process: "
                "unexpected waitpid result PtraceEvent(Pid(9698), SIGSTOP, 128) to 9698"
            ),
        ),
        (
            "crash",
            "rank0.pystack.txt.stderr",
            17615,
            "pystack: Failed to attach to thread 17615: Operation not permitted",
        ),
        ("crash", "rank0.pystack_nonblock.txt.stderr", 17615, "pystack: Failed to read /proc/17615/exe"),
    ],
)
def test_a_real_complaint_is_the_reason_that_there_is_no_stack(
    scenario: str, name: str, pid: int, trouble: str
) -> None:
    for who in ("torchrun global", "slurm", "container runtime"):
        raw = real(scenario, name)
        for data in (raw, log(["noise", *wrapped(raw, PREFIXES[who]), "noise"])):
            contents = read(data)
            (dump,) = contents.dumps
            assert (dump.threads, dump.pid, dump.trouble) == ((), pid, trouble)
            assert not contents.problems


def test_a_header_without_threads_and_the_complaint_about_it_are_one() -> None:
    header, complaint = real("sigstop", "rank1.pyspy.txt"), real("sigstop", "rank1.pyspy.txt.stderr")
    for data in (header + complaint, complaint + header):
        (dump,) = read(data).dumps
        assert (dump.pid, dump.threads) == (9698, ())
        assert dump.title == "/opt/venv/bin/python /workspace/scen.py sigstop"
        assert dump.trouble.startswith("py-spy: Failed to get stack traces: Failed to suspend process")


def test_a_complaint_does_not_swallow_the_dump_behind_it() -> None:
    complaint = real("crash", "rank0.pyspy.txt.stderr")
    dumps = read(complaint + real("lock_blocked", "rank1.pyspy.txt")).dumps
    assert [(bool(dump.trouble), len(dump.threads)) for dump in dumps] == [(True, 0), (False, 2)]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Error: Permission Denied: Try running again with elevated permissions by going 'sudo'", "py-spy"),
        (
            "Error: Failed to find python version from target process\n\nStack backtrace:\n   0: main",
            "py-spy",
        ),
        ("Engine error: Could not determine python version from /usr/bin/sleep", "pystack"),
        ("💀 Engine error: No such process id: 999999 💀", "pystack"),
        ("ptrace: Operation not permitted.", "gdb"),
        ("warning: process 12 is already traced by process 11\nptrace: Operation not permitted.", "gdb"),
    ],
)
def test_complaints_of_all_tools_are_known(text: str, source: str) -> None:
    (dump,) = read(text).dumps
    assert dump.source == source
    assert dump.trouble.startswith(f"{source}: ")


def test_an_error_in_a_log_is_no_complaint() -> None:
    contents = read("Error: Failed to open checkpoint\nptrace: \n  0: main\n")
    assert contents.dumps == ()


def test_an_error_without_words_is_none() -> None:
    assert read("Engine error: \n").dumps == ()
