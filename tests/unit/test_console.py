"""What our modules log reaches the terminal as the agent's own lines, for as long as the agent lives."""

from __future__ import annotations

import logging
import os

from rankscope.agent.console import Console, LogLines


def test_warnings_and_tracebacks_are_lines_with_the_agents_prefix() -> None:
    reading, writing = os.pipe()
    console = Console(writing)
    lines = LogLines(console)
    logger = logging.getLogger("rankscope.agent.anything")
    lines.attach()
    try:
        logger.info("nobody needs this")
        logger.warning("timers of process %d expired", 7)
        logger.error("failed once", exc_info=ValueError("no such thing"))
    finally:
        lines.detach()
        console.close()
        os.close(writing)
    with os.fdopen(reading) as said:
        shown = said.read().splitlines()
    assert shown[:2] == ["rankscope: timers of process 7 expired", "rankscope: failed once"]
    assert shown[-1] == "rankscope: ValueError: no such thing"
    assert all(line.startswith("rankscope:") for line in shown)
    assert logging.getLogger("rankscope").handlers == []
    assert logging.getLogger("rankscope").propagate
