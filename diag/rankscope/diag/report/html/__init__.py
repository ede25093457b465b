"""The report as one HTML file: ``page_data`` says what is on it, ``render_page`` how it looks.

Neither decides anything. The document between them is plain JSON (docs/reference/report-document.md), so
that a live page can send the same one and use the same parts.
"""

from __future__ import annotations

from rankscope.diag.report.html.document import Page
from rankscope.diag.report.html.page_data import page_data
from rankscope.diag.report.html.render import render_page

__all__ = ["Page", "page_data", "render_page"]
