"""A worker that sets torch's own timer and does not come back in time."""

from __future__ import annotations

import os
import threading

from torch.distributed.elastic.timer.api import configure, expires
from torch.distributed.elastic.timer.file_based_local_timer import FileTimerClient

configure(FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
with expires(after=1.0, scope="epoch"):
    threading.Event().wait()
