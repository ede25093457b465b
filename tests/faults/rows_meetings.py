"""Ranks that wait for each other outside of collectives: the start, the store, monitored barriers."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.faults.both_modes import NUMBERED, in_both_modes, nobody, script
from tests.faults.rows import LITTLE_TOLD, Beside, Row

_meeting = partial(script, "meeting_job.py")

ROWS: Final[tuple[Row, ...]] = (
    *in_both_modes(
        "absent",
        "a rank never comes to init_process_group",
        _meeting("absent"),
        "startup",
        "wait_for_licence",
        line="absent",
        rules=("11", "11"),
        beside=Beside(after="rank {rank} has started", quiet=12.0),
        within=LITTLE_TOLD,
    ),
    *in_both_modes(
        "lone_key",
        "a rank waits for a key that nobody writes to the store, the others for the rank",
        _meeting("lone_key"),
        "store_wait",
        "read_plan",
        line="key",
        rules=NUMBERED,
    ),
    *in_both_modes(
        "no_key",
        "all ranks wait for a key that nobody writes to the store",
        _meeting("no_key"),
        "store_wait",
        "read_plan",
        line="key",
        rules=("10", "10"),
        guilty=nobody,
        zero=False,
    ),
    *in_both_modes(
        "late_key",
        "a rank waits for something else before it writes the key that all others wait for",
        _meeting("late_key"),
        # The job is long past its start, and the store is not what is wrong: the rank's own place says it.
        "user_code",
        "plan_epoch",
        line="late_key",
        rules=("11", "11"),
    ),
    *in_both_modes(
        "monitored",
        "a rank never comes to a monitored barrier",
        _meeting("monitored"),
        "user_code",
        "warm_cache",
        line="monitored",
        rules=("8", "8"),  # no record has it
    ),
    *in_both_modes(
        "lone_monitored",
        "a rank comes to a monitored barrier that the others do not have",
        _meeting("lone_monitored"),
        "desync",
        "meet_all",
        line="lone_monitored",
        rules=("4", "9"),
    ),
)
