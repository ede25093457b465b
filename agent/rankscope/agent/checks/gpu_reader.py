"""The process that asks NVIDIA's driver: it may hang, so that nobody but this process waits for it.

It listens for Xids, reads all GPUs twice a minute, and writes a line for each reading; without a GPU it says
so and ends. It ends with its parent. What the facts mean is not known here (``gpu_judge``).
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeVar

import msgspec

from rankscope.agent.checks.gpu_facts import GpuFacts, GpuReport, XidSeen
from rankscope.agent.health.lifetime import LOOK_SIGNAL, follow_parent

PROCESS_NAME: Final = "rankscope-gpus"
INTERVAL: Final = 30.0
"""Seconds between two readings."""
_NICE: Final = 10
_LISTEN_MS: Final = 1000
_LIBRARY: Final = "libnvidia-ml.so.1"
_LOST: Final = 15  # NVML_ERROR_GPU_IS_LOST
_RESET_REQUIRED: Final = 16  # NVML_ERROR_RESET_REQUIRED
_DRIVER_NOT_LOADED: Final = 9  # NVML_ERROR_DRIVER_NOT_LOADED
_BUSY_PERCENT: Final = 20
"""Share of its last second in which a GPU ran a kernel: an idle one may slow its link down."""
T = TypeVar("T")


def main() -> int:
    """Read and write lines until the parent ends.

    Returns:
        Exit code: 0.
    """
    parent = os.getppid()
    signal.signal(LOOK_SIGNAL, _look)
    follow_parent(PROCESS_NAME)
    os.nice(_NICE)
    try:
        # Before the slow import: without the driver's library there is nothing to ask.
        ctypes.CDLL(_LIBRARY)
    except OSError:
        _write(GpuReport(absent="no driver library of NVIDIA"))
        return 0
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except Exception as error:  # noqa: BLE001 - pynvml has an exception a code, none of them documented
        is_absent = getattr(error, "value", None) == _DRIVER_NOT_LOADED
        _write(GpuReport(absent="its driver is not loaded") if is_absent else GpuReport(trouble=_said(error)))
        return 0
    if not count:
        _write(GpuReport(absent="the driver knows of none"))
        return 0
    reader = GpuReader(nvml, count)
    while os.getppid() == parent:
        if not _write(GpuReport(gpus=reader.read())):
            return 0  # nobody reads any more
        until = time.monotonic() + INTERVAL
        while time.monotonic() < until and os.getppid() == parent:
            reader.listen()
    return 0


def _look(_number: int, _frame: FrameType | None) -> None:
    """The parent, or only its thread that started this process, has ended: the loop looks."""


def _write(report: GpuReport) -> bool:
    try:
        os.write(1, msgspec.json.encode(report) + b"\n")
    except OSError:
        return False
    return True


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


class GpuReader:
    """All GPUs of this host.

    Args:
        nvml: the module ``pynvml``, initialised.
        count: how many there are.
    """

    def __init__(self, nvml: Any, count: int) -> None:
        self._nvml = nvml
        self._indices = range(count)
        self._indices_of: dict[int | None, int] = {}
        self._listening: set[int] = set()
        self._xids: dict[int, dict[int, tuple[int, float]]] = {index: {} for index in self._indices}
        self._set: Any = self._maybe(nvml.nvmlEventSetCreate)
        for index in self._indices:
            self._begin(index)

    def _begin(self, index: int) -> None:
        """Take a GPU in; one that is lost has no handle."""
        handle = self._maybe(lambda: self._nvml.nvmlDeviceGetHandleByIndex(index))
        if handle is None:
            return
        self._indices_of[_address(handle)] = index
        xid = self._nvml.nvmlEventTypeXidCriticalError
        # Registering gives None on success too: whether it raised is the answer.
        registered = self._set is not None and self._maybe(
            lambda: self._nvml.nvmlDeviceRegisterEvents(handle, xid, self._set) is None
        )
        if registered:
            self._listening.add(index)

    def listen(self) -> None:
        """Wait a second for an Xid."""
        if not self._listening:
            time.sleep(_LISTEN_MS / 1000)
            return
        try:
            event = self._nvml.nvmlEventSetWait(self._set, _LISTEN_MS)
        except Exception as error:  # noqa: BLE001 - one of them says that nothing came
            if getattr(error, "value", None) != self._nvml.NVML_ERROR_TIMEOUT:
                time.sleep(_LISTEN_MS / 1000)  # a lost GPU answers at once, for ever
            return
        # By its handle: a GPU that has just been lost tells nothing of itself any more.
        index = self._indices_of.get(_address(event.device))
        if index is not None:
            number, of_gpu = int(event.eventData), self._xids[index]
            of_gpu[number] = (of_gpu.get(number, (0, 0.0))[0] + 1, time.monotonic())

    def read(self) -> tuple[GpuFacts, ...]:
        """The facts of all of them now."""
        return tuple(self._read(index) for index in self._indices)

    def _read(self, index: int) -> GpuFacts:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name = _text(nvml.nvmlDeviceGetName(handle))
            bus = _text(nvml.nvmlDeviceGetPciInfo(handle).busId)
            # A call that reaches the device: names are remembered by the library.
            temperature = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        except Exception as error:  # noqa: BLE001 - as above
            code = getattr(error, "value", None)
            return GpuFacts(
                index,
                xids=self._seen(index),
                trouble="" if code in (_LOST, _RESET_REQUIRED) else _said(error),
                is_lost=code == _LOST,
                needs_reset=code == _RESET_REQUIRED,
            )
        rows = self._maybe(lambda: nvml.nvmlDeviceGetRemappedRows(handle)) or (None,) * 4
        uncorrected = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
        used = self._maybe(lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)) or 0
        return GpuFacts(
            index,
            name=name,
            bus=bus,
            xids=self._seen(index),
            listens=index in self._listening,
            uncorrected=self._maybe(lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, *uncorrected)),
            remap_pending=None if rows[2] is None else bool(rows[2]),
            remap_failed=None if rows[3] is None else bool(rows[3]),
            throttled=self._throttled(handle),
            temperature=temperature,
            is_busy=used >= _BUSY_PERCENT,
            link_width=self._maybe(lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            max_link_width=self._maybe(lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
            link_generation=self._maybe(lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            max_link_generation=self._maybe(lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        )

    def _throttled(self, handle: Any) -> int:
        """Why its clocks are down, bits; drivers before 535 know the call by its older name."""
        nvml = self._nvml
        found = self._maybe(lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
        if found is None:
            found = self._maybe(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)))
        return found or 0

    def _seen(self, index: int) -> tuple[XidSeen, ...]:
        now = time.monotonic()
        return tuple(XidSeen(n, count, now - at) for n, (count, at) in self._xids[index].items())

    @staticmethod
    def _maybe(ask: Callable[[], T]) -> T | None:
        """An answer, ``None`` where the GPU, its driver or this pynvml has none."""
        try:
            return ask()
        except Exception:  # noqa: BLE001 - as above
            return None


def _address(handle: Any) -> int | None:
    """What tells two handles apart: pynvml makes a new pointer object for each answer."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    sys.exit(main())
