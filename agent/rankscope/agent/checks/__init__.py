"""What `/health` says of the host: disk, right to look at workers, GPUs. Nothing here makes anybody wait."""

from __future__ import annotations

from rankscope.agent.checks.host import HostChecks

__all__ = ["HostChecks"]
