"""``/metrics``: every metric is one row of ``METRICS``, which makes the answer and the reference page.

A pure function of the status page, the time and what the scraper accepts. It knows no HTTP library and no
process. What a client library would add of its own accord (``process_*``, ``python_*``) is left out: it would
speak of the health server's process and be taken for the training's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rankscope.agent.health.model import CheckStatus, PageView, Phase, WorkerHealth
from rankscope.agent.health.probes import is_alive
from rankscope.agent.health.tallies import Durations, Tallies
from rankscope.diag.model import RankState

_NS: Final = 1_000_000_000
_PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
_STATES: Final[tuple[RankState, ...]] = get_args(RankState)
_CHECK_STATES: Final[tuple[CheckStatus, ...]] = get_args(CheckStatus)


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one answer is made of.

    Attributes:
        view: the status page.
        now_ns: ``time.monotonic_ns()``; unix_time is the same moment, seconds since the epoch.
        timeout: seconds without a turn of either loop after which the agent counts as dead.
    """

    view: PageView
    now_ns: int
    unix_time: float
    timeout: float

    @property
    def tallies(self) -> Tallies:
        """What is counted; nothing before the agent has reported."""
        return self.view.status.tallies if self.view.status is not None else Tallies()

    @property
    def workers(self) -> tuple[WorkerHealth, ...]:
        """The node's workers."""
        return self.view.status.workers if self.view.status is not None else ()


Value = tuple[tuple[str, ...], "float | Durations"]
"""The values of the labels that are the metric's own, and what is measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric: what a scraper and a reader of the reference page are told of it.

    Attributes:
        name: as it is queried, without the endings of a histogram's series.
        kind: Prometheus' type.
        about: one sentence.
        labels: beside ``job`` and ``node``, which all have.
        values: reads them.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    about: str
    labels: tuple[str, ...]
    values: Callable[[Scrape], Iterator[Value]]

    @property
    def unit(self) -> str:
        """Its unit, which is a part of its name."""
        return "seconds" if self.name.endswith("_seconds") else ""


def _steps(scrape: Scrape) -> Iterator[Value]:
    for worker in scrape.workers:
        if worker.step is not None:
            yield (str(worker.rank),), worker.step


def _last_progress(scrape: Scrape) -> Iterator[Value]:
    published = scrape.unix_time - (scrape.now_ns - scrape.view.published_ns) / _NS
    for worker in scrape.workers:
        if worker.seconds_since_progress is not None:
            # Rounded: the two clocks are read one after the other, and a value that did not change must not.
            yield (str(worker.rank),), round(published - worker.seconds_since_progress, 2)


def _rank_states(scrape: Scrape) -> Iterator[Value]:
    for worker in scrape.workers:
        for state in _STATES:
            yield (str(worker.rank), state), worker.state == state


def _suspected(scrape: Scrape) -> Iterator[Value]:
    yield (), scrape.view.status is not None and scrape.view.status.suspected is not None


def _incidents(scrape: Scrape) -> Iterator[Value]:
    for one in scrape.tallies.incidents:
        yield (one.verdict, one.kind), one.count


def _restarts(scrape: Scrape) -> Iterator[Value]:
    for reason, count in scrape.tallies.restarts.items():
        yield (reason,), count


def _captures(scrape: Scrape) -> Iterator[Value]:
    yield (), scrape.tallies.captures


def _detections(scrape: Scrape) -> Iterator[Value]:
    yield (), scrape.tallies.detections


def _timer_requests(scrape: Scrape) -> Iterator[Value]:
    yield (), scrape.tallies.timer_requests


def _build(scrape: Scrape) -> Iterator[Value]:
    if scrape.view.status is not None:
        yield (scrape.view.status.version,), 1


def _alive(scrape: Scrape) -> Iterator[Value]:
    yield (), is_alive(scrape.view, scrape.now_ns, scrape.timeout)


def _phases(scrape: Scrape) -> Iterator[Value]:
    for phase in _PHASES:
        yield (phase,), scrape.view.phase.name == phase


def _checks(scrape: Scrape) -> Iterator[Value]:
    checks = scrape.view.status.checks if scrape.view.status is not None else {}
    for name, check in checks.items():
        for state in _CHECK_STATES:
            yield (name, state), check.status == state


METRICS: Final = (
    Row(
        "rankscope_rank_step",
        "gauge",
        "Optimizer steps of the rank since its process started, else the script's own number; absent before "
        "the first; it falls at a restart.",
        ("rank",),
        _steps,
    ),
    Row(
        "rankscope_rank_last_progress_timestamp_seconds",
        "gauge",
        "When the rank made its last step, unix time; absent before its first.",
        ("rank",),
        _last_progress,
    ),
    Row(
        "rankscope_rank_state",
        "gauge",
        "1 for the state that the rank is in, 0 for the others.",
        ("rank", "state"),
        _rank_states,
    ),
    Row(
        "rankscope_suspected",
        "gauge",
        "1 while a hang is suspected or confirmed on this node, else 0.",
        (),
        _suspected,
    ),
    Row(
        "rankscope_incidents_total",
        "counter",
        "Incidents (hangs, slowness, failed workers) by the class and kind that were published first.",
        ("class", "kind"),
        _incidents,
    ),
    Row(
        "rankscope_restarts_total",
        "counter",
        "Restarts of workers that were begun on this node, by reason: hang, failure, membership.",
        ("reason",),
        _restarts,
    ),
    Row(
        "rankscope_capture_seconds",
        "histogram",
        "How long a look at all ranks of this node took.",
        (),
        _captures,
    ),
    Row(
        "rankscope_detection_seconds",
        "histogram",
        "From the last progress to the published verdict of a hang.",
        (),
        _detections,
    ),
    Row(
        "rankscope_timer_requests_total",
        "counter",
        "Timers that workers of this node have set or released.",
        (),
        _timer_requests,
    ),
    Row(
        "rankscope_build_info",
        "gauge",
        "1, with the version of Rankscope.",
        ("version",),
        _build,
    ),
    Row(
        "rankscope_agent_alive",
        "gauge",
        "What /livez says: 1 while the agent's loops turn, 0 when they stand.",
        (),
        _alive,
    ),
    Row(
        "rankscope_agent_phase",
        "gauge",
        "1 for the phase that the agent is in, 0 for the others.",
        ("state",),
        _phases,
    ),
    Row(
        "rankscope_check_state",
        "gauge",
        "1 for the state of each check of /health, 0 for the others.",
        ("check", "state"),
        _checks,
    ),
)
"""In the order in which they are answered."""


def metrics_answer(scrape: Scrape, accept: str = "") -> tuple[bytes, str]:
    """The answer to one scrape.

    Args:
        scrape: what it is made of.
        accept: the request's ``Accept``: OpenMetrics when it is asked for, else Prometheus' text.

    Returns:
        Body and content type.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(scrape))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Page(Collector):
    """The rows for one scrape."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterator[Metric]:
        """All that have a value now."""
        status = self._scrape.view.status
        common = (status.job, status.node) if status is not None else ("", "")
        for row in METRICS:
            family = _family(row)
            for own, value in row.values(self._scrape):
                _add(family, (*common, *own), value)
            if family.samples:
                yield family


_Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


def _family(row: Row) -> _Family:
    labels: Sequence[str] = ("job", "node", *row.labels)
    if row.kind == "gauge":
        return GaugeMetricFamily(row.name, row.about, labels=labels, unit=row.unit)
    if row.kind == "counter":
        return CounterMetricFamily(row.name, row.about, labels=labels, unit=row.unit)
    return HistogramMetricFamily(row.name, row.about, labels=labels, unit=row.unit)


def _add(family: _Family, labels: Sequence[str], value: float | Durations) -> None:
    if isinstance(value, Durations):
        if isinstance(family, HistogramMetricFamily):
            family.add_metric(labels, buckets=_buckets(value), sum_value=value.total)
    elif not isinstance(family, HistogramMetricFamily):
        family.add_metric(labels, float(value))


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus has them."""
    bounds = [*(repr(bound) for bound in durations.bounds), "+Inf"]
    return [(bound, float(count)) for bound, count in zip(bounds, accumulate(durations.counts), strict=True)]


def reference() -> Mapping[str, tuple[str, str, str]]:
    """Type, labels and meaning of each metric, for the reference page."""
    return {row.name: (row.kind, ", ".join(("job", "node", *row.labels)), row.about) for row in METRICS}
