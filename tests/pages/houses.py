"""What there is, from where it is declared: the verbs of ``diag``, and the rooms of the agent in their order.

Rooms and their order are those of the import contract in ``pyproject.toml``, which import-linter holds; what
a room is about is the first sentence of its package.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any, Final

from tests.pages.parts import table

from rankscope.diag.main import SUMMARIES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT: Final = Path(__file__).resolve().parents[2]
AGENT: Final = ROOT / "agent" / "rankscope" / "agent"


def verbs() -> str:
    """Every verb, in the order of ``SUMMARIES``, with its section of the page."""
    rows = [[f"[`diag {verb}`](#diag-{verb})", does] for verb, does in SUMMARIES.items()]
    return table(["command", "does"], rows)


def agent_rooms() -> str:
    """The agent's packages, from the top: a room imports those below it, none above and none beside."""
    rows: list[list[str]] = []
    for layer in _layers():
        rooms = [name.strip() for name in layer.split("|")]
        packages = [name for name in rooms if (AGENT / name / "__init__.py").exists()]
        rows += [[f"`{name}/`", _subject(AGENT / name / "__init__.py")] for name in packages]
    return table(["room", "subject"], rows)


def _layers() -> list[str]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [one["layers"] for one in contracts if one.get("containers") == ["rankscope.agent"]]
    return [str(layer) for layer in layers]


def _subject(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")
