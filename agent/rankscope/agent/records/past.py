"""What a job has been through, as the policy asks for it: counted from the node's own events. Pure.

The live agent feeds it each event that it writes, before it acts; an agent that is started again under the
same run id feeds it the events that are there. It is one code, so that neither can count otherwise.

An agent that was killed (no ``job.ended``) left a job under way: all counters go on. One that ended with 75
asked to be run again: restarts start anew, what repeats goes on. Any other end is the job's: all start anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rankscope.agent.failures.model import Failure
from rankscope.agent.policy import EXIT_RUN_AGAIN, History
from rankscope.diag.store.events import TYPE_PREFIX, Event

_ErrorOnInstance = tuple[str, str]


@dataclass(slots=True)
class Past:
    """The counters.

    Attributes:
        continues: whether an earlier agent left this job under way, or asked to run it again.
        restarts: restarts of all workers that count, since the job began or was run again.
        without_progress: restarts in a row without a new step.
        best_step: highest step that the script gave itself, ``None`` when it gave none.
        cycles: number of the last cycle that was recorded.
    """

    continues: bool = False
    restarts: int = 0
    without_progress: int = 0
    best_step: int | None = None
    cycles: int = 0
    _errors: Counter[_ErrorOnInstance] = field(default_factory=Counter[_ErrorOnInstance])
    _failed: set[int] = field(default_factory=set[int])
    _of_workers: Counter[int] = field(default_factory=Counter[int])
    _begun: set[int | None] = field(default_factory=set[int | None])
    _launched: bool = False
    _progressed: bool = False
    _ended: int | None = None
    _open: bool = False

    @classmethod
    def of(cls, events: Iterable[Event]) -> Past:
        """The past that a node's events tell, in their order."""
        past = cls()
        for event in events:
            past.take(event)
        return past

    # What the policy asks for.

    def history(
        self,
        failure: Failure | None = None,
        *,
        allowed: int,
        workers: int,
        progress_seen: bool = True,
        interval_given: bool = False,
        progress_known: bool = True,
    ) -> History:
        """The history of the job, once its last failure is recorded.

        Args:
            failure: that failure, ``None`` when nothing failed.
            allowed: restarts allowed in all.
            workers: ranks of the job.
            progress_seen: whether anything has progressed in this launch.
            interval_given: whether the user named the interval that has passed.
            progress_known: whether steps would be seen.
        """
        return History(
            restarts_used=self.restarts,
            restarts_allowed=allowed,
            same_errors=self.same_errors(failure),
            without_progress=self.without_progress,
            failed_workers=len(self._failed),
            workers=workers,
            progress_seen=progress_seen,
            interval_given=interval_given,
            progress_known=progress_known,
        )

    def worker_history(
        self, rank: int, failure: Failure | None = None, *, allowed: int, workers: int
    ) -> History:
        """The history of one worker that is restarted alone (Async)."""
        history = self.history(failure, allowed=allowed, workers=workers, progress_known=False)
        return History(
            # A restart of all workers (a critical role's) is one of this worker too.
            restarts_used=self.restarts + self._of_workers[rank],
            restarts_allowed=allowed,
            same_errors=history.same_errors,
            failed_workers=history.failed_workers,
            workers=workers,
            progress_known=False,
        )

    def restarts_of_worker(self, rank: int) -> int:
        """How often a worker has been started again alone (Async), by agents that were killed as well."""
        return self._of_workers[rank]

    def same_errors(self, failure: Failure | None) -> int:
        """How often an error has come on its instance, this time included, as the root or beside it.

        Where all ranks raise it, chance decides who is the root: each of them counts at each launch.
        """
        if failure is None:
            return 0
        return max(1, self._errors[failure.identity, failure.instance])

    def is_new(self, steps: int, step: int | None) -> bool:
        """Whether a step that is made now is one that was never made before, and the first in this launch.

        Args:
            steps: made in this launch, 0 when something else has progressed.
            step: number that the script gives the last, ``None`` when it gives none: then any counts.
        """
        if self._progressed or (not steps and step is None):
            return False
        return step is None or self.best_step is None or step > self.best_step

    # What happens. The agent's ledger calls ``take`` only.

    def take(self, event: Event) -> None:
        """Count one event, of the live agent or of one before it."""
        if not event.type.startswith(TYPE_PREFIX):
            return
        handlers: dict[str, Callable[[Mapping[str, object]], None]] = {
            "job.started": self._job_started,
            "job.ended": self._job_ended,
            "cycle.started": self._cycle_started,
            "cycle.training": self._cycle_training,
            "cycle.ended": self._cycle_ended,
            "worker.failed": self._worker_failed,
            "restart.begun": self._restart_begun,
            "restart": self._restart,
            "restarts.told": self._restarts_told,
        }
        if event.name in handlers:
            handlers[event.name](event.data)

    def failed(self, rank: int, identity: str, instance: str, *, root: bool = True) -> None:
        """A failure of a worker's own: nobody else brought it down. Of several the root was the first."""
        if root:
            self._failed.add(rank)
        if identity:
            self._errors[identity, instance] += 1

    def restarted(self, *, counted: bool = True) -> None:
        """All workers are about to be started again; not counted when only the membership has changed."""
        self._new_launch(counted=counted)
        if counted:
            self.restarts += 1

    def worker_restarted(self, rank: int) -> None:
        """One worker is about to be started again, the others go on."""
        self._of_workers[rank] += 1

    def progressed(self, steps: int, step: int | None) -> None:
        """Something has progressed; a row of restarts ends with a step that ``is_new``."""
        if self.is_new(steps, step):
            self.without_progress = 0
            self._progressed = True
        self._remember(step)

    def _remember(self, step: int | None) -> None:
        if step is not None:
            self.best_step = max(step, self.best_step if self.best_step is not None else step)

    def _new_launch(self, *, counted: bool) -> None:
        if counted and self._launched:
            self.without_progress += 1
        self._launched = self._progressed = False

    def _forget(self) -> None:
        self.restarts = self.without_progress = 0
        self.best_step = None
        self._errors.clear()
        self._failed.clear()
        self._of_workers.clear()
        self._launched = self._progressed = False

    def _job_started(self, _data: Mapping[str, object]) -> None:
        again = self._ended == EXIT_RUN_AGAIN
        self.continues = self._open or again
        if self.continues:
            self._new_launch(counted=True)
        else:
            self._forget()
        if again:
            self.restarts = 0
            self._of_workers.clear()
        self._begun.clear()
        self._open, self._ended = True, None

    def _job_ended(self, data: Mapping[str, object]) -> None:
        code = data.get("exit_code")
        self._open, self._ended = False, code if isinstance(code, int) else None

    def _cycle_started(self, data: Mapping[str, object]) -> None:
        self.cycles = max(self.cycles, _number(data.get("number")) or self.cycles + 1)
        self._launched = True

    def _cycle_training(self, data: Mapping[str, object]) -> None:
        self.progressed(_number(data.get("steps")) or 0, _number(data.get("step")))

    def _cycle_ended(self, data: Mapping[str, object]) -> None:
        self.cycles = max(self.cycles, _number(data.get("number")) or 0)
        self._remember(_number(data.get("step")))

    def _worker_failed(self, data: Mapping[str, object]) -> None:
        rank, identity = _number(data.get("rank")), _text(data.get("identity"))
        root = data.get("root") is True
        if rank is not None and (root or identity):
            self.failed(rank, identity, f"{_text(data.get('node'))}/rank {rank}", root=root)

    def _restart_begun(self, data: Mapping[str, object]) -> None:
        worker = _number(data.get("worker"))
        self._begun.add(worker)
        if worker is not None:
            self.worker_restarted(worker)
        else:
            self.restarted(counted=data.get("is_counted") is not False)

    def _restarts_told(self, data: Mapping[str, object]) -> None:
        self.restarts = max(self.restarts, _number(data.get("restarts")) or 0)

    def _restart(self, data: Mapping[str, object]) -> None:
        """Complete: it was counted when it began, except by versions that did not tell of that."""
        worker = _number(data.get("worker"))
        if worker in self._begun:
            self._begun.discard(worker)
        elif worker is not None:
            self.worker_restarted(worker)
        else:
            self.restarted(counted=(_number(data.get("restarts")) or 0) > self.restarts)
            self._launched = True


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
