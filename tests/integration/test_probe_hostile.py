"""Scripts that treat their process badly end as they do without the probe."""

from __future__ import annotations

import signal
import zipapp
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.probe_factory import DEADLINE, Workers, finish, workers


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path, slots=1) as made:
        yield made


def both(node: Workers, *command: str | Path) -> tuple[int, str, str]:
    """Run with the probe and without; both must end alike. Leaves the slot as the rank wrote it."""
    process = node.start(*command)
    with_probe = finish(process)
    without = finish(node.start(*command, RANKSCOPE_PROBE="0"))
    assert with_probe == without
    assert node.slot().pid == process.pid, "the rank was seen"
    return with_probe


HOSTILE = {
    "closes every descriptor and opens its own": """
        import os
        os.closerange(3, 256)
        files = [open(f"file{number}", "w") for number in range(40)]
        for file in files:
            file.write("kept until the end")
        import atexit
        atexit.register(print, "end")
    """,
    "empties sys.modules": """
        import sys
        for name in [name for name in sys.modules if name not in ("sys", "builtins", "__main__")]:
            del sys.modules[name]
        print("end")
    """,
    "forgets the probe's modules": """
        import sys
        for name in [name for name in sys.modules if name.startswith("rankscope")]:
            del sys.modules[name]
        import threading, torch, torch.distributed
        print("end")
        raise ValueError("as ever")
    """,
    "replaces threading": """
        import sys, types
        sys.modules["threading"] = types.ModuleType("threading")
        print("end")
    """,
    "breaks threading": """
        import threading
        for name in ("_shutdown", "_register_atexit", "Thread", "current_thread", "main_thread", "Event"):
            setattr(threading, name, None)
        print("end", flush=True)
        raise ValueError("as ever")
    """,
    "empties sys.meta_path": """
        import sys
        sys.meta_path = []
        try:
            import torch
        except ImportError as error:
            print(error)
    """,
    "keeps only the usual finders": """
        import sys
        from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
        sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder]
        import torch.optim
        print("end")
    """,
    "forks in a thread": """
        import os, sys, threading
        def fork():
            child = os.fork()
            if child == 0:
                sys.exit(3)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    """,
    "forks many times": """
        import os
        for _ in range(30):
            child = os.fork()
            if child == 0:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        print("end")
    """,
    "handles every signal": """
        import os, signal
        seen = []
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if number not in (32, 33):
                signal.signal(number, lambda number, frame: seen.append(number))
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGPIPE):
            os.kill(os.getpid(), number)
        print(sorted(seen))
    """,
    "waits for a signal that it blocks": """
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        print(signal.sigwait([signal.SIGUSR1]).name)
    """,
    "turns warnings into errors": """
        import os, warnings
        warnings.simplefilter("error")
        child = os.fork()
        if child == 0:
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        import multiprocessing
        process = multiprocessing.get_context("fork").Process(target=print, args=("child",))
        process.start()
        process.join()
        print("end", process.exitcode)
    """,
    "sets the recursion limit and hooks": """
        import sys
        sys.setrecursionlimit(60)
        sys.setswitchinterval(1e-6)
        sys.excepthook = None
        def down():
            down()
        down()
    """,
    "traces itself": """
        import sys, threading
        calls = []
        threading.settrace(lambda *_: calls.append("thread"))
        sys.settrace(lambda *_: calls.append("main"))
        len([1])
        sys.settrace(None)
        print(calls)
    """,
    "collects what it can": """
        import gc
        gc.set_debug(gc.DEBUG_UNCOLLECTABLE)
        gc.collect()
        for one in gc.get_objects():
            if isinstance(one, list) and one and type(one[0]).__module__.startswith("rankscope"):
                one.clear()
        gc.collect()
        print(gc.garbage)
    """,
    "takes away the names of the environment": """
        import os
        os.environ.clear()
        os.chdir("/")
        os.umask(0o777)
        print(sorted(os.environ))
    """,
    "limits its memory and files": """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        print("end")
    """,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_script_that(node: Workers, what: str) -> None:
    both(node, node.script(HOSTILE[what]))


def test_files_opened_in_the_place_of_closed_descriptors_are_complete(node: Workers) -> None:
    both(node, node.script(HOSTILE["closes every descriptor and opens its own"]))
    assert {file.read_text() for file in node.folder.glob("file*")} == {"kept until the end"}


def test_a_beat_opens_no_descriptor_that_could_stand_in_the_place_of_the_scripts(node: Workers) -> None:
    script = node.script("""
        import sys
        from rankscope.watchdog.probe.boot import running
        opened = []
        sys.addaudithook(lambda event, given: opened.append(given[0]) if event == "open" else None)
        for _ in range(3):
            running().beat.once()
        print(opened)
    """)
    assert finish(node.start(script)) == (0, "[]\n", "")


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_an_interpreter_that_does_not_look_at_sitecustomize_runs_without_the_probe(
    node: Workers, option: str
) -> None:
    script = node.script("import sys; print(sorted(name for name in sys.modules if 'rankscope' in name))")
    assert finish(node.start(option, script)) == (0, "[]\n", "")
    assert node.slot().rank == -1


@pytest.mark.parametrize("options", [("-W", "error"), ("-X", "dev"), ("-O",), ("-u",), ("-B", "-s")])
def test_interpreter_options_change_nothing(node: Workers, options: tuple[str, ...]) -> None:
    code, out, _ = both(node, *options, node.script("import sys; print(sys.flags.optimize, __debug__)"))
    assert (code, out) == (0, "1 False\n" if options == ("-O",) else "0 True\n")


def test_a_zip_application_is_a_rank_too(node: Workers) -> None:
    source = node.folder / "app"
    source.mkdir()
    (source / "__main__.py").write_text("import sys\nprint(__name__, sys.argv)\nraise SystemExit(4)\n")
    zipapp.create_archive(source, node.folder / "app.pyz")
    assert both(node, "app.pyz", "--lr", "1") == (4, "__main__ ['app.pyz', '--lr', '1']\n", "")
    assert node.slot().returned_ns > 0


def test_a_module_and_a_script_run_by_runpy_are_ranks_too(node: Workers) -> None:
    node.script("import sys; print(__name__, sys.argv[1:])", "trainer.py")
    assert both(node, "-m", "trainer", "a")[:2] == (0, "__main__ ['a']\n")
    code = "import runpy, sys; runpy.run_path('trainer.py', run_name='__main__')"
    assert both(node, "-c", code, "b")[:2] == (0, "__main__ ['b']\n")


def test_the_users_faulthandler_shows_the_crash(node: Workers) -> None:
    script = node.script("""
        import faulthandler, os, signal
        faulthandler.enable()
        def crash():
            os.kill(os.getpid(), signal.SIGSEGV)
        crash()
    """)
    process = node.start(script)
    code, out, err = finish(process)
    assert (code, out) == (-signal.SIGSEGV, "")
    assert err.startswith("Fatal Python error: Segmentation fault")
    assert 'train.py", line 5 in crash' in err
    assert node.slot().pid == process.pid
    assert node.slot().returned_ns == 0


def test_a_signal_ends_the_rank_at_once_with_the_signals_code(node: Workers) -> None:
    process = node.start(node.script("print('up', flush=True); input()"))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == -signal.SIGTERM


def test_a_rank_that_becomes_another_program_leaves_it_alone(node: Workers) -> None:
    script = node.script("""
        import os
        os.execv("/bin/sh", ["sh", "-c", "ls /proc/self/fd | wc -l"])
    """)
    both(node, script)


def test_the_probe_leaves_no_descriptor_to_children(node: Workers) -> None:
    script = node.script("""
        import subprocess
        listing = subprocess.check_output(["ls", "-l", "/proc/self/fd"], text=True, close_fds=False)
        print("progress.page" in listing)
    """)
    assert both(node, script)[:2] == (0, "False\n")


def test_what_a_worker_without_standard_streams_prints_does_not_reach_the_page(node: Workers) -> None:
    script = node.script("""
        import os, sys
        if sys.argv[1:] != ["again"]:
            for fd in (0, 1, 2):
                os.close(fd)
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        for fd in (0, 1, 2):
            try:
                os.write(fd, b"Z" * 4000)
            except OSError:
                pass
    """)
    process = node.start(script)
    finish(process)
    assert node.reader.is_intact
    view = node.slot()
    assert (view.pid, view.rank) == (process.pid, 0)
