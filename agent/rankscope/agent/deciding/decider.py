"""Asks the policy what to do, with what the job has been through, and stores the answer before anybody acts.

One decision ends a launch: while one that stops the workers waits to be carried out, a failure that comes
meanwhile gets the same answer. What is decided, and why, is ``policy``'s (pure); who carries it out is the
main thread's. It must not know how anything was found out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from rankscope.agent.failures import Failure
from rankscope.agent.observing.trained import Trained
from rankscope.agent.policy import (
    History,
    Rules,
    decide_on_exit_hang,
    decide_on_failure,
    decide_on_hang,
    decide_on_left_workers,
    decide_on_restart_timeout,
    decide_on_stuck_agent,
    decide_on_stuck_kernel,
    decide_on_timer,
    decide_on_unknown_state,
    decide_on_worker_failure,
    restarts_all,
)
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.records.replay import Asked, Subject
from rankscope.agent.settings.values import Settings
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.store.events import iso_time

STOPPING: Final = ("restart", "isolate", "fail")
"""Actions that end the workers of a launch."""
_EXIT_INTERVAL: Final = "job-exit-hang-interval"
_GIVEN_BY_NOBODY: Final = "default"


class Decider:
    """Decides for one agent. Any thread.

    Args:
        settings: what the user wants.
        ledger: keeps the past, and every decision.
        say: shows a line.

    Attributes:
        last: the last decision about the job; those about a single timer are not among them.
        workers: ranks of the job.
        nodes_have_room: tells whether the job goes on with a node less.
    """

    def __init__(self, settings: Settings, ledger: Ledger, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._ledger = ledger
        self._say = say
        self._lock = threading.Lock()
        self._ends_launch: Decision | None = None
        self.last: Decision | None = None
        self.workers = 0
        self.nodes_have_room: Callable[[], bool] = lambda: False

    def use(self, settings: Settings) -> None:
        """Decide by these from now on; each decision keeps the rules that it was made by."""
        self._settings = settings

    @property
    def restarts_allowed(self) -> int:
        """Restarts allowed in all."""
        alone = self._settings.execution_mode == "Async"  # a worker is no job: it may always be restarted
        return self._settings.max_restarts if self._settings.restart_enabled or alone else 0

    @property
    def restarts_left(self) -> int:
        """Restarts that are still allowed, those before a restart of the agent itself counted."""
        return self._ledger.past.history(allowed=self.restarts_allowed, workers=self.workers).restarts_left

    def launched(self, workers: int) -> None:
        """New workers run: what was decided about earlier ones is void."""
        with self._lock:
            self._ends_launch = None
            self.workers = workers

    def consider_hang(
        self,
        diagnosis: Diagnosis,
        done: Trained,
        *,
        silent: float,
        progress_seen: bool,
        some_have_ended: bool,
    ) -> tuple[Decision, Asked] | None:
        """What to do about a hang that has outlasted its limit; it holds once it is ``decided``.

        Args:
            diagnosis: what is known of it.
            done: what the workers have got done.
            silent: seconds without progress.
            progress_seen: whether the looks at them show that they ever progressed.
            some_have_ended: whether other ranks have ended as they should, and these linger.

        Returns:
            The decision and what the policy was asked, ``None`` when the workers' end is decided already.
        """
        decide = decide_on_exit_hang if some_have_ended else decide_on_hang
        with self._lock:
            if self._ends_launch is not None:
                return None
            given = self._interval_given(done, some_have_ended=some_have_ended)
            history = replace(self._history(None, done), progress_seen=progress_seen, interval_given=given)
            rules = self._rules
        decision = decide(diagnosis, history, rules, silent_seconds=silent, time=_now())
        about: Subject = "exit_hang" if some_have_ended else "hang"
        return decision, Asked(about, history, rules, seconds=silent)

    def decided(self, decision: Decision, asked: Asked | None) -> Decision | None:
        """A decision holds; stored, and answered unless the workers' end is decided already.

        Args:
            decision: the own one, or another node's about the whole job.
            asked: what the policy was asked, ``None`` where another node has asked its own.
        """
        with self._lock:
            return self._keep(decision, asked) if self._ends_launch is None else None

    def on_failure(self, diagnosis: Diagnosis | None, failure: Failure | None, done: Trained) -> Decision:
        """About workers that failed, once the failure is recorded.

        Args:
            diagnosis: what is known of the job, ``None`` when nobody looked.
            failure: the root, ``None`` when none could be told.
            done: what the workers have got done.
        """
        with self._lock:
            if self._ends_launch is not None:
                return self._ends_launch
            history, rules = self._history(failure, done), self._rules
            decision = decide_on_failure(diagnosis, failure, history, rules, time=_now())
            return self._keep(decision, Asked("failure", history, rules, failure))

    def on_worker_failure(self, failure: Failure, *, incident: str | None) -> tuple[Decision, bool]:
        """About one failed worker of a job whose workers are independent (Async), once it is recorded.

        Args:
            failure: how it failed.
            incident: where the evidence lies.

        Returns:
            The decision, and whether it is about all workers.
        """
        with self._lock:
            if self._ends_launch is not None:
                return self._ends_launch, True
            history = self._ledger.past.worker_history(
                failure.rank, failure, allowed=self.restarts_allowed, workers=self.workers
            )
            rules = self._rules
            asked = Asked("worker_failure", history, rules, failure)
            decided = decide_on_worker_failure(failure, history, rules, time=_now())
            decision = msgspec.structs.replace(decided, incident=incident)
            of_all = restarts_all(failure, rules)
            if decision.action == "restart" and not of_all:
                self._store(decision, asked)  # the others' launch goes on
                return decision, False
            return self._keep(decision, asked), True

    def on_timer(self, what: str, *, signal_name: str, is_rank: bool, incident: str) -> bool:
        """About a worker's own timer that has expired; whether its signal is sent.

        Args:
            what: which timer of whom, for a person.
            signal_name: the signal that it asked for.
            is_rank: whether a rank has set it, and no child of one.
            incident: where the evidence lies.
        """
        history = self._ledger.past.history(allowed=self.restarts_allowed, workers=self.workers)
        rules = self._rules
        decision, send = decide_on_timer(
            what,
            signal_name=signal_name,
            is_rank=is_rank,
            history=history,
            rules=rules,
            time=_now(),
            incident=incident,
        )
        asked = Asked("timer", history, rules, what=what, signal_name=signal_name, is_rank=is_rank)
        self._store(decision, asked)
        return send

    def on_stuck_kernel(self, diagnosis: Diagnosis | None, done: Trained) -> Decision:
        """About a worker that torch has found in uninterruptible sleep for too long."""
        history, rules = self._history(None, done), self._rules
        decision = decide_on_stuck_kernel(diagnosis, time=_now(), history=history, rules=rules)
        return self._final(decision, Asked("stuck_kernel", history, rules))

    def on_left_workers(self, ranks: tuple[int, ...], done: Trained) -> Decision:
        """About workers that could not be ended."""
        history, rules = self._history(None, done), self._rules
        decision = decide_on_left_workers(ranks, time=_now(), history=history, rules=rules)
        return self._final(decision, Asked("left_workers", history, rules, ranks=ranks))

    def on_unknown_state(self, reason: str) -> Decision:
        """About workers that torch has lost track of."""
        decision = decide_on_unknown_state(reason=reason, time=_now())
        return self._final(decision, Asked("unknown_state", what=reason))

    def on_restart_timeout(self, seconds: float, limit: float) -> Decision:
        """About a restart that takes too long."""
        decision = decide_on_restart_timeout(seconds=seconds, limit=limit, time=_now())
        return self._final(decision, Asked("restart_timeout", seconds=seconds, limit=limit))

    def on_stuck_agent(self, action: str, seconds: float) -> Decision:
        """About a decision that the main thread does not carry out."""
        decision = decide_on_stuck_agent(action=action, seconds=seconds, time=_now())
        return self._final(decision, Asked("stuck_agent", what=action, seconds=seconds))

    @property
    def _rules(self) -> Rules:
        return Rules.of(self._settings, nodes_have_room=self.nodes_have_room())

    def _history(self, failure: Failure | None, done: Trained) -> History:
        return self._ledger.past.history(
            failure,
            allowed=self.restarts_allowed,
            workers=self.workers,
            progress_seen=done.has_moved,
            progress_known=done.is_known,
        )

    def _interval_given(self, done: Trained, *, some_have_ended: bool) -> bool:
        if some_have_ended:
            return self._settings.sources.get(_EXIT_INTERVAL, _GIVEN_BY_NOBODY) != _GIVEN_BY_NOBODY
        return self._settings.hang.act_after is not None or done.sets_interval

    def _final(self, decision: Decision, asked: Asked) -> Decision:
        with self._lock:
            return self._keep(decision, asked)

    def _keep(self, decision: Decision, asked: Asked | None) -> Decision:
        self.last = decision
        if decision.action in STOPPING:
            self._ends_launch = decision
        self._store(decision, asked)
        return decision

    def _store(self, decision: Decision, asked: Asked | None) -> None:
        self._ledger.decided(decision, asked)
        if decision.action != "log":  # in the records only
            self._say(f"{decision.action}: {decision.reason}")


def _now() -> str:
    return iso_time(time.time())
