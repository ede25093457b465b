"""A hook of mkdocs: files outside of ``docs/`` that pages link to come along, so that every link works.

Such a file lies in the site below ``repository/``, and links from it and to it are rewritten. Decision
records are put into the navigation in their order. Run by mkdocs as ``mkdocs.yml`` says, from any folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
_ASIDE: Final = "repository"
_ASIDE_ONLY: Final = InclusionLevel.NOT_IN_NAV
_LINK: Final = re.compile(r"(\[[^\]]*\]\()([^)\s#:]+)(#[^)\s]*)?\)")
_BLOCK: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the decision records."""
    records: list[Any] = [f"decisions/{path.name}" for path in sorted((DOCS / "decisions").glob("*.md"))]
    navigation: list[Any] = config.nav or []
    navigation.append({"Decision records": records})
    config.nav = navigation
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in what is linked to from the pages, and from what is taken in."""
    waiting = sorted(DOCS.rglob("*.md"))
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for link in _LINK.findall(_BLOCK.sub("", page.read_text())):
            target = (page.parent / link[1]).resolve()
            if target in seen or target.is_relative_to(DOCS) or not target.is_file():
                continue
            seen.add(target)
            files.append(
                File.generated(config, _inside(target), abs_src_path=str(target), inclusion=_ASIDE_ONLY)
            )
            waiting += [target] * (target.suffix == ".md")
    return files


def on_page_markdown(markdown: str, page: Page, **_more: object) -> str:
    """Let links that lead out of ``docs/`` lead to what was taken in."""
    source = page.file.src_uri
    here = ROOT / source.removeprefix(f"{_ASIDE}/") if source.startswith(f"{_ASIDE}/") else DOCS / source

    def rewritten(found: re.Match[str]) -> str:
        target = (here.parent / found[2]).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return found[0]
        if target.is_dir():
            target = target / "README.md"  # a folder is no page: what describes it is, or mkdocs complains
        inside = _inside(target)
        return f"{found[1]}{os.path.relpath(inside, Path(source).parent)}{found[3] or ''})"

    return _LINK.sub(rewritten, markdown)


def _inside(target: Path) -> str:
    """Where a file of the repository lies in the site's sources."""
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    return f"{_ASIDE}/{target.relative_to(ROOT).as_posix()}"
