"""What is done about hangs: decided here, or by all nodes, and kept until the main thread comes for it.

Between the watch, which says that a limit has passed, the policy, the other nodes, and the main thread, which
stops workers. It must not know how a hang was noticed, nor how workers are stopped.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import msgspec

from rankscope.agent.deciding.decider import STOPPING, Decider
from rankscope.agent.deciding.restart_clock import RestartClock
from rankscope.agent.nodes.messages import Ruling
from rankscope.agent.observing.current import CurrentWorkers
from rankscope.agent.observing.trained import Trained
from rankscope.agent.policy.isolation import node_to_blame
from rankscope.agent.records.replay import Asked
from rankscope.agent.watching.questions import Proposal
from rankscope.agent.watching.watch import Watch
from rankscope.diag.model import Decision, Diagnosis


class HangDecisions:
    """Decides about hangs (watch thread); any thread may take what is due.

    Args:
        decider: decides, and stores what it decided.
        watch: puts proposals to the other nodes.
        current: the workers.
        clock: of restarts.
        node: tells the name of this node.
        tells: is told of an incident whether this agent sends its notices from now on.
        say: shows a line.

    Attributes:
        held: the decision to keep hung workers as they are, ``None`` when there is none.
    """

    def __init__(
        self,
        decider: Decider,
        *,
        watch: Watch,
        current: CurrentWorkers,
        clock: RestartClock,
        node: Callable[[], str],
        tells: Callable[[str, bool], None],
        say: Callable[[str], None],
    ) -> None:
        self._decider = decider
        self._watch = watch
        self._current = current
        self._clock = clock
        self._node = node
        self._tells = tells
        self._say = say
        self.held: Decision | None = None
        self._is_over = False
        self._lock = threading.Lock()
        self._due: Decision | None = None
        self._due_since = 0.0

    def take_due(self) -> Decision | None:
        """The decision that waits to be carried out, once."""
        with self._lock:
            due, self._due = self._due, None
        return due

    def waiting(self) -> tuple[str, float] | None:
        """What waits to be carried out, and for how many seconds; ``None`` for nothing."""
        due = self._due
        return (due.action, time.monotonic() - self._due_since) if due is not None else None

    def close(self) -> None:
        """The workers are being stopped, or are done: there is nothing to be done about them any more."""
        with self._lock:
            self._is_over, self._due = True, None

    def forget(self) -> None:
        """Other workers run: what was decided about those before them is void."""
        with self._lock:
            self._is_over, self._due = False, None
        self.held = None

    def decide(self, diagnosis: Diagnosis, silent: float, done: Trained, *, progress_seen: bool) -> None:
        """About a hang that has outlasted its limit, with the other nodes where there are some.

        Args:
            diagnosis: what is known of it.
            silent: seconds without progress.
            done: what the workers have got done.
            progress_seen: whether the looks at them show that they ever progressed.
        """
        considered = self._decider.consider_hang(
            diagnosis,
            done,
            silent=silent,
            progress_seen=progress_seen or done.has_moved,
            some_have_ended=any(end.code == 0 for end in self._watch.ended().values()),
        )
        if considered is None:
            return
        decision, asked = considered
        leaving = (node_to_blame(diagnosis),) if decision.action == "isolate" else ()

        def carry_out() -> None:
            # Who judged it may be gone, whoever decides is there.
            self._tells(decision.incident or "", True)
            ours = self._for_this_node(decision, leaving)
            self._decided(ours, asked if ours is decision else None)

        if not self._watch.propose(Proposal(decision, leaving, carry_out, self._watch.postpone)):
            carry_out()

    def follow(self, ruling: Ruling) -> None:
        """Another node has decided for all: do the same, or without it."""
        if ruling.decision is not None and not self._is_over:
            self._tells(ruling.incident, False)
            self._say(f"{ruling.node} decides for the whole job:")
            self._decided(self._for_this_node(ruling.decision, ruling.leaving), None)

    def _for_this_node(self, decision: Decision, leaving: tuple[str, ...]) -> Decision:
        """Where a node leaves, the others start again without it."""
        launch = self._current.ranks
        own = {one.rank for one in launch.workers} if launch is not None else set[int]()
        leaves = self._node() in leaving and bool(own.intersection(decision.culprits))
        if decision.action != "isolate" or leaves:
            return decision
        return msgspec.structs.replace(decision, action="restart", exit_code=None)

    def _decided(self, decision: Decision, asked: Asked | None) -> None:
        if self._decider.decided(decision, asked) is None:
            return
        if decision.action == "restart":
            self._clock.begin()
        if decision.action == "hold":
            self._hold(decision)
        else:  # those that were held may be restarted, once other settings say so
            self.held = None
        if decision.action in STOPPING:
            with self._lock:
                if not self._is_over:
                    self._due, self._due_since = decision, time.monotonic()

    def _hold(self, decision: Decision) -> None:
        self.held = decision
        launch = self._current.ranks
        pids = ", ".join(f"rank {one.rank}: {one.pid}" for one in (launch.workers if launch else ()))
        self._say(
            f"held: nothing stops the workers until a signal ends this agent (process {os.getpid()}), "
            f"they go on, or all have ended; processes to attach to: {pids}"
        )
