"""A script that has ended while its process goes on is stamped as returned; nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deadline import DEADLINE
from tests.probe_factory import Workers, finish, wait_until, workers

from rankscope.watchdog import probe


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path, slots=2) as made:
        yield made


WAITS_FOR_A_THREAD = """
    import os, sys, threading
    def work():
        os.write(1, b"at work\\n")  # in one piece, whatever the main thread prints
        sys.stdin.read()
        os.write(1, b"done\\n")
    threading.Thread(target=work).start()
"""
ENDINGS = {
    "by its last line": ("pass", 0),
    "by sys.exit": ("sys.exit(3)", 3),
    "by an exception": ("raise ValueError('x')", 1),
    "by a signal that Python turns into an exception": ("raise KeyboardInterrupt", None),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_while_a_thread_keeps_the_process_the_end_of_the_script_is_in_the_page(
    node: Workers, ending: str
) -> None:
    line, code = ENDINGS[ending]
    process = node.start(node.script(WAITS_FOR_A_THREAD + f"    os.write(1, b'last line\\n'); {line}\n"))
    wait_until(lambda: node.slot().returned_ns > 0, "the stamp")
    assert process.poll() is None
    beat_ns = node.slot().beat_ns
    wait_until(lambda: node.slot().beat_ns > beat_ns, "the beat goes on")
    stamped = node.slot().returned_ns
    out, _err = process.communicate("go on", timeout=DEADLINE)
    assert sorted(out.splitlines()) == ["at work", "done", "last line"]
    assert code is None or process.returncode == code
    assert node.slot().returned_ns == stamped


def test_a_pool_that_never_ends_does_not_hide_the_end_of_the_script(node: Workers) -> None:
    """The pool's own function is called before ours and waits: the probe's thread sees that it began."""
    script = node.script("""
        import concurrent.futures, sys
        pool = concurrent.futures.ThreadPoolExecutor(1)
        future = pool.submit(sys.stdin.read)
        future.add_done_callback(lambda done: print("pool ended with", done.result()))
    """)
    process = node.start(script)
    wait_until(lambda: node.slot().returned_ns > 0, "the stamp")
    assert process.poll() is None
    out, err = process.communicate("seven", timeout=DEADLINE)
    assert (process.returncode, out, err) == (0, "pool ended with seven\n", "")


def test_pools_end_as_ever(node: Workers) -> None:
    script = node.script("""
        import concurrent.futures, os
        if __name__ == "__main__":
            threads = concurrent.futures.ThreadPoolExecutor(2)
            for number in range(5):
                threads.submit(os.write, 1, b"thread %d\\n" % number)
            processes = concurrent.futures.ProcessPoolExecutor(1)
            processes.submit(os.write, 1, b"process\\n")
    """)
    process = node.start(script)
    code, out, err = finish(process)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["process", *[f"thread {number}" for number in range(5)]]
    assert node.slot().pid == process.pid


def test_a_script_that_runs_has_no_stamp_and_neither_has_one_that_left_by_os_exit(node: Workers) -> None:
    process = node.start(node.script("import os; print('up', flush=True); input(); os._exit(0)"))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    wait_until(lambda: node.slot().beat_ns > 0, "a beat")
    assert node.slot().returned_ns == 0
    process.communicate("\n", timeout=DEADLINE)
    assert node.slot().returned_ns == 0


def test_handlers_at_exit_run_after_the_stamp(node: Workers) -> None:
    script = node.script("""
        import atexit, sys
        atexit.register(sys.stdin.read)
    """)
    process = node.start(script)
    wait_until(lambda: node.slot().returned_ns > 0, "the stamp")
    assert process.poll() is None
    assert process.communicate("", timeout=DEADLINE) == ("", "")


def test_forked_children_that_end_do_not_stamp_for_the_rank(node: Workers) -> None:
    script = node.script("""
        import multiprocessing, os, sys, threading
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=print, args=("child",), kwargs={"flush": True})
        process.start()
        process.join()
        print("children ended", flush=True)
        input()
    """)
    process = node.start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "child\n"
    assert process.stdout.readline() == "children ended\n"
    assert node.slot().returned_ns == 0
    process.communicate("\n", timeout=DEADLINE)
    assert node.slot().returned_ns > 0


@pytest.mark.parametrize("missing", ["_register_atexit", "_SHUTTING_DOWN", "both"])
def test_without_pythons_private_names_nothing_breaks(node: Workers, missing: str) -> None:
    """The names are taken away before the probe starts, by the user's own sitecustomize."""
    folder = node.folder / "own"
    folder.mkdir()
    names = ["_register_atexit", "_SHUTTING_DOWN"] if missing == "both" else [missing]
    lines = "".join(f"del threading.{name}\n" for name in names)
    (folder / "sitecustomize.py").write_text(f"import threading\n{lines}")
    script = node.script("print('end')")
    path = probe.pythonpath(str(folder))
    assert finish(node.start(script, PYTHONPATH=path)) == (0, "end\n", "")
    assert (node.slot().rank, node.slot().returned_ns) == (0, 0)


FUNCTIONS = """
    import os, sys
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes
    from rankscope.watchdog.page import PageReader
    from rankscope.watchdog.probe.entry import ProbedEntrypoint

    def train(rank):
        page = PageReader(os.environ["RANKSCOPE_PAGE"])
        assert page.read(rank).returned_ns == 0
        page.close()
        if rank == 1:
            raise ValueError("rank 1 fails")

    if __name__ == "__main__":
        agent = {"RANKSCOPE_AGENT_PID": str(os.getpid())}
        envs = {rank: {"RANK": str(rank), "RANKSCOPE_SLOT": str(rank), **agent} for rank in (0, 1)}
        context = start_processes("train", ProbedEntrypoint(train), {0: (0,), 1: (1,)}, envs,
                                  DefaultLogsSpecs(sys.argv[2]), start_method=sys.argv[1])
        result = context.wait(300)
        print("failed", sorted(result.failures), result.failures[1].message["message"])
"""


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_a_function_is_stamped_when_it_returned_or_raised(node: Workers, start_method: str) -> None:
    (node.folder / "logs").mkdir()
    process = node.start(node.script(FUNCTIONS), start_method, node.folder / "logs", rank=None)
    code, out, err = finish(process)
    assert (code, out.startswith("failed [1]")) == (0, True), err
    assert "rank 1 fails" in out
    assert node.slot(1).returned_ns >= node.slot(1).raised_ns > 0
    # Rank 0 may be killed for rank 1's failure before it got as far.
    assert node.slot(0).raised_ns == 0
