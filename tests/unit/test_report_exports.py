"""Stacks for other tools: folded lines, speedscope's files; and how files are written that a user names."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Final, Literal

import msgspec
import pytest
from msgspec.structs import replace
from tests.report_factory import HOSTILE, a_big_job, hang, hostile

from rankscope.diag.commands.output_files import check_outputs, write_output
from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.model import Diagnosis, StackGroup
from rankscope.diag.report.folded import folded_text
from rankscope.diag.report.speedscope import speedscope_json

LINE: Final = re.compile(r"(.*)\s+(\d+(?:\.\d*)?)")
"""What flamegraph.pl takes of a line; what is before the number is split at ``;``."""
WAITING: Final = (
    "<module> (train.py:90)",
    "train_step (train.py:11)",
    "wrapper (torch/distributed/c10d_logger.py:83)",
    "all_reduce (torch/distributed/distributed_c10d.py:3252)",
)


class SharedFrame(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    file: str | None = None
    line: int | None = None


class Shared(msgspec.Struct, forbid_unknown_fields=True):
    frames: list[SharedFrame]


class Sampled(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["sampled"]
    name: str
    unit: Literal["bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds"]
    startValue: float  # noqa: N815 - the format's own spelling
    endValue: float  # noqa: N815
    samples: list[list[int]]
    weights: list[float]


class Speedscope(msgspec.Struct, forbid_unknown_fields=True):
    """The sampled half of speedscope's file-format-schema.json, version 1.25."""

    schema: Literal["https://www.speedscope.app/file-format-schema.json"] = msgspec.field(name="$schema")
    shared: Shared
    profiles: list[Sampled]
    name: str = ""
    exporter: str = ""
    activeProfileIndex: int = 0  # noqa: N815


def speedscope(diagnosis: Diagnosis, *, everything: bool = False) -> Speedscope:
    """A file as speedscope reads it: every sample has a weight and names frames that are there."""
    document = msgspec.json.decode(speedscope_json(diagnosis, everything=everything), type=Speedscope)
    for profile in document.profiles:
        assert len(profile.samples) == len(profile.weights)
        assert profile.endValue - profile.startValue == sum(profile.weights)
        assert all(0 <= index < len(document.shared.frames) for sample in profile.samples for index in sample)
    return document


def with_others() -> Diagnosis:
    other = StackGroup(2, ("0:9", "1:9"), "0-1", ("wait (threading.py:331)", "run (threading.py:982)"))
    return replace(hang(), stacks=(*hang().stacks, other))


def test_folded_stacks_are_root_first_with_the_number_of_threads() -> None:
    assert folded_text(hang()).splitlines() == [
        "<module> (train.py:90);load_batch (train.py:8) 1",
        ";".join(WAITING) + " 3",
    ]


def test_threads_that_are_not_compared_are_there_only_when_all_is_asked_for() -> None:
    assert "threading.py" not in folded_text(with_others())
    assert "run (threading.py:982);wait (threading.py:331) 2\n" in folded_text(with_others(), everything=True)
    assert len(speedscope(with_others()).profiles) == 1
    assert len(speedscope(with_others(), everything=True).profiles) == 2


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text)[:24])
def test_hostile_names_make_no_lines_frames_or_numbers_of_their_own(text: str) -> None:
    found = hostile(text)
    lines = folded_text(found).splitlines()
    assert len(lines) == len([group for group in found.stacks if group.count])
    for line, group in zip(lines, found.stacks, strict=True):
        match = LINE.fullmatch(line)
        assert match is not None
        assert match[2] == str(group.count)
        assert len(match[1].split(";")) == len(group.stack)
        assert line.isprintable()
    assert all(frame.name.isprintable() for frame in speedscope(found).shared.frames)


def test_a_speedscope_file_fits_its_schema_and_shares_frames() -> None:
    document = speedscope(with_others(), everything=True)
    frames = document.shared.frames
    assert SharedFrame("load_batch", "train.py", 8) in frames
    assert all(one not in frames[:index] for index, one in enumerate(frames))
    ranks, others = document.profiles
    assert [frames[index].name for index in ranks.samples[0]] == ["<module>", "load_batch"]
    assert (ranks.weights, others.weights) == ([1, 3], [2])
    used = {index for profile in document.profiles for sample in profile.samples for index in sample}
    assert used == set(range(len(frames)))


def test_weights_are_ranks_however_many_there_are() -> None:
    diagnosis, _look = a_big_job(2048, "all_different")
    assert sum(speedscope(diagnosis).profiles[0].weights) == 2048
    assert sum(int(line.rpartition(" ")[2]) for line in folded_text(diagnosis).splitlines()) == 2048


def test_a_diagnosis_without_stacks_makes_empty_files() -> None:
    none = replace(hang(), stacks=())
    assert folded_text(none) == ""
    assert speedscope(none).profiles[0].samples == []


def test_a_file_replaces_what_was_there_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "r.html"
    target.write_text("old")
    link = tmp_path / "link.html"
    link.symlink_to(target)
    write_output(str(link), b"new")
    assert target.read_bytes() == b"new"
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.html", "r.html"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interruption_or_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target = tmp_path / "r.html"
    target.write_text("old")

    def half(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:1])
        raise error

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises((KeyboardInterrupt, StoreError)):
        write_output(str(target), b"new")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_a_full_device_is_said_in_a_line() -> None:
    with pytest.raises(StoreError, match="/dev/full cannot be written: No space left on device"):
        write_output("/dev/full", b"x" * 100)


def test_a_pipe_gets_it_directly(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), name="reader")
    reader.start()
    write_output(str(fifo), b"page")
    reader.join(10)
    assert got == [b"page"]


def test_places_that_cannot_be_written_are_refused_before_the_work(tmp_path: Path) -> None:
    def refusal(json: bool = False, **wanted: str) -> str:
        with pytest.raises(UsageError) as raised:
            check_outputs({f"--{flag}": name for flag, name in wanted.items()}, json=json)
        return str(raised.value)

    assert refusal(html=str(tmp_path / "no" / "r.html")).endswith(f"there is no folder {tmp_path / 'no'}")
    assert refusal(html=str(tmp_path)).endswith("that is a folder; name a file in it")
    assert refusal(html="a", folded="./a") == "--html and --folded ./a: one place cannot take both"
    assert refusal(html="-", folded="-") == "--html and --folded -: one place cannot take both"
    assert refusal(json=True, html="-") == "--json and --html -: one place cannot take both"
    assert "no file can be called that" in refusal(html="x" * 5000)
    check_outputs({"--html": str(tmp_path / "r.html"), "--folded": "-", "--speedscope": None})
