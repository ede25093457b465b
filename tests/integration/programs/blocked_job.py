"""A worker that blocks in the kernel: posix_spawn waits in state D until the child has run exec."""

from __future__ import annotations

import os
import sys

pipe = sys.argv[1]
# The child opens the FIFO before exec, and nobody ever writes to it.
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, pipe, os.O_RDONLY, 0)])
