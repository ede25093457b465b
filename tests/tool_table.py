"""Tool by case: do each tool's dumps alone give a case's truth? ``python -m tests.tool_table FOLDER [CASE]``.

FOLDER holds cases, each with a ``truth.json`` (``culprits``, and ``class`` where it has one) beside files
named ``rank<k>.<tool>.<ext>``. A case is also judged from all of its files together. It prints a table and
what every answer that is not the truth lacks, and ends with 1 when an answer is wrong.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.dumps import read_dumps
from rankscope.diag.model import Diagnosis

Outcome = Literal["truth", "low", "Unknown", "WRONG"]
"""``low``: the right culprits with low confidence, but a hang where the job is slow: one look cannot tell."""

ALL: Final = "all files"
_FILE: Final = re.compile(r"rank\d+(?:\.child\d+)?\.(?P<tool>\w+)\.(?P<ext>\w+)(?:\.zst|\.gz)?")
_RECORD: Final = re.compile(r"rank\d+\.(?P<ext>json|pickle)(?:\.zst|\.gz)?")
_LOGS: Final = frozenset({"stderr", "stdout", "error"})
_NAMES: Final = {"pyspy.txt": "pyspy", "json": "FR json", "pickle": "FR pickle"}


@dataclass(frozen=True, slots=True)
class Truth:
    """What is known of a case; ``verdict`` is empty where only the culprits are."""

    culprits: tuple[int, ...]
    verdict: str

    def outcome(self, found: Diagnosis) -> Outcome:
        """How an answer compares."""
        if found.verdict == "Unknown" or (found.verdict == "Healthy" and not self.culprits):
            return "truth" if not self.culprits else "Unknown"
        if found.verdict == "Healthy" and self.verdict.endswith("Slow"):
            return "Unknown"
        if found.culprits != self.culprits:
            return "WRONG"
        if not self.verdict or found.verdict == self.verdict:
            return "truth"
        slow = self.verdict.endswith("Slow") and found.confidence == "low"
        return "low" if slow else "WRONG"


@dataclass(frozen=True, slots=True)
class Answer:
    """One tool's answer for one case."""

    case: str
    tool: str
    outcome: Outcome
    diagnosis: Diagnosis


def cases(folder: Path) -> list[Path]:
    """The folders of all cases below a folder."""
    return sorted(path.parent for path in folder.rglob("truth.json"))


def read_truth(case: Path) -> Truth:
    """The truth of a case; a record's case without a class says slow or hung in ``kind``."""
    document = json.loads((case / "truth.json").read_text("utf-8"))
    verdict = document.get("class", "")
    if not verdict and str(document.get("kind", "")).startswith("RankNonCommSlow"):
        verdict = "RankNonCommSlow"
    return Truth(tuple(document["culprits"]), verdict)


def files_by_tool(case: Path) -> dict[str, list[Path]]:
    """The dumps of a case by the tool that wrote them; its logs belong to none."""
    found: dict[str, list[Path]] = {}
    for path in sorted(case.iterdir()):
        match = _FILE.fullmatch(path.name)
        record = _RECORD.fullmatch(path.name)
        if record is not None:
            found.setdefault(_NAMES[record["ext"]], []).append(path)
        elif match is not None and match["tool"] not in _LOGS:
            spelled = f"{match['tool']}.{match['ext']}"
            name = spelled if match["tool"].startswith("pyspy") else match["tool"]
            found.setdefault(_NAMES.get(name, name), []).append(path)
    return found


def judge(paths: Sequence[Path]) -> Diagnosis:
    """What ``diag analyze`` says of some files, the source files of the job not being there."""
    job = read_dumps(paths)
    return diagnose(
        job.pair,
        catalogue=load_catalogue(),
        source_line=lambda _file, _line: None,
        time="2026-11-29T16:40:00Z",
        samples=job.samples,
    )


def answers(folder: Path, only: Sequence[str] = ()) -> Iterator[Answer]:
    """Every tool's answer for every case, and that of all files of a case together."""
    for case in cases(folder):
        if only and case.name not in only:
            continue
        truth = read_truth(case)
        for tool, paths in sorted(files_by_tool(case).items()):
            found = judge(paths)
            yield Answer(case.name, tool, truth.outcome(found), found)
        found = judge([case])
        yield Answer(case.name, ALL, truth.outcome(found), found)


def main(arguments: Sequence[str]) -> int:
    """Print the table of a folder of cases."""
    if not arguments:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    found = list(answers(Path(arguments[0]), arguments[1:]))
    _print_table(found)
    print()
    for one in found:
        if one.outcome != "truth":
            print(f"{one.outcome:8} {one.case} / {one.tool}: {_missing(one.diagnosis)}")
    pairs = [one for one in found if one.tool != ALL]
    for name, part in (("(tool, case) pairs", pairs), (ALL, [one for one in found if one.tool == ALL])):
        counts = Counter(one.outcome for one in part)
        shares = ", ".join(f"{counts[key]} {key}" for key in ("truth", "low", "Unknown", "WRONG"))
        print(f"{name}: {len(part)}: {shares}")
    return int(any(one.outcome == "WRONG" for one in found))


def _print_table(found: Sequence[Answer]) -> None:
    by_pair: Mapping[tuple[str, str], Outcome] = {(one.tool, one.case): one.outcome for one in found}
    names = list(dict.fromkeys(one.case for one in found))
    tools = list(
        dict.fromkeys(one.tool for one in sorted(found, key=lambda one: (one.tool == ALL, one.tool)))
    )
    for at, name in enumerate(names):
        print(f"{at:3} {name}")
    print(" " * 22 + "".join(f"{at:>4}" for at in range(len(names))))
    signs = {"truth": "+", "low": "l", "Unknown": "?", "WRONG": "X"}
    for tool in tools:
        row = [by_pair.get((tool, name)) for name in names]
        print(f"{tool:22}" + "".join(f"{signs[cell] if cell else '':>4}" for cell in row))


def _missing(found: Diagnosis) -> str:
    lacks = sorted({one.reason for one in found.unobserved})
    rest = f"; {'; '.join(lacks)[:160]}" if lacks else ""
    said = f"{found.verdict} {list(found.culprits)} ({found.confidence}, rule {found.rule})"
    return f"{said}: {found.summary}{rest}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
