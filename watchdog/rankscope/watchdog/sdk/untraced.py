"""Keeps ``torch.compile`` out of the SDK: a compiled function calls it as it is, and is compiled after it.

Traced, the SDK's locks and clocks would each give a warning, and, where warnings are errors, a failure of the
user's own call. It does not import torch: dynamo asks a function for the attribute (torch 2.6 to 2.13,
``torch/_dynamo/eval_frame.py``), as ``torch.compiler.disable`` sets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


def untraced(function: Function) -> Function:
    """Mark a function as one that dynamo does not look into."""
    vars(function)["_torchdynamo_disable"] = True
    return function
