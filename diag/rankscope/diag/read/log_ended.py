"""Reads what Slurm and torchrun write when tasks end, and when a whole job is ended from outside.

``srun`` names the node and the task, which is a rank only where each rank is a task of its own;
``slurmstepd`` says that a job or step was cancelled, and mostly why. The forms of Slurm 17 to 24, and of
torch 1.9 to 2.13.
"""

from __future__ import annotations

import re
import signal
from typing import Final

from rankscope.diag.model import ExitFacts
from rankscope.diag.ranks import unfold_ranks
from rankscope.diag.read import LogFact

ENDED_WORDS: Final = ("srun: error: ", "slurmstepd", "death signal", "SignalException: Process ")
AGENTS_SIGNAL: Final = "elastic.multiprocessing.api.SignalException"
_TASKS: Final = re.compile(r"srun: error: (\S{1,253}): tasks? (\[?[\d,-]{1,200}\]?): (.{1,100})$")
_CODE: Final = re.compile(r"Exited with exit code (\d{1,3})")
_SIGNALS: Final = {
    "Out Of Memory": signal.SIGKILL,
    "Killed": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
    "Interrupt": signal.SIGINT,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
}
_CANCELLED: Final = re.compile(
    r"slurmstepd.{0,100}?: error: \*{3} (?:JOB|STEP) .{1,300}? CANCELLED AT .{1,200}\*{3}"
    r"|Received (?:Signals\.)?(?:SIG[A-Z]{2,6}|\d{1,2}) death signal, shutting down workers"
    r"|SignalException: Process \d{1,9} got signal: \d{1,2}"
)
_OUT_OF_MEMORY: Final = re.compile(r"slurmstepd.{0,100}?: error: Detected \d{1,9} oom[-_]kill event.{0,300}")
_MOST_TASKS: Final = 1_024  # of one line
_LONGEST: Final = 500


def ended_facts(text: str, *, number: int, time: float | None) -> list[LogFact]:
    """The facts that stand on a line: one for each task."""
    tasks = _TASKS.search(text)
    if tasks:
        return _of_tasks(tasks, number=number, time=time)
    if cancelled := _CANCELLED.search(text):
        return [LogFact("cancelled", cancelled[0][:_LONGEST], number, time=time)]
    if killed := _OUT_OF_MEMORY.search(text):
        return [LogFact("oom_kill", killed[0][:_LONGEST], number, time=time)]
    return []


def _of_tasks(found: re.Match[str], *, number: int, time: float | None) -> list[LogFact]:
    node, numbers, how = found.groups()
    code = _CODE.match(how)
    killed = _SIGNALS.get(how.partition(" (")[0].strip())
    if code is None and killed is None:
        return []
    try:
        tasks = unfold_ranks(numbers.strip("[]"))
    except ValueError:
        return []
    end = ExitFacts(int(code[1]) if code else -(killed or 0), found[0][:_LONGEST])
    return [
        LogFact("task_ended", found[0][:_LONGEST], number, time=time, exit=end, task=task, node=node)
        for task in tasks[:_MOST_TASKS]
    ]
