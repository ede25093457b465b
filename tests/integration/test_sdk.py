"""The SDK in real workers: ranks as the agent starts them, their children, and no agent at all."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.probe_factory import Workers, finish, wait_until, workers

from rankscope.watchdog import environment
from rankscope.watchdog.timers import Event, FileTimerServer
from rankscope.watchdog.timers.pipe import TimerPipe

WITHOUT_EFFECT = "job_monitor has no effect here, training goes on\n"
ALONE = f"rankscope: no agent of Rankscope runs this process; {WITHOUT_EFFECT}"
USE = """
    import os, sys, threading
    from rankscope.watchdog import job_monitor as jm
    from rankscope.watchdog.page import PageReader

    def slot():
        reader = PageReader(os.environ["RANKSCOPE_PAGE"])
        try:
            view = reader.read(int(os.environ["RANKSCOPE_SLOT"]))
        finally:
            reader.close()
        return [view.interval, view.stage_limit, view.user_step]

    def use(seconds=77):
        monitor = jm.Monitor(config=jm.PyTorchConfig(job_hang_interval=seconds))
        with jm.hang_detect(9):
            monitor.step(seconds)
            monitor.set_retryable_errors(["loader timed out"])
            return monitor.send_custom_message(content="hello").to_string()
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path) as made:
        yield made


@pytest.fixture
def heard(node: Workers) -> Iterator[list[Event]]:
    """What the agent's end of the pipe has read."""
    events: list[Event] = []
    server = FileTimerServer(str(node.folder / "timers"), "test", on_event=events.append)
    server.start()
    yield events
    server.stop()


def program(node: Workers, source: str) -> Path:
    return node.script(dedent(USE) + dedent(source))


def start(
    node: Workers, source: str, *arguments: str, rank: int | None = 0, **more: str | None
) -> subprocess.Popen[str]:
    variables = {environment.TIMER_FILE: str(node.folder / "timers"), **more}
    return node.start(program(node, source), *arguments, rank=rank, **variables)


def test_a_ranks_values_are_in_its_slot_and_its_words_in_the_pipe(node: Workers, heard: list[Event]) -> None:
    source = """
    print(use(), slot())
    jm.Monitor().reset_config({"job_hang_interval": 60}, max_num_of_same_error=3)
    print(slot())
    jm.Monitor().reset_config(enable_job_hang_detection=False)
    print(slot())
    jm.Monitor().reset_config(enable_job_hang_detection=True, job_hang_interval=None)
    print(slot())
"""
    process = start(node, source)
    assert finish(process) == (
        0,
        "OK [77.0, None, 77]\n[60.0, None, 77]\n[-1.0, None, 77]\n[None, None, 77]\n",
        "",
    )
    wait_until(lambda: len(heard) == 6, "all has arrived")
    assert {event.pid for event in heard} == {process.pid}
    assert [(event.name, dict(event.data)) for event in heard[:4]] == [
        ("settings", {"rank": 0, "values": {"job_hang_interval": 77}}),
        ("retryable_errors", {"rank": 0, "keyword": "loader timed out", "index": 0, "count": 1}),
        ("message", {"rank": 0, "content": "hello"}),
        ("settings", {"rank": 0, "values": {"job_hang_interval": 60, "max_num_of_same_error": 3}}),
    ]


def test_stages_of_several_threads_reach_the_page(node: Workers) -> None:
    source = """
    entered, leave = threading.Barrier(3), threading.Event()
    def work(seconds):
        with jm.hang_detect(seconds, name=f"stage {seconds}"):
            entered.wait(); leave.wait()
    threads = [threading.Thread(target=work, args=(seconds,)) for seconds in (300, 5)]
    for thread in threads: thread.start()
    entered.wait()
    print("in", flush=True); input()
    with jm.hang_detect(-1): print("off", flush=True); input()
    leave.set()
    for thread in threads: thread.join()
    print("out", flush=True); input()
"""
    process = start(node, source)
    assert process.stdout is not None
    assert process.stdin is not None
    for line, expected in {"in": (300, "stage 300"), "off": (-1, "train.py:29"), "out": (None, "")}.items():
        assert process.stdout.readline() == line + "\n"
        view = node.slot()
        assert (view.stage_limit, view.stage) == expected
        process.stdin.write("\n")
        process.stdin.flush()
    assert finish(process) == (0, "", "")


CHILDREN = """
    def child(before):
        print(use(5), slot() == before, flush=True)

    if __name__ == "__main__":
        import multiprocessing
        jm.Monitor(config=jm.PyTorchConfig(job_hang_interval=77)).step(3)
        with jm.hang_detect(9):
            before = slot()
            for method in ("fork", "forkserver", "spawn"):
                process = multiprocessing.get_context(method).Process(target=child, args=(before,))
                process.start(); process.join()
            if os.fork() == 0:
                child(before)
                os._exit(0)
            os.wait()
            inner = jm.hang_detect(4).__enter__()
            print(slot())
"""


@pytest.mark.parametrize("probe", ["1", "0"])
def test_children_of_a_rank_say_nothing(node: Workers, heard: list[Event], probe: str) -> None:
    code, out, err = finish(start(node, CHILDREN, RANKSCOPE_PROBE=probe))
    refused = "this process is a child of a rank, not a rank True\n"
    assert (code, out, err) == (0, 4 * refused + "[77.0, 4.0, 3]\n", "")
    assert [event.name for event in heard] == ["settings"]


def test_a_child_that_comes_first_does_not_take_the_slot_of_a_rank_without_a_probe(node: Workers) -> None:
    source = """
    if os.fork() == 0:
        print(use(5), slot(), flush=True)
        os._exit(0)
    os.wait()
    use(77)
    print(slot())
"""
    assert finish(start(node, source, RANKSCOPE_PROBE="0")) == (
        0,
        "this process is a child of a rank, not a rank [None, None, 0]\n[77.0, None, 77]\n",
        "",
    )


def test_without_the_probe_the_slot_is_claimed_as_the_probe_does_it(node: Workers) -> None:
    process = start(node, "use(); input()", RANKSCOPE_PROBE="0")
    wait_until(lambda: node.slot().user_step == 77, "the step is in the page")
    view = node.slot()
    assert (view.rank, view.pid, view.interval, view.beat_ns) == (0, process.pid, 77, 0)
    second = start(node, "print(use(5), slot()[0])", RANKSCOPE_PROBE="0")
    assert finish(second) == (0, "this process is a child of a rank, not a rank 77.0\n", "")
    process.communicate("\n")


@pytest.mark.parametrize("probe", ["1", "0"])
def test_a_rank_below_a_launcher_claims_a_slot_of_its_own_with_the_launchers_rank(
    tmp_path: Path, probe: str
) -> None:
    below: dict[str, Any] = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    below |= {environment.TASK: "", "RANKSCOPE_PROBE": probe}
    with workers(tmp_path, slots=2) as node:
        for torchs in ("0", None):  # scripts that would take it for their own are started without it
            process = start(node, "use(); input()", RANK=torchs, **below)
            wait_until(partial(is_claimed_by, node, process.pid), "the slot is claimed")
            wait_until(lambda: node.slot(1).user_step == 77, "the step is in the page")
            assert node.slot(1).rank == 5
            assert node.slot(0).rank == -1
            process.communicate("\n")
            node.reader.clear(1)


def is_claimed_by(node: Workers, pid: int) -> bool:
    return node.slot(1).pid == pid


SPEAKS_FIRST = """
    import subprocess
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    child = subprocess.Popen([sys.executable, "-c", CHILD], **pipes)
    print("child", child.stdout.readline(), end="", flush=True)
    print(use(77), slot()[0], flush=True)
    print("child", *child.communicate("\\n")[0].splitlines(), flush=True)
    print(slot(), flush=True)
"""


def test_a_subprocess_that_speaks_first_gives_the_slot_to_its_rank(node: Workers, heard: list[Event]) -> None:
    child = dedent(USE) + dedent("""
        print(use(5), flush=True)
        sys.stdin.readline()
        monitor = jm.Monitor()
        monitor.step(6)
        print(use(6))
    """)
    process = start(node, f"CHILD = {child!r}\n" + dedent(SPEAKS_FIRST), RANKSCOPE_PROBE="0")
    code, out, err = finish(process)
    refused = "this process is a child of a rank, not a rank"
    assert (code, out, err) == (0, f"child OK\nOK 77.0\nchild {refused}\n[77.0, None, 77]\n", "")
    view = node.slot()
    assert (view.pid, view.interval, view.user_step) == (process.pid, 77, 77)


def test_a_rank_that_found_its_slot_taken_has_it_when_it_is_free(node: Workers) -> None:
    holder = start(node, "use(5); print('in', flush=True); input()", RANKSCOPE_PROBE="0")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "in\n"
    source = """
    import itertools, time
    monitor = jm.Monitor()
    monitor.step(1)
    print(slot()[2], flush=True)
    deadline = time.monotonic() + 60
    for number in itertools.count(1000):
        monitor.step(number)
        if slot()[2] == number or time.monotonic() > deadline:
            break
    print(slot()[2] == number)
"""
    second = start(node, source, RANKSCOPE_PROBE="0")
    assert second.stdout is not None
    assert second.stdout.readline() == "5\n"
    holder.communicate("\n")
    assert finish(second) == (0, "True\n", "")
    assert node.slot().pid == second.pid


def test_a_loader_worker_does_nothing_and_says_nothing(node: Workers, heard: list[Event]) -> None:
    source = """
    import torch
    from torch.utils.data import DataLoader

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 4
        @jm.hang_detect(5)
        def __getitem__(self, index):
            return use(5)

    if __name__ == "__main__":
        jm.Monitor().step(1)
        for method, count in (("fork", 2), ("spawn", 1)):
            print(set(sum(DataLoader(Samples(), num_workers=count, multiprocessing_context=method), [])))
        print(slot())
"""
    code, out, err = finish(start(node, source))
    assert (code, out, err) == (
        0,
        2 * "{'this process is a child of a rank, not a rank'}\n" + "[None, None, 1]\n",
        "",
    )
    assert heard == []


def test_without_an_agent_one_line_is_said_and_then_nothing(node: Workers) -> None:
    source = """
    print(use(), use(), use())
    if os.fork() == 0:
        use()
        os._exit(0)
    os.wait()
"""
    nothing = {environment.PAGE: None, environment.SLOT: None, environment.AGENT_PID: None}
    script = program(node, source)
    for rank in (0, None):
        code, out, err = finish(node.start(script, rank=rank, **nothing))
        assert (code, out) == (0, " ".join(["no agent of Rankscope runs this process"] * 3) + "\n")
        assert err == ALONE


def test_an_agent_that_is_gone_before_costs_one_line(node: Workers) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    code, out, err = finish(
        start(node, "print(use())", RANKSCOPE_PROBE="0", RANKSCOPE_AGENT_PID=str(ended.pid))
    )
    assert (code, out) == (0, f"the agent (pid {ended.pid}) is gone\n")
    assert err == f"rankscope: the agent (pid {ended.pid}) is gone; {WITHOUT_EFFECT}"


def test_an_agent_that_goes_while_the_rank_trains_costs_the_messages_alone(node: Workers) -> None:
    server = FileTimerServer(str(node.folder / "timers"), "test", on_event=lambda _event: None)
    server.start()
    process = start(
        node, "print(use(), flush=True); input(); os.unlink(os.environ['RANKSCOPE_PAGE']); print(use(5))"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "OK\n"
    server.stop()
    out, err = process.communicate("\n")
    assert (process.returncode, out, err) == (
        0,
        "the agent's pipe cannot be written to (No such file or directory)\n",
        "",
    )
    assert (node.slot().interval, node.slot().user_step) == (5, 5)


@pytest.mark.parametrize("page", ["no/such/page", "timers"])
def test_a_page_that_is_none_costs_the_limits_and_one_line(
    node: Workers, heard: list[Event], page: str
) -> None:
    path = str(node.folder / page)
    code, out, err = finish(start(node, "print(use())", RANKSCOPE_PROBE="0", RANKSCOPE_PAGE=path))
    assert (code, out) == (0, "OK\n")
    assert err.startswith("rankscope: no progress page (")
    assert err.count("\n") == 1
    wait_until(lambda: len(heard) == 3, "the words have arrived")


def test_a_pipe_that_stays_full_costs_a_bounded_moment_and_is_said_in_the_status(node: Workers) -> None:
    pipe = TimerPipe(str(node.folder / "timers"))
    source = """
    import time
    monitor, count, begin = jm.Monitor(), 0, time.monotonic()
    while (status := monitor.send_custom_message(content="x" * 3900)).ok():
        count += 1
    refused = [monitor.send_custom_message(content="y" * 3900).ok() for _ in range(50)]
    print(count > 200, any(refused), status.to_string(), flush=True)
    print(time.monotonic() - begin, flush=True)
    input()
    print(monitor.send_custom_message(content="z").to_string())
"""
    process = start(node, source)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True False the agent does not read its pipe, which is full\n"
        # 50 refusals after the first are not 50 times half a second.
        assert float(process.stdout.readline()) < 15
        read = [json.loads(line)["content"][0] for _ in range(1000) for line in pipe.read()]
        assert set(read) == {"x"}
        assert process.communicate("\n") == ("OK\n", "")
        assert [json.loads(line)["content"] for line in pipe.read()] == ["z"]
    finally:
        pipe.close()


def test_parameters_that_find_the_pipe_full_are_said_and_sent_when_there_is_room(node: Workers) -> None:
    pipe = TimerPipe(str(node.folder / "timers"))
    source = """
    import time
    monitor = jm.Monitor()
    while monitor.send_custom_message(content="x" * 3900).ok():
        pass
    for seconds in range(50, 60):
        found = [monitor.reset_config(job_hang_interval=seconds)]
        found += [monitor.reset_config(enable_job_restart=True)]
    found += [monitor.set_retryable_errors(["a", "b"])]
    print({status.to_string() for status in found}, slot()[0], flush=True)
    input()
    begin = time.monotonic()
    while PUBLISHED._unsent and time.monotonic() < begin + 60:
        monitor.step(3)
    print("sent", slot(), flush=True)
"""
    source = "from rankscope.watchdog.sdk.published import PUBLISHED\n" + dedent(source)
    process = start(node, source)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "{'the agent does not read its pipe, which is full'} 59.0\n"
        while pipe.read():
            pass
        out, err = process.communicate("\n")
        assert (process.returncode, out) == (0, "sent [59.0, None, 3]\n")
        assert err == (
            "rankscope: the agent does not read its pipe, which is full: settings not recorded; "
            "sent again until it is recorded, training goes on\n"
        )
        lines = [json.loads(line) for line in pipe.read()]
        assert [line.get("values") or line["keyword"] for line in lines] == [
            {"job_hang_interval": 59, "enable_job_restart": True},
            "a",
            "b",
        ]
    finally:
        pipe.close()


COMPILED = """
    import warnings
    import torch

    monitor = jm.Monitor()
    warnings.simplefilter("error", UserWarning)

    def block(x):
        y = x * 2
        with jm.hang_detect(7):
            y = y + 1
        return y * 2

    @jm.hang_detect(7)
    def decorated(x):
        return x + 1

    def calls(x):
        return decorated(x * 2) * 2

    def steps(x):
        y = x * 2
        monitor.step(3)
        monitor.reset_config(job_hang_interval=5)
        return y + 1

    def says(x):
        monitor.send_custom_message(content="x")
        jm.Monitor(config=jm.PyTorchConfig(job_hang_interval=6))
        return x + 1

    for function in (block, decorated, calls, steps, says):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="eager")
        print(function.__name__, *(compiled(torch.ones(1)).item() for _ in range(2)))
    print(slot())
"""


def test_a_compiled_function_may_use_all_of_it_also_where_warnings_are_errors(
    node: Workers, heard: list[Event]
) -> None:
    code, out, err = finish(start(node, COMPILED))
    values = {"block": 6.0, "decorated": 2.0, "calls": 6.0, "steps": 3.0, "says": 2.0}
    lines = "".join(f"{name} {value} {value}\n" for name, value in values.items())
    assert (code, out, err) == (0, lines + "[6.0, None, 3]\n", "")


def test_a_timer_server_of_torch_gets_no_line_that_it_does_not_know(node: Workers) -> None:
    os.mkfifo(node.folder / "timers")
    listener = os.open(node.folder / "timers", os.O_RDONLY | os.O_NONBLOCK)
    try:
        code, out, err = finish(start(node, "print(use())"))
        assert (code, out, err) == (0, "the agent has no pipe for messages\n", "")
        assert os.read(listener, 4096) == b""
    finally:
        os.close(listener)


def test_a_signal_handler_that_uses_a_stage_leaves_nothing_behind(node: Workers) -> None:
    source = """
    import signal
    handled = 0
    def handle(*_):
        global handled
        with jm.hang_detect(-1): handled += 1
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    wrong = 0
    while handled < 300:
        with jm.hang_detect(9):
            wrong += slot()[1] != 9
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(wrong, slot())
"""
    code, out, err = finish(start(node, source))
    assert (code, err) == (0, "")
    assert out.endswith(" [None, None, 0]\n")
    # The handler is at work while the page is being read, now and then; never for good.
    assert int(out.split()[0]) < 300


def test_a_stage_whose_block_is_gone_leaves_the_page_at_the_next_step(node: Workers) -> None:
    source = """
    stage = jm.hang_detect(9).__enter__()
    print(slot())
    del stage
    jm.Monitor().step(4)
    print(slot())
"""
    assert finish(start(node, source)) == (0, "[None, 9.0, 0]\n[None, None, 4]\n", "")


ALARM = """
    import signal, time
    class Overtime(TimeoutError):
        pass
    def handle(*_):
        raise Overtime
    signal.signal(signal.SIGALRM, handle)
    caught = loops = 0
    monitor = jm.Monitor()
    while caught < 200:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0003)
            begin = time.monotonic()
            while time.monotonic() - begin < 30:
                with jm.hang_detect(9):
                    monitor.step(loops)
                    monitor.send_custom_message(content="x")
                loops += 1
            break
        except Overtime:
            caught += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    # Another thread, for which a lock that was left locked would be one.
    thread = threading.Thread(target=monitor.step, args=(5,))
    thread.start()
    thread.join(60)
    print(caught, slot(), monitor.send_custom_message(content="y").ok())
"""


def test_what_the_programs_own_signal_handler_raises_gets_through(node: Workers, heard: list[Event]) -> None:
    code, out, err = finish(start(node, ALARM))
    assert (code, out, err) == (0, "200 [None, None, 5] True\n", "")


def test_a_closed_stderr_does_not_matter(node: Workers) -> None:
    script = program(node, "os.close(2); print(use())")
    code, out, _err = finish(node.start(script, rank=None, RANKSCOPE_AGENT_PID=None))
    assert (code, out) == (0, "no agent of Rankscope runs this process\n")


WORKERS_THAT_ARE_FUNCTIONS = """
    # At the top of the script, where no rank is known yet in a spawned worker.
    MONITOR = jm.Monitor(config=jm.PyTorchConfig(job_hang_interval=60))

    def train():
        MONITOR.step(3)
        print(MONITOR.send_custom_message(content="hello").to_string(), slot(), flush=True)

    if __name__ == "__main__":
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes
        from rankscope.watchdog.probe.entry import ProbedEntrypoint
        envs = {0: {"RANK": "0", "RANKSCOPE_SLOT": "0", "RANKSCOPE_AGENT_PID": str(os.getpid())}}
        context = start_processes("train", ProbedEntrypoint(train), {0: ()}, envs,
                                  DefaultLogsSpecs(sys.argv[2]), start_method=sys.argv[1])
        print("failed", sorted(context.wait(300).failures))
"""


@pytest.mark.parametrize(
    ("start_method", "probe"), [("fork", "1"), ("spawn", "1"), ("fork", "0"), ("forkserver", "0")]
)
def test_workers_that_are_functions_are_ranks(
    node: Workers, heard: list[Event], start_method: str, probe: str
) -> None:
    (node.folder / "logs").mkdir()
    process = start(
        node,
        WORKERS_THAT_ARE_FUNCTIONS,
        start_method,
        str(node.folder / "logs"),
        rank=None,
        RANKSCOPE_PROBE=probe,
        RANKSCOPE_AGENT_PID=None,
    )
    code, out, err = finish(process)
    # The line is the launcher's own, in which job_monitor has no effect indeed.
    assert (code, out, err) == (0, "OK [60.0, None, 3]\nfailed []\n", ALONE)
    assert [event.name for event in heard] == ["message"]
