"""A process's environment as it is now, and what its stack says of its rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.capture_factory import HIDDEN, first_line, running, seen_without_capabilities

from rankscope.diag import proc
from rankscope.diag.discover.elf_symbols import symbol_offset
from rankscope.diag.discover.live_environment import live_environ
from rankscope.diag.discover.namespaces import beyond_root, innermost, own_number
from rankscope.diag.discover.stack_variables import StackRank, rank_on_stack
from rankscope.diag.model import Frame, FrameVariables, ThreadStack

CHANGED = """
import os, time
os.environ["RANK"] = "7"
os.environ["LONG"] = "x" * 100_000
del os.environ["TO_GO"]
for number in range(300):
    os.environ[f"NUMBER_{number}"] = str(number)
print("ready", flush=True)
time.sleep(1000)
"""


def test_what_a_process_set_and_removed_after_its_start_is_seen() -> None:
    with running(CHANGED, env={"TO_GO": "1", "EMPTY": "", "EQUALS": "a=b"}) as process:
        first_line(process)
        now = live_environ(process.pid)
        started_with = proc.environ(process.pid)
        assert now is not None
        assert started_with is not None
        assert (now["RANK"], len(now["LONG"]), now["NUMBER_299"]) == ("7", 100_000, "299")
        assert (now["EMPTY"], now["EQUALS"]) == ("", "a=b")
        assert "TO_GO" not in now
        assert "TO_GO" in started_with
        assert "RANK" not in started_with


def test_a_process_that_may_not_be_read_or_is_gone_has_none() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert live_environ(gone.pid) is None
    with running(HIDDEN) as process:
        first_line(process)
        code = "print(live_environ(int(sys.argv[1])))"
        imports = "from rankscope.diag.discover.live_environment import live_environ"
        assert seen_without_capabilities(imports, code, str(process.pid)) == "None"


def libc() -> Path:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return Path(next(line.split()[-1] for line in lines if "libc.so" in line or "ld-musl" in line))


def test_a_symbol_is_found_where_the_file_has_it_and_nowhere_else(tmp_path: Path) -> None:
    with libc().open("rb") as file:
        assert symbol_offset(file.fileno(), b"environ")
        assert symbol_offset(file.fileno(), b"no_such_symbol") is None
    with (tmp_path / "empty").open("w+b") as file:
        assert symbol_offset(file.fileno(), b"environ") is None


@given(st.data())
def test_no_file_makes_the_reader_raise(data: st.DataObject) -> None:
    """The head of a real library, with bytes overwritten and its end cut off."""
    image = bytearray(libc().read_bytes()[: 1 << 16])
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, 200))
        patch = data.draw(st.binary(min_size=1, max_size=8))
        image[at : at + len(patch)] = patch
    size = data.draw(st.integers(0, len(image)))
    fd = os.memfd_create("rankscope-test")
    try:
        os.write(fd, image[:size])
        assert symbol_offset(fd, b"environ") is None or size > 64
    finally:
        os.close(fd)


def test_a_process_in_no_container_is_called_what_we_call_it() -> None:
    assert own_number(os.getpid()) == os.getpid()
    assert own_number(2**22 + 1) == 2**22 + 1
    assert innermost(b"Name:\tx\nNSpid:\t4711\t12\t1\nNSpgid:\t4711\t3\n") == 1
    assert innermost(b"Name:\tx\n") == 0
    assert beyond_root(os.getpid(), "/dev/shm/x") == "/dev/shm/x"
    assert beyond_root(2**22 + 1, "/dev/shm/x") == "/dev/shm/x"


def a_stack(*frames: tuple[str, str, dict[str, str]]) -> ThreadStack:
    """A main thread, leaf first; each frame with its file's name and variables."""
    return ThreadStack(
        thread_id=1,
        name="MainThread",
        is_main=True,
        frames=tuple(Frame(name, f"/x/{file}", 1, short_file=file) for name, file, _ in frames),
        variables=tuple(
            FrameVariables(place, tuple(values.items()))
            for place, (_, _, values) in enumerate(frames)
            if values
        ),
    )


WRAP = ("_wrap", "torch/multiprocessing/spawn.py", {"fn": "<function at 0x7f>", "i": "1", "args": "(2,)"})
RUN = ("BaseProcess.run", "multiprocessing/process.py", {"self": "<SpawnProcess at 0x7f>"})


def test_the_users_rank_counts_more_than_the_number_on_this_host() -> None:
    user = ("train", "train.py", {"rank": "5", "world_size": "8"})
    assert rank_on_stack(a_stack(user, WRAP, RUN)) == StackRank(5, 8, "train", 1)
    assert rank_on_stack(a_stack(("train", "train.py", {"gpu": "1"}), WRAP, RUN)) == StackRank(index=1)


def test_the_outermost_of_the_users_functions_counts() -> None:
    inner = ("send", "ring.py", {"rank": "0"})
    outer = ("main", "train.py", {"rank": "3"})
    assert rank_on_stack(a_stack(inner, outer, RUN)) == StackRank(3, None, "main")
    assert rank_on_stack(a_stack(inner, outer, ("<module>", "train.py", {}))) == StackRank(3, None, "main")


def test_what_the_parent_had_on_its_stack_does_not_count_for_a_forked_child() -> None:
    parents = ("launch_all", "train.py", {"rank": "9"})
    assert rank_on_stack(a_stack(("train", "train.py", {}), WRAP, RUN, parents)) == StackRank(index=1)
    assert rank_on_stack(a_stack(("train", "train.py", {}), RUN, parents)) == StackRank()
    assert rank_on_stack(a_stack(("train", "train.py", {}), RUN, parents, WRAP, RUN)) == StackRank()


def test_what_is_no_number_or_torchs_own_is_no_rank() -> None:
    torchs = ("init_process_group", "torch/distributed/distributed_c10d.py", {"rank": "4"})
    assert rank_on_stack(a_stack(torchs, ("main", "train.py", {"rank": "None"}))) == StackRank()
    assert rank_on_stack(a_stack(("main", "train.py", {"rank": "-1"}))) == StackRank()
    assert rank_on_stack(a_stack()) == StackRank()


def test_the_interpreter_that_tests_is_the_one_that_is_read() -> None:
    with running(
        "import os, time\nprint(os.environ['HERE'], flush=True)\ntime.sleep(1000)", env={"HERE": "1"}
    ) as one:
        first_line(one)
        now = live_environ(one.pid)
        assert now == proc.environ(one.pid), sys.executable
