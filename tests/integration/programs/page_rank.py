"""A rank without torch: claims its slot of a progress page and steps until it is ended.

``page_rank.py PAGE SLOT SECONDS_PER_STEP``; with a negative time it stands in a collective after one step.
"""

from __future__ import annotations

import os
import sys
import time

from rankscope.diag import proc
from rankscope.watchdog.page import GroupSeq, SlotWriter


def load_batch(seconds: float) -> None:
    time.sleep(seconds)


def main() -> None:
    page, slot, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    writer = SlotWriter(page, slot)
    writer.claim(rank=slot, pid=os.getpid(), start_ticks=proc.start_ticks(os.getpid()) or 0)
    step = 0
    while True:
        step += 1
        now = time.monotonic_ns()
        stands = pause < 0
        writer.groups((GroupSeq("0", 2, step, step - stands),))
        writer.step(step, now)
        writer.beat(now)
        if step == 1:
            print("up", flush=True)
        load_batch(3600.0 if stands else pause)


if __name__ == "__main__":
    main()
