"""The live page of a real job, served by its real agent: it trains, hangs, is looked at, restarts, ends.

One job of two ranks for the whole story; each step waits for what the page says.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browsers import chromium, screenshot_folder
from tests.deadline import DEADLINE, LONGEST
from tests.jobs import Job
from tests.scripted_jobs import job_of

from rankscope.agent.control.client import ControlClient
from rankscope.agent.control.messages import Value

pytestmark = pytest.mark.timeout(LONGEST)
expect.set_options(timeout=DEADLINE * 1000)

SCRIPT: Final = """
import os, time
from pathlib import Path
import torch
import torch.distributed as dist

folder = Path(os.environ["FOLDER"])
life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def read_shard():
    (folder / "pipe").read_bytes()

dist.init_process_group("gloo")
more = torch.ones(1)
while more.item():
    if life == 0 and dist.get_rank() == 1 and (folder / "pipe").exists():
        read_shard()
    more = torch.tensor(0.0 if (folder / "end").exists() else 1.0)
    dist.all_reduce(more, op=dist.ReduceOp.MIN)
    time.sleep(0.1)
dist.destroy_process_group()
"""
"""Rank 1 stands still once there is a pipe that nobody writes to; the second life ends when it is told to."""


@dataclass
class Seen:
    """What the page said at each stage, and what it asked for and complained about.

    Attributes:
        url: in the address line after the visit.
    """

    url: str
    healthy: str
    analysed: str
    stack: str
    confirmed: str
    restarted: str
    last_incident: str
    end: str
    complaints: list[str]
    requests: list[str]
    server: str


def verdict(page: Page, text: str) -> str:
    expect(page.locator("#verdict")).to_contain_text(text)
    return " ".join(page.locator("#verdict").inner_text().split())


def visited(page: Page, job: Job) -> str:
    """Click a link with the token, as it stands in a chat: a page of another site."""
    token = Path(job.agent().token_file).read_text().strip()
    page.set_content(f'<a href="{job.agent().api}/?token={token}">the job</a>')
    page.get_by_role("link").click()
    expect(page.locator("#line")).to_have_text("● live")
    return page.url


def changed(control: ControlClient, change: dict[str, Value]) -> None:
    """Change settings; in a thread, as the browser's driver has this one's event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(control.change_settings(change, by="a test"))).result(DEADLINE)


def looked_at(page: Page) -> str:
    """Press the button until the hang is there: a rank takes a moment to stand still."""
    while True:
        page.get_by_role("button", name="Analyse now").click()
        expect(page.locator("#analysis-said")).to_contain_text("Looked at")
        expect(page.get_by_role("button", name="Analyse now")).to_be_visible()
        if "Healthy" not in page.locator("#analysis-said").inner_text():
            return verdict(page, "read_shard")


def followed(browser: Browser, job: Job, folder: Path, shots: Path) -> Seen:
    """The whole story."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(DEADLINE * 1000)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    url = visited(page, job)
    page.on("request", lambda request: requests.append(request.url))
    control = ControlClient(str(Path(job.agent().page).with_name("control")))
    healthy = verdict(page, "No rank is suspected")
    expect(page.locator("[data-part=ranks] .legend")).to_contain_text("2 running")
    page.screenshot(path=shots / "job-healthy.png", full_page=True)
    os.mkfifo(folder / "pipe")
    analysed = looked_at(page)
    stack = page.locator("[data-part=stacks] > details").first
    stack.locator("summary").click()
    stack.locator("summary").click()
    shown = stack.locator(".frames").inner_text()
    page.screenshot(path=shots / "job-analysed.png", full_page=True)
    changed(control, {"diagnose-after": 1})
    expect(page.locator("[data-part=moments]")).to_contain_text("incident.confirmed")
    confirmed = verdict(page, "incident")
    changed(control, {"max-num-of-job-restart": 1, "job-hang-interval": 5})
    job.wait_for_event("restart.begun")
    changed(control, {"diagnose-after": 600, "job-hang-interval": None})
    restarted = verdict(page, "No rank is suspected")
    expect(page.locator("#found-title")).to_have_text("The last incident")
    last = " ".join(page.locator("#last").inner_text().split())
    page.screenshot(path=shots / "job-restarted.png", full_page=True)
    (folder / "end").touch()
    expect(page.locator("#connection")).to_have_class("connection gone")
    end = page.locator("#line").inner_text()
    page.screenshot(path=shots / "job-ended.png", full_page=True)
    context.close()
    server = job.agent().api
    return Seen(url, healthy, analysed, shown, confirmed, restarted, last, end, complaints, requests, server)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("live-job")
    shots = screenshot_folder(tmp_path_factory)
    with chromium() as browser, job_of(folder, SCRIPT, "--diagnose-after=600") as job:
        job.wait_for_event("cycle.training")
        found = followed(browser, job, folder, shots)
        assert job.finish() == 0, job.stderr[-3000:]
        yield found


def test_a_link_with_the_token_opens_the_page_and_leaves_no_token_in_the_address(seen: Seen) -> None:
    assert seen.url == f"{seen.server}/"


def test_it_says_that_a_job_is_well(seen: Seen) -> None:
    assert "Running" in seen.healthy or "Training" in seen.healthy
    assert "2 ranks" in seen.healthy


def test_analyse_now_names_the_culprit_and_its_line(seen: Seen) -> None:
    line = next(at for at, text in enumerate(SCRIPT.splitlines(), 1) if ".read_bytes()" in text)
    assert "RankNonCommHang" in seen.analysed
    assert "rank 1" in seen.analysed
    assert f"script.py:{line}" in seen.analysed


def test_the_culprits_stack_is_opened(seen: Seen) -> None:
    assert "read_shard (script.py" in seen.stack


def test_the_incident_and_the_restart_are_followed(seen: Seen) -> None:
    assert "RankNonCommHang" in seen.confirmed
    assert "No rank is suspected" in seen.restarted
    assert "RankNonCommHang" in seen.last_incident
    assert "Decided: restart" in seen.last_incident


def test_an_agent_that_ended_is_said_to_have_gone(seen: Seen) -> None:
    assert seen.end.startswith("■ The agent has gone")


def test_nothing_was_asked_elsewhere_and_nothing_complained_about(seen: Seen) -> None:
    assert {url for url in seen.requests if not url.startswith(f"{seen.server}/")} == set()
    assert [one for one in seen.complaints if "net::ERR_CONNECTION_" not in one] == []
