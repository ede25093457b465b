"""What the API keeps of event logs: all that a summary tells, in bounded memory, read once."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

import msgspec
import pytest
from tests.history_factory import BEGAN, NodeLogBuilder, a_job_file, a_log

from rankscope.agent.health.api import questions
from rankscope.agent.health.api.answers import EventsAnswer, JobAnswer
from rankscope.agent.health.api.event_answers import EventAnswers
from rankscope.agent.health.api.event_files import JobEvents
from rankscope.agent.health.api.kept_events import KeptEvents
from rankscope.agent.health.api.record_answers import RecordAnswers
from rankscope.agent.health.api.refusal import NoAnswerError
from rankscope.agent.health.live import read_live_page
from rankscope.diag.history.model import JobHistory
from rankscope.diag.history.read import read_job
from rankscope.diag.history.story import history_of
from rankscope.diag.report.html.live_data import LivePage
from rankscope.diag.store.events import iso_time, parse_log
from rankscope.diag.store.job import JobFolder

NOW = iso_time(BEGAN + 90_000)
LONG = 9 << 20


def a_long_story() -> NodeLogBuilder:
    """Two jobs of one run id; the last one with suspicions, messages, failures and a hang."""
    log = a_log().event("message", {"content": "before any agent"}).agent().launch().trains().ends()
    log.event("notice.failed", {"target": "a"}).passes(100).event("message", {"content": "late"})
    log.passes(50).agent().launch().trains()
    for _ in range(3):
        log.passes(5).event("suspected", {"reason": "quiet", "ranks": [1], "waiting": [0], "seconds": 2})
        log.passes(1).event("message", {"rank": 1, "content": "slow disk"})
        log.passes(1).event("cleared", {"reason": "it went on", "seconds": 3})
    log.passes(30).event("message", {"rank": 0, "content": "x" * 1000}).passes(1).fails(2)
    log.event("decision", {"action": "restart", "reason": "it failed", "asked": {"history": ["y" * 99]}})
    log.restart_begins().passes(2).launch(2).restart_done().trains()
    log.passes(9).event("suspected", {"reason": "quiet", "ranks": [3], "waiting": [0, 1], "seconds": 4})
    return log.passes(7).event("message", {"rank": 0, "content": "the last words"})


def both(log: NodeLogBuilder, root: Path) -> tuple[JobFolder, JobEvents]:
    folder = JobFolder(root / "run-7")
    a_job_file(folder, created=1100.0)
    log.write(folder)
    events = JobEvents(folder)
    assert events.read_on()
    return folder, events


def history(folder: JobFolder, events: JobEvents | None = None) -> JobHistory:
    return history_of(read_job(folder) if events is None else read_job(folder, log=events.content))


def test_a_summary_of_what_is_kept_is_the_one_of_the_whole_log(tmp_path: Path) -> None:
    folder, events = both(a_long_story(), tmp_path)
    assert history(folder, events) == history(folder)
    kept = read_job(folder, log=events.content)
    whole = read_live_page(folder, made=NOW)
    assert read_live_page(folder, made=NOW, records=kept) == whole
    assert whole.stands.word.startswith("suspected")


def test_what_no_summary_tells_is_not_kept() -> None:
    log = a_log().agent().launch()
    for _ in range(1000):
        log.passes(1).event("message", {"content": "x" * 100})
        log.event("suspected", {"ranks": [1]}).event("cleared", {})
    kept = KeptEvents()
    for event in log.events:
        kept.take(event, 200)
    content = kept.content()
    assert content.events[-1].time == log.events[-1].time
    assert len(content.events) < 10
    assert content.doubts == ()


def test_the_oldest_goes_when_the_budget_is_used_up_and_it_is_said() -> None:
    log = a_log().agent()
    for number in range(1, 500):
        log.launch(number).fails(2).restart_begins().restart_done()
    kept = KeptEvents(budget_bytes=100_000)
    for event in log.events:
        kept.take(event, 500)
    content = kept.content()
    assert content.events[0].name == "job.started"
    assert 50 < len(content.events) <= 100
    assert content.events[-1] == log.events[-1]
    [doubt] = content.doubts
    assert str(len(log.events) - len(content.events)) in doubt


def test_a_value_that_is_too_long_is_left_out_of_a_summary() -> None:
    log = a_log().agent().fails(2, "ValueError: " + "x" * 100_000)
    kept = KeptEvents()
    for event in log.events:
        kept.take(event, len(msgspec.json.encode(event)))
    failed = kept.content().events[-1]
    assert failed.data["rank"] == 2
    assert "message" not in failed.data


@pytest.mark.parametrize("order", [[1, 2, 3, 7, 9, 8], [9, 1, 3, 2, 8, 7], [7, 8, 9, 3, 2, 1, 2, 8]])
def test_gaps_are_those_of_the_whole_log_whatever_the_order(order: list[int]) -> None:
    made = a_log()
    for _ in range(9):
        made.event("message")
    events = [made.events[number - 1] for number in order]
    kept = KeptEvents()
    for event in events:
        kept.take(event, 100)
    whole = parse_log(b"\n".join(map(msgspec.json.encode, events)))
    assert kept.content().missing == whole.missing == ((4, 6),)


def test_a_line_that_is_too_long_is_passed_over_and_counted(tmp_path: Path) -> None:
    folder, events = both(a_log().agent(), tmp_path)
    log = folder.node("vm") / "events.jsonl"
    with log.open("ab") as file:
        file.write(b"x" * LONG)
    assert events.read_on()  # it is being written
    later = a_log("later").launch()
    with log.open("ab") as file:
        file.write(b"x" * LONG + b"\nno event\n" + msgspec.json.encode(later.events[0]) + b"\n{")
    answered = msgspec.json.decode(EventAnswers(folder).read(questions.ReadEvents()), type=EventsAnswer)
    assert [one.id for one in answered.events] == ["vm-1", "later-1"]
    assert answered.skipped == 2
    assert events.read_on()
    assert [one.id for one in events.entries] == ["vm-1", "later-1"]
    content = events.content(log)
    assert content.unreadable == (3, 5)
    assert any("1 line is too long" in doubt for doubt in content.doubts)


def test_a_log_that_takes_longer_is_read_in_pieces_and_it_is_said_how_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _events = both(a_long_story(), tmp_path)
    slow = JobEvents(folder)
    assert not slow.read_on(seconds=0.0)
    size = (folder.node("vm") / "events.jsonl").stat().st_size
    assert slow.progress == (0, size)
    assert slow.read_on()
    assert slow.progress == (size, size)
    monkeypatch.setattr(JobEvents, "read_on", lambda _self: False)
    with pytest.raises(NoAnswerError, match="still being read") as refused:
        RecordAnswers(folder).answer(questions.ReadPage())
    assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE


def test_a_log_is_read_once_however_often_it_is_asked_about(tmp_path: Path) -> None:
    folder, _events = both(a_long_story(), tmp_path)
    log = folder.node("vm") / "events.jsonl"
    answering = RecordAnswers(folder)

    def job() -> JobAnswer:
        return msgspec.json.decode(answering.answer(questions.ReadJob("vm", "running")), type=JobAnswer)

    assert job().restarts == 1
    size = log.stat().st_size
    with log.open("r+b") as old:  # what was read before is not looked at again
        old.write(b"#" * (size - 1))
    more = NodeLogBuilder("vm")
    more.number, more.at, more.restarts = 1000, 2000.0, 1
    more.restart_begins().launch(3).restart_done()
    with log.open("ab") as file:
        file.write(b"".join(msgspec.json.encode(event) + b"\n" for event in more.events))
    assert job().restarts == 2
    page = msgspec.json.decode(answering.answer(questions.ReadPage()), type=LivePage)
    assert page.timeline is not None
    assert page.timeline.restarts == 2


def test_a_wall_clock_that_is_set_back_changes_no_order(tmp_path: Path) -> None:
    log = a_log().agent().launch()
    log.skew = -3600.0
    log.passes(5).trains()
    a_log("vm2").passes(1).agent().write(JobFolder(tmp_path / "run-7"))
    _folder, events = both(log, tmp_path)
    assert [one.id for one in events.entries] == ["vm-1", "vm2-1", "vm-2", "vm-3"]


def test_a_share_that_went_is_said_beside_what_was_read_of_it(tmp_path: Path) -> None:
    folder, events = both(a_log().agent().launch(), tmp_path)
    log = folder.node("vm") / "events.jsonl"
    log.rename(log.with_name("kept"))
    log.symlink_to(log)  # any error but that of a file that is not there
    assert events.read_on()
    content = events.content(log)
    assert len(content.events) == 2
    assert any("not known" in doubt for doubt in content.doubts)
