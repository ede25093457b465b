"""The live page's files: what its scripts may do, what they listen to, what they look for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from tests.unit.test_report_page import FORBIDDEN

import rankscope.agent.health.live as package
from rankscope.agent.health.live import routes

ASSETS: Final = Path(package.__file__).parent / "assets"
NEEDED: Final = ("setTimeout", "fetch(")
"""What a live page does and a report does not."""


@pytest.mark.parametrize("word", [word for word in FORBIDDEN if word not in NEEDED])
def test_no_script_makes_markup_of_text_or_leaves_the_origin(word: str) -> None:
    assert word not in routes.script().replace("http://www.w3.org/2000/svg", "")


def test_requests_go_to_relative_addresses_only() -> None:
    asked = re.findall(r"(?:fetch|EventSource)\(([^,)]*)", routes.script())
    assert asked
    assert all(re.fullmatch(r'"v1/[a-z?=]+"', one) for one in asked)


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    html = (ASSETS / "live.html").read_text()
    assert re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL) == [""]
    assert "<style" not in html
    assert not re.search(r"\s(?:on\w+|style)=", html)


def test_the_stream_is_listened_to_for_every_type_of_event() -> None:
    listed = re.search(r"const EVENTS = \[(.*?)\]", routes.script(), re.DOTALL)
    assert listed is not None
    reference = Path(__file__).parents[2] / "docs" / "reference" / "events.md"
    known = set(re.findall(r"^\| `rankscope\.([a-z.]+)` \|", reference.read_text(), re.MULTILINE))
    assert set(re.findall(r'"([a-z.]+)"', listed[1])) == known | {"reset"}


def test_every_file_is_served_and_every_element_that_scripts_look_for_is_there() -> None:
    served = {*routes.SCRIPTS, "live.html", "live.css", "icon.svg"}
    assert {path.name for path in ASSETS.iterdir()} == served
    html = (ASSETS / "live.html").read_text()
    own = "".join((ASSETS / name).read_text() for name in routes.SCRIPTS)
    ids, parts = set(re.findall(r' id="([\w-]+)"', html)), set(re.findall(r'data-part="([\w-]+)"', html))
    assert set(re.findall(r'\bat\("([\w-]+)"\)', own)) <= ids
    assert set(re.findall(r'\bpart\("([\w-]+)"\)', own)) <= parts
