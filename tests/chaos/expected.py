"""What a round must come to: worked out from the draw and the table of decisions, before anything runs. Pure.

The table (``tests/data/policy.toml``) says what is decided, the fault matrix what is found of its rows, the
draw who is to blame. Nothing that came of a round is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from tests.chaos.plan import STEPS, Act, Round, Settings
from tests.chaos.rows import FAULTS, Fault
from tests.policy_table import questions

STOPPING: Final = ("restart", "fail")
_WORKER_FAULTS: Final = {
    "worker SIGKILL": Fault(hangs=False),
    "worker SIGTERM": Fault(hangs=False, root="retryable"),
    "worker SIGSTOP": Fault(cause="stopped"),
}
_STORAGE: Final = ("fill", "freeze", "remove")
_UNDONE: Final = ("free", "thaw")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who must be named, and as what."""

    verdict: str
    culprits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a round must come to.

    Attributes:
        actions: decided, in order.
        verdicts: of the incidents, in order; empty for a row of the matrix, which has its own.
        faults: how often something is wrong.
        restarts: of all workers.
        agents: that ran it, one after the other.
        launches: of workers; ``None`` where an agent may end before it launches any.
        by_hand: the job stands on after its decision, and the round stops it by SIGTERM.
        stopped: SIGTERM to the agent ends it, at once or by hand.
        steps: that are committed, ``None`` where it ends before or commits none.
        records: whether everything is in the records afterwards.
        explained: whether what a failure was is in them.
        told: whether the agent must say that it cannot store something.
    """

    actions: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    faults: int = 0
    exit_code: int = 0
    restarts: int = 0
    agents: int = 1
    launches: int | None = 1
    by_hand: bool = False
    stopped: bool = False
    steps: int | None = None
    records: bool = True
    explained: bool = True
    told: bool = False

    @property
    def result(self) -> str:
        """Of ``job.json``."""
        if self.stopped:
            return "stopped by SIGTERM"
        return "succeeded" if self.exit_code == 0 else "failed"


@dataclass(slots=True)
class _Life:
    """A job on its way through its faults."""

    settings: Settings
    actions: list[str] = field(default_factory=list[str])
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    restarts: int = 0
    kills: int = 0
    code: int | None = None
    by_hand: bool = False
    stopped: bool = False
    early: bool = False

    def meets(self, fault: Fault) -> None:
        """One fault: what the table says to it."""
        action, code = decided(fault, self.settings, used=self.restarts)
        self.actions.append(action)
        if action == "restart":
            self.restarts += 1
        elif action == "fail":
            self.code = code or 1
        else:
            self.by_hand = self.stopped = True
            self.code = 1

    def meets_act(self, act: Act) -> None:
        """One act."""
        if act.deed in _WORKER_FAULTS:
            fault = _WORKER_FAULTS[act.deed]
            self.verdicts.append(_verdict(act, fault))
            self.meets(fault)
        elif act.deed == "agent SIGKILL":
            self.kills += 1
            self.early = self.early or act.when != "step"
        elif act.deed == "agent SIGTERM":
            self.code, self.stopped = 1, True
            self.early = self.early or act.when != "step"

    def as_expected(self) -> Expected:
        """What it came to."""
        return Expected(
            actions=tuple(self.actions),
            verdicts=tuple(self.verdicts),
            faults=len(self.actions),
            exit_code=self.code or 0,
            restarts=self.restarts,
            agents=1 + self.kills,
            launches=None if self.early else 1 + self.restarts + self.kills,
            by_hand=self.by_hand,
            stopped=self.stopped,
        )


def _verdict(act: Act, fault: Fault) -> Verdict:
    """Whoever is ended by SIGTERM was asked to end: nobody in the job is to blame for it."""
    culprits = () if act.deed == "worker SIGTERM" else (act.rank,)
    return Verdict("RankNonCommHang" if fault.hangs else "Exited", culprits)


def decided(fault: Fault, settings: Settings, *, used: int) -> tuple[str, int | None]:
    """Action and exit code from the table.

    Args:
        fault: what is wrong.
        settings: of the job.
        used: restarts so far.

    Raises:
        LookupError: no row of the table fits.
    """
    table = questions()["hang" if fault.hangs else "failure"]
    cell = {axis: values[0] for axis, values in table.axes.items()}
    cell["policy"] = settings.policy
    cell["restarts"] = _restarts(settings, used)
    if fault.hangs:
        given = "auto" if settings.interval is None else "given"
        cell.update(on_hang=settings.on_hang, cause=fault.cause, interval=given)
    else:
        cell.update(verdict="Exited", root=fault.root)
    number = table.index(cell)
    if number is None:
        raise LookupError(f"no row of {table.title!r} fits {cell}")
    return table.row[number].action, table.row[number].code


def _restarts(settings: Settings, used: int) -> str:
    if settings.restarts == 0:
        return "none"
    return "left" if used < settings.restarts else "used up"


def expected_of(one: Round) -> Expected:
    """What a round must come to."""
    if one.kind == "healthy":
        return Expected()
    if one.kind == "fault":
        return _of_row(one, FAULTS[one.row])
    return _of_acts(one)


def _of_row(one: Round, fault: Fault) -> Expected:
    life = _Life(one.settings)
    while life.code is None:
        life.meets(fault)
        if fault.once:
            break
    return replace(life.as_expected(), explained=fault.hangs or one.settings.budget > 0)


def _of_acts(one: Round) -> Expected:
    life = _Life(one.settings)
    full = told = False
    for act in one.acts:
        if life.code is not None:
            break
        full = (full or act.deed == "fill") and act.deed != "free"
        told = told or (full and act.deed in _WORKER_FAULTS)
        life.meets_act(act)
    touched = any(act.deed in _STORAGE for act in one.acts)
    return replace(
        life.as_expected(),
        steps=STEPS if life.code is None else None,
        records=_is_all_stored(one, ended_early=life.code is not None),
        explained=not touched and one.settings.budget > 0,
        told=told,
    )


def _is_all_stored(one: Round, *, ended_early: bool) -> bool:
    """Events that had to wait are stored once there is room, if the job is still there then."""
    if not any(act.deed in _STORAGE for act in one.acts):
        return True
    undone = [act for act in one.acts if act.deed in _UNDONE]
    return bool(undone) and undone[-1].when == "later" and not ended_early
