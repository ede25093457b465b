"""Tells our own failures from what the program's signal handlers raise while our code runs.

Ours end at the SDK's edge. An alarm's ``TimeoutError`` or the like is the program's, which waits for it:
swallowing it would change the training.
"""

from __future__ import annotations

import os
from typing import Final

_OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - cheap


def is_ours(error: BaseException) -> bool:
    """Whether ``error``, caught by our code, was raised by our code or by a call into C from it."""
    trace = error.__traceback__
    if trace is None:
        return True
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename.startswith(_OURS)
