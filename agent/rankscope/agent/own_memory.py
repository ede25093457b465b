"""How the agent's process has the C library keep its memory. For processes of our own alone.

glibc gives each new thread an arena of its own, up to eight a core, and none of them gives back what it has
held. A capture starts threads for its ranks, so that an agent which captures for days fills one arena after
the other. Measured with ten captures a minute: 1.3 MiB a minute, and none with two arenas.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_M_ARENA_MAX: Final = -8
"""``malloc.h`` of glibc."""
_ARENAS: Final = 2
_VARIABLE: Final = "MALLOC_ARENA_MAX"


def share_arenas() -> None:
    """Have all threads of this process share two arenas; the user's own ``MALLOC_ARENA_MAX`` holds.

    No child inherits it that is another program. Another C library has no such call, and needs none.
    """
    if _VARIABLE in os.environ:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
