"""What ``/metrics`` answers, with page and time as arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.unit.test_health_probes import NOW_NS, TIMEOUT, a_status, a_view, a_worker

from rankscope.agent.health.metrics import METRICS, Scrape, metrics_answer
from rankscope.agent.health.model import Check, PageView, Suspicion
from rankscope.agent.health.tallies import CAPTURE_BOUNDS, Durations, IncidentTally, Tallies
from rankscope.diag.model import Kind, Verdict

UNIX = 1_800_000_000.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PROMISED = {
    "rankscope_rank_step": ("gauge", {"rank"}),
    "rankscope_rank_last_progress_timestamp_seconds": ("gauge", {"rank"}),
    "rankscope_rank_state": ("gauge", {"rank", "state"}),
    "rankscope_suspected": ("gauge", set[str]()),
    "rankscope_incidents_total": ("counter", {"class", "kind"}),
    "rankscope_restarts_total": ("counter", {"reason"}),
    "rankscope_capture_seconds": ("histogram", set[str]()),
    "rankscope_detection_seconds": ("histogram", set[str]()),
    "rankscope_timer_requests_total": ("counter", set[str]()),
    "rankscope_build_info": ("gauge", {"version"}),
}
"""INTERFACES.md; dashboards depend on them."""
TALLIES = Tallies(
    incidents=(IncidentTally("RankCommHang", "desync", 2),),
    restarts={"hang": 1, "failure": 0, "membership": 3},
    captures=Durations.none(CAPTURE_BOUNDS).plus(0.06).plus(0.3),
    timer_requests=41,
)
WORKERS = (
    a_worker(0, step=7, seconds_since_progress=2.5),
    a_worker(1, state="hung", step=5, seconds_since_progress=30.0),
    a_worker(2, state="waiting"),
)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def a_scrape(view: PageView | None = None) -> Scrape:
    whole = a_view(status=a_status(*WORKERS, tallies=TALLIES, version="1.2", checks={"gpu": Check("pass")}))
    return Scrape(view or whole, NOW_NS, UNIX, TIMEOUT)


def answered(scrape: Scrape, accept: str = "") -> str:
    return metrics_answer(scrape, accept)[0].decode()


def families(text: str) -> Iterator[Any]:
    yield from (parse_openmetrics if text.endswith("# EOF\n") else parse_text)(text)


def samples(text: str) -> Samples:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in families(text)
        for one in family.samples
    }


def value(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((name, frozenset({"job": "run-7", "node": "host-a", **labels}.items())))


def test_every_promised_metric_is_there_with_its_type_and_labels() -> None:
    declared = {row.name: (row.kind, set(row.labels)) for row in METRICS}
    assert PROMISED.items() <= declared.items()
    answer = answered(a_scrape())
    for name, (kind, labels) in PROMISED.items():
        assert f"# TYPE {name} {kind}" in answer
        assert re.search(rf"^# HELP {name} \S.{{20,}}$", answer, re.MULTILINE)
        found = {label for (found, labels) in samples(answer) for label, _ in labels if found == name}
        assert kind == "histogram" or found == {"job", "node", *labels}


def test_all_that_is_served_is_declared_and_nothing_of_the_servers_own_process_is() -> None:
    names = {family.name for family in families(answered(a_scrape()))}
    assert names == {row.name.removesuffix("_total") for row in METRICS}


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "openmetrics"])
def test_the_values_are_those_of_the_page(accept: str) -> None:
    answer = answered(a_scrape(), accept)
    assert value(answer, "rankscope_rank_step", rank="0") == 7
    assert value(answer, "rankscope_rank_step", rank="2") is None
    # The page was published a second ago.
    assert value(answer, "rankscope_rank_last_progress_timestamp_seconds", rank="0") == UNIX - 3.5
    assert value(answer, "rankscope_rank_last_progress_timestamp_seconds", rank="2") is None
    assert value(answer, "rankscope_rank_state", rank="1", state="hung") == 1
    assert value(answer, "rankscope_rank_state", rank="1", state="running") == 0
    assert value(answer, "rankscope_suspected") == 0
    assert value(answer, "rankscope_incidents_total", **{"class": "RankCommHang", "kind": "desync"}) == 2
    assert value(answer, "rankscope_restarts_total", reason="membership") == 3
    assert value(answer, "rankscope_restarts_total", reason="failure") == 0
    assert value(answer, "rankscope_capture_seconds_bucket", le="0.05") == 0
    assert value(answer, "rankscope_capture_seconds_bucket", le="0.1") == 1
    assert value(answer, "rankscope_capture_seconds_bucket", le="+Inf") == 2
    assert value(answer, "rankscope_capture_seconds_count") == 2
    assert value(answer, "rankscope_capture_seconds_sum") == pytest.approx(0.36)
    assert value(answer, "rankscope_detection_seconds_count") == 0
    assert value(answer, "rankscope_timer_requests_total") == 41
    assert value(answer, "rankscope_build_info", version="1.2") == 1
    assert value(answer, "rankscope_agent_alive") == 1
    assert value(answer, "rankscope_agent_phase", state="running") == 1
    assert value(answer, "rankscope_check_state", check="gpu", state="pass") == 1


def test_the_format_is_the_one_that_is_asked_for() -> None:
    _, plain = metrics_answer(a_scrape(), "text/html, */*;q=0.1")
    body, asked = metrics_answer(a_scrape(), f"{OPENMETRICS};q=0.75,text/plain;q=0.5")
    assert plain.startswith("text/plain; version=0.0.4")
    assert asked.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert b"# UNIT rankscope_detection_seconds seconds" in body


def test_a_value_that_did_not_change_is_the_same_at_the_next_scrape() -> None:
    first = a_scrape()
    later = Scrape(first.view, NOW_NS + 15_000_000_123, UNIX + 15.000_2, TIMEOUT)
    name = "rankscope_rank_last_progress_timestamp_seconds"
    assert value(answered(first), name, rank="0") == value(answered(later), name, rank="0")


def test_a_hang_and_an_agent_that_stands_are_to_be_seen() -> None:
    suspected = a_view(status=a_status(*WORKERS, suspected=Suspicion("no progress for 30 s", (1,))))
    assert value(answered(a_scrape(suspected)), "rankscope_suspected") == 1
    stands = a_view(main_age=61, watch_age=61, status=a_status())
    assert value(answered(a_scrape(stands)), "rankscope_agent_alive") == 0


def test_an_agent_that_has_not_reported_yet_answers_with_what_the_page_knows() -> None:
    found = samples(answered(a_scrape(a_view("rendezvous"))))
    named = {labels for name, labels in found if name == "rankscope_agent_phase" and found[name, labels]}
    assert named == {frozenset({"job": "", "node": "", "state": "rendezvous"}.items())}
    assert not [name for name, _ in found if name.startswith(("rankscope_rank", "rankscope_build"))]


def test_a_name_with_quotes_and_breaks_is_written_so_that_it_is_read_again() -> None:
    strange = 'run "7"\\ \n{node="x"} ä'
    view = a_view(status=msgspec.structs.replace(a_status(*WORKERS), job=strange))
    for accept in ("", OPENMETRICS):
        jobs = {dict(labels)["job"] for _, labels in samples(answered(a_scrape(view), accept))}
        assert jobs == {strange}


def test_no_label_can_grow_without_bounds() -> None:
    """Every class and kind, sixteen ranks, all states: some hundred series, and none more."""
    workers = [a_worker(rank, seconds_since_progress=1.0) for rank in range(16)]
    verdicts, kinds = get_args(Verdict), get_args(Kind)
    incidents = tuple(IncidentTally(verdict, kind, 1) for verdict in verdicts for kind in kinds)
    checks = {f"gpu:{index}": Check("pass") for index in range(16)}
    view = a_view(status=a_status(*workers, checks=checks, tallies=Tallies(incidents=incidents)))
    assert len(samples(answered(a_scrape(view)))) < 450
