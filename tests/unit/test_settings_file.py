"""The settings file: found or named, one shape or the other, and one line for every mistake."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.settings_factory import settings

from rankscope.agent.settings import file as settings_file
from rankscope.agent.settings.file import parse as parse_file
from rankscope.agent.settings.resolution import resolve
from rankscope.diag.errors import UsageError


def test_keys_are_flat_or_in_a_table_dashed_or_underscored(tmp_path: Path) -> None:
    flat = "job-hang-interval = 60\non_hang = 'hold'\nenable-job-exit-hang-detection = false\n"
    tabled = flat.replace("on_hang", "[rankscope]\non_hang")
    for text in (flat, tabled, "[rankscope]\n" + flat):
        chosen = settings(file=text, home=tmp_path)
        assert (chosen.hang.act_after, chosen.on_hang, chosen.hang.exit_after) == (60, "hold", None)


def test_lists_and_tables_need_no_commas(tmp_path: Path) -> None:
    chosen = settings(
        file="""
        retryable-errors = ["quota, exceeded", "reset"]
        retryable-exit-codes = [137, "SIGKILL"]
        critical-roles = []
        notify-on = []
        c4d-common-envs = {C4D_HANG_TIMEOUT = 30}
        """,
        home=tmp_path,
    )
    assert chosen.retryable_errors == ("quota, exceeded", "reset")
    assert chosen.retryable_exit_codes == (137, -9)
    assert (chosen.critical_roles, chosen.notify_on) == ((), frozenset())
    assert chosen.hang.diagnose_after == 30


def test_a_named_file_takes_the_place_of_the_found_one(tmp_path: Path) -> None:
    named = tmp_path / "mine.toml"
    named.write_text("evidence-budget = 1")
    found = "evidence-budget = 2\ndiagnose-after = 9"
    chosen = settings(f"--diag-config={named}", file=found, home=tmp_path)
    assert (chosen.evidence_budget, chosen.hang.diagnose_after) == (1, None)
    assert chosen.sources["diag-config"] == "--diag-config"
    assert settings(environ={"RANKSCOPE_CONFIG": str(named)}).evidence_budget == 1
    assert settings("--diag-config", os.devnull, file=found, home=tmp_path).evidence_budget == 5


def test_without_a_file_there_are_defaults(tmp_path: Path) -> None:
    assert settings(home=tmp_path / "not" / "there").sources["on-hang"] == "default"
    (tmp_path / "plain").write_text("")
    assert settings(home=tmp_path / "plain").sources["on-hang"] == "default"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "job-hang-intervall = 3",
            "there is no setting 'job-hang-intervall'; did you mean job-hang-interval?",
        ),
        ("[rankscope]\nonhang = 'hold'", "there is no setting 'onhang'; did you mean on-hang?"),
        ("[hangs]\njob-hang-interval = 3", "there is no setting 'hangs'; "),
        ('"zzz\\n" = 3', "there is no setting 'zzz\\n'; diag run --help lists them"),
        ("diag-config = 'x'", "there is no setting 'diag-config'"),
        ("on-hang = 'hold'\non_hang = 'log'", "on-hang is given twice"),
        ("on-hang = 'hold'\n[rankscope]\non-hang = 'log'", "on-hang is given twice"),
        ("rankscope = 3", "rankscope is a table of settings, written [rankscope]"),
        ("on-hang = ", "not TOML (Invalid value (at "),
        ("on-hang = ['hold']", "on-hang: auto, log, notify, hold, restart expected"),
        ("diagnose-after = 2026-01-01", "diagnose-after: a positive number of seconds, or auto expected"),
        ("diagnose-after = true", "diagnose-after 'true': a positive number of seconds, or auto expected"),
        ("retryable-exit-codes = [1.5]", "retryable-exit-codes: exit codes from 1 to 255"),
        ("retryable-errors = ['']", "retryable-errors '': texts, none of them empty expected"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        settings(file=text, home=tmp_path)
    assert str(refused.value).startswith(f"{tmp_path / 'config.toml'}: {message}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"[" * 5000, b"a=" + b"[" * 5000, b"diag-port=" + b"9" * 5000, b"\0"]
)
def test_bytes_that_are_no_settings_are_one_line(data: bytes) -> None:
    with pytest.raises(UsageError) as refused:
        parse_file(data, "config.toml")
    assert str(refused.value).startswith("config.toml: ")
    assert str(refused.value).isprintable()


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * (1 << 20) + b"\n")
    for name, reason in {
        "missing": "No such file or directory",
        "": "not a plain file",
        "pipe": "not a plain file",
        "large": "more than 1 MiB",
        "large/x": "Not a directory",
    }.items():
        with pytest.raises(
            UsageError, match=rf"^--diag-config '{tmp_path}.*': cannot be read \(({reason})\)$"
        ):
            settings("--diag-config", f"{tmp_path}/{name}")
    with pytest.raises(UsageError, match=r"^--diag-config '': a TOML file expected$"):
        settings("--diag-config=")


def test_a_found_file_that_cannot_be_read_is_told_and_costs_no_launch(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    chosen = settings(home=tmp_path)
    assert chosen.notes == (
        f"{tmp_path / 'config.toml'} cannot be read (not a plain file): none of its settings holds",
    )


HOLDER = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_file_that_does_not_answer_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_file, "_READ_TIMEOUT", 0.3)
    path = tmp_path / "config.toml"
    path.write_text("on-hang = 'hold'")
    # Whoever opens a file on which another process has a lease waits, as for a share that is gone.
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"held\n":
            pytest.skip("no leases on this file system")
        with pytest.raises(UsageError, match=r"config\.toml': cannot be read \(no answer within 0\.3 s\)$"):
            settings("--diag-config", str(path))
        (note,) = settings(home=tmp_path).notes
        assert note.endswith("cannot be read (no answer within 0.3 s): none of its settings holds")
    assert settings(home=tmp_path).on_hang == "hold"


def test_the_file_counts_for_a_launch_without_a_command_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("max-restarts = 2")
    chosen = resolve(argparse.Namespace(), {"RANKSCOPE_HOME": str(tmp_path)}, has_gpu=False)
    assert chosen.max_restarts == 2
