"""Settings of every test: hypothesis never judges by the clock, and a run repeats the one before it.

What is found by chance belongs to ``tests.fuzz``; a test that fails once in ten runs helps nobody.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "rankscope",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("rankscope")
