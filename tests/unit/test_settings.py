"""Settings: flag, environment, file, default; one clear line for what is not allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from tests.settings_factory import NOT_ALLOWED, NOWHERE, SAMPLES, settings

from rankscope.agent.commands.run import parse
from rankscope.agent.settings.option import Option
from rankscope.agent.settings.resolution import resolve
from rankscope.agent.settings.shown import described
from rankscope.agent.settings.table import GROUPS, NOTIFY_KINDS, OPTIONS, READABLE, SOURCES
from rankscope.agent.settings.values import NOTIFY_ON_DEFAULT, Settings
from rankscope.diag.errors import UsageError


@pytest.mark.parametrize(
    "option", [each for each in OPTIONS if each.group != SOURCES], ids=lambda each: each.name
)
def test_a_setting_is_read_from_flag_environment_and_file(option: Option[object], tmp_path: Path) -> None:
    text, expected = SAMPLES[option.name]
    # A comma more in a file's list of texts would be an item of its own.
    written = json.dumps(text)
    key = option.name.replace("-", "_")
    given = {
        option.flag: settings(f"{option.flag}={text}"),
        option.variable: settings(environ={option.variable: text}),
        f"{tmp_path / 'config.toml'}: {key}": settings(
            file=f"[rankscope]\n{key} = {written}\n", home=tmp_path
        ),
    }
    for source, chosen in given.items():
        assert described(chosen)[option.name] == {"value": expected, "source": source}
        assert chosen.sources[option.name] == source


def test_every_setting_has_a_sample_and_a_group_and_is_shown() -> None:
    names = {option.name for option in OPTIONS if option.group != SOURCES}
    assert set(SAMPLES) == names == set(described(Settings()))
    assert {option.group for option in OPTIONS} == set(GROUPS)
    assert set(NOTIFY_KINDS) >= NOTIFY_ON_DEFAULT
    assert len({option.variable for option in READABLE}) == len(READABLE)


def test_defaults_of_the_table_are_those_of_the_class() -> None:
    chosen = settings()
    for field in fields(Settings):
        if field.name not in {"sources", "notes"}:
            assert getattr(chosen, field.name) == getattr(Settings(), field.name), field.name
    assert chosen.notes == ()
    assert set(chosen.sources) == {option.name for option in OPTIONS}
    assert set(chosen.sources.values()) == {"default"}


def test_a_flag_is_stronger_than_the_environment_and_that_than_the_file(tmp_path: Path) -> None:
    environ = {"RANKSCOPE_JOB_HANG_INTERVAL": "60", "RANKSCOPE_DIAGNOSE_AFTER": "20"}
    file = "job-hang-interval = 1\ndiagnose-after = 2\nevidence-budget = 3\n"
    chosen = settings("--job-hang-interval=30", environ=environ, file=file, home=tmp_path)
    assert (chosen.hang.act_after, chosen.hang.diagnose_after, chosen.evidence_budget) == (30, 20, 3)
    assert chosen.sources["job-hang-interval"] == "--job-hang-interval"
    assert chosen.sources["diagnose-after"] == "RANKSCOPE_DIAGNOSE_AFTER"
    assert chosen.sources["evidence-budget"] == f"{tmp_path / 'config.toml'}: evidence-budget"


def test_auto_is_no_number() -> None:
    environ = {"RANKSCOPE_JOB_HANG_INTERVAL": "9"}
    assert settings("--job-hang-interval=auto", environ=environ).hang.act_after is None


@pytest.mark.parametrize(("name", "text"), NOT_ALLOWED)
def test_what_is_not_allowed_names_source_value_and_what_is(name: str, text: str, tmp_path: Path) -> None:
    (option,) = (each for each in OPTIONS if each.name == name)
    given: dict[str, Callable[[], Settings]] = {
        option.flag: lambda: settings(f"{option.flag}={text}"),
        option.variable: lambda: settings(environ={option.variable: text}),
        f"config.toml: {name}": lambda: settings(file=f"{name} = '{text}'", home=tmp_path),
    }
    for source, attempt in given.items():
        with pytest.raises(UsageError) as refused:
            attempt()
        message = str(refused.value)
        assert f"{source} '" in message
        assert message.endswith(f": {option.allowed} expected")
        assert "\n" not in message


def test_every_setting_has_something_that_is_not_allowed() -> None:
    # Any command is one; an address that is refused is not shown; a file is looked into.
    free = {"notify-command", "webhook", "token-file"}
    assert {name for name, _ in NOT_ALLOWED} == set(SAMPLES) - free


def test_an_empty_variable_says_nothing() -> None:
    empty = {option.variable: " " for option in READABLE} | {"RANKSCOPE_HOME": NOWHERE}
    assert settings(environ=empty) == settings()


def test_a_value_of_many_lines_is_refused_in_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        settings("--on-hang=hold\nit\x1b[31m" + "x" * 1000)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


def test_minus_one_is_off_wherever_a_limit_can_be_turned_off() -> None:
    chosen = settings(
        "--job-restart-timeout=-1",
        "--max-num-of-same-error=-1",
        "--no-progress-limit=-1",
        "--straggler-interval=-1",
    )
    assert (chosen.restart_timeout, chosen.max_same_error, chosen.no_progress_limit) == (None, 0, 0)
    assert chosen.straggler_interval == 0
    assert settings("--aimaster-args=--job-restart-timeout=-1").restart_timeout is None


def test_a_list_that_is_refused_is_shown_as_it_was_typed() -> None:
    with pytest.raises(UsageError, match=r"^--notify-on 'incident,,decision,end': "):
        settings("--notify-on=incident,,decision,end")


def test_torch_s_own_variable_names_the_port_too() -> None:
    chosen = settings(environ={"TORCHELASTIC_HEALTH_CHECK_PORT": "8080"})
    assert (chosen.diag_port, chosen.sources["diag-port"]) == (8080, "TORCHELASTIC_HEALTH_CHECK_PORT")
    assert settings(environ={"TORCHELASTIC_HEALTH_CHECK_PORT": "none"}).diag_port is None
    assert settings(environ={"TORCHELASTIC_HEALTH_CHECK_PORT": "²"}).diag_port is None
    assert settings("--diag-port=0", environ={"TORCHELASTIC_HEALTH_CHECK_PORT": "8080"}).diag_port == 0


def test_a_variable_that_looks_like_a_setting_s_is_told() -> None:
    chosen = settings(environ={"RANKSCOPE_JOB_HANG_INTERVALL": "3", "RANKSCOPE_OTHER_THING": "x"})
    assert chosen.notes == (
        "there is no setting RANKSCOPE_JOB_HANG_INTERVALL; did you mean RANKSCOPE_JOB_HANG_INTERVAL?",
    )


# Secrets.


def test_addresses_and_commands_are_never_shown_whole(tmp_path: Path) -> None:
    hook = tmp_path / "hook"
    hook.write_text("https://me:word@hooks.example/T0/B0/secret?token=1\nAuthorization: Bearer s3")
    chosen = settings(
        f"--webhook=@{hook}",
        "--webhook=env:HOOK,https://me:word@third.example/secret",
        "--notify-command=sh -c 'send s3'",
        environ={"HOOK": "http://x.example/secret"},
    )
    assert chosen.webhooks == (f"@{hook}", "env:HOOK", "https://me:word@third.example/secret")
    shown = described(chosen)
    assert shown["webhook"]["value"] == [f"@{hook}", "env:HOOK", "https://third.example"]
    assert shown["notify-command"]["value"] == "sh ..."
    assert all(text not in json.dumps(shown) for text in ("word", "secret", "token=", "s3"))


@pytest.mark.parametrize(
    "address", ["ftp://me:word@x.example", "https://:word@", "http://a word", "http://a:99999", "word"]
)
def test_a_refused_address_is_not_shown(address: str) -> None:
    attempts: dict[str, Callable[[], Settings]] = {
        "--webhook": lambda: settings("--webhook", address),
        "RANKSCOPE_WEBHOOK": lambda: settings(environ={"RANKSCOPE_WEBHOOK": address}),
    }
    for source, attempt in attempts.items():
        with pytest.raises(UsageError, match=rf"^{source}: an http or https address") as refused:
            attempt()
        assert "word" not in str(refused.value)


def test_a_list_of_addresses_with_a_gap_is_not_shown() -> None:
    with pytest.raises(
        UsageError, match=r"^--webhook \(not shown\): http or https addresses, @FILE or env:NAME"
    ):
        settings("--webhook=https://me:word@x.example,")


def test_a_notice_that_could_not_be_sent_stops_the_launch() -> None:
    with pytest.raises(UsageError, match=r"^--webhook @/nowhere/hook: cannot be read \(No such file"):
        settings("--webhook", "@/nowhere/hook")
    with pytest.raises(
        UsageError, match=r"^RANKSCOPE_NOTIFY_COMMAND: no such command: no-such-command-anywhere"
    ):
        settings(environ={"RANKSCOPE_NOTIFY_COMMAND": "no-such-command-anywhere --token s3"})


# Restarts: torchrun's number and AIMaster's are one.


@pytest.mark.parametrize(
    ("flags", "enabled", "number"),
    [
        ((), False, 0),
        (("--max-restarts=2",), True, 2),
        (("--max_restarts", "2"), True, 2),
        (("--max-num-of-job-restart=2",), True, 2),
        (("--max-restarts=2", "--max-num-of-job-restart=2"), True, 2),
        (("--max-restarts=0",), False, 0),
        (("--enable-job-restart",), True, 3),
        (("--enable-job-restart=True", "--max-restarts=5"), True, 5),
        (("--enable-job-restart=False", "--max-restarts=5"), False, 0),
        (("--job-execution-mode=Async",), False, 3),
        (("--job-execution-mode=Async", "--enable-job-restart=False", "--max-restarts=5"), False, 5),
        (("--job-execution-mode=Async", "--max-restarts=0"), False, 0),
        (("--job-execution-mode=Async", "--enable-job-restart"), True, 3),
    ],
)
def test_one_number_says_how_often_and_whether_at_all(
    flags: tuple[str, ...], enabled: bool, number: int
) -> None:
    chosen = settings(*flags)
    assert (chosen.restart_enabled, chosen.max_restarts) == (enabled, number)


def test_two_different_numbers_of_one_strength_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"^--max-restarts 2 and --max-num-of-job-restart 3: the same number"
    ):
        settings("--max-restarts=2", "--max-num-of-job-restart=3")
    with pytest.raises(UsageError, match=r"^--max-restarts 2 and --aimaster-args --max-num-of-job-restart 3"):
        settings("--max-restarts=2", "--aimaster-args", "--max-num-of-job-restart=3")
    both = {"PET_MAX_RESTARTS": "2", "RANKSCOPE_MAX_NUM_OF_JOB_RESTART": "3"}
    with pytest.raises(UsageError, match=r"^PET_MAX_RESTARTS 2 and RANKSCOPE_MAX_NUM_OF_JOB_RESTART 3"):
        settings(environ=both)


def test_of_two_different_numbers_the_stronger_one_holds(tmp_path: Path) -> None:
    chosen = settings("--max-restarts=2", environ={"RANKSCOPE_MAX_NUM_OF_JOB_RESTART": "3"})
    assert (chosen.max_restarts, chosen.sources["max-num-of-job-restart"]) == (2, "--max-restarts")
    chosen = settings("--max-num-of-job-restart=4", environ={"PET_MAX_RESTARTS": "2"})
    assert chosen.max_restarts == 4
    chosen = settings(environ={"PET_MAX_RESTARTS": "2"}, file="max-restarts = 9", home=tmp_path)
    assert (chosen.max_restarts, chosen.sources["enable-job-restart"]) == (2, "PET_MAX_RESTARTS")


def test_no_is_no_unless_a_stronger_source_names_a_number(tmp_path: Path) -> None:
    off = "enable-job-restart = false\nmax-restarts = 4"
    assert settings(file=off, home=tmp_path).max_restarts == 0
    assert settings(environ={"PET_MAX_RESTARTS": "2"}, file=off, home=tmp_path).max_restarts == 2
    chosen = settings("--enable-job-restart=False", environ={"PET_MAX_RESTARTS": "2"})
    assert (chosen.restart_enabled, chosen.max_restarts) == (False, 0)
    assert chosen.sources["max-num-of-job-restart"] == "--enable-job-restart"


def test_torch_s_launcher_gets_the_number_that_is_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, number in (([], 0), (["--enable-job-restart"], 3), (["--max-restarts=2"], 2)):
        arguments = parse([*flags, "train.py"])
        resolve(arguments, {"RANKSCOPE_HOME": NOWHERE}, has_gpu=False).apply_to(arguments)
        assert arguments.max_restarts == number
    monkeypatch.setenv("PET_MAX_RESTARTS", "6")  # torch's parser looks at the process's own environment
    arguments = parse(["train.py"])
    chosen = resolve(arguments, {"RANKSCOPE_HOME": NOWHERE, "PET_MAX_RESTARTS": "6"}, has_gpu=False)
    assert (chosen.max_restarts, chosen.sources["max-num-of-job-restart"]) == (6, "PET_MAX_RESTARTS")


# What belongs together.


def test_c4d_needs_hang_detection() -> None:
    with pytest.raises(
        UsageError, match=r"^--enable-c4d-hang-detection True: needs hang detection, which is off"
    ):
        settings("--enable-job-hang-detection=False", "--enable-c4d-hang-detection=True")
    chosen = settings("--enable-job-hang-detection=False")
    assert (chosen.hang_detection, chosen.c4d) == (False, False)
    assert chosen.sources["enable-c4d-hang-detection"] == "--enable-job-hang-detection"
    weaker = {"RANKSCOPE_ENABLE_C4D_HANG_DETECTION": "True"}
    assert not settings("--enable-job-hang-detection=False", environ=weaker).c4d


def test_an_interval_without_detection_is_told() -> None:
    chosen = settings("--enable-job-hang-detection=False", "--job-hang-interval=60")
    assert chosen.notes == (
        "--job-hang-interval has no effect: hang detection is off (--enable-job-hang-detection)",
    )


def test_an_async_job_has_no_hang_and_no_exit_hang_detection() -> None:
    chosen = settings("--job-execution-mode=Async")
    assert (chosen.hang_detection, chosen.c4d, chosen.hang.exit_after) == (False, False, None)
    assert chosen.sources["enable-job-hang-detection"] == "--job-execution-mode Async"
    assert chosen.notes == ()
    asked = settings(
        "--job-execution-mode=Async", "--enable-job-hang-detection", "--job-exit-hang-interval=5"
    )
    assert not asked.hang_detection
    (note,) = asked.notes
    assert note.startswith("--enable-job-hang-detection, --job-exit-hang-interval: no effect, an Async job ")
