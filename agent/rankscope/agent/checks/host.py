"""All checks of the host, looked at twice a minute and asked for at every tick. It judges nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rankscope.agent.checks import capture, disk
from rankscope.agent.checks.gpu_process import GpuProcess
from rankscope.agent.checks.slowly import Slowly
from rankscope.agent.health.model import Check
from rankscope.diag.doctor.tracing import container

INTERVAL: Final = 30.0
"""Seconds between two looks."""
_JOIN_SECONDS: Final = 1.0


class HostChecks:
    """The checks of one agent. ``poll`` in one thread; it never waits.

    Args:
        folder: where the records go.
        gpus: asks the driver.
    """

    def __init__(self, folder: Path, *, gpus: GpuProcess | None = None) -> None:
        self._gpus = gpus or GpuProcess()
        self._disk = Slowly(lambda: disk.look(folder), INTERVAL, name="rankscope-disk")
        self._has_begun = False
        self._capture_due = 0.0
        self._capture_pids: Sequence[int] = ()
        self._capture = Check("pass")

    def poll(self, now: float, pids: Sequence[int]) -> dict[str, Check]:
        """All checks, by name.

        Args:
            now: ``time.monotonic()``.
            pids: the workers, whom the agent must be able to look at.
        """
        if not self._has_begun:
            self._has_begun = True
            self._disk.start()
        return {
            capture.NAME: self._may_capture(now, pids),
            disk.NAME: self._room(now),
            **self._gpus.poll(now),
        }

    def close(self) -> None:
        """End the thread and the process."""
        self._disk.close(_JOIN_SECONDS)
        self._gpus.close()

    def _may_capture(self, now: float, pids: Sequence[int]) -> Check:
        if now >= self._capture_due or pids != self._capture_pids:
            self._capture_due, self._capture_pids = now + INTERVAL, pids
            rights: list[capture.Right] = [capture.right_to_read(pid) for pid in pids]
            self._capture = capture.judge_rights(rights, in_container=bool(container()))
        return self._capture

    def _room(self, now: float) -> Check:
        late = self._disk.late(now)
        if late is not None:
            return Check("warn", f"the file system of the records has not answered for {late:.0f} s")
        room = self._disk.latest()
        return Check("pass", "being looked at") if room is None else disk.judge_room(room)
