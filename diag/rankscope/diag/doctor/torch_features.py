"""What this environment's torch offers: versions and names that the probe and the agent look for.

torch is imported here, in a process of its own that may take its time. What a worker's own environment has
may differ: run ``diag doctor`` with the Python that trains.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.diag.doctor import Finding, remedies

_OLDEST: Final = (2, 6)
_C10D: Final = "torch._C._distributed_c10d"
_ELASTIC: Final = "torch.distributed.elastic.agent.server.local_elastic_agent"
# Feature, module, names of which one is enough, and what is lost without it.
_FEATURES: Final = (
    ("flight record", _C10D, ("_dump_fr_trace", "_dump_nccl_trace"), "collectives that have been entered"),
    ("worker server", _C10D, ("_WorkerServer",), "the record of a rank that holds the GIL"),
    ("step hook", "torch.optim.optimizer", ("register_optimizer_step_post_hook",), "steps"),
    ("elastic agent", _ELASTIC, ("LocalElasticAgent",), "diag run"),
)


@dataclass(frozen=True, slots=True)
class Torch:
    """What was found.

    Attributes:
        version: torch's own.
        path: where it lies.
        missing: for each feature that is missing, what is lost.
        backends: communication backends it was built with.
    """

    version: str
    path: str
    missing: tuple[tuple[str, str], ...] = ()
    backends: tuple[str, ...] = ()


def check_torch() -> Sequence[Finding]:
    """Import torch and look."""
    try:
        found = look()
    except ImportError as error:
        value = f"cannot be imported: {error}; diag analyze works, diag run does not"
        return [Finding("torch", "warn", value, remedies.install("torch"))]
    return judge_torch(found)


def judge_torch(found: Torch) -> Sequence[Finding]:
    """Nothing of it is needed to look at a job; each missing name makes answers poorer."""
    python = ".".join(map(str, sys.version_info[:3]))
    backends = ", ".join(found.backends) or "no backend"
    value = f"{found.version} for Python {python}, {backends}, at {found.path}"
    if not _is_new_enough(found.version):
        oldest = ".".join(map(str, _OLDEST))
        return [Finding("torch", "warn", value, f"torch {oldest} or later is what Rankscope is made for")]
    findings = [Finding("torch", "ok", value)]
    names = ", ".join(feature for feature, *_rest in _FEATURES)
    if not found.missing:
        return [*findings, Finding("torch features", "ok", names)]
    lost = "; ".join(f"no {feature}: lost is {loss}" for feature, loss in found.missing)
    return [
        *findings,
        Finding("torch features", "warn", lost, "a newer torch, built with distributed support"),
    ]


def _is_new_enough(version: str) -> bool:
    parts = version.partition("+")[0].split(".")[:2]
    return not all(part.isdigit() for part in parts) or tuple(map(int, parts)) >= _OLDEST


def look() -> Torch:
    """Import torch and see which names it has.

    Raises:
        ImportError: there is no torch, or it cannot be loaded.
    """
    import torch

    missing: list[tuple[str, str]] = []
    for feature, module, names, loss in _FEATURES:
        if not _has_one_of(module, names):
            missing.append((feature, loss))
    backends: list[str] = []
    if torch.distributed.is_available():
        from torch import distributed

        answers = {
            "gloo": distributed.is_gloo_available(),
            "nccl": distributed.is_nccl_available(),
            "mpi": distributed.is_mpi_available(),
            "ucc": distributed.is_ucc_available(),
        }
        backends = [name for name, is_there in answers.items() if is_there]
    return Torch(str(torch.__version__), str(torch.__path__[0]), tuple(missing), tuple(backends))


def _has_one_of(module: str, names: Sequence[str]) -> bool:
    import importlib

    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    return any(hasattr(found, name) for name in names)
