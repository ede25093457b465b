"""What a script may say through the SDK: every wrong value is told at the call that makes it."""

from __future__ import annotations

import copy
import gc
import inspect
import math
import pickle
import re
import weakref
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.watchdog import job_monitor as jm
from rankscope.watchdog.sdk.config import ACTED_ON, MAX_TEXT_BYTES, PARAMETERS, Value
from rankscope.watchdog.sdk.published import Published
from rankscope.watchdog.timers.wire import Event, encode_event

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "sdk.md").read_text()
CONFIGS = (jm.PyTorchConfig, jm.MPIConfig, jm.TFConfig, jm.ElasticBatchConfig)


@pytest.fixture
def monitor() -> jm.Monitor:
    return jm.Monitor()


@pytest.mark.parametrize("config", CONFIGS)
def test_every_framework_takes_the_same_parameters(config: type[jm.Config]) -> None:
    made = config(job_hang_interval=180, enable_job_restart="True", max_tolerated_failure_rate=0.25)
    assert dict(made.params) == {
        "job_hang_interval": 180,
        "enable_job_restart": True,
        "max_tolerated_failure_rate": 0.25,
    }
    assert repr(made).startswith(f"{config.__name__}(job_hang_interval=180, ")


def test_a_parameter_that_does_not_exist_is_told_with_the_nearest_that_does(monitor: jm.Monitor) -> None:
    with pytest.raises(TypeError, match=r"job_hang_intervall.*'job_hang_interval'"):
        jm.PyTorchConfig(job_hang_intervall=180)
    with pytest.raises(TypeError, match=r"enable-job-restart.*'enable_job_restart'"):
        monitor.reset_config({"enable-job-restart": True})


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("job_hang_interval", -2, ValueError),
        ("job_hang_interval", 0, ValueError),
        ("job_hang_interval", math.nan, ValueError),
        ("job_hang_interval", math.inf, ValueError),
        ("job_hang_interval", 10**400, ValueError),
        ("job_hang_interval", "180", TypeError),
        ("job_hang_interval", True, TypeError),
        ("job_exit_hang_interval", -3, ValueError),
        ("enable_job_restart", 1, TypeError),
        ("enable_job_restart", "yes", TypeError),
        ("max_num_of_same_error", -5, ValueError),
        ("max_num_of_same_error", "ten", TypeError),
        ("critical_roles", ["ps"], TypeError),
        ("c4d_common_envs", "A=" + "x" * 500, ValueError),
    ],
)
def test_a_wrong_value_is_told_at_the_call(
    monitor: jm.Monitor, name: str, value: Value, error: type[Exception]
) -> None:
    with pytest.raises(error, match=name):
        jm.PyTorchConfig(**{name: value})
    with pytest.raises(error, match=name):
        monitor.reset_config({name: value})


def test_numbers_of_other_types_are_numbers() -> None:
    given: dict[str, Any] = {"job_hang_interval": np.int64(90), "job_exit_hang_interval": np.float32(0.5)}
    config = jm.PyTorchConfig(**given)
    assert dict(config.params) == {"job_hang_interval": 90, "job_exit_hang_interval": 0.5}
    assert {type(value) for value in config.params.values()} == {int, float}
    assert jm.PyTorchConfig(job_hang_interval="auto").params == {"job_hang_interval": None}
    jm.hang_detect(Fraction(1, 2))  # type: ignore[arg-type] # a number all the same


def test_the_values_of_a_configuration_all_fit_into_one_line() -> None:
    longest: dict[str, object] = {}
    for name in PARAMETERS:
        for value in ("x" * 500, -1, 123456.789012345, False):
            try:
                longest |= jm.PyTorchConfig(**{name: value}).params
            except (TypeError, ValueError):
                continue
            break
    assert longest.keys() == PARAMETERS.keys()
    encode_event(Event("settings", 2**22, {"rank": 100_000, "values": longest}))


@pytest.mark.parametrize("seconds", [-2, -0.5, 0, math.nan, math.inf])
def test_a_stage_with_a_wrong_limit_cannot_be_made(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive number of seconds"):
        jm.hang_detect(seconds)


@pytest.mark.parametrize("seconds", ["180", None, True, Decimal(3), print])
def test_a_stage_needs_a_number(seconds: object) -> None:
    with pytest.raises(TypeError, match="a number expected"):
        jm.hang_detect(seconds)  # type: ignore[arg-type] # that is the point


class Trainer:
    pass


@pytest.mark.parametrize("decorated", ["train", Trainer])
def test_only_functions_are_decorated(decorated: Any) -> None:
    with pytest.raises(TypeError, match="decorates functions"):
        jm.hang_detect(5)(decorated)


@pytest.mark.parametrize(
    "twin", [copy.copy, copy.deepcopy, lambda config: pickle.loads(pickle.dumps(config))]
)
@pytest.mark.parametrize("config", CONFIGS)
def test_a_configuration_can_be_copied_and_pickled(
    config: type[jm.Config], twin: Callable[[jm.Config], jm.Config]
) -> None:
    made = config(job_hang_interval=600)
    other = twin(made)
    assert type(other) is config
    assert dict(other.params) == {"job_hang_interval": 600}
    assert not hasattr(other.params, "__setitem__")


def test_a_number_too_long_to_be_written_is_refused_in_our_words(monitor: jm.Monitor) -> None:
    with pytest.raises(ValueError, match="more than 64 bits"):
        monitor.step(10**5000)
    with pytest.raises(ValueError, match=r"job_hang_interval=int of very many digits: too large"):
        jm.PyTorchConfig(job_hang_interval=10**5000)
    with pytest.raises(TypeError, match=r"critical_roles=\['ps', .{180,200}\.\.\.: a string expected"):
        monitor.reset_config({"critical_roles": ["ps"] * 5000})  # type: ignore[dict-item] # that is the point


def test_a_text_is_measured_as_json_and_the_refusal_says_so() -> None:
    assert jm.PyTorchConfig(critical_roles="é" * 83).params
    with pytest.raises(ValueError, match=r"500 bytes \(as JSON, where a character that is no ASCII takes 6"):
        jm.PyTorchConfig(critical_roles="é" * 84)


def test_keywords_are_a_list_of_texts_that_say_something(monitor: jm.Monitor) -> None:
    for wrong in ("connection reset", ["a", 3], [None], b"x"):
        with pytest.raises(TypeError):
            monitor.set_retryable_errors(wrong)  # type: ignore[arg-type] # that is the point
    for empty_or_long in ([""], ["  "], ["x" * (MAX_TEXT_BYTES + 1)], ["x"] * 101):
        with pytest.raises(ValueError):
            monitor.set_retryable_errors(empty_or_long)
    monitor.set_retryable_errors(iter(("connection reset", "x" * MAX_TEXT_BYTES)))


@pytest.mark.parametrize("character", ["x", '"', "é", "\U0001f600"])
def test_a_message_is_sent_whole_or_refused_with_the_limit(monitor: jm.Monitor, character: str) -> None:
    size = {"x": 1, '"': 2, "é": 6, "\U0001f600": 12}[character]
    most = MAX_TEXT_BYTES // size
    assert not monitor.send_custom_message(content=character * most).ok()
    encode_event(Event("message", 2**31 - 1, {"rank": 2**31 - 1, "content": character * most}))
    with pytest.raises(ValueError, match=f"at most {MAX_TEXT_BYTES} bytes"):
        monitor.send_custom_message(content=character * (most + 1))
    with pytest.raises(TypeError, match="content: a string expected, not int"):
        monitor.send_custom_message(5)  # type: ignore[arg-type] # that is the point


@pytest.mark.parametrize(
    ("number", "error"), [(1.5, TypeError), ("3", TypeError), (True, TypeError), (2**63, ValueError)]
)
def test_a_step_is_an_integer_of_64_bits(monitor: jm.Monitor, number: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        monitor.step(number)
    monitor.step(2**63 - 1)
    monitor.step(-(2**63))
    monitor.step(np.int32(-7))  # type: ignore[arg-type] # an integer all the same


def test_a_monitor_takes_only_a_configuration() -> None:
    with pytest.raises(TypeError, match="PyTorchConfig"):
        jm.Monitor(config={"job_hang_interval": 3})  # type: ignore[arg-type] # that is the point
    with pytest.raises(TypeError, match="names with values"):
        jm.Monitor().reset_config(180)  # type: ignore[arg-type] # that is the point


def test_without_an_agent_a_message_is_not_ok_and_says_why(monitor: jm.Monitor) -> None:
    status = monitor.send_custom_message(content="hello")
    assert (status.ok(), status.to_string()) == (False, "no agent of Rankscope runs this process")
    assert (jm.Status().ok(), jm.Status().to_string()) == (True, "OK")


def public_names() -> list[str]:
    """Everything of the SDK that a script can use, ``Class.method`` included."""
    found: list[str] = []
    for name in jm.__all__:
        found.append(name)
        members: dict[str, object] = dict(vars(getattr(jm, name)))
        found += [f"{name}.{each}" for each, value in members.items() if each[0] != "_" and callable(value)]
    return found


@pytest.mark.parametrize("name", public_names())
def test_every_name_is_documented_with_its_arguments(name: str) -> None:
    assert re.search(rf"`{re.escape(name.rpartition('.')[2])}[`(]", REFERENCE), name
    of, _, method = name.partition(".")
    called: Callable[..., object] = getattr(getattr(jm, of), method) if method else getattr(jm, of)
    arguments = [each for each in inspect.signature(called).parameters if each not in {"self", "args"}]
    for argument in arguments:
        assert f"`{argument}`" in REFERENCE or f"{argument}=" in REFERENCE, argument


def test_every_parameter_is_documented_with_its_effect() -> None:
    table = {row[0]: row for row in re.findall(r"^\| `(\w+)` \|[^|]*\| (\w+)", REFERENCE, re.MULTILINE)}
    assert set(table) == set(PARAMETERS)
    assert {name for name, row in table.items() if row[1] == "yes"} == ACTED_ON


def test_what_a_signal_handler_raised_does_not_keep_the_scripts_objects() -> None:
    class Overtime(Exception):  # noqa: N818 - as a script would call it
        pass

    def interrupted() -> weakref.ref[Overtime]:
        def change() -> None:
            raise Overtime

        try:
            Published()._change(change)
        except Overtime as error:
            return weakref.ref(error)
        raise AssertionError("nothing was raised")

    gc.disable()
    try:
        assert interrupted()() is None
    finally:
        gc.enable()
