"""``docs/how-to/kubernetes.md`` against the schema of Kubernetes and the figures of the program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.integration.test_schedulers import MANIFESTS, SHUTDOWN_TIMEOUT, job

from rankscope.agent.commands import run
from rankscope.agent.elastic import RENDEZVOUS_SECONDS
from rankscope.agent.health.probes import TIMEOUT
from rankscope.agent.health.routes import METRICS_PATH
from rankscope.agent.notices.delivery import CLOSE_TIMEOUT
from rankscope.agent.services.running import LOGS_TIMEOUT
from rankscope.agent.settings.values import Settings

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "docs" / "examples"
GUIDE: Final = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
SHOWN: Final = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)]
TORCHS_EXIT_BARRIER: Final = 300.0


@pytest.mark.parametrize("version", ["1.31", "1.34"])
@pytest.mark.parametrize("name", ["metrics-service.yaml", "watch-sidecar.yaml"])
def test_an_example_passes_the_schema(name: str, version: str) -> None:
    assert objections(EXAMPLES / name, version) == ""


@pytest.mark.parametrize("version", ["1.31", "1.34"])
def test_the_container_that_is_shown_passes_the_schema(tmp_path: Path, version: str) -> None:
    (container,) = SHOWN[0]["containers"]
    volumes = [{"name": each["name"], "emptyDir": {}} for each in container["volumeMounts"]]
    spec = {"containers": [container | {"image": "train:1"}], "volumes": volumes}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod))
    assert objections(tmp_path / "pod.yaml", version) == ""


def test_the_schema_would_object(tmp_path: Path) -> None:
    wrong = (EXAMPLES / "metrics-service.yaml").read_text().replace("publishNotReadyAddresses", "publish")
    (tmp_path / "service.yaml").write_text(wrong)
    assert objections(tmp_path / "service.yaml", "1.31")


def objections(path: Path, version: str) -> str:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "kubernetes_validate",
        "-k",
        version,
        "--strict",
        str(path),
    ]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    said = checked.stdout + checked.stderr
    return said if checked.returncode or "WARN" in said else ""


def test_the_command_that_is_shown_is_one_that_is_understood() -> None:
    (container,) = SHOWN[0]["containers"]
    program, verb, *arguments = container["command"]
    assert (program, verb) == ("diag", "run")
    assert run.parse(arguments).training_script == "train.py"


def test_ports_paths_and_probes_are_those_of_the_manifests() -> None:
    service = yaml.safe_load((EXAMPLES / "metrics-service.yaml").read_text())
    (shown,) = SHOWN[0]["containers"]
    (endpoint,) = SHOWN[1]["spec"]["podMetricsEndpoints"]
    (port,) = service["spec"]["ports"]
    annotations = service["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] == endpoint["path"] == METRICS_PATH
    assert endpoint["honorLabels"] is True
    for path in MANIFESTS:
        (container,) = job(path)["template"]["spec"]["containers"]
        named = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert named["health"] == port["port"] == int(annotations["prometheus.io/port"])
        assert endpoint["port"] == port["targetPort"] == "health"
        assert f"--diag-port={named['health']}" in [*container["args"], *shown["command"]]
        probe = container["livenessProbe"]
        assert probe["httpGet"]["path"] == shown["livenessProbe"]["httpGet"]["path"] == "/livez"
        for figure in ("periodSeconds", "failureThreshold"):
            assert probe[figure] == shown["livenessProbe"][figure]
        assert "readinessProbe" not in container
    selector = service["spec"]["selector"]
    assert selector == {"batch.kubernetes.io/job-name": "train"}
    assert SHOWN[1]["spec"]["selector"]["matchExpressions"][0]["key"] in selector


def test_a_liveness_probe_never_acts_before_the_agent_counts_as_dead() -> None:
    (container,) = SHOWN[0]["containers"]
    probe = container["livenessProbe"]
    after = TIMEOUT + probe["periodSeconds"] * probe["failureThreshold"]
    assert after == 120
    assert "two minutes after its last turn" in GUIDE.replace("\n", " ")


def test_the_figures_of_the_phases_and_of_the_end_are_those_of_the_code() -> None:
    settings = Settings()
    flat = GUIDE.replace("\n", " ")
    assert f"has not turned for {TIMEOUT:g} s" in flat
    assert f"| {RENDEZVOUS_SECONDS / 60:g} minutes, and {TIMEOUT:g} s |" in flat
    assert f"torch's {TORCHS_EXIT_BARRIER / 60:g} minutes" in flat
    assert torchs_exit_barrier() == TORCHS_EXIT_BARRIER
    assert f"({settings.evidence_budget:g} s at most, `--evidence-budget`)" in flat
    least = settings.evidence_budget + LOGS_TIMEOUT + CLOSE_TIMEOUT
    assert f"{least + 2 * SHUTDOWN_TIMEOUT:g} s at most with default settings" in flat
    assert f"{least + 2 * 10:g} s with `--shutdown-timeout 10`" in flat
    assert f"| less than {settings.evidence_budget:g} |" in flat


def torchs_exit_barrier() -> float:
    from inspect import signature

    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    return float(signature(LocalElasticAgent).parameters["exit_barrier_timeout"].default)


def test_the_sidecar_sees_the_training_and_may_read_it() -> None:
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / "watch-sidecar.yaml").read_text())["spec"]
    (watch,), (train,) = spec["initContainers"], spec["containers"]
    assert spec["shareProcessNamespace"] is True
    assert watch["command"] == ["diag", "watch"]
    assert watch["restartPolicy"] == "Always"
    assert watch["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE"]
    # Kubernetes gives added capabilities to root alone, whoever the training runs as.
    assert watch["securityContext"]["runAsUser"] == 0
    assert train["securityContext"]["runAsUser"] != 0
