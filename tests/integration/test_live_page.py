"""The live page in a real browser: what a person on call sees, does, and is never shown.

Its routes, files and documents are the real ones, of recorded jobs; ranks, events and answers come as each
test wants them (``tests/live_site.py``). Screenshots: ``$RANKSCOPE_ARTEFACTS``, else the folder of pytest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, expect
from tests.browsers import chromium, screenshot_folder
from tests.deadline import DEADLINE, LONGEST
from tests.live_site import (
    LiveSite,
    a_big_page,
    a_live_page,
    a_ranks_answer,
    problem,
    running,
    while_it_hangs,
)
from tests.report_factory import HOSTILE, MADE, hang, hostile

from rankscope.agent.health.live.routes import HEADERS
from rankscope.diag.report.html import page_data
from rankscope.diag.report.html.live_data import LivePage

pytestmark = pytest.mark.timeout(LONGEST)

HUNG: Final = "wwhw"
SPAN: Final = "{} \u2013 {}"
WORST: Final = ("serious", "critical")
Scheme = Literal["light", "dark"]
Open = Callable[..., "Visit"]

expect.set_options(timeout=DEADLINE * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


class Visit:
    """The page, opened, with all that it said and asked for."""

    def __init__(
        self,
        browser: Browser,
        site: LiveSite,
        *,
        width: int = 1200,
        scheme: Scheme = "light",
        clock: bool = False,
    ) -> None:
        self.site = site
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.context.set_default_timeout(DEADLINE * 1000)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        if clock:  # it stands still, until a test turns it
            self.page.clock.install(time=0)
            self.page.clock.pause_at(3600)
        self.page.goto(site.url)

    def sees(self, selector: str, text: str | re.Pattern[str]) -> None:
        expect(self.page.locator(selector).first).to_contain_text(text)

    def text(self, selector: str) -> str:
        return " ".join(self.page.locator(selector).first.inner_text().split())

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def focused(self) -> str:
        found = self.page.evaluate("document.activeElement.id || document.activeElement.className")
        return str(found)

    def shoot(self, folder: Path, name: str) -> None:
        self.page.evaluate("scrollTo(0, 0)")
        self.page.screenshot(path=folder / f"{name}.png")
        self.page.screenshot(path=folder / f"{name}-whole.png", full_page=True)

    def close(self, *, allowed: str = "") -> None:
        """It must have complained about nothing, and asked nobody but its own server."""
        self.context.close()
        assert [one for one in self.complaints if not allowed or allowed not in one] == []
        assert {url for url in self.requests if not url.startswith(self.site.url)} == set()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens the page of a site of its own; both are closed at the end."""
    opened: list[tuple[LiveSite, Visit]] = []

    def open_it(page: LivePage, ranks: dict[str, object], **options: object) -> Visit:
        site = LiveSite(page, ranks, is_silent=bool(options.get("clock")))
        try:
            made = Visit(browser, site, **options)  # type: ignore[arg-type]  # as Visit takes them
        except BaseException:
            site.close()
            raise
        opened.append((site, made))
        return made

    yield open_it
    for site, made in opened:
        made.context.close()
        site.close()


@pytest.fixture(scope="module")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return screenshot_folder(tmp_path_factory)


def hung() -> LivePage:
    return while_it_hangs(a_live_page("loader-hang"))


def healthy() -> LivePage:
    return running(a_live_page("healthy"))


def test_a_hang_is_seen_at_once_with_culprit_line_ranks_and_stacks(visit: Open, shots: Path) -> None:
    seen = visit(hung(), a_ranks_answer(HUNG))
    seen.sees("#line", "live")
    seen.sees("#verdict", "RankNonCommHang · data_loading")
    box = seen.page.locator("#verdict").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 700
    for said in ("rank 2", "/workspace/train.py:47", "pipe.read_bytes()", "Decided: restart", "high"):
        assert said in seen.text("#verdict")
    assert seen.page.title().startswith("RankNonCommHang rank 2 ")
    assert seen.text("[data-part=ranks] .legend") == "1 culprit 3 waiting"
    assert "rank 2 · host-000 · pid 4002 · hung, culprit · step 25 · no step for 12.0 s" in seen.text(".read")
    assert "12.0 s" in seen.text("#now")
    assert seen.page.locator("[data-part=standing] tbody tr").count() == 4
    first = seen.page.locator("[data-part=stacks] > details").first
    assert "◆ culprit" in first.inner_text()
    expect(first.locator(".frames")).to_contain_text("read_shard (train.py:47)")
    first.locator("summary").click()
    expect(first.locator(".frames")).to_be_hidden()
    first.locator("summary").click()
    expect(first.locator(".frames")).to_be_visible()
    assert seen.page.locator("[data-part=icicle] .guilty rect").count() > 3
    assert seen.page.locator("[data-part=waits] .box").count() == 2
    assert "rank 2 ◆ culprit read_shard nobody" in seen.text("[data-part=waits-table] tbody")
    assert "incident.confirmed" in seen.text("[data-part=moments]")
    seen.shoot(shots, "hung")
    seen.close()


def test_a_job_without_trouble_shows_steps_pace_and_that_nothing_was_found(visit: Open, shots: Path) -> None:
    seen = visit(healthy(), a_ranks_answer("rrrr", step=310, idle=0.1))
    seen.sees("#verdict h1", "Training")
    seen.sees("#now", SPAN.format(310, 311))
    for said in ("5.25", "0.1 s", "none", "41.3 s"):
        assert said in seen.text("#now")
    assert "No incident so far" in seen.text("#found")
    assert not seen.page.locator("#stacks").is_visible()
    assert seen.page.locator("nav a:visible").all_inner_texts() == ["Ranks", "Timeline"]
    seen.site.say_ranks(a_ranks_answer("rrrr", step=320, idle=0.1))
    seen.sees("#now", SPAN.format(320, 321))
    seen.shoot(shots, "healthy")
    seen.close()


def test_a_script_without_steps_is_said_to_have_none(visit: Open) -> None:
    seen = visit(healthy(), a_ranks_answer("rr", step=None))
    seen.sees("#now", "no steps seen")
    seen.sees("#verdict h1", "Running")
    seen.site.say_ranks(a_ranks_answer("rr", step=0))
    seen.sees("#now", SPAN.format(0, 1))
    seen.close()


def test_the_last_incident_of_a_job_that_goes_on_is_below_and_not_at_the_top(
    visit: Open, shots: Path
) -> None:
    seen = visit(running(a_live_page("loader-hang")), a_ranks_answer("rrrr", idle=0.1))
    seen.sees("#verdict h1", "Training")
    seen.sees("#found", "It holds no more")
    assert "RankNonCommHang" in seen.text("#last")
    assert "RankNonCommHang, 2026-11-30 13:03:18 UTC" in seen.text("#now")
    assert seen.text("[data-part=ranks] .legend") == "4 running"
    assert "culprit" not in seen.text(".read")
    seen.shoot(shots, "after-restart")
    seen.close()


@pytest.mark.parametrize(
    ("phase", "title"),
    [
        ("starting", "Starting"),
        ("rendezvous", "Rendezvous"),
        ("restarting", "Restarting"),
        ("ended", "ended"),
    ],
)
def test_there_is_a_page_before_the_first_rendezvous_and_after_the_end(
    visit: Open, phase: str, title: str
) -> None:
    seen = visit(healthy(), a_ranks_answer("", phase=phase))
    seen.sees("#verdict h1", title)
    seen.sees("#ranks-hint", "No worker runs now.")
    seen.close()


def test_a_job_that_failed_of_a_hang_still_shows_the_hang(visit: Open) -> None:
    seen = visit(a_live_page("lock-hang"), a_ranks_answer("xxx", phase="ended"))
    seen.sees("#verdict", "RankNonCommHang · lock")
    assert "the job has ended since: failed" in seen.text("#verdict")
    seen.close()


def test_suspicion_verdict_and_restart_are_followed_without_a_reload(visit: Open) -> None:
    seen = visit(healthy(), a_ranks_answer("rrrr"))
    seen.sees("#verdict h1", "Training")
    seen.site.say_ranks(a_ranks_answer("rrsr"))
    seen.sees("#verdict", "no progress for 12 s · rank 2")
    seen.sees(".read", "rank 2")
    seen.site.page = hung()
    seen.site.say_ranks(a_ranks_answer(HUNG))
    seen.site.say("incident.confirmed", {}, "e-1")
    seen.sees("#verdict", "rank 2 is stuck in read_shard")
    expect(seen.page.locator("#stacks")).to_be_visible()
    seen.site.page = running(a_live_page("loader-hang"))
    seen.site.say_ranks(a_ranks_answer("rrrr", idle=0.1))
    seen.site.say("restart", {}, "e-2")
    seen.sees("#verdict h1", "Training")
    seen.sees("#found-title", "The last incident")
    seen.close()


def test_what_was_opened_zoomed_and_focused_stays_when_news_come(visit: Open) -> None:
    page = hung()
    seen = visit(page, a_ranks_answer(HUNG))
    seen.sees("#verdict", "RankNonCommHang")
    cycles = seen.page.locator("#timeline details")
    cycles.locator("summary").click()
    seen.page.locator("[data-part=stacks] summary").first.click()
    seen.page.locator("[data-part=ranks] .canvas").focus()
    seen.press("ArrowRight")
    before = seen.site.page_requests
    assert page.timeline is not None
    seen.site.page = replace(page, timeline=replace(page.timeline, wall=4000.0))
    seen.site.say("message", {}, "e-1")
    seen.sees("#timeline-said", "1 h 6 min")
    assert seen.site.page_requests > before
    assert cycles.evaluate("one => one.open")
    assert not seen.page.locator("[data-part=stacks] > details").first.evaluate("one => one.open")
    seen.site.say_ranks(a_ranks_answer(HUNG, step=77))
    seen.sees(".read", "rank 3 · host-000 · pid 4003 · waiting, victim · step 78")
    assert seen.focused() == "canvas"
    seen.close()


def test_a_thousand_ranks_are_drawn_and_walked_and_the_culprit_is_marked(visit: Open, shots: Path) -> None:
    states = "".join("h" if rank == 9 else "w" for rank in range(1024))
    seen = visit(a_big_page(1024), a_ranks_answer(states))
    seen.sees("[data-part=ranks] .legend", "1023 waiting")
    seen.sees(".read", "rank 9 · host-001")
    drawing = seen.page.locator("[data-part=ranks] svg").last
    expect(drawing.locator("path")).to_have_count(2)
    seen.page.get_by_label("Show rank").fill("1023")
    seen.sees(".read", "rank 1023 · host-127")
    scrolled = seen.page.locator("[data-part=ranks] .canvas").evaluate("one => one.scrollTop")
    seen.site.say_ranks(a_ranks_answer(states, step=99))
    seen.sees(".read", "rank 1023 · host-127 · pid 5023 · waiting, victim · step 100")
    assert seen.page.locator("[data-part=ranks] .canvas").evaluate("one => one.scrollTop") == scrolled
    assert seen.page.locator("[data-part=standing] tbody tr").count() == 64
    assert seen.page.evaluate("document.querySelectorAll('*').length") < 2500
    seen.shoot(shots, "1024-ranks")
    seen.close()


def test_a_stream_that_breaks_goes_on_after_the_last_event(visit: Open) -> None:
    seen = visit(hung(), a_ranks_answer(HUNG))
    seen.sees("#line", "live")
    seen.site.say("decision", {}, "event-7")
    seen.site.wait_for_pages(2)
    seen.site.cut()
    seen.site.wait_for_streams(2)
    assert seen.site.last_ids == [None, "event-7"]
    seen.sees("#line", "live")
    seen.close()


def test_a_page_whose_server_is_gone_says_how_old_it_is_and_comes_back(visit: Open, shots: Path) -> None:
    seen = visit(hung(), a_ranks_answer(HUNG))
    seen.sees("#line", "live")
    seen.site.stop()
    seen.sees("#line", "OLD: connection lost, trying again")
    seen.sees("#stamp", re.compile(r"What is shown is \d+\.\d s old, of 16:40:03 UTC"))
    expect(seen.page).to_have_title(re.compile("^OLD: RankNonCommHang"))
    assert "RankNonCommHang" in seen.text("#verdict")
    seen.shoot(shots, "old")
    seen.site.page = running(a_live_page("loader-hang"))
    seen.site.ranks = a_ranks_answer("rrrr")
    seen.site.start()
    seen.sees("#verdict h1", "Training")
    seen.sees("#line", "live")
    seen.close(allowed="Failed to load resource")


def test_a_server_that_says_nothing_any_more_is_old_after_a_quarter_of_a_minute(visit: Open) -> None:
    seen = visit(hung(), a_ranks_answer(HUNG), clock=True)
    seen.sees("#line", "live")
    seen.page.clock.run_for(17_000)
    seen.sees("#line", "OLD: no word from the agent")
    seen.sees("#stamp", "What is shown is 17.0 s old, of 16:40:03 UTC")
    seen.site.say("alive", {"time": "x"})
    seen.sees("#line", "live")
    seen.close()


def test_an_agent_that_ends_and_a_visit_that_is_over_are_told_apart(visit: Open) -> None:
    seen = visit(hung(), a_ranks_answer(HUNG), clock=True)
    seen.sees("#line", "live")
    seen.site.refused.add("visit")
    seen.site.say("gone", {"reason": "the job has ended"})
    seen.sees("#line", "The agent has gone: the job has ended")
    seen.page.clock.run_for(4000)
    seen.sees("#line", "This visit is over")
    seen.close(allowed="401")


def test_records_that_cannot_be_read_are_said_and_the_rest_stays(visit: Open) -> None:
    seen = visit(hung(), a_ranks_answer(HUNG))
    seen.sees("#verdict", "RankNonCommHang")
    seen.site.refused.add("page")
    seen.site.say("message", {}, "e-1")
    seen.sees("#trouble", "The records could not be read: the disk does not answer")
    assert "RankNonCommHang" in seen.text("#verdict")
    seen.site.refused.clear()
    seen.site.say("message", {}, "e-2")
    expect(seen.page.locator("#trouble")).to_be_hidden()
    seen.close(allowed="503")


def test_analyse_now_shows_progress_and_then_what_was_found(visit: Open, shots: Path) -> None:
    seen = visit(healthy(), a_ranks_answer("rrrr"))
    seen.sees("#line", "live")
    seen.site.analysis.append(page_data(hang(), made=MADE))
    seen.site.hold_analysis.clear()
    button = seen.page.locator("#analyse")
    button.click()
    seen.sees("#analyse", re.compile(r"Looking at all ranks … \d+ s"))
    assert button.get_attribute("aria-busy") == "true"
    button.click(force=True)  # a second press asks for nothing more
    seen.site.hold_analysis.set()
    seen.sees("#analysis-said", "RankNonCommHang")
    seen.sees("#verdict", "rank 2 is stuck in load_batch")
    seen.sees("#found-title", "A look you asked for")
    assert seen.page.locator("[data-part=stacks] > details").count() == 2
    assert seen.text("[data-part=ranks] .legend") == "1 culprit 3 running"
    assert seen.focused() == "analyse"
    seen.shoot(shots, "analysed")
    seen.page.get_by_role("button", name="Put it away").click()
    seen.sees("#verdict h1", "Training")
    assert not seen.page.locator("#stacks").is_visible()
    assert seen.site.analysis == []
    seen.close()


def test_an_analysis_that_is_refused_or_fails_says_why(visit: Open) -> None:
    seen = visit(hung(), a_ranks_answer(HUNG))
    seen.sees("#line", "live")
    seen.site.analysis = [
        problem(409, "another analysis is under way", Retry_After="5"),
        problem(503, "no workers run"),
        problem(401, "a token is needed"),
    ]
    for said in (
        "Busy: another analysis is under way; ask again in 5 s.",
        "Failed: no workers run.",
        "Not allowed: open the page again with the job's token.",
    ):
        seen.page.locator("#analyse").click()
        seen.sees("#analysis-said", said)
        seen.sees("#analyse", "Analyse now")
    seen.site.stop()
    seen.page.locator("#analyse").click()
    seen.sees("#analysis-said", "Failed: the agent's server cannot be reached.")
    assert "RankNonCommHang" in seen.text("#verdict")
    seen.close(allowed="Failed to load resource")


def test_the_whole_page_is_used_with_the_keyboard_alone(visit: Open) -> None:
    seen = visit(hung(), a_ranks_answer(HUNG))
    seen.sees("#verdict", "RankNonCommHang")
    seen.press("Tab")
    assert seen.focused() == "skip"
    seen.press("Enter")
    assert seen.page.url.endswith("#ranks")
    seen.press("Tab")
    assert seen.focused() == "canvas"
    seen.press("ArrowRight")
    seen.sees("[data-part=ranks] .aloud", "rank 3")
    seen.press("ArrowLeft", "Enter")
    visible = seen.page.locator("[data-part=stacks] > details:visible")
    assert visible.count() == 1
    assert visible.evaluate("one => one.firstChild === document.activeElement")
    seen.press("Enter")
    expect(visible.locator(".frames")).to_be_hidden()
    seen.site.analysis.append(page_data(hang(), made=MADE))
    seen.page.locator("#analyse").focus()
    seen.press("Space")
    seen.sees("#found-title", "A look you asked for")
    seen.close()


@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("light", 1200, "light"), ("dark", 1200, "dark"), ("narrow", 390, "light")]
)
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_the_window(
    visit: Open, shots: Path, name: str, width: int, scheme: Scheme
) -> None:
    states = ["hung", "healthy", "suspected"] if name == "light" else ["hung"]
    pages = {
        "hung": (hung(), a_ranks_answer(HUNG)),
        "healthy": (running(a_live_page("loader-hang")), a_ranks_answer("rrrr")),
        "suspected": (healthy(), a_ranks_answer("rrsr")),
    }
    for state in states:
        seen = visit(*pages[state], width=width, scheme=scheme)
        seen.sees("#line", "live")
        seen.sees("[data-part=ranks] .legend", "4" if state == "healthy" else "3")
        assert serious(seen.page) == []
        assert seen.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        if state == "hung":
            seen.shoot(shots, f"hung-{name}")
            seen.site.stop()
            seen.sees("#line", "OLD")
            assert serious(seen.page) == []
        seen.close(allowed="Failed to load resource")


def serious(page: Page) -> list[tuple[str, str]]:
    """What axe finds that keeps somebody from using the page: the rule, and where."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in WORST]


def test_names_of_the_job_run_nothing_and_stay_in_their_boxes(visit: Open) -> None:
    for text in HOSTILE[::3]:
        page = hung()
        report = replace(page_data(hostile(text), made=MADE), timeline=None)
        seen = visit(replace(page, report=report, job=report.head.job), a_ranks_answer("whw"), width=390)
        seen.sees("#verdict", "RankNonCommHang")
        assert seen.page.title() != "owned"
        assert seen.page.locator("body script, body style, img").count() == 0
        assert seen.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), ascii(text)
        seen.close()


def test_every_file_of_the_page_comes_with_a_strict_policy(visit: Open) -> None:
    seen = visit(hung(), a_ranks_answer(HUNG))
    seen.sees("#line", "live")
    for name in ("", "live/script.js", "live/style.css", "live/icon.svg"):
        answer = seen.context.request.get(seen.site.url + name)
        assert answer.ok
        assert {key: answer.headers[key.lower()] for key in HEADERS} == HEADERS
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    blocked = seen.page.evaluate("fetch('http://127.0.0.2:1/').then(() => 'sent', () => 'blocked')")
    assert blocked == "blocked"
    assert any("Content Security Policy" in one for one in seen.complaints)
    inline = seen.page.evaluate(
        "() => { const one = document.createElement('script'); one.textContent = 'document.title = \"run\"';"
        " document.body.append(one); return document.title; }"
    )
    assert inline != "run"
