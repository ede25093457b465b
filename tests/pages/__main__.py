"""Writes all parts and pictures of the documentation anew: ``python -m tests.pages``."""

from __future__ import annotations

from tests.pages.makers import DOCS, PARTS, PICTURES
from tests.pages.parts import with_parts


def main() -> None:
    """Rewrite what has changed."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        made = with_parts(text, PARTS)
        if made != text:
            page.write_text(made)
    for name, make in PICTURES.items():
        (DOCS / name).write_text(make())


if __name__ == "__main__":
    main()
