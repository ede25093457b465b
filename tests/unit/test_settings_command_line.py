"""The command line of ``diag run``: torchrun's words mean what they mean there, ours eat no script."""

from __future__ import annotations

import argparse
import contextlib
import io

import pytest
from tests.settings_factory import settings
from torch.distributed.run import get_args_parser

from rankscope.agent.commands.run import build_parser, parse
from rankscope.agent.settings.command_line import attach_values
from rankscope.agent.settings.option import Option
from rankscope.agent.settings.table import GROUPS, OPTIONS, WITHOUT_MEANING
from rankscope.diag.errors import UsageError


def script_of(*words: str) -> list[str]:
    arguments = parse(list(words))
    return [arguments.training_script, *arguments.training_script_args]


SWITCHES: list[Option[object]] = [option for option in (*OPTIONS, *WITHOUT_MEANING) if option.words]


@pytest.mark.parametrize("option", SWITCHES, ids=lambda option: option.name)
@pytest.mark.parametrize(
    "behind", [["train.py", "--lr", "1"], ["--nproc-per-node=2", "train.py"], ["--", "train.py"]]
)
def test_a_switch_without_a_value_is_true_and_leaves_the_script(
    option: Option[object], behind: list[str]
) -> None:
    for spelling in option.spellings:
        arguments = parse([spelling, *behind])
        assert getattr(arguments, option.dest) == "True"
        assert arguments.training_script == "train.py"


@pytest.mark.parametrize("option", SWITCHES, ids=lambda option: option.name)
@pytest.mark.parametrize("value", ["False", "false", "0", "off", "True"])
def test_a_switch_takes_a_truth_value_with_or_without_an_equals_sign(
    option: Option[object], value: str
) -> None:
    for words in ([f"{option.flag}={value}"], [option.flag, value]):
        arguments = parse([*words, "train.py", "True"])
        assert getattr(arguments, option.dest) == value
        assert arguments.training_script_args == ["True"]


@pytest.mark.parametrize(
    "before",
    [
        ["--nproc-per-node", "2"],
        ["--nproc_per_node", "2"],
        ["--rdzv-b", "c10d"],
        ["-r", "3"],
        ["-r3"],
        ["--max-restarts", "2"],
        ["--standalone"],
        ["--job-hang-interval", "30"],
        ["--max-tolerated-failure-rate", "-1"],
    ],
)
def test_a_switch_is_found_behind_any_other_flag(before: list[str]) -> None:
    arguments = parse([*before, "--enable-job-restart", "train.py"])
    assert (arguments.training_script, arguments.rankscope_enable_job_restart) == ("train.py", "True")


def test_a_program_named_like_a_truth_value_stands_behind_two_dashes() -> None:
    arguments = parse(["--no-python", "--enable-job-restart", "--", "true", "x"])
    assert (arguments.training_script, arguments.training_script_args) == ("true", ["x"])


def test_the_script_s_own_arguments_are_its_own() -> None:
    own = ["--enable-job-restart", "x", "--on-hang", "y", "--aimaster-args", "--z"]
    assert script_of("--nproc-per-node", "2", "train.py", *own) == ["train.py", *own]
    assert script_of("-m", "pkg.train", *own) == ["pkg.train", *own]
    assert script_of("--standalone", "--enable-job-restart", "-m", "pkg.train", *own) == ["pkg.train", *own]
    assert script_of("-r", "3", "-t3", "--no-python", "mpirun", *own) == ["mpirun", *own]
    assert script_of("--", "mpirun", *own) == ["mpirun", *own]
    assert script_of("-", *own) == ["-", *own]


def test_a_value_may_begin_with_a_dash() -> None:
    chosen = settings("--max-tolerated-failure-rate", "-1", "--retryable-exit-codes", "-9,137")
    assert chosen.retryable_exit_codes == (-9, 137)
    assert settings("--retryable-errors", "--flag is wrong").retryable_errors == ("--flag is wrong",)


def test_a_flag_without_its_value_does_not_eat_the_next_flag() -> None:
    with pytest.raises(UsageError, match=r"--job-hang-interval.*expected one argument"):
        parse(["--job-hang-interval", "--nproc-per-node", "2", "train.py"])


def test_lists_may_be_given_in_parts() -> None:
    chosen = settings(
        "--retryable-exit-codes=1", "--retryable_exit_codes", "2,3", "--on-hang=log", "--on-hang=hold"
    )
    assert chosen.retryable_exit_codes == (1, 2, 3)
    assert chosen.on_hang == "hold"


@pytest.mark.parametrize(
    "words",
    [
        ["--nnodes=1:2", "--max-restarts", "3", "--rdzv-b", "c10d", "train.py", "--max-restarts"],
        ["--max-r", "3", "train.py"],
        ["--no", "train.py"],
        ["--nproc", "2", "--log-d", "/tmp/x", "--rol", "trainer", "-m", "pkg"],
        ["--stand", "--monitor", "0.5", "--shutdown-t", "3", "--no-p", "--", "mpirun", "-n", "2"],
        ["--rdzv_conf", "a=1", "--node_rank", "0", "train.py"],
        ["--en", "train.py"],
        ["--on", "train.py"],
        ["--diag", "1", "train.py"],
        ["--e", "x", "train.py"],
        ["--job", "train.py"],
        ["--n", "2", "train.py"],
        ["--l", "x", "train.py"],
    ],
)
def test_torchrun_s_words_mean_what_they_mean_there(words: list[str]) -> None:
    theirs, ours = outcome(get_args_parser(), words), outcome(None, words)
    assert ours == theirs


def outcome(parser: argparse.ArgumentParser | None, words: list[str]) -> dict[str, object] | str:
    """Torchrun's namespace, or that it refuses."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            arguments = parse(words) if parser is None else parser.parse_args(words)
    except (UsageError, SystemExit):
        return "refused"
    values = {name: value for name, value in vars(arguments).items() if not name.startswith("rankscope_")}
    values["max_restarts"] = values["max_restarts"] or 0
    return values


def test_ours_are_written_in_full() -> None:
    with pytest.raises(UsageError):
        parse(["--job-hang-int", "3", "train.py"])


def test_help_shows_every_setting_in_its_group_with_its_default() -> None:
    text = " ".join(build_parser().format_help().split())
    parts = [text.index(f"rankscope: {group}") for group in GROUPS]
    assert parts == sorted(parts)
    for option in OPTIONS:
        begin = parts[list(GROUPS).index(option.group)]
        part = text[begin : next((each for each in parts if each > begin), len(text))]
        assert all(f"{spelling} {option.metavar}" in part for spelling in option.spellings)
        shown = part.replace("- ", "-").replace(" ", "")
        assert f"({option.allowed};default:{option.shown_default})".replace(" ", "") in shown
    assert all(option.flag not in text for option in WITHOUT_MEANING)


def test_what_is_attached_stays_as_it_was_otherwise() -> None:
    parser = build_parser()
    assert attach_values([], parser) == []
    assert attach_values(["--job-hang-interval"], parser) == ["--job-hang-interval"]
    assert attach_values(["--unknown", "train.py", "--on-hang", "x"], parser) == [
        "--unknown",
        "train.py",
        "--on-hang",
        "x",
    ]
