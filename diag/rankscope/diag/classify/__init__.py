"""Classification: a pair of snapshots of a job to one diagnosis. Pure: no file, clock, process, network."""

from __future__ import annotations

from rankscope.diag.classify.catalogue import Catalogue, load_catalogue
from rankscope.diag.classify.diagnose import communicating_ranks, diagnose
from rankscope.diag.classify.loops import looping_ranks
from rankscope.diag.classify.unclear import unclear_ranks

__all__ = [
    "Catalogue",
    "communicating_ranks",
    "diagnose",
    "load_catalogue",
    "looping_ranks",
    "unclear_ranks",
]
