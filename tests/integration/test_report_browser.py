"""The HTML report of a real, recorded incident in a real browser: what it shows, and what it never does.

It needs Chromium (Debian's ``chromium``); a machine without it fails here, so that nobody takes the page for
tested.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, sync_playwright
from tests.report_factory import HOSTILE, MADE, a_big_job, hang, hostile

from rankscope.diag.model import Diagnosis
from rankscope.diag.report.html import page_data, render_page
from rankscope.diag.report.html.render import asset
from rankscope.diag.store.incidents import find_incident
from rankscope.diag.store.job import JobFolder

RECORDED: Final = Path(__file__).parents[2] / "notebooks" / "recorded"
JOB: Final = "loader-hang"
MAIN: Final = "import sys; from rankscope.diag.main import main; sys.exit(main())"
DRAW_AGAIN: Final = """([draw, selector]) => {
    const element = document.querySelector(selector);
    const text = () => element.className + element.textContent.replace(/\\s+/g, "");
    const before = text();
    const [part, name] = draw.split(".");
    Rankscope[part][name](element, JSON.parse(document.getElementById("report-data").textContent));
    return [before, text()];
}"""
DRAWN_AGAIN: Final = {
    "#verdict": "verdict.render",
    "[data-part=stacks]": "stacks.render",
    "[data-part=other-stacks]": "stacks.rest",
    "[data-part=waits-table]": "tables.waits",
    "[data-part=ranks-table]": "tables.rows",
    "[data-part=moments]": "tables.moments",
    "[data-part=cycles]": "tables.cycles",
    "[data-part=evidence]": "tables.evidence",
    "[data-part=unseen]": "tables.unseen",
}
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    assert found is not None, "no Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=60_000)
        yield started
        started.close()


def found() -> Diagnosis:
    """The recorded diagnosis: rank 2 of 4 is stuck."""
    incident = find_incident(JobFolder(RECORDED / "jobs" / JOB).incidents, None)
    assert incident is not None
    assert incident.diagnosis().culprits == (2,)
    return incident.diagnosis()


class Opened:
    """A page that was opened, with all that it said and asked for."""

    def __init__(self, browser: Browser, path: Path, *, width: int = 1200, scripts: bool = True) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, java_script_enabled=scripts, offline=True
        )
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def text(self, selector: str) -> str:
        return " ".join(self.page.locator(selector).first.inner_text().split())

    def is_as_wide_as_the_window(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))

    def close(self) -> None:
        """It must have said nothing, and asked for nothing but itself."""
        self.context.close()
        assert self.complaints == []
        assert len(self.requests) == 1
        assert self.requests[0].startswith("file:")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a recorded job, made by the command."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "report", str(RECORDED / "jobs" / JOB), "-o", str(path)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == f"report: {path}"
    return path


def test_the_first_screen_says_who_where_why_and_what_was_done(browser: Browser, report: Path) -> None:
    for width in (1200, 390):
        opened = Opened(browser, report, width=width)
        verdict = opened.text("#verdict")
        place = found().location
        assert place is not None
        assert f"{place.file}:{place.line}" in verdict
        for said in ("RankNonCommHang · data_loading", "rank 2", "high", "Decided: restart"):
            assert said in verdict
        box = opened.page.locator("#verdict").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 800
        assert opened.is_as_wide_as_the_window()
        opened.close()


def test_the_icicle_shows_who_has_and_lacks_a_frame_and_zooms(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report)
    icicle = opened.page.locator("[data-part=icicle]")
    guilty = icicle.locator(".guilty rect[aria-label^='read_shard']")
    guilty.hover()
    assert "have it: rank 2 lack it: ranks 0-1,3" in opened.text("[data-part=icicle] .read")
    narrow = guilty.bounding_box()
    guilty.click()
    wide = guilty.bounding_box()
    assert narrow is not None
    assert wide is not None
    assert wide["width"] > 2 * narrow["width"]
    assert icicle.get_by_text("Zoom out").is_visible()
    assert icicle.locator("rect[aria-label^='backward']").count() == 0
    opened.page.keyboard.press("Escape")
    assert icicle.locator("rect[aria-label^='backward']").count() == 1
    opened.close()


def test_the_icicle_and_the_grid_are_walked_with_the_keyboard(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report)
    opened.page.locator("[data-part=icicle] rect[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        opened.page.keyboard.press(key)
    assert "have it: ranks 0-1,3 lack it: rank 2" in opened.text("[data-part=icicle] .read")
    grid = opened.page.locator("[data-part=ranks] .canvas")
    node = found().nodes[0]
    assert f"rank 2 · {node}" in opened.text("[data-part=ranks] .read")
    grid.focus()
    opened.page.keyboard.press("ArrowRight")
    assert f"rank 3 · {node}" in opened.text("[data-part=ranks] .read")
    opened.page.get_by_label("Show rank").fill("0")
    assert f"rank 0 · {node}" in opened.text("[data-part=ranks] .read")
    opened.close()


def test_stacks_are_filtered_by_rank_and_by_frame(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report)
    stacks = opened.page.locator("[data-part=stacks] > details")
    assert stacks.first.locator(".badge").inner_text() == "◆ culprit"
    opened.page.get_by_label("Rank", exact=True).fill("3")
    assert [one.is_visible() for one in stacks.all()] == [False, True]
    opened.page.get_by_label("Rank", exact=True).fill("")
    opened.page.get_by_label("Frame with").fill("READ_SHARD")
    assert [one.is_visible() for one in stacks.all()] == [True, False]
    opened.close()


def test_without_scripts_the_verdict_the_stacks_and_the_tables_are_there(
    browser: Browser, report: Path
) -> None:
    opened = Opened(browser, report, scripts=False)
    for selector in (
        "#verdict",
        "#waits table",
        "#stacks .frames",
        "#ranks table",
        "#evidence",
        "#timeline .moments",
    ):
        assert opened.page.locator(selector).first.is_visible()
    assert not opened.page.locator(".drawing").first.is_visible()
    opened.page.locator("#stacks summary").first.click()
    assert not opened.page.locator("#stacks .frames").first.is_visible()
    opened.close()


def test_the_scripts_make_the_same_texts_as_the_file_has(
    browser: Browser, report: Path, tmp_path: Path
) -> None:
    """What a live page will draw from the document is what the report shows without scripts."""
    look = tmp_path / "look.html"
    look.write_text(render_page(page_data(replace(hang(), culprits=(), location=None), made=MADE)))
    big = tmp_path / "big.html"
    diagnosis, seen = a_big_job(160, "all_different")
    big.write_text(render_page(page_data(diagnosis, made=MADE, look=seen)))
    for path in (report, look, big):
        opened = Opened(browser, path)
        opened.page.evaluate(asset("tables.js"))  # not in the file: what it draws stands there
        for selector, draw in DRAWN_AGAIN.items():
            if opened.page.locator(selector).count():
                before, after = opened.page.evaluate(DRAW_AGAIN, [draw, selector])
                assert before or draw == "stacks.rest"  # which may have nothing to say
                assert before == after
        opened.close()


def test_on_paper_all_stacks_are_open_and_no_field_is_left(browser: Browser, report: Path) -> None:
    opened = Opened(browser, report)
    closed = opened.page.locator("#timeline details .scroll")
    assert not closed.is_visible()
    opened.page.emulate_media(media="print")
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert closed.is_visible()
    assert not opened.page.get_by_label("Show rank").is_visible()
    assert not opened.page.locator("nav").is_visible()
    opened.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    opened.page.emulate_media(media="screen")
    assert not closed.is_visible()
    opened.close()


def test_hostile_names_run_nothing_and_stay_in_their_boxes(browser: Browser, tmp_path: Path) -> None:
    for number, text in enumerate(HOSTILE[::2]):  # each of them is parsed in the unit tests
        path = tmp_path / f"{number}.html"
        path.write_text(render_page(page_data(hostile(text), made=MADE)))
        opened = Opened(browser, path, width=390)
        assert opened.page.title().startswith("RankNonCommHang: ")
        assert opened.page.locator("body script, body style, body img").count() == 2
        assert opened.page.get_by_role("tree").is_visible()
        assert opened.is_as_wide_as_the_window(), ascii(text)
        opened.close()


def test_sixteen_thousand_ranks_are_drawn_and_the_culprit_is_seen(browser: Browser, tmp_path: Path) -> None:
    diagnosis, look = a_big_job(16_384)
    path = tmp_path / "big.html"
    path.write_text(render_page(page_data(diagnosis, made=MADE, look=look)))
    opened = Opened(browser, path)
    assert "1 culprit 16383 waiting" in opened.text("[data-part=ranks] .legend")
    assert "rank 9 · host-00001" in opened.text("[data-part=ranks] .read")
    opened.page.get_by_label("Show rank").fill("16383")
    assert re.search(r"rank 16383 · host-02047 · .*step \d+", opened.text("[data-part=ranks] .read"))
    culprit = opened.page.locator(".guilty rect[role=treeitem]").first.bounding_box()
    assert culprit is not None
    assert culprit["width"] > 20
    opened.close()
