"""Classification: a pair of snapshots of a job to one diagnosis. Pure: no file, clock, process, network."""

from __future__ import annotations

from rankscope.diag.classify.catalogue import Catalogue, load_catalogue
from rankscope.diag.classify.deciding import Reader
from rankscope.diag.classify.diagnose import communicating_ranks, diagnose
from rankscope.diag.classify.loops import gil_keepers, looping_ranks
from rankscope.diag.classify.slow_limits import Slowdown, SlowLook
from rankscope.diag.classify.unclear import messaging_ranks, unclear_ranks

__all__ = [
    "Catalogue",
    "Reader",
    "SlowLook",
    "Slowdown",
    "communicating_ranks",
    "diagnose",
    "gil_keepers",
    "load_catalogue",
    "looping_ranks",
    "messaging_ranks",
    "unclear_ranks",
]
