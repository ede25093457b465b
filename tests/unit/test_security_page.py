"""SECURITY.md against the tests: every line of its table names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_threat_names_tests_that_exist() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`test_" in line]
    assert len(rows) > 15
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    existing = set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))
    for row in rows:
        named = set(re.findall(r"`(test_\w+)`", row))
        assert named, row
        assert named <= existing, sorted(named - existing)


def test_every_hostile_test_stands_on_the_page() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    source = (ROOT / "tests" / "integration" / "test_api_hostile.py").read_text()
    tests = set(re.findall(r"^def (test_\w+)", source, re.MULTILINE))
    unnamed = {name for name in tests if f"`{name}`" not in page}
    assert unnamed == {"test_a_server_without_an_offer_has_only_open_paths_until_there_is_one"}
