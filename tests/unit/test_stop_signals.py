"""Signals that end the agent: raised once, put off, counted, and heard beside a main thread that is in C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from tests.jobs import until
from tests.torch_programs import TorchPrograms, torch_programs
from torch.distributed.elastic.multiprocessing import SignalException, api

from rankscope.agent.ending import signals as stop_signals
from rankscope.agent.ending.signals import StopSignals
from rankscope.diag import proc


@pytest.fixture
def signals() -> Iterator[StopSignals]:
    """Signals whose handler answers SIGUSR1."""
    ours = StopSignals()
    before = signal.signal(signal.SIGUSR1, ours.handle)
    yield ours
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchPrograms]:
    """Starts processes that have torch and the module of the signals."""
    modules = ("torch.distributed.elastic.multiprocessing", stop_signals.__name__)
    with torch_programs(tmp_path_factory.mktemp("programs"), *modules) as started:
        yield started


def send() -> None:
    os.kill(os.getpid(), signal.SIGUSR1)


def test_the_first_one_is_raised_as_torch_does_it_and_further_ones_only_counted(
    signals: StopSignals,
) -> None:
    with pytest.raises(SignalException) as raised:
        send()
    assert raised.value.sigval == signal.SIGUSR1
    send()
    assert len(signals.received) == 2
    signals.arm()
    with pytest.raises(SignalException):
        send()


def test_one_that_comes_while_held_is_raised_at_the_end(signals: StopSignals) -> None:
    seen: list[str] = []
    with pytest.raises(SignalException):
        hold_twice(signals, seen)
    assert seen == ["after the inner one"]


def hold_twice(signals: StopSignals, seen: list[str]) -> None:
    with signals.hold():
        send()
        with signals.hold():
            pass
        seen.append("after the inner one")


def test_while_one_is_carried_out_holding_raises_nothing_more(signals: StopSignals) -> None:
    with pytest.raises(SignalException):
        send()
    with signals.hold():
        send()


def test_repetitions_within_a_moment_count_once(
    signals: StopSignals, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SignalException):
        send()
    send()
    assert signals.askings() == 1
    monkeypatch.setattr(stop_signals, "ONE_ASKING", 0.0)
    assert signals.askings() == 2
    signals.arm()
    assert signals.askings() == 0


def test_torch_registers_our_handler_when_it_starts_processes(signals: StopSignals) -> None:
    before = api._terminate_process_handler
    with signals.in_torchs_place():
        assert api._terminate_process_handler == signals.handle
    assert api._terminate_process_handler is before


IN_C = """
import ctypes, os, signal
from rankscope.agent.ending.signals import StopSignals

signals = StopSignals()
signal.signal(signal.SIGTERM, signals.handle)

def help_out(sent):
    print("heard", sent.name, flush=True)
    os._exit(3)

signals.start(help_out)
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
print("up", flush=True)
for _ in range(2):  # the second call never returns, and no signal interrupts it: no Python handler ever runs
    libc.pthread_mutex_lock(mutex)
"""


def test_a_signal_is_heard_while_the_main_thread_stays_in_c(programs: TorchPrograms) -> None:
    child = programs.start(IN_C)
    until(lambda: child.stdout == "up\n", "the program to be up")
    until(lambda: _sleeps_in(child.pid, "futex"), "the main thread to wait for the mutex")
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait() == 3
    assert child.stdout == "up\nheard SIGTERM\n"


def _sleeps_in(pid: int, what: str) -> bool:
    facts = proc.read_facts(pid, now=0.0)
    return facts is not None and what in (facts.wchan or "")


def test_a_main_thread_that_acts_needs_no_help(programs: TorchPrograms) -> None:
    program = """
import os, signal, time
from torch.distributed.elastic.multiprocessing import SignalException
from rankscope.agent.ending import signals as stop_signals

stop_signals.PATIENCE = 0.3
signals = stop_signals.StopSignals()
signal.signal(signal.SIGTERM, signals.handle)
helped = []
signals.start(helped.append)
try:
    os.kill(os.getpid(), signal.SIGTERM)
except SignalException:
    signals.acting()
signals.stop(timeout=60.0)  # once the thread has made up its mind about the signal
raise SystemExit(len(helped))
"""
    done = programs.start(program)
    assert done.wait() == 0, done.stderr


FAST = """
import os, signal, sys, time
from torch.distributed.elastic.multiprocessing import SignalException
from rankscope.agent.ending import signals as stop_signals

stop_signals.PATIENCE = 20.0
signals = stop_signals.StopSignals()
signal.signal(signal.SIGTERM, signals.handle)
helped = []
signals.start(helped.append)
try:
    with signals.hold():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
except SignalException:
    signals.acting()
    with signals.hold():
        time.sleep(0.1)
    if sys.argv[1] == "again":
        os.kill(os.getpid(), signal.SIGTERM)
    signals.arm()  # within the same moment: the thread has not looked yet
began = time.monotonic()
signals.stop(timeout=60.0)
print(time.monotonic() - began < stop_signals.PATIENCE / 2, helped)
"""


@pytest.mark.parametrize("again", ["once", "again"])
def test_what_was_acted_on_stays_so_when_the_next_signal_may_raise_again(
    programs: TorchPrograms, again: str
) -> None:
    done = programs.start(FAST, again)
    assert done.wait() == 0, done.stderr
    assert done.stdout == "True []\n"


def test_a_signal_that_nobody_carried_out_is_helped_with_though_an_earlier_one_was(
    programs: TorchPrograms,
) -> None:
    program = """
import os, signal, time
from torch.distributed.elastic.multiprocessing import SignalException
from rankscope.agent.ending import signals as stop_signals

stop_signals.PATIENCE = stop_signals.ONE_ASKING = 0.3
signals = stop_signals.StopSignals()
signal.signal(signal.SIGTERM, signals.handle)
helped = []
signals.start(helped.append)
for carried_out in (True, False):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except SignalException:
        if carried_out:
            signals.acting()
            signals.arm()
    time.sleep(1.0)
signals.stop()
raise SystemExit(len(helped))
"""
    done = programs.start(program)
    assert done.wait() == 1, done.stderr
    assert done.stderr == ""


FORKS = """
import os, signal, threading
from rankscope.agent.ending.signals import StopSignals
from torch.distributed.elastic.multiprocessing import SignalException

signals, asked = StopSignals(), []
signal.signal(signal.SIGTERM, signals.handle)
signals.start(asked.append)
read, write = os.pipe()
with signals.hold():
    child = os.fork()  # as torch forks workers that are functions
    if child == 0:
        try:
            os.write(write, b"up")
            threading.Event().wait()
        except SignalException:
            os._exit(7)
    os.read(read, 2)
    os.kill(child, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
signals.stop(20)  # after all that the child may have written has been read
print(code, asked, signals.received)
"""


def test_a_forked_worker_takes_a_signal_as_under_torch_and_the_agent_hears_nothing_of_it(
    programs: TorchPrograms,
) -> None:
    done = programs.start(FORKS)
    assert done.wait() == 0, done.stderr
    assert done.stdout == "7 [] ()\n"
