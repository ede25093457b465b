"""Settings: flag, environment, default; one clear line for what is not allowed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import pytest

from rankscope.agent.settings import OPTIONS, Settings, add_arguments, resolve
from rankscope.diag.errors import UsageError


def settings(*flags: str, environ: Mapping[str, str] | None = None) -> Settings:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return resolve(parser.parse_args(flags), environ or {})


def test_defaults_are_learned_limits() -> None:
    chosen = settings()
    assert (chosen.hang.diagnose_after, chosen.hang.act_after) == (None, None)
    assert chosen.hang_detection
    assert set(chosen.sources.values()) == {"default"}


def test_a_flag_is_stronger_than_the_environment() -> None:
    environ = {"RANKSCOPE_JOB_HANG_INTERVAL": "60", "RANKSCOPE_DIAGNOSE_AFTER": "20"}
    chosen = settings("--job-hang-interval=30", environ=environ)
    assert chosen.hang.act_after == 30
    assert chosen.hang.diagnose_after == 20
    assert chosen.sources["job-hang-interval"] == "--job-hang-interval"
    assert chosen.sources["diagnose-after"] == "RANKSCOPE_DIAGNOSE_AFTER"


def test_underscores_spell_the_same_flag() -> None:
    assert settings("--job_hang_interval", "30").hang.act_after == 30


def test_auto_is_no_number() -> None:
    assert (
        settings("--job-hang-interval=auto", environ={"RANKSCOPE_JOB_HANG_INTERVAL": "9"}).hang.act_after
        is None
    )


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("job-hang-interval", "0"),
        ("job-hang-interval", "-3"),
        ("job-hang-interval", "inf"),
        ("job-hang-interval", "nan"),
        ("diagnose-after", "soon"),
        ("evidence-budget", "-1"),
        ("enable-job-hang-detection", "perhaps"),
        ("on-hang", "explode"),
        ("log-capture", "sometimes"),
        ("diag-port", "65536"),
        ("diag-port", "http"),
    ],
)
def test_what_is_not_allowed_names_flag_value_and_what_is(flag: str, value: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings(f"--{flag}={value}")
    assert f"--{flag} {value!r}: " in str(refused.value)
    variable = "RANKSCOPE_" + flag.upper().replace("-", "_")
    with pytest.raises(UsageError, match=variable):
        settings(environ={variable: value})


def test_an_empty_variable_is_none() -> None:
    assert settings(environ={option.variable: "" for option in OPTIONS}) == settings()


def test_torch_s_own_variable_names_the_port_too() -> None:
    assert settings(environ={"TORCHELASTIC_HEALTH_CHECK_PORT": "8080"}).diag_port == 8080
    assert settings(environ={"TORCHELASTIC_HEALTH_CHECK_PORT": "none"}).diag_port is None
    assert settings(environ={"TORCHELASTIC_HEALTH_CHECK_PORT": "²"}).diag_port is None
    assert settings("--diag-port=0", environ={"TORCHELASTIC_HEALTH_CHECK_PORT": "8080"}).diag_port == 0
