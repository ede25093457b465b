"""A headless Chromium for tests (Debian's ``chromium``), and where their screenshots go."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, sync_playwright

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Generator[Browser]:
    """The browser; a machine without one fails here, so that nobody takes a page for tested."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    assert found is not None, "no Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"], timeout=120_000
        )
        try:
            yield started
        finally:
            started.close()


def screenshot_folder(factory: pytest.TempPathFactory) -> Path:
    """``$RANKSCOPE_ARTEFACTS/live-page``, else a folder of pytest's."""
    folder = os.environ.get("RANKSCOPE_ARTEFACTS")
    if folder is None:
        return factory.mktemp("live-page")
    path = Path(folder) / "live-page"
    path.mkdir(parents=True, exist_ok=True)
    return path
