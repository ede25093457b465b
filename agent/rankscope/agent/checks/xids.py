"""What NVIDIA's Xid numbers mean for a training job, and what is to be done. A table, no code.

After NVIDIA's "Xid Errors" (https://docs.nvidia.com/deploy/xid-errors/): only numbers that data-centre GPUs
report and that ask for something. ``fail``: the GPU must not be used again before it was seen to.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rankscope.agent.health.model import CheckStatus


class Xid(NamedTuple):
    """One number: how bad it is, what it means, what to do."""

    status: CheckStatus
    meaning: str
    action: str


_RESET: Final = "drain the node and reset the GPU"
_REBOOT: Final = "drain and reboot the node; if it comes again, have the GPU replaced"
_PROGRAM: Final = (
    "mostly a fault of the program: restart it; on one GPU again and again, run NVIDIA's diagnostics"
)

XIDS: Final[dict[int, Xid]] = {
    13: Xid("warn", "an exception in a kernel", _PROGRAM),
    31: Xid("warn", "a kernel touched memory that it may not", _PROGRAM),
    32: Xid("warn", "a corrupt command", _PROGRAM),
    43: Xid("warn", "a kernel was ended after an error", _PROGRAM),
    45: Xid("warn", "a program was ended while it used the GPU", "see the error before it"),
    48: Xid("fail", "an uncorrectable memory error", _RESET),
    61: Xid("fail", "its firmware halted", _RESET),
    62: Xid("fail", "its firmware halted", _RESET),
    63: Xid("warn", "bad memory was set aside", "reset the GPU before the next job, so that it takes effect"),
    64: Xid("fail", "bad memory could not be set aside", f"{_RESET}; if it comes again, have it replaced"),
    74: Xid("fail", "an NVLink error", "drain the node, check NVLink cables and switches, reset the GPU"),
    79: Xid("fail", "it has fallen off the bus", _REBOOT),
    92: Xid("warn", "many corrected memory errors", "run NVIDIA's diagnostics when the node is free"),
    94: Xid(
        "warn", "a memory error that was contained", "restart the job; reset the GPU when the node is free"
    ),
    95: Xid("fail", "a memory error that was not contained", _RESET),
    109: Xid("warn", "a context switch took too long", "restart the job; if it comes again, reset the GPU"),
    119: Xid("fail", "its firmware does not answer", f"{_RESET}; if that fails, reboot the node"),
    120: Xid("fail", "its firmware failed", f"{_RESET}; if that fails, reboot the node"),
    140: Xid("fail", "an unrecovered memory error", _RESET),
    143: Xid("fail", "it could not be initialised", _REBOOT),
    149: Xid("fail", "an NVLink error", "drain the node, check NVLink cables and switches, reset the GPU"),
    154: Xid("warn", "what it needs to recover has changed", "see the recovery action in nvidia-smi -q"),
}
UNKNOWN: Final = Xid("warn", "an error", "look its number up in NVIDIA's Xid catalogue")
