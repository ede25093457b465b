"""Which GPUs there are: asked of NVIDIA's library where nvidia-ml-py is installed, else of ``/proc``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol, cast

from rankscope.diag.doctor import Finding, remedies

_DRIVER: Final = Path("/proc/driver/nvidia")


class _Nvml(Protocol):
    """What is used of ``pynvml``."""

    def nvmlInit(self) -> None: ...  # noqa: N802 - NVIDIA's names
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...  # noqa: N802
    def nvmlDeviceGetName(self, device: object) -> str | bytes: ...  # noqa: N802
    def nvmlSystemGetDriverVersion(self) -> str | bytes: ...  # noqa: N802


def check_gpus() -> Sequence[Finding]:
    """Ask."""
    cards = len(list(_DRIVER.glob("gpus/*"))) if _DRIVER.is_dir() else 0
    try:
        nvml = cast("_Nvml", importlib.import_module("pynvml"))
    except ImportError:
        return judge_gpus(cards, names=None, driver="")
    try:
        nvml.nvmlInit()
        names = [
            _text(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index)))
            for index in range(nvml.nvmlDeviceGetCount())
        ]
        driver = _text(nvml.nvmlSystemGetDriverVersion())
    except Exception as error:  # noqa: BLE001 - pynvml has an exception a code, none of them documented
        return judge_gpus(cards, names=None, driver="", error=str(error) or type(error).__name__)
    return judge_gpus(cards, names=names, driver=driver)


def judge_gpus(cards: int, *, names: Sequence[str] | None, driver: str, error: str = "") -> Sequence[Finding]:
    """No GPU is no fault; one that cannot be asked is worth a word."""
    if names:
        kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        return [Finding("GPU", "ok", f"{kinds}, driver {driver}")]
    if not cards:
        return [Finding("GPU", "ok", "none")]
    value = f"{cards} cards of NVIDIA, which cannot be asked: {error or 'nvidia-ml-py is not installed'}"
    return [Finding("GPU", "warn", value, "" if error else remedies.install("nvidia-ml-py"))]


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
