"""The examples for schedulers: manifests for Kubernetes, and a batch script with a stand-in for Slurm.

What the schema does not say of a ``podFailurePolicy`` is checked here, by Kubernetes' API reference.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml
from tests.health_factory import PATIENCE, eventually

from rankscope.agent.commands import run
from rankscope.agent.notices.delivery import CLOSE_TIMEOUT
from rankscope.agent.policy.gate import EXIT_FAILED, EXIT_REFUSED, EXIT_RUN_AGAIN
from rankscope.agent.services.running import LOGS_TIMEOUT
from rankscope.agent.settings.values import Settings
from rankscope.agent.workers.stopping import MOST_AFTER_KILL
from rankscope.diag.errors import UsageError

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "docs" / "examples"
MANIFESTS: Final = sorted(EXAMPLES.glob("kubernetes-*.yaml"))
SCRIPT: Final = EXAMPLES / "slurm-requeue.sh"
GUIDE: Final = ROOT / "docs" / "how-to" / "exit-codes-kubernetes.md"
SHUTDOWN_TIMEOUT: Final = 30.0
"""torchrun's default."""
Tree = dict[str, Any]


def documents(path: Path) -> list[Tree]:
    return cast("list[Tree]", list(yaml.safe_load_all(path.read_text())))


def job(path: Path) -> Tree:
    (found,) = [each for each in documents(path) if each["kind"] == "Job"]
    return cast("Tree", found["spec"])


def objections(spec: Tree) -> list[str]:
    """What the API server would say against a Job's policy."""
    pod = spec["template"]["spec"]
    rules = spec["podFailurePolicy"]["rules"]
    names = {container["name"] for container in pod["containers"]}
    actions = {"FailJob", "Ignore", "Count"} | (
        {"FailIndex"} if "backoffLimitPerIndex" in spec else set[str]()
    )
    checks = {
        "restartPolicy": pod["restartPolicy"] == "Never",
        "podReplacementPolicy": spec.get("podReplacementPolicy", "Failed") == "Failed",
        "rules": 1 <= len(rules) <= 20,
        "action": all(rule["action"] in actions for rule in rules),
        "onExitCodes or onPodConditions": all(
            ("onExitCodes" in rule) != ("onPodConditions" in rule) for rule in rules
        ),
        "status": all(
            condition.get("status", "True") in {"True", "False", "Unknown"}
            for rule in rules
            for condition in rule.get("onPodConditions", ())
        ),
    }
    found = [name for name, is_right in checks.items() if not is_right]
    for codes in (rule["onExitCodes"] for rule in rules if "onExitCodes" in rule):
        found += objections_to_codes(codes, names)
    return found


def objections_to_codes(codes: Tree, names: set[str]) -> list[str]:
    values, operator = codes["values"], codes["operator"]
    checks = {
        "values": values == sorted(set(values)) and 1 <= len(values) <= 255,
        "operator": operator == "NotIn" or (operator == "In" and 0 not in values),
        "containerName": codes.get("containerName", "") in {*names, ""},
    }
    return [name for name, is_right in checks.items() if not is_right]


def action(spec: Tree, code: int) -> str:
    """What becomes of a pod whose agent ended with ``code``."""
    for rule in spec["podFailurePolicy"]["rules"]:
        codes = rule.get("onExitCodes")
        if codes and (code in codes["values"]) == (codes["operator"] == "In"):
            return cast("str", rule["action"])
    return "Count"


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_an_api_server_would_take_the_policy(path: Path) -> None:
    assert objections(job(path)) == []


@pytest.mark.parametrize(
    ("keys", "value", "objection"),
    [
        (("template", "spec", "restartPolicy"), "OnFailure", "restartPolicy"),
        (("podReplacementPolicy",), "TerminatingOrFailed", "podReplacementPolicy"),
        (("podFailurePolicy", "rules", 1, "onExitCodes", "values"), [93, 1], "values"),
        (("podFailurePolicy", "rules", 1, "onExitCodes", "values"), [0, 1], "operator"),
        (("podFailurePolicy", "rules", 1, "onExitCodes", "containerName"), "other", "containerName"),
        (("podFailurePolicy", "rules", 1, "action"), "FailIndex", "action"),
        (("podFailurePolicy", "rules", 0, "onPodConditions", 0, "status"), True, "status"),
    ],
)
def test_the_check_itself_finds_what_is_wrong(
    keys: tuple[str | int, ...], value: object, objection: str
) -> None:
    spec = job(MANIFESTS[0])
    inner: Any = spec
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    assert objections(spec) == [objection]


@pytest.mark.parametrize("version", ["1.31", "1.34"])
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_passes_the_schema(path: Path, version: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "kubernetes_validate", "-k", version, "--strict"]
    checked = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    said = checked.stdout + checked.stderr
    assert checked.returncode == 0, said
    assert "WARN" not in said


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_exit_code_has_the_rule_that_it_means(path: Path) -> None:
    spec = job(path)
    found = {
        code: action(spec, code)
        for code in (EXIT_FAILED, UsageError.exit_code, EXIT_RUN_AGAIN, EXIT_REFUSED, 137)
    }
    assert found == {1: "FailJob", 2: "FailJob", 75: "Count", 93: "FailJob", 137: "Count"}
    # A preempted agent ends with 1: its condition must be seen first.
    assert spec["podFailurePolicy"]["rules"][0] == {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }


def test_the_guide_shows_the_policy_of_the_manifests() -> None:
    shown = yaml.safe_load(GUIDE.read_text().split("```yaml\n")[1].split("```")[0])
    for path in MANIFESTS:
        assert job(path)["podFailurePolicy"] == shown["podFailurePolicy"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_the_grace_period_holds_what_an_agent_needs_at_its_end(path: Path) -> None:
    needed = Settings().evidence_budget + 2 * SHUTDOWN_TIMEOUT + LOGS_TIMEOUT + CLOSE_TIMEOUT
    assert MOST_AFTER_KILL == SHUTDOWN_TIMEOUT
    pod = job(path)["template"]["spec"]
    assert needed <= pod["terminationGracePeriodSeconds"] <= needed + 15
    assert f"| in all | {needed:g} |" in GUIDE.read_text()


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_the_command_of_a_manifest_is_one_that_is_understood(path: Path) -> None:
    (container,) = job(path)["template"]["spec"]["containers"]
    assert container["command"] == ["diag", "run"]
    found = run.parse(container["args"])
    assert found.training_script == "train.py"
    assert found.training_script_args == []


# Slurm.

SRUN: Final = """#!/bin/bash
echo "$@" > srun.args
echo $$ > srun.pid
trap 'echo TERM >> srun.signals; exit 1' TERM
if [ -n "${STEP_HANGS:-}" ]; then
    while :; do read -t 0.05 -r _ <> srun.fifo; done
fi
exit "$STEP_CODE"
"""
SCONTROL: Final = """#!/bin/bash
if [ "$1" = show ]; then echo node-a; echo node-b; else echo "$@" >> scontrol.args; fi
"""


def slurm(folder: Path, **variables: str) -> subprocess.Popen[str]:
    """Run the script where ``srun`` and ``scontrol`` are stand-ins."""
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    os.mkfifo(folder / "srun.fifo")
    environ = {
        "PATH": f"{folder}:/usr/bin:/bin",
        "SLURM_JOB_ID": "4711",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "node-[a-b]",
        "SLURM_SUBMIT_DIR": str(folder),
    }
    return subprocess.Popen(
        ["bash", SCRIPT],
        cwd=folder,
        env=environ | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def requeued(folder: Path) -> list[str]:
    path = folder / "scontrol.args"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (0, False),
        (EXIT_FAILED, False),
        (2, False),
        (EXIT_RUN_AGAIN, True),
        (EXIT_REFUSED, False),
        (137, True),
    ],
)
def test_the_script_requeues_by_exit_code_and_keeps_it(tmp_path: Path, code: int, again: bool) -> None:
    batch = slurm(tmp_path, STEP_CODE=str(code))
    said, _ = batch.communicate(timeout=PATIENCE)
    assert batch.returncode == code
    assert requeued(tmp_path) == (["requeue 4711"] if again else [])
    assert said.startswith("requeued: ") == again


def test_the_script_does_not_requeue_without_end(tmp_path: Path) -> None:
    batch = slurm(tmp_path, STEP_CODE="75", SLURM_RESTART_COUNT="5")
    said, _ = batch.communicate(timeout=PATIENCE)
    assert batch.returncode == EXIT_RUN_AGAIN
    assert requeued(tmp_path) == []
    assert said == "not requeued: exit code 75, but 5 times already\n"


def test_the_script_passes_the_time_limit_on_and_requeues(tmp_path: Path) -> None:
    batch = slurm(tmp_path, STEP_CODE="0", STEP_HANGS="1")
    noted = tmp_path / "srun.pid"
    try:
        eventually(lambda: noted.exists() and noted.read_text().endswith("\n"), "the step runs")
        batch.send_signal(signal.SIGUSR1)
        said, _ = batch.communicate(timeout=PATIENCE)
    finally:
        batch.kill()
    assert (tmp_path / "srun.signals").read_text() == "TERM\n"
    assert batch.returncode == EXIT_FAILED
    assert requeued(tmp_path) == ["requeue 4711"]
    assert said == "requeued: out of time\n"


def test_the_script_starts_one_agent_a_node_with_flags_that_are_understood(tmp_path: Path) -> None:
    slurm(tmp_path, STEP_CODE="0").communicate(timeout=PATIENCE)
    words = (tmp_path / "srun.args").read_text().split()
    at = words.index("diag")
    assert words[:at] == ["--kill-on-bad-exit=0", "--wait=0"]
    found = run.parse(words[at + 2 :])
    assert (found.nnodes, found.rdzv_endpoint, found.rdzv_id) == ("2", "node-a:29400", "4711")


def test_the_script_is_sound_for_its_shell() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)
    subprocess.run([Path(sys.executable).with_name("shellcheck"), SCRIPT], check=True)
