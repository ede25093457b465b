"""The job of a round: launched by ``diag run`` in a world of its own, again when its agent is killed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.chaos.onlooker import MARK
from tests.jobs import Job

DONE: Final = "done"
GO: Final = "go"
NOTICES: Final = "notices"


class ChaosJob(Job):
    """A job whose records, temporary files and run-time folder lie where the round can look for what is left.

    Args:
        folder: of the round: output and the script's own files.
        run_id: also the mark that all its processes carry.
        home: where the records lie.
        scratch: short path below which its temporary files and sockets are made.
        words: of the command line behind ``diag run``.
    """

    def __init__(self, folder: Path, run_id: str, *, home: Path, scratch: Path, words: list[str]) -> None:
        super().__init__(folder, run_id)
        self.home = home
        self.scratch = scratch
        self.words = words
        self.agents = 0

    def launch(self) -> None:
        """Start an agent; what the one before it printed is kept."""
        for name in ("stdout", "stderr"):
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, self.folder / f"{name}.{self.agents}")
        self.agents += 1
        for name in ("tmp", "run"):
            (self.scratch / name).mkdir(mode=0o700, exist_ok=True)
        environ = {
            MARK: self.run_id,
            "TMPDIR": str(self.scratch / "tmp"),
            "XDG_RUNTIME_DIR": str(self.scratch / "run"),
        }
        python = [sys.executable, "-m", "rankscope.agent", f"--rdzv-id={self.run_id}"]
        self.start([*python, *self.words], environ)

    @property
    def committed(self) -> list[int]:
        """The steps that the script has committed, in order."""
        path = self.folder / DONE
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    @property
    def is_over(self) -> bool:
        """Whether the agent has ended."""
        assert self.process is not None
        return self.process.poll() is not None

    @property
    def said(self) -> str:
        """What all agents have printed on stderr."""
        earlier = (self.folder / f"stderr.{number}" for number in range(1, self.agents))
        return "".join(path.read_text(errors="replace") for path in earlier) + self.stderr

    @property
    def notices(self) -> str:
        """What the command that is told of everything was told."""
        path = self.folder / NOTICES
        return path.read_text(errors="replace") if path.exists() else ""

    def let_go(self) -> None:
        """Nothing more happens to it: it may finish."""
        (self.folder / GO).touch()

    def left_behind(self) -> list[str]:
        """Files that should be gone with the job."""
        found = [path for name in ("tmp", "run") for path in (self.scratch / name).iterdir()]
        return sorted(str(path.relative_to(self.scratch)) for path in found if not _is_torchs(path.name))


def _is_torchs(name: str) -> bool:
    """torch's own caches, and the folder that it makes for logs, which torchrun leaves as well."""
    return name.startswith(("torchelastic_", "torchinductor_"))


def lock_files(pids: set[int], *, since: float) -> list[str]:
    """Locks of tools that looked at processes of the round, which nobody holds any more.

    Args:
        pids: of the round.
        since: its beginning (unix seconds); older ones are of others that had the same pids.
    """
    folder = Path("/tmp") / f"rankscope-{os.geteuid()}"
    found = [path for pid in sorted(pids) if (path := folder / f"{pid}.lock").exists()]
    return [str(path) for path in found if path.stat().st_mtime >= since]
