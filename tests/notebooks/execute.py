"""Runs a notebook in a kernel of its own, which is ended whatever happens. Nothing of the user's is read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER: Final = Path(__file__).parents[2] / "notebooks"
NAMES: Final = ("hang_report", "straggler_report", "fleet_report")
FIGURE: Final = "application/vnd.plotly.v1+json"
_SECONDS: Final = 120
"""Of one cell; on a busy machine the first, with its imports, takes ten."""


def read(path: Path) -> NotebookNode:
    """A notebook as it is in a file."""
    notebook: NotebookNode = nbformat.read(path, nbformat.NO_CONVERT)  # type: ignore[no-untyped-call] # theirs
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook, if it is a valid one."""
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call] # theirs


def executed(name: str, **parameters: str) -> NotebookNode:
    """A notebook with the outputs of a run; figures as plotly's JSON.

    Args:
        name: of the notebook.
        parameters: variables that its first cell reads, ``JOB`` for one.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    notebook = read(FOLDER / f"{name}.ipynb")
    with tempfile.TemporaryDirectory() as own:
        client = NotebookClient(
            notebook,
            timeout=_SECONDS,
            startup_timeout=_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(FOLDER)}},
            extra_arguments=["--HistoryManager.enabled=False", "--log-level=ERROR"],
            record_timing=False,
        )
        client.execute(env={**environment(Path(own)), **parameters})
    return notebook


def environment(own: Path) -> dict[str, str]:
    """This process's environment without what a notebook reads; the kernel's own files go to a folder."""
    chosen = {"JOB", "JOBS", "INCIDENT", "RANKSCOPE_HOME"}
    return {
        **{name: value for name, value in os.environ.items() if name not in chosen},
        "IPYTHONDIR": str(own),
        "JUPYTER_CONFIG_DIR": str(own),
        "PLOTLY_RENDERER": "plotly_mimetype",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
