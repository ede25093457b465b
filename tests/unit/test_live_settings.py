"""What can be changed while a job runs, what a change makes of the settings, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.settings_factory import SAMPLES

from rankscope.agent.answering.live_settings import LiveSettings
from rankscope.agent.control.messages import Change, ControlError
from rankscope.agent.policy import Rules
from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.settings import table
from rankscope.agent.settings.live import CHANGEABLE, DECIDE_ANEW, WHILE_IT_RUNS, Plain, changed
from rankscope.agent.settings.shown import described
from rankscope.agent.settings.values import Settings
from rankscope.diag.errors import UsageError
from rankscope.diag.store.events import read_log
from rankscope.diag.store.job import JobFolder
from rankscope.watchdog.limits import HangSettings

BEFORE = Settings()


@pytest.mark.parametrize("name", CHANGEABLE)
def test_what_can_be_changed_is_read_as_its_flag_is(name: str) -> None:
    text, value = SAMPLES[name]
    for spelling in (name, name.replace("-", "_"), f"--{name}"):
        after = changed(BEFORE, {spelling: text})
        assert described(after)[name] == {"value": value, "source": WHILE_IT_RUNS}


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - CHANGEABLE.keys()))
def test_what_cannot_be_changed_is_refused_in_a_line_that_names_what_can(name: str) -> None:
    with pytest.raises(
        UsageError, match=rf"^{name} cannot be changed while the job runs; what can: .*on-hang"
    ):
        changed(BEFORE, {name: SAMPLES[name][0]})


def test_what_a_flag_has_closed_is_not_opened() -> None:
    assert not {"allow-locals", "diag-host", "token-file", "webhook", "notify-command"} & CHANGEABLE.keys()


def test_a_name_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"^there is no setting job-hang-intervall; did you mean job-hang-int"
    ):
        changed(BEFORE, {"job-hang-intervall": 60})
    with pytest.raises(UsageError, match=r"^there is no setting '\\x1b\[2J\\n'") as error:
        changed(BEFORE, {"\x1b[2J\n": 60})
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("change", "name", "value"),
    [
        ({"job-hang-interval": 60}, "job-hang-interval", 60.0),
        ({"straggler-interval": None}, "straggler-interval", "auto"),
        ({"job-restart-timeout": None}, "job-restart-timeout", "off"),
        ({"max-num-of-same-error": None}, "max-num-of-same-error", 0),
        ({"retryable-errors": ["a,b", "auto"]}, "retryable-errors", ["a,b", "auto"]),
        ({"retryable-errors": None}, "retryable-errors", []),
        ({"retryable-errors": []}, "retryable-errors", []),
        ({"retryable-exit-codes": [3, "SIGKILL"]}, "retryable-exit-codes", [3, -9]),
        ({"enable-job-restart": True}, "max-num-of-job-restart", 3),
        ({"max-num-of-job-restart": 5}, "enable-job-restart", True),
        ({"max-num-of-job-restart": 5, "enable-job-restart": False}, "max-num-of-job-restart", 0),
        ({"max-num-of-job-restart": 0, "enable-job-restart": True}, "max-num-of-job-restart", 0),
    ],
)
def test_json_values_say_what_texts_say(change: dict[str, Plain], name: str, value: object) -> None:
    assert described(changed(BEFORE, change))[name]["value"] == value


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"job-hang-interval": -3}, "'-3': a positive number of seconds, or auto expected"),
        ({"job-hang-interval": 1e300}, "'1e.300': a positive number of seconds"),
        ({"job-hang-interval": "1e300"}, "'1e300': a positive number of seconds"),
        ({"max-num-of-job-restart": "9" * 60}, "a whole number, 0 or more expected"),
        ({"job-hang-interval": 1e-9}, "1e-09: 1 s or more expected while the job runs"),
        ({"retryable-errors": ["x"] * 101}, "at most 100 of 1000 characters each"),
        ({"retryable-errors": "x" * 1001}, "at most 100 of 1000 characters each"),
        ({"job-hang-interval": True}, "'True': a positive number"),
        ({"job-hang-interval": [3]}, "expected, not a list or an object"),
        ({"retryable-errors": {"a": "b"}}, "expected, not a list or an object"),
        ({"enable-job-restart": None}, "null: True or False expected"),
        ({"evidence-budget": None}, "null: a number of seconds, 0 for none expected"),
        ({"on-hang": "log", "on_hang": "hold"}, "named twice"),
    ],
)
def test_what_no_flag_could_say_is_refused(change: dict[str, Plain], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        changed(BEFORE, change)


def test_a_limit_of_what_is_off_is_refused_because_it_would_do_nothing() -> None:
    off = replace(BEFORE, hang_detection=False, hang=HangSettings(exit_after=None))
    for name in ("diagnose-after", "job-hang-interval", "job-exit-hang-interval"):
        with pytest.raises(UsageError, match=r"no effect, .*detection of this job is off"):
            changed(off, {name: 5})


def test_of_two_changes_one_of_which_is_not_allowed_none_is_made(make: Make) -> None:
    live, used, ledger_path = make()
    with pytest.raises(ControlError) as error:
        live.change({"on-hang": "hold", "evidence-budget": "much"}, by="me")
    assert error.value.refusal.kind == "bad_request"
    assert (used, read_log(ledger_path).events) == ([], ())
    assert live.change({}, by="me").settings["on-hang"].value == "auto"


Make = Callable[[], tuple[LiveSettings, list[tuple[Settings, bool]], Path]]


@pytest.fixture
def make(tmp_path: Path) -> Generator[Make]:
    records = Records(JobFolder(tmp_path), lambda _text: None)
    ledger = Ledger(records, run_id="run-7", command=(), nodes="")
    said: list[str] = []

    def made() -> tuple[LiveSettings, list[tuple[Settings, bool]], Path]:
        used: list[tuple[Settings, bool]] = []
        path = records.node_path / "events.jsonl"

        def use(settings: Settings, anew: bool) -> None:
            assert read_log(path).events, "it holds before it is on record"
            used.append((settings, anew))

        return LiveSettings(BEFORE, ledger=ledger, use=use, say=said.append), used, path

    yield made
    records.close()


def test_a_change_is_on_record_with_old_new_and_who_before_it_holds(make: Make) -> None:
    live, used, path = make()
    answer = live.change({"diagnose_after": 20, "on-hang": "auto"}, by="127.0.0.1")
    assert answer.changed == {"diagnose-after": Change("auto", 20.0)}
    (event,) = read_log(path).events
    assert event.name == "settings.changed"
    assert event.data == {"changed": {"diagnose-after": {"old": "auto", "new": 20.0}}, "by": "127.0.0.1"}
    assert [(settings.hang.diagnose_after, anew) for settings, anew in used] == [(20.0, False)]
    told = answer.settings["diagnose-after"]
    assert (told.value, told.source, told.changeable) == (20.0, WHILE_IT_RUNS, True)
    assert not answer.settings["webhook"].changeable


def test_a_change_that_changes_nothing_is_no_event(make: Make) -> None:
    live, used, path = make()
    assert live.change({"on-hang": "auto"}, by="me").changed == {}
    assert (used, read_log(path).events) == ([], ())


@pytest.mark.parametrize(("name", "value"), [("on-hang", "restart"), ("max-num-of-job-restart", 2)])
def test_what_says_what_is_done_about_a_hang_has_it_decided_anew(make: Make, name: str, value: Plain) -> None:
    live, used, _path = make()
    live.change({name: value}, by="me")  # type: ignore[dict-item]  # both are values of JSON
    assert [anew for _settings, anew in used] == [True]


def test_every_rule_of_the_policy_that_can_change_while_it_runs_is_read_at_each_decision() -> None:
    after = changed(
        BEFORE, {name: SAMPLES[name][0] for name in CHANGEABLE if name != table.ENABLE_RESTART.name}
    )
    before, now = (Rules.of(settings, nodes_have_room=False) for settings in (BEFORE, after))
    names = ("on_hang", "restart_enabled", "fault_tolerant_policy", "max_same_error", "max_failure_rate")
    assert all(getattr(before, name) != getattr(now, name) for name in (*names, "isolate_nodes"))
    assert CHANGEABLE.keys() >= DECIDE_ANEW
