"""The health server's process: ``python -m rankscope.agent.health.server``, settings as one JSON line.

It answers from the status page alone and never asks the agent, so that no thread, lock, interpreter or
store of the agent can hold an answer back. It ends with the agent, ignores the terminal's signals, and
writes one line to stdout when it is ready, nothing after that. It decides nothing: see ``probes``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from typing import Final

import msgspec

from rankscope.agent.health.handover import ServerReady, ServerSettings
from rankscope.agent.health.lifetime import LOOK_SIGNAL, AgentLife, follow_parent
from rankscope.agent.health.listen import HealthError, bound_address, open_listener
from rankscope.agent.health.status import StatusReader

PROCESS_NAME: Final = "rankscope-health"
LOOK_INTERVAL: Final = 5.0
"""Seconds between two looks whether the agent lives, for when no signal comes."""


def main(arguments: list[str] | None = None) -> int:
    """Serve until the agent ends or SIGTERM comes.

    Args:
        arguments: one JSON text with the settings; without it a line of stdin is read.

    Returns:
        Exit code: 0 for a normal end, 1 with one line on stderr, 2 for unreadable settings.
    """
    given = sys.argv[1:] if arguments is None else arguments
    # A mask inherited from the agent's thread would keep SIGTERM away.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for ignored in (signal.SIGINT, signal.SIGHUP, LOOK_SIGNAL):
        signal.signal(ignored, signal.SIG_IGN)
    follow_parent(PROCESS_NAME)
    try:
        settings = msgspec.json.decode(given[0] if given else sys.stdin.readline(), type=ServerSettings)
    except msgspec.DecodeError as error:
        sys.stderr.write(f"{PROCESS_NAME}: unreadable settings: {error}\n")
        return 2
    agent = AgentLife(settings.agent_pid, settings.agent_start_ticks)
    # Before the slow imports: an agent that died since cannot send its signal any more.
    if agent.is_over():
        return 0
    if settings.listen_fd is not None:
        # Started by an agent: stderr is a pipe that it empties when it gets round to it. Never wait for that.
        os.set_blocking(2, False)
    logging.raiseExceptions = False
    logging.basicConfig(level=logging.ERROR, format=f"{PROCESS_NAME}: %(message)s")
    try:
        asyncio.run(_serve(settings, agent))
    except (OSError, HealthError) as error:
        sys.stderr.write(f"{PROCESS_NAME}: {error}\n")
        return 1
    return 0


async def _serve(settings: ServerSettings, agent: AgentLife) -> None:
    # Imported here: 0.2 s in which the process already follows the agent.
    from rankscope.agent.health.serving import Serving

    loop = asyncio.get_running_loop()
    look, end = asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(LOOK_SIGNAL, look.set)
    loop.add_signal_handler(signal.SIGTERM, end.set)
    listener = _listener(settings)
    serving = Serving(settings, agent, StatusReader(settings.page))
    await serving.start(listener)
    watching = asyncio.create_task(_watch(agent, look, end), name="rankscope-health-look")
    _say_ready(listener)
    await end.wait()
    watching.cancel()
    await serving.stop()


def _listener(settings: ServerSettings) -> socket.socket:
    if settings.listen_fd is None:
        return open_listener(settings.host, settings.port)
    return socket.socket(fileno=settings.listen_fd)


async def _watch(agent: AgentLife, look: asyncio.Event, end: asyncio.Event) -> None:
    """Set ``end`` when the agent has ended: looked at every interval, and at once when the kernel says so."""
    while not agent.is_over():
        try:
            await asyncio.wait_for(look.wait(), LOOK_INTERVAL)
        except (asyncio.TimeoutError, TimeoutError):
            continue
        look.clear()
    end.set()


def _say_ready(listener: socket.socket) -> None:
    host, port = bound_address(listener)
    line = msgspec.json.encode(ServerReady(host, port, os.getpid())) + b"\n"
    try:
        os.write(1, line)
    except OSError:
        return  # nobody waits for it any more
    finally:
        silent = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(silent, 0)
        os.dup2(silent, 1)
        os.close(silent)


if __name__ == "__main__":
    sys.exit(main())
