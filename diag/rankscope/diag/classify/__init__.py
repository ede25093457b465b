"""Classification: a pair of snapshots of a job to one diagnosis. Pure: no file, clock, process, network."""

from __future__ import annotations

from rankscope.diag.classify.catalogue import Catalogue, load_catalogue
from rankscope.diag.classify.diagnose import communicating_ranks, diagnose

__all__ = ["Catalogue", "communicating_ranks", "diagnose", "load_catalogue"]
