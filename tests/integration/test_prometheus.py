"""``/metrics`` to those who will read it: promtool's lint, and a Prometheus server that scrapes it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.health_factory import (
    PATIENCE,
    Reply,
    a_health_process,
    a_published_page,
    a_server,
    an_agent,
    ask,
    eventually,
)

from rankscope.agent.health import Check, HealthProcess, HealthStatus, StatusWriter, Suspicion, WorkerHealth
from rankscope.agent.health.tallies import CAPTURE_BOUNDS, DETECTION_BOUNDS, Durations, IncidentTally, Tallies

ROOT: Final = Path(__file__).parents[2]
ALERTS: Final = ROOT / "docs" / "examples" / "alerts.yml"
GUIDE: Final = ROOT / "docs" / "how-to" / "prometheus.md"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0"


def tool(name: str) -> str:
    """Debian's ``prometheus`` brings both; what serves metrics is not tested without them."""
    path = shutil.which(name)
    assert path is not None, f"{name} is not installed: apt-get install prometheus"
    return path


def a_busy_status() -> HealthStatus:
    """Every metric has a value."""
    workers = (
        WorkerHealth(0, 0, 100, "running", step=41, seconds_since_progress=0.5),
        WorkerHealth(1, 1, 101, "hung", step=40, seconds_since_progress=31.0),
    )
    tallies = Tallies(
        incidents=(IncidentTally("RankNonCommHang", "data_loading", 2),),
        restarts={"hang": 1, "failure": 0, "membership": 0},
        detections=Durations.none(DETECTION_BOUNDS).plus(12.5).plus(28.0),
        captures=Durations.none(CAPTURE_BOUNDS).plus(0.06),
        timer_requests=7,
    )
    return HealthStatus(
        job="run-7",
        node="host-a",
        pid=os.getpid(),
        phase="running",
        workers=workers,
        suspected=Suspicion("no progress for 31 s", (1,)),
        checks={"gpu:0": Check("pass", "NVIDIA H100"), "disk:records": Check("warn", "0.5 GiB free")},
        version="1.2.3",
        tallies=tallies,
    )


@pytest.fixture(name="page")
def _page(tmp_path: Path) -> Iterator[StatusWriter]:
    with a_published_page(tmp_path / "status.page", a_busy_status()) as writer:
        yield writer


@pytest.fixture(name="server")
def _server(page: StatusWriter) -> Iterator[HealthProcess]:
    with a_health_process(page.path) as process:
        yield process


def metrics(server: HealthProcess, **headers: str) -> Reply:
    assert server.address is not None
    return ask(server.address, "/metrics", headers=headers)


def test_promtool_has_nothing_against_what_a_server_answers(server: HealthProcess) -> None:
    reply = metrics(server)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    checked = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=reply.body, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_promtool_would_object() -> None:
    bad = b"# TYPE rankscope_restarts counter\nrankscope_restarts 1\n"
    checked = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=bad, capture_output=True, check=False
    )
    assert checked.returncode != 0


def test_openmetrics_is_answered_when_it_is_asked_for(server: HealthProcess) -> None:
    reply = metrics(server, Accept=OPENMETRICS)
    assert reply.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert reply.body.endswith(b"# EOF\n")


def test_an_answer_is_kept_for_a_moment_and_then_made_anew(server: HealthProcess, page: StatusWriter) -> None:
    first = metrics(server).body
    assert b'rankscope_rank_step{job="run-7",node="host-a",rank="0"} 41.0' in first
    page.publish(HealthStatus(job="run-8", node="host-a", pid=1))
    eventually(lambda: b"run-8" in metrics(server).body, "the new page")
    assert b"run-7" not in metrics(server).body


def test_a_server_that_is_started_again_goes_on_counting(server: HealthProcess) -> None:
    before = metrics(server).body
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    # Both checks at a time of their own: its end is seen, and then the delay is over.
    eventually(lambda: server.check(0.0) is not None, "its end is noticed")
    server.check(100.0)
    after = metrics(server).body
    counters = [line for line in before.splitlines() if b"_total" in line or b"_seconds_count" in line]
    assert len(counters) >= 8
    assert set(counters) <= set(after.splitlines())


def test_metrics_of_an_agent_that_is_gone_are_503_so_that_up_is_0(page: StatusWriter, tmp_path: Path) -> None:
    # Nobody's child sees the agent's end at its next look, some seconds later, or when it is asked.
    with (
        an_agent(tmp_path / "other", "threading.Event().wait()") as (agent, _),
        a_server(page.path, agent_pid=agent.pid) as server,
    ):
        assert ask(server.address, "/metrics").status == 200
        agent.kill()
        agent.wait(PATIENCE)
        assert ask(server.address, "/metrics").status == 503


# The alert rules.


def test_the_alert_rules_are_rules() -> None:
    checked = subprocess.run(
        [tool("promtool"), "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_alert_rules_fire_on_what_they_should_and_on_nothing_else() -> None:
    tests = ROOT / "tests" / "data" / "alerts_test.yml"
    checked = subprocess.run(
        [tool("promtool"), "test", "rules", str(tests)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_is_tested_and_asks_only_for_metrics_that_are_served(server: HealthProcess) -> None:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    tested = (ROOT / "tests" / "data" / "alerts_test.yml").read_text()
    body = metrics(server).body.decode()
    for rule in rules:
        assert tested.count(rule["alert"]) > 1, rule["alert"]
        names = {word for word in rule["expr"].replace("{", " ").split() if "rankscope_" in word}
        for name in {name.strip("()") for name in names}:
            assert f"# TYPE {name.rpartition('(')[2]} " in body, name


# A real Prometheus.


@dataclass(frozen=True)
class Prometheus:
    port: int

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.loads(answer.read())["data"]

    def value(self, query: str) -> float | None:
        """The one value of a query, ``None`` while there is none."""
        found = self.ask("/api/v1/query", query=query)["result"]
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None


@pytest.fixture(name="prometheus")
def _prometheus(tmp_path: Path, server: HealthProcess) -> Iterator[Prometheus]:
    """Scrapes the server as the guide says, twice a second; loopback, its data in a folder of its own."""
    assert server.address is not None
    config = yaml.safe_load(GUIDE.read_text().split("```yaml\n")[1].split("```")[0])
    config["global"] = {"evaluation_interval": "500ms"}
    config["rule_files"] = [str(ALERTS)]
    (scrape,) = config["scrape_configs"]
    assert scrape["honor_labels"] is True
    scrape["scrape_interval"] = "500ms"
    scrape["static_configs"] = [{"targets": ["{}:{}".format(*server.address)]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    log = tmp_path / "prometheus.log"
    command = [
        tool("prometheus"),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        try:
            yield Prometheus(_port(process, log))
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """The port that it chose, once it is ready; its log tells only the one it was asked for."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        for port in _listening(process.pid):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=PATIENCE):
                    return port
            except OSError:
                continue
    raise AssertionError(log.read_text())


def _listening(pid: int) -> list[int]:
    links = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    found: list[int] = []
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
            found.append(int(fields[1].rpartition(":")[2], 16))
    return found


def test_a_prometheus_server_scrapes_stores_and_answers_with_the_values(
    prometheus: Prometheus, page: StatusWriter, server: HealthProcess
) -> None:
    eventually(lambda: prometheus.value("up") == 1, "the first scrape")
    # The labels are ours: with honor_labels the run id is the job.
    of = '{job="run-7",node="host-a"}'
    assert prometheus.value(f"rankscope_suspected{of}") == 1
    assert prometheus.value('rankscope_rank_step{job="run-7",rank="0"}') == 41
    assert prometheus.value('rankscope_rank_state{rank="1",state="hung"}') == 1
    assert prometheus.value('rankscope_incidents_total{class="RankNonCommHang",kind="data_loading"}') == 2
    assert prometheus.value("sum(rankscope_restarts_total)") == 1
    assert prometheus.value("rankscope_detection_seconds_sum") == 40.5
    assert prometheus.value('rankscope_detection_seconds_bucket{le="15.0"}') == 1
    assert prometheus.value("rankscope_timer_requests_total") == 7
    assert prometheus.value('rankscope_build_info{version="1.2.3"}') == 1
    age = prometheus.value('time() - rankscope_rank_last_progress_timestamp_seconds{rank="1"}')
    assert age is not None
    assert 30 < age < 30 + 2 * PATIENCE
    middle = prometheus.value("histogram_quantile(0.5, sum by (le) (rankscope_detection_seconds_bucket))")
    assert middle == pytest.approx(15.0)
    types = {name: each[0] for name, each in prometheus.ask("/api/v1/metadata").items()}
    assert types["rankscope_detection_seconds"]["type"] == "histogram"
    assert types["rankscope_rank_step"]["help"].startswith("Optimizer steps")
    eventually(
        lambda: prometheus.value('ALERTS{alertname="TrainingHangs",alertstate="firing",job="run-7"}') == 1,
        "the alert",
    )
    page.publish(HealthStatus(job="run-7", node="host-a", pid=os.getpid()))
    eventually(lambda: prometheus.value(f"rankscope_suspected{of}") == 0, "the hang is over")
    server.stop()
    eventually(lambda: prometheus.value("up") == 0, "the end of the server is seen")
    assert prometheus.value(f"rankscope_suspected{of}") is None
