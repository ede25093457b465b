"""What is read of a GPU, as plain values: from the reader's process to the judge, one JSON line a time."""

from __future__ import annotations

import msgspec


class XidSeen(msgspec.Struct, frozen=True):
    """An Xid that the driver reported while the reader listened.

    Attributes:
        number: NVIDIA's.
        count: how often; age is seconds since the last.
    """

    number: int
    count: int = 1
    age: float = 0.0


class GpuFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU; ``None`` for what it does not have or does not tell.

    Attributes:
        index: NVML's; bus its PCI address, ``0000:17:00.0``.
        trouble: why it could not be asked, ``""`` when it could.
        is_lost: the driver has lost it.
        needs_reset: the driver asks for a reset.
        xids: reported since the reader began to listen.
        listens: whether the driver tells of Xids at all.
        uncorrected: memory errors since the driver was loaded that could not be corrected.
        remap_pending: bad memory waits for a reset to be set aside; remap_failed it cannot be.
        throttled: NVML's bits of ``nvmlDeviceGetCurrentClocksEventReasons``.
        temperature: degrees Celsius.
        is_busy: whether it computes: an idle GPU slows its link down.
        link_width: lanes of PCIe, link_generation its speed; max_... what GPU and slot can do together.
    """

    index: int
    name: str = ""
    bus: str = ""
    trouble: str = ""
    is_lost: bool = False
    needs_reset: bool = False
    xids: tuple[XidSeen, ...] = ()
    listens: bool = False
    uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    throttled: int = 0
    temperature: int | None = None
    is_busy: bool = False
    link_width: int | None = None
    max_link_width: int | None = None
    link_generation: int | None = None
    max_link_generation: int | None = None


class GpuReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the reader.

    Attributes:
        gpus: all that there are.
        absent: why there is no GPU to be asked, ``""`` when there is one.
        trouble: why the driver could not be asked.
    """

    gpus: tuple[GpuFacts, ...] = ()
    absent: str = ""
    trouble: str = ""
