"""Settings as ``diag run`` resolves them: torch's real parser, an environment and a file of the test's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rankscope.agent.commands.run import parse
from rankscope.agent.settings.resolution import resolve
from rankscope.agent.settings.values import Settings

NOWHERE: Final = "/nowhere/rankscope"
TOKEN: Final = str(Path(__file__).with_name("data") / "token_of_a_test")
SAMPLES: Final[dict[str, tuple[str, object]]] = {
    "job-execution-mode": ("async", "Async"),
    "critical-roles": ("ps, trainer", ["ps", "trainer"]),
    "enable-job-restart": ("yes", True),
    "max-num-of-job-restart": ("7", 7),
    "job-restart-timeout": ("1800", 1800.0),
    "rank-assignment": ("explicit:4,5,6,7", "explicit:4,5,6,7"),
    "enable-job-hang-detection": ("True", True),
    "diagnose-after": ("20", 20.0),
    "job-hang-interval": ("60", 60.0),
    "on-hang": ("HOLD", "hold"),
    "enable-c4d-hang-detection": ("False", False),
    "c4d-log-level": ("error", "Error"),
    "c4d-common-envs": (
        "C4D_HANG_TIMEOUT=20,C4D_HANG_TIMES=3",
        {"C4D_HANG_TIMEOUT": "20", "C4D_HANG_TIMES": "3"},
    ),
    "enable-job-exit-hang-detection": ("on", True),
    "job-exit-hang-interval": ("90", 90.0),
    "straggler-interval": ("off", "off"),
    "fault-tolerant-policy": ("exitcodeanderrormsg", "ExitCodeAndErrorMsg"),
    "max-num-of-same-error": ("2", 2),
    "max-tolerated-failure-rate": ("0.25", 0.25),
    "no-progress-limit": ("off", 0),
    "isolate-nodes": ("true", True),
    "retryable-errors": ("quota,, exceeded,reset by peer", ["quota, exceeded", "reset by peer"]),
    "retryable-exit-codes": ("137,SIGBUS,-6", [137, -7, -6]),
    "evidence-budget": ("0", 0.0),
    "allow-locals": ("1", True),
    "log-capture": ("ON", "on"),
    "notify-on": ("incident,end", ["end", "incident"]),
    "webhook": ("https://a.example/x,http://[::1]:8080", ["https://a.example", "http://[::1]:8080"]),
    "webhook-format": ("Slack", "slack"),
    "notify-command": ("true -s hung", "true ..."),
    "diag-port": ("8765", 8765),
    "diag-host": ("[::1]", "::1"),
    "token-file": (TOKEN, TOKEN),
}
"""For every setting a text that is allowed, and the value that it stands for."""

NOT_ALLOWED: Final = [
    ("job-execution-mode", "Both"),
    ("critical-roles", "a b"),
    ("critical-roles", "ps,"),
    ("enable-job-restart", "perhaps"),
    ("max-num-of-job-restart", "-1"),
    ("max-num-of-job-restart", "3.5"),
    ("job-restart-timeout", "0"),
    ("rank-assignment", "offset:-1"),
    ("rank-assignment", "explicit:"),
    ("rank-assignment", "module"),
    ("enable-job-hang-detection", "perhaps"),
    ("diagnose-after", "soon"),
    ("job-hang-interval", "0"),
    ("job-hang-interval", "-3"),
    ("job-hang-interval", "inf"),
    ("job-hang-interval", "nan"),
    ("on-hang", "explode"),
    ("enable-c4d-hang-detection", "2"),
    ("c4d-log-level", "Fatal"),
    ("c4d-common-envs", "C4D_HANG_TIMEOUT"),
    ("c4d-common-envs", "C4D_HANG_TIMEOUT=0"),
    ("c4d-common-envs", "C4D_HANG_TIMES=often"),
    ("c4d-common-envs", "PATH=/bin"),
    ("enable-job-exit-hang-detection", "-"),
    ("job-exit-hang-interval", "auto"),
    ("straggler-interval", "0"),
    ("fault-tolerant-policy", "Always"),
    ("max-num-of-same-error", "many"),
    ("max-num-of-same-error", "-2"),
    ("max-tolerated-failure-rate", "1.5"),
    ("max-tolerated-failure-rate", "-0.5"),
    ("no-progress-limit", "-2"),
    ("isolate-nodes", "host-a"),
    ("retryable-errors", "a,,,b,"),
    ("retryable-exit-codes", "0"),
    ("retryable-exit-codes", "256"),
    ("retryable-exit-codes", "SIGNOTHING"),
    ("evidence-budget", "-1"),
    ("allow-locals", "some"),
    ("log-capture", "sometimes"),
    ("notify-on", "incident,weather"),
    ("webhook-format", "teams"),
    ("diag-port", "65536"),
    ("diag-port", "http"),
    ("diag-host", "http://here"),
]


def settings(
    *flags: str,
    environ: Mapping[str, str] | None = None,
    file: str | None = None,
    home: Path | None = None,
    script: tuple[str, ...] = ("train.py",),
    has_gpu: bool = False,
) -> Settings:
    """What is in force after ``diag run FLAGS train.py``.

    Args:
        file: the text of ``config.toml`` in ``home``.
    """
    if file is not None:
        assert home is not None
        (home / "config.toml").write_text(file)
    variables = {"RANKSCOPE_HOME": str(home or NOWHERE), **(environ or {})}
    return resolve(parse([*flags, *script]), variables, has_gpu=has_gpu)
