"""What the facts of a GPU mean for the job, each with what is to be done. Pure: facts in, checks out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rankscope.agent.checks.gpu_facts import GpuFacts, GpuReport, XidSeen
from rankscope.agent.checks.xids import UNKNOWN, XIDS
from rankscope.agent.health.model import Check

NAME: Final = "gpu"
NOT_PRESENT: Final = "not present"
XID_WARNING_SECONDS: Final = 3600.0
"""For so long an Xid that asks for nothing but a restart is told of; the others until the agent ends."""
_POWER_BRAKE: Final = 0x80
_HARDWARE_THERMAL: Final = 0x40
_SOFTWARE_THERMAL: Final = 0x20
_HARDWARE: Final = 0x8
_REBOOT: Final = "drain and reboot the node; if it comes again, have the GPU reseated or replaced"
_RESET: Final = "drain the node and reset the GPU"


def judge_report(report: GpuReport) -> dict[str, Check]:
    """All checks of a report, by name: one for each GPU, and one more for each thing that is wrong."""
    if report.absent:
        return {NAME: Check("pass", f"{NOT_PRESENT} ({report.absent})")}
    if report.trouble:
        return {
            NAME: Check("warn", f"the driver cannot be asked: {report.trouble}; see nvidia-smi on the node")
        }
    found: dict[str, Check] = {}
    for facts in report.gpus:
        found |= judge_gpu(facts)
    return found or {NAME: Check("pass", NOT_PRESENT)}


def judge_gpu(facts: GpuFacts) -> dict[str, Check]:
    """The checks of one GPU: ``gpu:<index>``, and ``gpu:<index>:<what>`` for what is wrong."""
    own = f"{NAME}:{facts.index}"
    wrong = {f"{own}:{what}": check for what, check in _findings(facts)}
    if not wrong:
        return {own: Check("pass", facts.name)}
    statuses = {check.status for check in wrong.values()}
    where = " at ".join(part for part in (facts.name, facts.bus) if part)
    worst = Check("fail" if "fail" in statuses else "warn", where)
    return {own: worst, **wrong}


def _findings(facts: GpuFacts) -> Iterator[tuple[str, Check]]:
    if facts.is_lost:
        # Nothing else that it says is true any more.
        yield "bus", Check("fail", f"fallen off the bus: {_REBOOT}")
        return
    if facts.trouble:
        yield "driver", Check("warn", f"cannot be asked: {facts.trouble}; see nvidia-smi on the node")
    if facts.needs_reset:
        yield "driver", Check("fail", f"the driver asks for a reset: {_RESET}")
    for xid in _to_tell(facts.xids):
        yield f"xid-{xid.number}", _of_xid(xid)
    yield from _memory(facts)
    yield from _clocks(facts)
    yield from _link(facts)


def _to_tell(xids: tuple[XidSeen, ...]) -> list[XidSeen]:
    return [
        xid for xid in xids if XIDS.get(xid.number, UNKNOWN).status == "fail" or xid.age < XID_WARNING_SECONDS
    ]


def _of_xid(xid: XidSeen) -> Check:
    status, meaning, action = XIDS.get(xid.number, UNKNOWN)
    often = f", {xid.count} times" if xid.count > 1 else ""
    return Check(status, f"Xid {xid.number}{often}: {meaning}; {action}")


def _memory(facts: GpuFacts) -> Iterator[tuple[str, Check]]:
    if facts.remap_failed:
        yield "ecc", Check("fail", "bad memory cannot be set aside any more: have the GPU replaced")
    elif facts.remap_pending:
        yield "ecc", Check("warn", "bad memory waits to be set aside: reset the GPU before the next job")
    elif facts.uncorrected:
        what = f"{facts.uncorrected} uncorrectable memory errors since the driver was loaded"
        yield (
            "ecc",
            Check("warn", f"{what}: reset the GPU before the next job; if it comes again, replace it"),
        )


def _clocks(facts: GpuFacts) -> Iterator[tuple[str, Check]]:
    degrees = "" if facts.temperature is None else f" at {facts.temperature} degrees"
    if facts.throttled & _HARDWARE_THERMAL:
        yield (
            "thermal",
            Check("warn", f"slowed down by heat, in hardware{degrees}: check fans and airflow now"),
        )
    elif facts.throttled & _SOFTWARE_THERMAL:
        yield (
            "thermal",
            Check("warn", f"slowed down by heat{degrees}: check fans, airflow, inlet temperature"),
        )
    if facts.throttled & _POWER_BRAKE:
        yield "power", Check("warn", "slowed down by the power brake: check the node's power supplies")
    elif facts.throttled & _HARDWARE and not facts.throttled & _HARDWARE_THERMAL:
        yield "power", Check("warn", "slowed down in hardware: check power supply and cooling of the node")


def _link(facts: GpuFacts) -> Iterator[tuple[str, Check]]:
    if _is_below(facts.link_width, facts.max_link_width):
        what = f"PCIe x{facts.link_width} of x{facts.max_link_width}"
        yield "pcie-width", Check("warn", f"{what}: reseat the GPU or its riser, else have the slot checked")
    if facts.is_busy and _is_below(facts.link_generation, facts.max_link_generation):
        what = f"PCIe generation {facts.link_generation} of {facts.max_link_generation} under load"
        yield "pcie-generation", Check("warn", f"{what}: reboot the node; check BIOS settings and the riser")


def _is_below(value: int | None, most: int | None) -> bool:
    return value is not None and most is not None and 0 < value < most


def names() -> Mapping[str, str]:
    """What a check's name may end in behind ``gpu:<index>:``, and what it is about (the reference page)."""
    return {
        "bus": "the driver has lost the GPU",
        "driver": "the driver cannot be asked about it, or asks for a reset",
        "xid-N": "the driver has reported Xid N since the agent began",
        "ecc": "uncorrectable memory errors, memory to be set aside",
        "thermal": "slowed down by heat",
        "power": "slowed down by the power brake",
        "pcie-width": "fewer PCIe lanes than GPU and slot have",
        "pcie-generation": "a slower PCIe generation than both have, while it computes",
    }
