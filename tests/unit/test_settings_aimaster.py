"""AIMaster's lines, verbatim: given directly, or in one text with AIMaster's own defaults behind it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.settings_factory import settings

from rankscope.agent.settings.aimaster import DEFAULTS
from rankscope.agent.settings.table import OPTIONS
from rankscope.agent.settings.values import Settings
from rankscope.diag.errors import UsageError

SYNC = (
    "--job-execution-mode=Sync --enable-job-restart=True --max-num-of-job-restart=3 "
    "--fault-tolerant-policy=ExitCodeAndErrorMsg"
)
ASYNC = "--job-execution-mode=Async --fault-tolerant-policy=OnFailure"
FIELD = (
    "--job-execution-mode=Sync --enable-job-restart=True --max-num-of-job-restart=30 "
    "--job-restart-timeout=1800 --fault-tolerant-policy=OnFailure --enable-local-detection=True "
    "--enable-job-hang-detection=True "
    "--job-hang-interval=1200 --enable-c4d-hang-detection=True --enable-perftracker=True"
)


def test_lines_given_directly_keep_our_defaults() -> None:
    sync = settings(*SYNC.split())
    assert (sync.execution_mode, sync.restart_enabled, sync.max_restarts) == ("Sync", True, 3)
    assert (sync.fault_tolerant_policy, sync.hang_detection, sync.isolate_nodes) == (
        "ExitCodeAndErrorMsg",
        True,
        "auto",
    )
    independent = settings(*ASYNC.split())
    assert (independent.execution_mode, independent.fault_tolerant_policy) == ("Async", "OnFailure")
    assert (independent.hang_detection, independent.restart_enabled, independent.max_restarts) == (
        False,
        False,
        3,
    )
    field = settings(*FIELD.split())
    assert (field.max_restarts, field.restart_timeout, field.hang.act_after) == (30, 1800, 1200)
    assert (field.hang_detection, field.c4d, field.hang.exit_after) == (True, True, 600)
    assert field.notes == ("--enable-local-detection, --enable-perftracker: no meaning here, ignored",)


@pytest.mark.parametrize("line", [SYNC, ASYNC, FIELD])
def test_a_space_is_as_good_as_an_equals_sign_and_an_underscore_as_a_dash(line: str) -> None:
    expected = settings(*line.split())
    assert settings(*line.replace("=", " ").split()) == expected
    assert settings(*(word.replace("-", "_").replace("__", "--", 1) for word in line.split())) == expected


@pytest.mark.parametrize("line", [SYNC, ASYNC, FIELD])
@pytest.mark.parametrize("flag", ["--aimaster-args", "--aimaster_args"])
def test_a_line_in_one_text_means_the_same_with_aimaster_s_defaults(line: str, flag: str) -> None:
    for words in ([flag, line], [f"{flag}={line}"], [flag, line.replace("=", " ")]):
        chosen, direct = settings(*words), settings(*line.split())
        assert chosen.isolate_nodes is True
        assert chosen.hang.exit_after is None
        assert (chosen.restart_enabled, chosen.max_restarts) == (direct.restart_enabled, direct.max_restarts)
        assert chosen.fault_tolerant_policy == direct.fault_tolerant_policy
        assert chosen.restart_timeout == direct.restart_timeout
        assert chosen.hang_detection == chosen.c4d == (line is FIELD)
        assert chosen.sources["fault-tolerant-policy"] == "--aimaster-args --fault-tolerant-policy"


def test_the_field_s_line_as_a_shell_passes_it() -> None:
    typed = FIELD.replace(" --job", " \\\n--job")
    word = subprocess.run(
        ["sh", "-c", f'printf %s --aimaster_args="{typed}"'],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    chosen = settings(word)
    assert (chosen.max_restarts, chosen.hang.act_after, chosen.c4d) == (30, 1200, True)
    assert chosen.notes[0].endswith(": no meaning here, ignored")


def test_what_a_line_leaves_out_is_as_in_aimaster() -> None:
    chosen = settings("--aimaster-args=")
    assert (chosen.hang_detection, chosen.c4d, chosen.hang.exit_after) == (False, False, None)
    assert (chosen.fault_tolerant_policy, chosen.isolate_nodes) == ("ExitCodeAndErrorMsg", True)
    assert (chosen.restart_enabled, chosen.max_restarts, chosen.max_same_error) == (False, 0, 10)
    assert chosen.max_failure_rate == -1
    assert {chosen.sources[name] for name in DEFAULTS} == {"AIMaster's default"}
    assert set(DEFAULTS) <= {option.name for option in OPTIONS}
    assert settings("--aimaster-args=--enable-job-hang-detection=True").hang.act_after == 1800


def test_a_number_in_a_line_restarts_nothing_by_itself() -> None:
    assert not settings("--aimaster-args=--max-num-of-job-restart=5").restart_enabled
    chosen = settings("--aimaster-args=--job-hang-interval=9", "--max-restarts=5")
    assert (chosen.restart_enabled, chosen.max_restarts) == (True, 5)


def test_a_line_is_as_strong_as_who_gave_it_and_gives_way_to_a_flag(tmp_path: Path) -> None:
    line = "--job-hang-interval=1200 --enable-job-hang-detection=True"
    chosen = settings("--job-hang-interval=60", "--aimaster-args", line)
    assert (chosen.hang.act_after, chosen.sources["job-hang-interval"]) == (60, "--job-hang-interval")
    environ = {"RANKSCOPE_JOB_HANG_INTERVAL": "60"}
    assert settings("--aimaster-args", line, environ=environ).hang.act_after == 1200
    environ["RANKSCOPE_AIMASTER_ARGS"] = line
    assert settings(environ=environ).hang.act_after == 60
    chosen = settings(
        environ=environ | {"RANKSCOPE_JOB_HANG_INTERVAL": ""}, file="job-hang-interval = 5", home=tmp_path
    )
    assert chosen.hang.act_after == 1200
    assert chosen.sources["job-hang-interval"] == "RANKSCOPE_AIMASTER_ARGS --job-hang-interval"
    text = f"aimaster-args = '{line}'\nevidence-budget = 1"
    chosen = settings(file=text, home=tmp_path)
    assert (chosen.hang.act_after, chosen.evidence_budget, chosen.hang.exit_after) == (1200, 1, None)
    assert settings("--aimaster-args=", file=text, home=tmp_path).hang_detection is False


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--job-hang-intervall=3",
            "'--job-hang-intervall' is no argument of AIMaster's; did you mean --job-hang-interval?",
        ),
        ("stray", "'stray' is no argument of AIMaster's"),
        ("--max-restarts=3", "'--max-restarts' is no argument of AIMaster's; did you mean "),
        ("--diag-config=x", "'--diag-config' is no argument of AIMaster's"),
        ("--aimaster-args=x", "'--aimaster-args' is no argument of AIMaster's"),
        ("--job-hang-interval", "--job-hang-interval: a positive number of seconds, or auto expected"),
        ("--job-hang-interval --enable-perftracker", "--job-hang-interval: a positive number"),
        ("--job-hang-interval='3", "no closing quotation"),
        (
            "--job-hang-interval=soon",
            "--job-hang-interval 'soon': a positive number of seconds, or auto expected",
        ),
        ("--enable-perftracker=maybe", "--enable-perftracker 'maybe': True or False expected"),
        (
            "--enable-c4d-hang-detection=True",
            "--enable-c4d-hang-detection True: needs hang detection, which is off",
        ),
    ],
)
def test_a_mistake_in_a_line_is_one_line(line: str, message: str) -> None:
    attempts: dict[str, Callable[[], Settings]] = {
        "--aimaster-args": lambda: settings("--aimaster-args", line),
        "RANKSCOPE_AIMASTER_ARGS": lambda: settings(environ={"RANKSCOPE_AIMASTER_ARGS": line}),
    }
    for source, attempt in attempts.items():
        with pytest.raises(UsageError) as refused:
            attempt()
        text = str(refused.value)
        assert text.startswith((f"{source}: {message}", f"{source} {message}"))
        assert text.isprintable()


# C4D's own variables.


@pytest.mark.parametrize(
    ("envs", "after", "interval"),
    [
        ("C4D_HANG_TIMEOUT=30", 30, 540),
        ("C4D_HANG_TIMEOUT=30,C4D_HANG_TIMES=4", 30, 120),
        ("C4D_HANG_TIMES=6", None, 60),
        ("C4D_HANG_TIMEOUT=10000000,C4D_HANG_TIMES=18", 10, 180),
        ("C4D_RUNTIME_LOG_LEVEL=info", None, None),
    ],
)
def test_c4d_s_variables_set_both_limits(envs: str, after: float | None, interval: float | None) -> None:
    chosen = settings("--c4d-common-envs", envs)
    assert (chosen.hang.diagnose_after, chosen.hang.act_after) == (after, interval)
    assert chosen.c4d_common_envs == dict(pair.split("=") for pair in envs.split(","))


def test_flags_win_over_c4d_s_variables() -> None:
    envs = "--c4d-common-envs=C4D_HANG_TIMEOUT=30"
    chosen = settings(envs, "--job-hang-interval=1200")
    assert (chosen.hang.diagnose_after, chosen.hang.act_after) == (30, 1200)
    assert chosen.sources["diagnose-after"] == "--c4d-common-envs C4D_HANG_TIMEOUT"
    assert settings(envs, "--diagnose-after=auto").hang.diagnose_after is None
    weaker = {"RANKSCOPE_JOB_HANG_INTERVAL": "9", "RANKSCOPE_DIAGNOSE_AFTER": "4"}
    chosen = settings(envs, environ=weaker)
    assert (chosen.hang.diagnose_after, chosen.hang.act_after) == (30, 540)
    line = "--enable-job-hang-detection=True --enable-c4d-hang-detection=True " + envs
    assert settings("--aimaster-args", line).hang.act_after == 540  # AIMaster's 1800 is a default only


def test_c4d_s_variables_that_have_no_effect_are_told() -> None:
    assert settings("--c4d-common-envs=C4D_ENABLE_STATS_OUTPUT=1").notes == (
        "C4D_ENABLE_STATS_OUTPUT in --c4d-common-envs: no meaning here, ignored",
    )
    chosen = settings("--enable-c4d-hang-detection=False", "--c4d-common-envs=C4D_HANG_TIMEOUT=30")
    assert (chosen.hang.diagnose_after, chosen.hang.act_after) == (None, None)
    assert chosen.notes == ("--c4d-common-envs has no effect: C4D's detection is off",)
