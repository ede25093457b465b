"""Settings of every test: hypothesis never judges by the clock, and a run repeats the one before it.

Files that take longest are run first, so that nobody is left with one of them at the end.

What is found by chance belongs to ``tests.fuzz``; a test that fails once in ten runs helps nobody.
"""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.deadline import LONGEST

settings.register_profile(
    "rankscope",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rankscope")
# A shell that starts the tests in the background has SIGINT ignored, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

FIRST = (
    *(
        "test_chaos",
        "test_main_job",
        "test_nodes_hangs",
        "test_nodes_network",
        "test_nodes_slow",
        "test_probe_torch",
        "test_restarts",
        "test_faults",
        "test_watch",
    ),
    *("test_async_job", "test_snapshot", "test_policy_paths_hangs", "test_notebooks", "test_frameworks"),
    *("test_capture_harmless", "test_mpirun", "test_torch_parity", "test_torch_parity_launch"),
)
"""Files of tests/integration, the dearest first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The dearest files first, then the other jobs, then the rest; and time enough for jobs."""
    places = {name: place for place, name in enumerate(FIRST)}

    def place(item: pytest.Item) -> int:
        return places.get(item.path.stem, len(FIRST) + (not is_job(item)))

    def is_job(item: pytest.Item) -> bool:
        return item.path.parent.name == "integration"

    items.sort(key=place)
    for item in items:
        if is_job(item) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST))


def pytest_collection_finish() -> None:
    """Torch's million objects are nobody's garbage: a search that a test makes takes a second with them."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_log_handler_is_left() -> Iterator[None]:
    """Whoever attaches a handler to the project's logger takes it away again."""
    logger = logging.getLogger("rankscope")
    before = list(logger.handlers)
    yield
    assert logger.handlers == before
