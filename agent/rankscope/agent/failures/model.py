"""The values of this package: how a worker ended, what was read of it, and the failure that is the root.

Plain values; nothing is read or decided here. All times are unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankscope.diag.model import Frame

Source = Literal["error file", "probe", "log", "exit code"]


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """How one worker ended, as its agent knows it.

    Attributes:
        rank: global rank.
        local_rank: of this launch.
        node: name of its node.
        exit_code: as Python has it (negative: killed by that signal), ``None`` when unknown.
        at: when it ended: of a pidfd, of torch's ``ProcessFailure.timestamp``, or when it was seen gone.
        role: torch's role of it.
        uncertainty: seconds by which the end may lie *after* ``at`` (1.0 for torch's whole seconds).
        stopped_at: when the agent began to stop the workers, if it had before this one ended, else ``None``.
        said: the last line of an uncaught exception as the worker's probe reported it, ``""`` for none.
        said_at: when the probe reported it, ``None`` when unknown.
        frame: the user's innermost frame that it came through, as the probe reported it.
        error_file: path of torch's error file, ``""`` for none.
        logs: paths of its log files; standard error first, then standard output.
    """

    rank: int
    local_rank: int
    node: str
    exit_code: int | None
    at: float
    role: str = "default"
    uncertainty: float = 0.0
    stopped_at: float | None = None
    said: str = ""
    said_at: float | None = None
    frame: Frame | None = None
    error_file: str = ""
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndWords:
    """A worker's end with what was read of it: small and plain, so that nodes can exchange it.

    Attributes:
        rank: as of ``WorkerEnd``; so are ``local_rank``, ``node``, ``role``, ``exit_code``, ``stopped_at``.
        failed_at: when it raised where that is known, else when it ended.
        uncertainty: seconds by which that may lie after ``failed_at``.
        raised: whether ``failed_at`` is the time of its exception, not of its end.
        message: the one line that a person should read.
        source: where that was read.
        frame: the user's innermost frame, ``None`` when unknown.
        is_aftermath: whether the message is what a rank says that fails because another did.
        retryable: whether it may be retried, were it the root; ``because`` says why.
    """

    rank: int
    local_rank: int
    node: str
    role: str
    exit_code: int | None
    stopped_at: float | None
    failed_at: float
    uncertainty: float
    raised: bool
    message: str
    source: Source
    frame: Frame | None
    is_aftermath: bool
    retryable: bool
    because: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The root failure of a launch, or a failed worker on its own (Async).

    Attributes:
        rank: global rank; ``local_rank``, ``node`` and ``role`` as of the worker.
        exit_code: as Python has it, negative for a signal.
        message: the one line that a person should read (``ValueError: ...``, ``killed by SIGKILL``).
        identity: normalised: the same error is the same text.
        source: where the message was read: ``error file``, ``probe``, ``log`` or ``exit code``.
        retryable: read from exit code and log of this rank alone.
        because: why, a phrase.
        at: when it failed: when it raised where that is known, else when it ended.
        frame: the user's innermost frame that an exception came through, ``None`` when unknown.
        tied_with: ranks that may as well have been the first: their times cannot be told apart.
        why_first: why this one is the root, a phrase; ``""`` when no other worker failed.
    """

    rank: int
    local_rank: int
    node: str
    role: str
    exit_code: int | None
    message: str
    identity: str
    source: str
    retryable: bool
    because: str
    at: float
    frame: Frame | None = None
    tied_with: tuple[int, ...] = ()
    why_first: str = ""

    @property
    def instance(self) -> str:
        """What "the same error on one instance" counts for."""
        return f"{self.node}/rank {self.rank}"
