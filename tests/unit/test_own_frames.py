"""Rankscope's own frames in a worker: no stack that is shown begins with them, and none decides by them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.classify_factory import ARank, a_rank, judge_still, native, stdlib, torch_frame, user

from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.merge.own_frames import HELD, is_own_thread, without_own_frames
from rankscope.diag.model import Frame, FrameVariables, JobSnapshot, ThreadStack
from rankscope.diag.store.incidents import IncidentFolder

RECORDED = Path(__file__).parents[2] / "notebooks" / "recorded" / "jobs"
BOOTSTRAP = (stdlib("Thread.run", "threading.py", 982), stdlib("Thread._bootstrap", "threading.py", 1002))


def ours(function: str, file: str, where: str = "/opt/venv/lib/python3.11/site-packages/") -> Frame:
    return Frame(function, f"{where}rankscope/watchdog/{file}", 7)


def judged_frames(*frames: Frame, variables: tuple[FrameVariables, ...] = ()) -> ThreadStack:
    rank = a_rank(0).stuck_in(*frames).build(0.0)
    thread = replace(rank.threads[0], variables=variables)
    (found,) = without_own_frames(JobSnapshot("run-7", 0.0, 1, (replace(rank, threads=(thread,)),))).ranks
    return found.threads[0]


HOLD = (
    ours("Hold._report", "probe/raising.py"),
    ours("Hold.report", "probe/raising.py"),
    ours("install.<locals>.excepthook", "probe/raising.py"),
)
END = user("<module>", 90)


@pytest.mark.parametrize(
    ("frames", "left"),
    [
        (HOLD, (HELD,)),
        ((native("clock_nanosleep"), *HOLD), (HELD,)),
        # A timer that is being set: the rank stands where it sets it.
        (
            (
                stdlib("JSONEncoder.encode", "json/encoder.py"),
                ours("FileTimerClient.acquire", "timers/client.py"),
                user("train", 4),
            ),
            (user("train", 4),),
        ),
        ((native("write"), ours("Monitor.step", "job_monitor.py"), user("train", 4)), (user("train", 4),)),
        # A wrapper around the user's function: that is where it stands.
        (
            (user("load", 2), ours("expires.<locals>.inner", "timers/scopes.py"), user("train", 4)),
            (user("load", 2), user("train", 4)),
        ),
        (
            (torch_frame("all_reduce", "torch/x.py"), ours("wrapped", "sdk/stages.py"), user("train", 4)),
            (torch_frame("all_reduce", "torch/x.py"), user("train", 4)),
        ),
        # An import through our finder runs other people's code.
        (
            (
                Frame("_load", "<frozen importlib._bootstrap>", 690),
                ours("_Loader.exec_module", "probe/imports.py"),
                user("train", 4),
            ),
            (Frame("_load", "<frozen importlib._bootstrap>", 690), user("train", 4)),
        ),
    ],
)
def test_a_stack_is_the_users(frames: tuple[Frame, ...], left: tuple[Frame, ...]) -> None:
    assert judged_frames(*frames).frames == (*left, END)


def test_a_stack_without_our_frames_is_the_same_object() -> None:
    job = JobSnapshot("run-7", 0.0, 1, (a_rank(0).waiting_in().build(0.0),))
    assert without_own_frames(job) is job


def test_a_users_folder_of_our_name_is_the_users() -> None:
    mine = user("main", 3, file="/home/u/rankscope/train.py")
    assert judged_frames(mine).frames == (mine, END)


def test_local_variables_stay_with_their_frames() -> None:
    wrapped = (user("load", 2), ours("inner", "timers/scopes.py"), user("train", 4))
    variables = tuple(FrameVariables(frame, (("x", str(frame)),)) for frame in range(3))
    found = judged_frames(*wrapped, variables=variables)
    assert [(one.frame, one.values[0][1]) for one in found.variables] == [(0, "0"), (1, "2")]


def test_a_thread_of_ours_is_in_no_stack_that_is_shown() -> None:
    beat = (stdlib("Event.wait", "threading.py", 629), ours("Beat._run", "probe/beat.py"), *BOOTSTRAP)
    assert is_own_thread(beat)
    assert not is_own_thread(
        (user("load", 2), ours("inner", "timers/scopes.py"), user("work", 1), *BOOTSTRAP)
    )
    beats = (ThreadStack(70, None, beat), ThreadStack(71, None, (user("work", 5), *BOOTSTRAP)))
    ranks: list[ARank] = [a_rank(rank).waiting_in().but(others=beats) for rank in range(3)]
    found = judge_still(*ranks, a_rank(3).stuck_in(user("load", 8)).but(others=beats))
    assert found.culprits == (3,)
    assert [stack.stack[0] for stack in found.stacks] == [
        "load (train.py:8)",
        "all_reduce (torch/distributed/distributed_c10d.py:3252)",
        "work (train.py:5)",
    ]


@pytest.mark.parametrize("name", ["crash", "killed"])
def test_the_stack_of_a_held_rank_says_so(name: str) -> None:
    (path,) = (RECORDED / name / "incidents").iterdir()
    folder = IncidentFolder(path)
    first, second = folder.snapshot("a"), folder.snapshot("b")
    assert first is not None
    found = diagnose(
        (first, second), catalogue=load_catalogue(), source_line=lambda _file, _line: None, time=""
    )
    assert found.verdict == folder.diagnosis().verdict
    assert found.culprits == folder.diagnosis().culprits
    shown = [frame for stack in found.stacks for frame in stack.stack]
    assert "held by Rankscope while evidence was taken" in shown
    assert not [frame for frame in shown if "watchdog/" in frame]
    assert not [one for one in found.unknown_frames if "held" in one.function]
