"""The rules in the order in which they are asked, each with what its function says of itself."""

from __future__ import annotations

from tests.pages.parts import table

from rankscope.diag.classify.rules import RULES


def render() -> str:
    """One row a rule."""
    rows: list[list[str]] = []
    for number, rule in enumerate(RULES, 1):
        does = (rule.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        rows.append([str(number), f"`{rule.__name__}`", " ".join(does.replace("``", "`").split())])
    return table(["asked", "rule", "fires when"], rows)
