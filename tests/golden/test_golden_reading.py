"""Real dumps of all tools (tests/data/tools): no thread and no frame is lost, and all tools agree.

Threads and frames are counted in the raw text by expressions of this test's own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.reading_factory import DATA, read

from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.model import ThreadStack
from rankscope.diag.read import StackDump

FILES = sorted(file for file in DATA.rglob("rank*") if file.suffix in {".txt", ".json"})


class Kind(NamedTuple):
    """How a tool's threads and frames look in its text."""

    source: str
    thread: str
    frame: str
    variable: str = r"(?!)"


KINDS = {
    "pyspy_text": Kind(
        "py-spy",
        r"^Thread (?:\d+|0x\w+) \(",
        r"^    \S.* \(.*\)$",
        r"^            \S+: ",
    ),
    "pyspy_json": Kind("py-spy", r'"os_thread_id":', r'"short_filename":'),
    "pystack": Kind(
        "pystack",
        r"^Traceback for thread \d+",
        r"^    \((?:Python|C)\) File ",
        r"(?<=^        )[\w.]+: (?=[<\d\[({\"'FTNb-])",
    ),
    "faulthandler": Kind("faulthandler", r"^(?:Current thread|Thread) 0x", r'^  File ".*", line \d+ in '),
    "gdb_pybt": Kind("gdb", r"^Thread \d+ \(", r'^  (?:File ".*", line \d+, in |<built-in )'),
    "gdb": Kind("gdb", r"^Thread \d+ \(", r"^#\d+ "),
}


def kind_of(file: Path) -> Kind:
    """The kind of a dump by its name."""
    tool = file.name.split(".")[-2]
    if tool.startswith("pyspy"):
        return KINDS["pyspy_json" if file.suffix == ".json" else "pyspy_text"]
    return KINDS["pystack" if tool.startswith("pystack") else tool]


def shown(file: Path) -> str:
    return str(file.relative_to(DATA))


@pytest.mark.parametrize("file", FILES, ids=shown)
def test_no_thread_and_no_frame_is_lost(file: Path) -> None:
    raw, kind = file.read_bytes(), kind_of(file)
    text = raw.decode()
    contents = read(raw)
    threads = [thread for dump in contents.dumps for thread in dump.threads]
    assert len(threads) == len(re.findall(kind.thread, text, re.MULTILINE))
    assert sum(len(thread.frames) for thread in threads) == len(re.findall(kind.frame, text, re.MULTILINE))
    assert {dump.source for dump in contents.dumps} <= {kind.source}
    assert list(contents.problems) == ([] if raw else ["the input is empty"])
    if "locals" in file.name:
        values = sum(len(one.values) for thread in threads for one in thread.variables)
        assert values == len(re.findall(kind.variable, text, re.MULTILINE))


@pytest.mark.parametrize("file", FILES, ids=shown)
def test_every_process_is_one_dump_with_one_main_thread(file: Path) -> None:
    dumps = read(file.read_bytes()).dumps
    assert len(dumps) == (file.stat().st_size > 0)
    for dump in dumps:
        assert sum(thread.is_main for thread in dump.threads) == (1 if dump.threads else 0)
        assert dump.threads or dump.trouble
        if dump.source != "faulthandler":
            assert dump.pid
        if dump.source in {"pystack", "gdb"}:
            assert [thread.thread_id for thread in dump.threads if thread.is_main] == [dump.pid]


def python_stack(thread: ThreadStack) -> list[tuple[str, int]]:
    return [(bare_function(one.function), one.line) for one in thread.frames if one.kind == "python"]


@pytest.mark.parametrize("scenario", sorted(folder.name for folder in DATA.iterdir()))
def test_all_tools_show_the_same_main_thread(scenario: str) -> None:
    mains: dict[str, list[tuple[str, int]]] = {}
    for tool in (
        "pyspy.txt",
        "pyspy.json",
        "pyspy_native.txt",
        "pyspy_native.json",
        "pyspy_locals.txt",
        "pystack.txt",
        "pystack_native.txt",
        "pystack_locals.txt",
        "pystack_nonblock.txt",
        "faulthandler.txt",
        "gdb_pybt.txt",
    ):
        file = DATA / scenario / f"rank1.{tool}"
        dumps: tuple[StackDump, ...] = read(file.read_bytes()).dumps if file.exists() else ()
        for dump in dumps:
            main = next((thread for thread in dump.threads if thread.is_main), None)
            if main is not None:
                mains[tool] = python_stack(main)
    assert len({tuple(main) for main in mains.values()}) == (1 if scenario != "crash" else 0), mains
