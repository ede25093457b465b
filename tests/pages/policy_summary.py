"""What becomes of a hang, in one small table: the policy is asked, nothing is written down."""

from __future__ import annotations

from tests.pages.parts import table
from tests.policy_table import decide, questions

RESTARTS = ("left", "used up", "none")
ON_HANG = ("auto", "restart", "log", "notify", "hold")


def render() -> str:
    """A row for each ``--on-hang``, a column for each state of the restarts; a hang of high confidence."""
    first = {axis: values[0] for axis, values in questions()["hang"].axes.items()}
    rows: list[list[str]] = []
    for on_hang in ON_HANG:
        row = [f"`--on-hang {on_hang}`"]
        for restarts in RESTARTS:
            asked = decide("hang", {**first, "on_hang": on_hang, "restarts": restarts}).decision
            row.append(
                f"`{asked.action}`" + (f", exit {asked.exit_code}" if asked.exit_code is not None else "")
            )
        rows.append(row)
    return table(["", "a restart is left", "restarts are used up", "none was allowed"], rows)
