"""The table of all exit codes: what the tables of the verbs in ``docs/reference/cli.md`` say, by code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.pages.parts import table

CLI: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"
_SECTION: Final = re.compile(r"^### Exit codes of diag (\S+)\n(.*?)(?=^#)", re.MULTILINE | re.DOTALL)
_ROW: Final = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)


def by_code() -> dict[int, dict[str, str]]:
    """What each code means, by verb."""
    found: dict[int, dict[str, str]] = {}
    for verb, text in _SECTION.findall(CLI.read_text() + "\n#"):
        for code, meaning in _ROW.findall(text):
            found.setdefault(int(code), {})[verb] = meaning
    return dict(sorted(found.items()))


def render() -> str:
    """The table; links of cells stay those of the page beside it."""
    rows: list[list[str]] = []
    for code, meanings in by_code().items():
        grouped: dict[str, list[str]] = {}
        for verb, meaning in meanings.items():
            grouped.setdefault(_first_phrase(meaning), []).append(verb)
        for meaning, verbs in grouped.items():
            rows.append(
                [
                    str(code),
                    ", ".join(f"[`{verb}`](cli.md#exit-codes-of-diag-{verb})" for verb in verbs),
                    meaning,
                ]
            )
    return table(["code", "of", "means"], rows)


def _first_phrase(meaning: str) -> str:
    """Up to the first semicolon or colon outside of brackets; details stand with the verb."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", meaning)
    return re.split(r"[;:] ", plain)[0].strip()
