"""The probe: what runs inside a worker, without a change to the training script.

``site/sitecustomize.py`` starts it at interpreter start (``entry.py`` in workers started as functions). It
writes the worker's slot of the progress page and nothing else. It knows neither the detector nor any
tool, never imports torch itself, and whatever fails in it, training runs on.
"""

from __future__ import annotations

import os


def site_folder() -> str:
    """The folder whose ``sitecustomize.py`` starts the probe."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")  # noqa: PTH100, PTH118, PTH120 - cheap


def pythonpath(existing: str | None) -> str:
    """PYTHONPATH for a worker: the probe first, then what was there, unchanged.

    An empty part means the working directory to Python: ours adds none, the user's own stay.
    """
    return f"{site_folder()}{os.pathsep}{existing}" if existing else site_folder()
