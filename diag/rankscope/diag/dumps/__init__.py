"""Dumps in files, of any tools and mixed, to the snapshots of a job.

``read_dumps`` is the way in. Reading formats is ``rankscope.diag.read``'s business, judging ``classify``'s;
this room knows names of files, puts together what belongs together, and says what was not understood.
"""

from __future__ import annotations

from rankscope.diag.dumps.job import DumpedJob, read_dumps, read_jobs
from rankscope.diag.dumps.problem import Problem

__all__ = ["DumpedJob", "Problem", "read_dumps", "read_jobs"]
