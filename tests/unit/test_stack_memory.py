"""What was found of a stack is found once for each stack, and never told of another."""

from __future__ import annotations

from rankscope.diag.classify.stack_memory import StackMemory
from rankscope.diag.model import Frame


def a_stack(name: str) -> tuple[Frame, ...]:
    return (Frame(name, "train.py", 1),)


def test_a_question_about_one_stack_is_answered_once_and_each_question_by_itself() -> None:
    memory, asked = StackMemory(), []

    def leaf(frames: tuple[Frame, ...]) -> str:
        asked.append(frames)
        return frames[0].function

    stack = a_stack("step")
    assert [memory.once("leaf", stack, leaf) for _ in range(3)] == ["step"] * 3
    assert memory.once("size", stack, len) == 1
    assert len(asked) == 1


def test_stacks_that_come_and_go_are_never_taken_for_each_other() -> None:
    memory = StackMemory()
    for number in range(5000):  # more than are remembered, each gone before the next comes
        assert memory.once("leaf", a_stack(f"f{number}"), lambda frames: frames[0].function) == f"f{number}"
