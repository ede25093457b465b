"""Jobs under ``diag run`` whose ranks run a few lines of a test's own, and what was decided about them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.jobs import Job, diag_run


@contextmanager
def job_of(folder: Path, text: str, *flags: str, ranks: int = 2) -> Generator[Job]:
    """A job whose ranks run ``text``; they find the test's folder as ``FOLDER``."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "script.py"
    script.write_text(text)
    with diag_run(folder, *flags, ranks=ranks, script=[str(script)], environ={"FOLDER": str(folder)}) as job:
        yield job


def actions(job: Job) -> list[str]:
    """What was decided, in order."""
    return [str(event.data["action"]) for event in job.events("decision")]
