"""What failed first, what it said, whether it is the same as before, and whether it may be retried.

``read_ends`` reads what ended workers left behind (``error_file``, ``tail``, ``last_words``), ``choose_root``
names the root; a worker on its own (Async) is ``as_failure``. ``identity`` is the normal form of an error,
``retryable`` the table and its rule.
"""

from __future__ import annotations

from rankscope.agent.failures.model import EndWords, Failure, WorkerEnd
from rankscope.agent.failures.reading import read_ends
from rankscope.agent.failures.root import as_failure, choose_root, other_failures

__all__ = [
    "EndWords",
    "Failure",
    "WorkerEnd",
    "as_failure",
    "choose_root",
    "other_failures",
    "read_ends",
]
