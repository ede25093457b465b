"""Writes the page of all decisions: ``python -m tests.decisions_page > docs/reference/decisions.md``.

Rows and sources come from the table (``tests/data/policy.toml``), the reasons from the code: each row shows
what the code says to the first cell that it decides. ``make docs`` writes the page anew; a test says when it
is stale.
"""

from __future__ import annotations

import sys
from typing import Final

from tests.policy_table import SUMMARY, Answer, Question, Row, cells, decide, questions

_HEAD: Final = """\
# Decisions

What `diag run` does about what happens to a job: pure functions (`agent/rankscope/agent/policy/`) of the
diagnosis, of what the job has been through, and of the settings. `log` < `notify` < `hold` < `restart` <
`isolate` < `fail`: the first three leave the workers as they are, `isolate` ends this node's part in the job,
`fail` the job.

| exit code | a scheduler should |
|---|---|
| 1 | do what it does about failed jobs: it is torchrun's |
| 75 | run it again; of a node that left the job: have the node checked, then give it back |
| 93 | not run it again as it is |

Rows are read from the top, the first that fits decides; what a row does not name may have any value. The
reason is what the code says, without its beginning (what happened); its numbers are examples. *Open*: the
design is silent there, and this is why it was decided so ([decision 0022](../decisions/0022-policy.md)).

`make docs` writes this page from `tests/data/policy.toml` and the code: change those, not this page.

`restarts`: `left` 1 of 3 used; `used up` 3 of 3; `forbidden` 3 with `--enable-job-restart=False`; `none` no
number was given. Async: of each worker, and `forbidden` is of the whole job only. `stalled`:
`--no-progress-limit` restarts in a row made no new step.
"""
_WORDS: Final = {
    "hang": """\
`interval`: whether the user named it (`--job-hang-interval`, `--job-exit-hang-interval`). `trained`: whether
a step or a collective was ever seen in this launch. `named`: where the culprits are. `cause`: `stopped` a
rank cannot run, `blocked` it is in uninterruptible sleep (state D). `room`: whether the job may go on with a
node less.
""",
    "failure": """\
`root`: what exit code and log of the first to fail say, `untold` when none can be told. `repeated`: more than
`--max-num-of-same-error` times on one instance. `many`: more workers than `--max-tolerated-failure-rate`.
`blocked`: another rank is in uninterruptible sleep. Async: each failed worker is asked about alone.
""",
}


def render_page() -> str:
    """The page, Markdown."""
    return "\n".join([_HEAD, *(_section(name, table) for name, table in questions().items())])


def _section(name: str, table: Question) -> str:
    first: dict[int, Answer] = {}
    count = 0
    for cell in cells(name):
        count += 1
        number = table.index(cell)
        if number is not None and number not in first:
            first[number] = decide(name, cell)
    sends = name == "timer"
    columns = ["when", "action", *(["send"] if sends else []), "exit", "reason", "from"]
    lines = [f"## {table.title}", ""]
    if name in _WORDS:
        lines.append(_WORDS[name])
    lines += [f"{count:,} cells are compared.", "", _line(columns), "|---" * len(columns) + "|"]
    lines += [_line(_cells(row, first[number], sends=sends)) for number, row in enumerate(table.row)]
    return "\n".join(lines) + "\n"


def _cells(row: Row, answer: Answer, *, sends: bool) -> list[str]:
    when = "<br>".join(
        f"{axis}: {f'`{wanted}`' if isinstance(wanted, str) else ', '.join(f'`{one}`' for one in wanted)}"
        for axis, wanted in row.when.items()
    )
    code = answer.decision.exit_code
    return [
        when or "everything else",
        f"`{answer.decision.action}`",
        *(["yes" if answer.send else "no"] if sends else []),
        "" if code is None else str(code),
        _escaped(_ending(answer.decision.reason)),
        "<br>".join(
            part for part in (_escaped(row.spec), f"*Open*: {_escaped(row.open)}" * bool(row.open)) if part
        ),
    ]


def _ending(reason: str) -> str:
    """The reason without what happened, which is in the words of the diagnosis."""
    return reason.partition(f"{SUMMARY}; ")[2] or reason


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _line(columns: list[str]) -> str:
    return f"| {' | '.join(columns)} |"


if __name__ == "__main__":
    sys.stdout.write(render_page())
