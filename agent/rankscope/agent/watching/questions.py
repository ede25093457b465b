"""What an agent asks the whole job, and what it proposes: plain values, with what becomes of each.

No behaviour: ``joint`` asks and proposes, others are called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rankscope.agent.nodes.messages import Opening
from rankscope.diag.model import Decision, Diagnosis


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about a silence, and what becomes of it; each is called in the watch thread, one of them.

    Attributes:
        judged: the verdict of the whole job is there.
        goes_on: the job goes on somewhere, why is a phrase; where nobody suspects anything, something came
            between.
        here: there is none to be had: what is seen here must do.
    """

    opening: Opening
    judged: Callable[[Diagnosis], None]
    goes_on: Callable[[str], None]
    here: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What should be done; one of both is called in the watch thread, unless another node's proposal holds.

    Attributes:
        leaving: nodes that leave the job.
        carry_out: it holds.
        postpone: it does not, and nothing is done now.
    """

    decision: Decision
    leaving: tuple[str, ...]
    carry_out: Callable[[], None]
    postpone: Callable[[], None]


@dataclass(slots=True)
class AskedQuestion:
    """A question that waits for its answer.

    Attributes:
        until: when it is no longer waited for, monotonic seconds.
        is_sent: whether the others know of it.
    """

    question: Question
    until: float
    is_sent: bool = False


@dataclass(slots=True)
class OpenIncident:
    """The incident of the job that is open.

    Attributes:
        since: when it was heard of, monotonic seconds; moves the signs of progress that were here then.
        is_judged: whether it has a verdict; is_said_to_work whether this agent has said that ranks here work.
    """

    opening: Opening
    since: float
    moves: int
    is_judged: bool = False
    is_said_to_work: bool = False
