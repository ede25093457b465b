"""What the agent tells its health server at the start, and what the server says back: one JSON line each."""

from __future__ import annotations

import msgspec

from rankscope.agent.health.probes import TIMEOUT


class ServerSettings(msgspec.Struct, frozen=True):
    """What the agent tells the server.

    Attributes:
        page: path of the status page.
        agent_pid: the process that it serves and ends with; agent_start_ticks its start time.
        timeout: seconds without a turn of either loop after which the agent counts as dead.
        listen_fd: an inherited listening socket; without it ``host`` and ``port`` are bound here.
        api_fd: another one, for what needs the token; ``None`` when there is none.
        api_shared: whether what needs the token is served beside the probes: they are on loopback.
        offer: path of what the agent offers to whoever has the token, ``""`` for nothing.
        request_timeout: seconds for the first request of a connection; ``None`` for the default.
        max_connections: at a time; ``None`` for the default.
    """

    page: str
    agent_pid: int
    agent_start_ticks: int
    timeout: float = TIMEOUT
    listen_fd: int | None = None
    api_fd: int | None = None
    api_shared: bool = False
    offer: str = ""
    host: str | None = None
    port: int = 0
    request_timeout: float | None = None
    max_connections: int | None = None


class ServerReady(msgspec.Struct, frozen=True):
    """The one line on stdout, once requests are answered."""

    host: str
    port: int
    pid: int
