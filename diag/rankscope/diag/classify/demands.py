"""What each collective demands to be equal on all members, and how two calls are compared.

Only what the operation demands is compared: what is legal to differ is no desync. NCCL and gloo move flat
buffers, so shapes never matter, numbers of elements do.

==========================================  =======================================================
operation (as recorded)                     equal on all members, besides the operation itself
==========================================  =======================================================
all_reduce, reduce and their coalesced      numbers of elements and dtypes of the inputs
forms
reduce_scatter in one tensor                number of elements and dtype of the input
reduce_scatter of lists                     sum of the elements and dtype of the inputs (parts may be
                                            uneven, but then alike on every member)
broadcast, all_gather in one tensor         bytes of the input: they copy, whatever the dtype
barrier                                     nothing
all_gather of lists, all_to_all, gather,    nothing: uneven parts are legal, and only the root has
scatter, sparse, coalesced, unknown         both sides
send, recv                                  nothing on all members, each has a peer of its own; bytes on
                                            both sides of a message (``messages``)
==========================================  =======================================================

Object collectives are such operations on byte tensors whose sizes were exchanged before: they need no rule.
Source: torch 2.13 (``ProcessGroupGloo.cpp``, ``ProcessGroupNCCL.cpp``); stricter than that is torch's own
``flight_recorder`` analysis, which calls uneven lists and reshaped tensors errors.
"""

from __future__ import annotations

import math
from typing import Final

from rankscope.diag.model import Collective

Signature = tuple[str, tuple[object, ...]]
"""An operation and what of it must be equal."""

TOGETHER: Final = frozenset(
    {
        "all_reduce",
        "all_reduce_barrier",  # NCCL's barrier
        "barrier",
        "all_gather",
        "_all_gather_base",
        "all_gather_single",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_single",
        "reduce_scatter_tensor_coalesced",
        "allreduce_coalesced",
        "all_reduce_coalesced",
    }
)
"""Operations whose members leave together; the root of the others may leave alone."""

_REDUCING: Final = frozenset(
    {
        "all_reduce",
        "allreduce_coalesced",
        "all_reduce_coalesced",
        "reduce",
        "_reduce_oop",
        "_reduce_scatter_base",
        "reduce_scatter_single",
        "reduce_scatter_tensor_coalesced",
    }
)
_REDUCING_LISTS: Final = frozenset({"reduce_scatter"})
_COPYING: Final = frozenset(
    {
        "broadcast",
        "_broadcast_oop",
        "_all_gather_base",
        "all_gather_single",
        "all_gather_into_tensor_coalesced",
    }
)
# c10's names of scalar types, bytes an element.
_BYTES: Final = {
    "Bool": 1,
    "Byte": 1,
    "Char": 1,
    "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
    "Short": 2,
    "Half": 2,
    "BFloat16": 2,
    "Int": 4,
    "Float": 4,
    "Long": 8,
    "Double": 8,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}


def signature(call: Collective) -> Signature:
    """The operation, and what every other member must have called it with."""
    elements = tuple(math.prod(size) for size in call.input_sizes)
    if call.op in _REDUCING and elements:
        return call.op, (elements, call.input_dtypes)
    if call.op in _REDUCING_LISTS and elements:
        return call.op, (sum(elements), tuple(sorted(set(call.input_dtypes))))
    if call.op in _COPYING and elements:
        return call.op, (_bytes(elements, call.input_dtypes),)
    return call.op, ()


def differ(one: Signature, other: Signature) -> bool:
    """Whether two members cannot be in the same collective; what one did not record does not differ."""
    return one[0] != other[0] or (one != other and bool(one[1]) and bool(other[1]))


def amount(sizes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]) -> object:
    """What is moved of some tensors: bytes, else elements and dtypes; ``None`` where no size is told."""
    return _bytes(tuple(math.prod(size) for size in sizes), dtypes) if sizes else None


def describe(call: Collective, *, outputs: bool = False) -> str:
    """``all_reduce of [64] Float``: by its inputs, or by its outputs."""
    all_sizes = call.output_sizes if outputs else call.input_sizes
    dtypes = call.output_dtypes if outputs else call.input_dtypes
    if not all_sizes:
        return call.op
    sizes = ", ".join(str(list(size)) for size in all_sizes[:2])
    more = ", ..." if len(all_sizes) > 2 else ""  # noqa: PLR2004 - a line's worth
    return f"{call.op} of {sizes}{more} {dtypes[0] if dtypes else ''}".rstrip()


def _bytes(elements: tuple[int, ...], dtypes: tuple[str, ...]) -> object:
    """Bytes where all dtypes are known, else elements and dtypes as they are."""
    sizes = [_BYTES.get(dtype) for dtype in dtypes]
    if len(sizes) != len(elements) or None in sizes:
        return elements, dtypes
    return sum(count * size for count, size in zip(elements, sizes, strict=True) if size is not None)
