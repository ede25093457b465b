"""Adds to each figure of a notebook a picture of it: code hosts show no figure that needs JavaScript.

The picture is plotly's own, drawn by a browser; it says which figure it is of, so that a test can tell when
the two no longer belong together. Needs a Chromium, of Playwright or of the system.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from typing import Final
from urllib.parse import unquote

from nbformat import NotebookNode
from playwright.sync_api import Page, sync_playwright
from tests.notebooks.execute import FIGURE

PICTURE: Final = "image/svg+xml"
_PICTURE_OF: Final = "picture_of"
_PATIENCE: Final = 120_000
"""Milliseconds for a browser to start on a busy machine."""
_WIDTH: Final = 900
_HEIGHT: Final = 450
_DRAW: Final = "figure => Plotly.toImage(figure, {format: 'svg', width: figure.width, height: figure.height})"


def figures(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """The outputs that are figures."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            if FIGURE in output.get("data", {}):
                yield output


def fingerprint(figure: Mapping[str, object]) -> str:
    """Tells a figure from all others."""
    return hashlib.sha256(json.dumps(figure, sort_keys=True).encode()).hexdigest()[:16]


def is_pictured(output: NotebookNode) -> bool:
    """Whether there is a picture of the figure, and of no other one."""
    return PICTURE in output["data"] and output["metadata"].get(_PICTURE_OF) == fingerprint(
        output["data"][FIGURE]
    )


def add_pictures(notebook: NotebookNode) -> None:
    """Draw every figure.

    Raises:
        playwright.sync_api.Error: there is no Chromium, or it cannot draw.
    """
    script = distribution("plotly").locate_file("plotly/package_data/plotly.min.js")
    with sync_playwright() as tools:
        browser = tools.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox"],
            timeout=_PATIENCE,
        )
        page = browser.new_page()
        page.add_script_tag(path=str(script))
        for output in figures(notebook):
            output["data"][PICTURE] = _drawn(page, output["data"][FIGURE])
            output["metadata"][_PICTURE_OF] = fingerprint(output["data"][FIGURE])
        browser.close()


def _drawn(page: Page, figure: Mapping[str, object]) -> str:
    layout = figure["layout"]
    height = layout.get("height", _HEIGHT) if isinstance(layout, dict) else _HEIGHT
    url: str = page.evaluate(_DRAW, {**figure, "width": _WIDTH, "height": height})
    return unquote(url.split(",", 1)[1])
