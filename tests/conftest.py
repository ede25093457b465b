"""Settings of every test: hypothesis never judges by the clock, and a run repeats the one before it.

What is found by chance belongs to ``tests.fuzz``; a test that fails once in ten runs helps nobody.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "rankscope",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rankscope")
# A shell that starts the tests in the background has SIGINT ignored, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
