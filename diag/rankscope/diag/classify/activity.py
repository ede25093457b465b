"""How busy a rank was between two snapshots, from the counters of ``/proc``.

An unchanged stack confirms nothing; these counters and the sequence numbers do (DIAGNOSIS.md, "Noticing").
It does not know who waits for whom: what a victim does is never judged here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rankscope.diag.model import ProcessFacts, RankSnapshot
from rankscope.watchdog.limits import (
    BEAT_STALE,
    BUSY_CPU_SHARE,
    BUSY_IO_RATE,
    CAPTURE_SWITCHES,
    HELD_CPU_SHARE,
    QUIET_CPU_SHARE,
    QUIET_SWITCH_RATE,
)
from rankscope.watchdog.situation import main_share

ActivityLevel = Literal["frozen", "quiet", "ticking", "busy", "unknown"]

_QUIET_IO: Final = 1.0  # bytes/s; the probe's own page costs none, a blocked read none: who prints is awake

SILENT: Final = "silent"  # in place of a state letter
FROZEN_STATES: Final = {
    SILENT: "alive, but torch's server in it does not answer",
    "T": "stopped by a signal",
    "t": "stopped by a tracer (a debugger?)",
    "D": "blocked in the kernel",
}


@dataclass(frozen=True, slots=True)
class Activity:
    """What a rank did between two snapshots.

    Attributes:
        level: frozen, quiet, ticking (a poll loop: switches, but neither CPU nor I/O), busy, or unknown.
        why: the counters behind it, as a sentence; ``""`` when unknown.
        stirred: whether its main thread slept and woke more often than a hung one can.
        seconds: length of the window, 0 when unknown.
        main_cpu: share of one core that the main thread used (run delay counted); other_cpu that of all
            other threads together.
    """

    level: ActivityLevel
    why: str = ""
    stirred: bool = False
    seconds: float = 0.0
    main_cpu: float = 0.0
    other_cpu: float = 0.0

    def thread_computes(self, *, main: bool) -> bool:
        """Whether the main thread, or else the others, used the CPU; whose helpers did means nothing."""
        return (self.main_cpu if main else self.other_cpu) >= BUSY_CPU_SHARE


UNKNOWN: Final = Activity("unknown")


def frozen_state(earlier: RankSnapshot | None, latest: RankSnapshot) -> str | None:
    """The state letter of a rank that cannot run, ``None`` for any other.

    A moment in D is ordinary disk I/O: with two snapshots both must show it, and nothing may have moved in
    between: a rank that writes to a slow disk is in D at nearly every look.
    """
    state = latest.facts.state if latest.facts else ""
    if state == "Z" and latest.facts and latest.facts.thread_count > 1:
        return "Z"  # the main thread ended, others hold the process
    if state not in FROZEN_STATES:
        return None
    before = earlier.facts if earlier is not None else None
    if before is None or latest.facts is None:
        return state
    if before.state != state or (state == "D" and _moved_in_the_kernel(before, latest.facts)):
        return None
    return state


def _moved_in_the_kernel(before: ProcessFacts, after: ProcessFacts) -> bool:
    """Whether a process that was in D twice came out of it in between."""
    switches = after.voluntary_switches - before.voluntary_switches
    return _io_between(before, after) > 0 or switches > CAPTURE_SWITCHES


def _io_between(before: ProcessFacts, after: ProcessFacts) -> int:
    """Bytes read and written of its own accord: what the earlier look itself had it write is none."""
    return after.io_bytes - before.io_bytes - before.look_bytes


def measure(
    earlier: RankSnapshot | None, latest: RankSnapshot, *, other_threads: bool, main_idles: bool = False
) -> Activity:
    """Compare two snapshots of one rank.

    Args:
        earlier: the first snapshot, ``None`` when there was one only.
        latest: the second.
        other_threads: whether the rank has threads, besides the main and auxiliary ones, whose CPU counts.
        main_idles: whether the main thread is in a loop that serves others, and served none at both looks:
            what such a loop takes (Ray's: 60 switches a second, 41 % of a core on a busy machine) is no work.
    """
    state = frozen_state(earlier, latest)
    if state is not None:
        return Activity("frozen", FROZEN_STATES.get(state, "its main thread has ended"))
    before = earlier.facts if earlier else None
    after = latest.facts
    if earlier is not None and before is None and after is None and earlier.time > 0:
        return Activity("unknown", seconds=max(latest.time - earlier.time, 0.0))
    if earlier is None or before is None or after is None or not same_process(before, after):
        return UNKNOWN
    seconds = after.time - before.time
    if seconds <= 0:
        return UNKNOWN
    io = _io_between(before, after) / seconds
    switches = after.voluntary_switches - before.voluntary_switches
    wakes = not main_idles and switches > QUIET_SWITCH_RATE * seconds + CAPTURE_SWITCHES
    held = wakes and _is_held(earlier, latest)
    cpu = _main_share(before, after, seconds, held=held)
    stirred = wakes and not held
    why = (
        f"main thread {100 * cpu:.0f} % CPU, {switches} voluntary switches, {io:.0f} B/s of I/O"
        f" in {seconds:.1f} s"
    )
    if main_idles:
        cpu, io, why = 0.0, 0.0, f"{why} (a loop that serves others)"
    others = (after.other_cpu_seconds - before.other_cpu_seconds) / seconds
    may_work = held and others >= HELD_CPU_SHARE  # the thread that holds the GIL
    quiet = cpu < QUIET_CPU_SHARE and io < _QUIET_IO and not stirred and not may_work
    level: ActivityLevel = "quiet" if quiet else "ticking"
    if other_threads and others >= BUSY_CPU_SHARE:
        level, why = "busy", f"{why}; its other threads {100 * others:.0f} % CPU"
    elif (children := _busy_child(earlier, latest, seconds)) is not None:
        level, why = "busy", f"{why}; {children}"
    elif cpu >= BUSY_CPU_SHARE or io >= BUSY_IO_RATE:
        level = "busy"
    return Activity(level, why, stirred, seconds, cpu, others)


def same_process(before: ProcessFacts, after: ProcessFacts) -> bool:
    """A process is its pid and its start time; a pair whose process changed in between is void."""
    return (before.pid, before.start_ticks) == (after.pid, after.start_ticks)


def beat_is_stale(*snapshots: RankSnapshot | None) -> bool:
    """Whether the probe's thread could not run in any snapshot given: the GIL is held in C."""
    ages = [
        snapshot.progress.seconds_since_beat if snapshot.progress else None
        for snapshot in snapshots
        if snapshot is not None
    ]
    return bool(ages) and all(age is not None and age > BEAT_STALE for age in ages)


def _is_held(earlier: RankSnapshot, latest: RankSnapshot) -> bool:
    """Whether no Python code ran at all: a thread that only waits for the GIL wakes every 5 ms.

    Once the script has ended, so has the beat.
    """
    returned = latest.progress is not None and latest.progress.seconds_since_return is not None
    return not returned and beat_is_stale(earlier, latest)


def _main_share(before: ProcessFacts, after: ProcessFacts, seconds: float, *, held: bool = False) -> float:
    delay = after.main_run_delay_seconds - before.main_run_delay_seconds
    return main_share(after.main_cpu_seconds - before.main_cpu_seconds, delay, seconds, held=held)


def _busy_child(earlier: RankSnapshot, latest: RankSnapshot, seconds: float) -> str | None:
    """What a child of the rank did, when it did enough to count; a child born in between counts."""
    known = {child.pid: child.facts for child in earlier.children}
    for child in latest.children:
        after = child.facts
        if after is None:
            continue
        before = known.get(child.pid)
        if before is None or not same_process(before, after):
            if child.pid not in known and earlier.facts and after.started > _unix_of(earlier):
                return f"child process {child.pid} was started"
            continue
        others = (after.other_cpu_seconds - before.other_cpu_seconds) / seconds
        cpu = _main_share(before, after, seconds) + others
        io = _io_between(before, after) / seconds
        if cpu >= BUSY_CPU_SHARE or io >= BUSY_IO_RATE:
            return f"child process {child.pid} {100 * cpu:.0f} % CPU, {io:.0f} B/s of I/O"
    return None


def _unix_of(snapshot: RankSnapshot) -> float:
    return snapshot.time
