"""What our modules log reaches the terminal as the agent's own lines, for as long as the agent lives."""

from __future__ import annotations

import logging
import os

from rankscope.agent.telling.console import Console, LogLines


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


def test_foreign_text_cannot_clear_the_terminal_nor_look_like_a_line_of_ours() -> None:
    reading, writing = os.pipe()
    console = Console(writing)
    console.say("rank 1: zz \x1b[2J\x9b31m\u202eabc\u2028def\rrankscope: ok\n\tsecond line\n")
    console.close()
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        shown = said.read()
    assert shown == (
        b"rankscope: rank 1: zz \\x1b[2J\\x9b31m\\u202eabc\\u2028def\\rrankscope: ok\n"
        b"rankscope:         second line\n"
    )
