"""Names of the environment variables between the agent and its workers (INTERFACES.md, "Environment")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROBE: Final = "RANKSCOPE_PROBE"
"""``0`` switches the probe off in a worker."""
PAGE: Final = "RANKSCOPE_PAGE"
"""Path of the node's progress page."""
SLOT: Final = "RANKSCOPE_SLOT"
"""The worker's slot in the page: its local rank, also under ``--virtual-local-rank``."""
TASK: Final = "RANKSCOPE_TASK"
"""The task of MPI or Slurm that the agent itself runs in, empty for none (``nested.py``)."""
JOB_DIR: Final = "RANKSCOPE_JOB_DIR"
"""The job's folder."""
ANSWERS: Final = "RANKSCOPE_ANSWERS"
"""Private folder through which a worker answers whoever looks at it (``answers.py``)."""
SERVER: Final = "RANKSCOPE_SERVER"
"""``0``: the probe does not start torch's worker server."""
AGENT_PID: Final = "RANKSCOPE_AGENT_PID"
"""Process of the agent that started the worker."""
RANK_PID: Final = "RANKSCOPE_RANK_PID"
"""Set by the probe to its own pid: a process that inherits it with a foreign pid is a child of a rank."""
STDOUT: Final = "RANKSCOPE_STDOUT"
STDERR: Final = "RANKSCOPE_STDERR"
"""FIFOs that a worker started as a function writes its output to (log capture)."""
HOME: Final = "RANKSCOPE_HOME"
"""Root of all job folders."""
PIPE: Final = "RANKSCOPE_PIPE"
"""The named pipe for whatever a worker tells its agent."""
TIMER_FILE: Final = "TORCHELASTIC_TIMER_FILE"
"""torch's own name for it: timers of users look there, and without it believe that there are none."""


def pipe_of(environ: Mapping[str, str]) -> str:
    """The path of the pipe that a worker's environment names, ``""`` for none."""
    return environ.get(PIPE) or environ.get(TIMER_FILE, "")
