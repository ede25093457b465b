"""How serious a hang is by the time it has lasted, where C4D's numbers were given. Pure.

C4D calls a hang a warning after ``C4D_HANG_TIMEOUT`` seconds, and one in communication an error after
``C4D_HANG_TIMES`` times as many. Without its numbers a hang has the severity that its rule gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from rankscope.agent.settings.hang import TIMEOUT, TIMES, c4d_limits
from rankscope.diag.model import Diagnosis, Severity


@dataclass(frozen=True, slots=True)
class SeverityTimes:
    """Seconds without progress after which a hang is a warning, and one in communication an error."""

    warning: float
    error: float

    @classmethod
    def of(cls, envs: Mapping[str, str]) -> SeverityTimes | None:
        """Those that C4D's variables name, ``None`` where they name none."""
        return cls(*c4d_limits(envs)) if envs.keys() & {TIMEOUT, TIMES} else None


def with_severity(diagnosis: Diagnosis, silent: float | None, times: SeverityTimes | None) -> Diagnosis:
    """The diagnosis with the severity of a hang that has lasted so long.

    Args:
        diagnosis: one that is no hang, or of ranks that may be at honest work, stays as it is.
        silent: seconds without progress, ``None`` when nobody watched.
        times: C4D's, ``None`` where they were not given.
    """
    is_hang = diagnosis.verdict in ("RankCommHang", "RankNonCommHang")
    if times is None or silent is None or not is_hang or diagnosis.severity not in ("error", "warning"):
        return diagnosis
    severity: Severity = "warning" if silent >= times.warning else "info"
    if diagnosis.verdict == "RankCommHang" and silent >= times.error:
        severity = "error"
    return msgspec.structs.replace(diagnosis, severity=severity)
