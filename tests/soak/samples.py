"""What is looked at in a soak, as plain values: processes, ranks, folders; and all that it saw."""

from __future__ import annotations

from typing import Final

import msgspec

SLOW_MACHINE: Final = "slow, all ranks alike"
"""Name of an event ``slow`` that finds nobody slow."""


class Gauges(msgspec.Struct, frozen=True):
    """One process at one moment.

    Attributes:
        rss: bytes in memory; pss with what is shared by several divided among them; anonymous what is in no
            file, so that neither page cache nor other people's processes move it.
        cpu: seconds of its threads that live.
    """

    pid: int
    rss: int
    pss: int
    anonymous: int
    threads: int
    descriptors: int
    cpu: float


class RankLook(msgspec.Struct, frozen=True):
    """One rank at one moment.

    Attributes:
        before: its own count just before the page was read, and after just after.
        page: the count on the page.
        beat_age: seconds since its probe's thread ran.
        wall: nanoseconds that its steps have taken, without their sleep; cpu of them on a core.
    """

    before: int
    after: int
    wall: int
    cpu: int
    page: int = 0
    beat_age: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether the page misses no step and has none too many: one is made before the rank counts it."""
        return self.before <= self.page <= self.after + 1


class Sample(msgspec.Struct, frozen=True):
    """Everything at one moment.

    Attributes:
        at: seconds since everything ran.
        ours: processes of ours by name, what runs for a moment only (a capture) left out.
        workers: ranks under ``diag run``; control, those under torchrun.
        passing: how many other processes the agent and its helpers have.
        zombies: how many below the agent have ended and nobody has asked after.
        files: in the run-time folder and in the temporary folder.
        records: bytes in the job folder.
    """

    at: float
    ours: dict[str, Gauges]
    workers: dict[int, Gauges]
    control: dict[int, Gauges]
    steps: dict[int, RankLook]
    control_steps: dict[int, RankLook]
    passing: int
    zombies: int
    files: int
    records: int


class LastCount(msgspec.Struct, frozen=True):
    """A rank that makes no more steps: its own count and the page's."""

    rank: int
    own: int
    page: int


class Requests(msgspec.Struct, frozen=True):
    """What became of the requests on the open paths.

    Attributes:
        sent: so many.
        seconds: for which they were sent.
        statuses: how often each status was answered, by ``path status``.
        lost: never answered, or their connection ended.
        p50: median latency in seconds, from when a request was due; p99 likewise.
    """

    sent: int
    seconds: float
    statuses: dict[str, int]
    lost: int
    p50: float
    p99: float

    @property
    def refused(self) -> dict[str, int]:
        """Answers other than 200."""
        return {name: count for name, count in self.statuses.items() if not name.endswith(" 200")}


class Captures(msgspec.Struct, frozen=True):
    """What captures found.

    Attributes:
        how: by what they were asked for.
        verdicts: how often each verdict came.
        failures: what those said that gave none.
        put_off: how often the agent said to come again.
    """

    how: str
    verdicts: dict[str, int]
    failures: list[str]
    put_off: int = 0


class Streams(msgspec.Struct, frozen=True):
    """Clients of server-sent events that came and went; ``None`` opened: there is no stream to open."""

    opened: int | None = None
    events: int = 0
    failures: list[str] = []


class Notices(msgspec.Struct, frozen=True):
    """Messages on their way: sent by rank 0, in the records, and told to the receiver."""

    sent: int
    recorded: int
    told: int


class Ending(msgspec.Struct, frozen=True):
    """How it ended.

    Attributes:
        exit_code: of ``diag run``; control_code of torchrun.
        left: command lines of processes that outlived their launcher.
        files: that should be gone.
        said: lines of the agent that tell of trouble of ours.
    """

    exit_code: int
    control_code: int
    left: list[str]
    files: list[str]
    said: list[str]


class Observed(msgspec.Struct, frozen=True):
    """All that a soak saw, to be judged.

    Attributes:
        seconds: for which everything ran; warm_up those at the beginning that do not count.
        events: how often each event was recorded, by name; ``SLOW_MACHINE`` apart from other ``slow`` ones.
        missing: open paths that this agent does not have.
    """

    seconds: float
    warm_up: float
    is_long: bool
    samples: list[Sample]
    last_counts: list[LastCount]
    events: dict[str, int]
    missing: list[str]
    requests: Requests
    captures: Captures
    streams: Streams
    notices: Notices
    ending: Ending
