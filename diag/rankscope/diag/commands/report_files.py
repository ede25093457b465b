"""What ``diag analyze`` and ``diag report`` write into files: report, folded stacks, speedscope."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rankscope.diag.commands.flags import named
from rankscope.diag.commands.output_files import STANDARD_OUTPUT, check_outputs, free_name, write_output
from rankscope.diag.errors import UsageError
from rankscope.diag.streams import tell

if TYPE_CHECKING:
    from rankscope.diag.judging.judged import Judged

_WRITTEN: Final = {"html": "report", "folded": "folded stacks", "speedscope": "speedscope"}
"""What a file is called in the line that says where it is."""
_LONGEST_PART: Final = 60
"""Characters of a job's or incident's name in a file name."""


def add_file_flags(parser: argparse.ArgumentParser) -> None:
    """``--html``, ``--folded`` and ``--speedscope``."""
    parser.add_argument(
        "--html", type=named, metavar="FILE", help="the report as one HTML file; - for standard output"
    )
    parser.add_argument(
        "--folded", type=named, metavar="FILE", help="the stacks as folded lines for flamegraph.pl; or -"
    )
    parser.add_argument(
        "--speedscope", type=named, metavar="FILE", help="the stacks for https://speedscope.app; or -"
    )


def check_files(options: argparse.Namespace) -> None:
    """Find out before the look whether what was asked for can be written.

    Raises:
        UsageError: it cannot.
    """
    check_outputs(_wanted(options), json=options.json)


def takes_stdout(options: argparse.Namespace) -> bool:
    """Whether one of the files is standard output: nothing else is written there then."""
    return STANDARD_OUTPUT in _wanted(options).values()


def _wanted(options: argparse.Namespace) -> dict[str, str | None]:
    return {f"--{name}": getattr(options, name) for name in ("html", "folded", "speedscope")}


def write_files(
    judged: Sequence[Judged], options: argparse.Namespace, *, is_default: bool = False
) -> list[dict[str, str]]:
    """Write what was asked for; of several diagnoses a file each, with the job in its name.

    Args:
        judged: the diagnoses.
        options: of the verb, with the files' names.
        is_default: nobody gave the name: nothing that has it is replaced.

    Returns:
        Where the files of each diagnosis lie, by flag.

    Raises:
        UsageError: several are to go to standard output.
        StoreError: a file cannot be written.
    """
    makers: dict[str, Callable[[Judged], bytes]] = {
        "html": html_report,
        "folded": lambda one: _folded(one, everything=options.full),
        "speedscope": lambda one: _speedscope(one, everything=options.full),
    }
    from rankscope.diag.report.text import inert

    written: list[dict[str, str]] = [{} for _ in judged]
    for flag, make in makers.items():
        name: str | None = getattr(options, flag)
        if name is None:
            continue
        if name == STANDARD_OUTPUT and len(judged) > 1:
            raise UsageError(
                f"{len(judged)} jobs or incidents do not go to standard output together",
                hint="name one of them, or a file",
            )
        places = _places(name, judged, is_default=is_default)
        for one, place, files in zip(judged, places, written, strict=True):
            was_there = Path(place).is_file()
            write_output(place, make(one))
            files[flag] = place
            if place != STANDARD_OUTPUT:
                tell(f"{_WRITTEN[flag]}: {inert(place)}{' (replaced)' if was_there else ''}\n")
    return written


def _places(name: str, judged: Sequence[Judged], *, is_default: bool) -> Iterator[str]:
    if len(judged) == 1:
        yield name
        return
    from rankscope.diag.store.job import folder_name

    path = Path(name)
    taken: set[str] = set()
    for number, one in enumerate(judged, 1):
        job = one.folder.run_id if one.folder is not None else one.diagnosis.job
        parts = [part for part in (job, one.diagnosis.incident) if part]
        middle = "-".join(folder_name(part)[:_LONGEST_PART] for part in parts)
        place = f"{path.stem}-{middle or number}{path.suffix}"
        place = place if place not in taken else f"{path.stem}-{middle}-{number}{path.suffix}"
        taken.add(place)
        whole = str(path.with_name(place))
        yield free_name(whole) if is_default else whole


def html_report(judged: Judged) -> bytes:
    """The HTML file of a diagnosis, with what is stored of its job."""
    from rankscope.diag.commands.judged import decision_of, look_of
    from rankscope.diag.history.read import read_job
    from rankscope.diag.history.story import history_of
    from rankscope.diag.report.html import page_data, render_page
    from rankscope.diag.store.events import iso_time

    history = history_of(read_job(judged.folder)) if judged.folder is not None else None
    page = page_data(
        judged.diagnosis,
        made=iso_time(time.time()),
        look=look_of(judged),
        decision=decision_of(judged),
        history=history,
    )
    return render_page(page).encode()


def _folded(judged: Judged, *, everything: bool) -> bytes:
    from rankscope.diag.report.folded import folded_text

    return folded_text(judged.diagnosis, everything=everything).encode()


def _speedscope(judged: Judged, *, everything: bool) -> bytes:
    from rankscope.diag.report.speedscope import speedscope_json

    return speedscope_json(judged.diagnosis, everything=everything)
