"""A document as one HTML file that needs nothing else: styles and scripts inside, and no others allowed.

Nothing that came from the job is interpreted: templates escape all of it, the document lies in the page as
data, and scripts write text only. The page's policy names its own style and script by their hashes; anything
else that found its way into it would not run.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rankscope.diag.report.history_text import duration_text
from rankscope.diag.report.html.document import Page
from rankscope.diag.streams import json_bytes

if TYPE_CHECKING:
    import jinja2

SCRIPTS: Final = (
    "dom.js",
    "verdict.js",
    "icicle.js",
    "waits.js",
    "ranks.js",
    "timeline.js",
    "stacks.js",
    "report.js",
)
"""The parts, in the order in which they are put together; the last one draws them all."""
_HERE: Final = Path(__file__).parent
# What ends an element, begins an entity, or ends a line in JavaScript.
_ESCAPES: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def render_page(page: Page) -> str:
    """The HTML file of a document."""
    style, script = asset("style.css"), "".join(asset(name) for name in SCRIPTS)
    return _template().render(
        page=page,
        style=_inline(style),
        script=_inline(script),
        policy=policy(style=style, script=script),
        data=_inline(embedded(page)),
        version=version("rankscope"),
    )


def embedded(page: Page) -> str:
    """The document as JSON that may stand inside of an HTML element, whatever texts it has."""
    return json_bytes(page).decode().translate(_ESCAPES)


def policy(*, style: str, script: str) -> str:
    """The page's Content-Security-Policy: its own style and script, and nothing else from anywhere."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


@functools.cache
def asset(name: str) -> str:
    """The text of a style or script of this package."""
    return (_HERE / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _inline(text: str) -> object:
    """Our own text, which a template takes as it is."""
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - style and script of this package, and JSON that is escaped above


@functools.cache
def _template() -> jinja2.Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration_text
    return environment.get_template("report.html.jinja")
