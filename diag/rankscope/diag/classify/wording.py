"""How findings read: the sentences of ``summary``, in one voice. It decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from rankscope.diag.model import ExitFacts, Kind
from rankscope.diag.ranks import fold_ranks

KIND_WORDS: Final[dict[Kind, str]] = {
    "data_loading": "data loading",
    "checkpoint": "checkpoint",
    "lock": "waiting for a lock",
    "compile": "compiling",
    "startup": "start-up",
    "store_wait": "store wait",
    "exit": "leaving the program",
    "python_loop": "a Python loop",
    "native_gil": "a native call that holds the GIL",
    "user_code": "user code",
    "child_process": "waiting for a child process",
    "storage": "storage",
    "network": "network",
    "desync": "ranks went different ways",
    "order_deadlock": "collectives in different order",
    "frozen": "frozen",
    "dead": "dead",
    "none": "",
}
NO_MINORITY: Final = "no minority: a common cause"
_SHOWN_PLACES: Final = 4  # a line's worth
# signal(7), Linux on x86-64 and arm64; the signals that end training processes.
_SIGNALS: Final = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
}


def name_ranks(ranks: Iterable[int]) -> str:
    """``rank 2`` or ``ranks 0-1,3``."""
    known = sorted(set(ranks))
    return f"rank {known[0]}" if len(known) == 1 else f"ranks {fold_ranks(known)}"


def verb(ranks: Sequence[int], one: str, many: str) -> str:
    """The verb's form for that many ranks."""
    return one if len(ranks) == 1 else many


def stuck_phrase(places: Mapping[int, tuple[str, Kind]], *, without_task: Collection[int] = ()) -> str:
    """``rank 2 is stuck in load_batch (train.py:8), data loading``, ranks of one place together.

    Args:
        places: where each rank stands, and at what.
        without_task: those that wait for their next task there.
    """
    parts: list[str] = []
    for (place, kind), ranks in _by_value(places):
        if not set(ranks).difference(without_task):
            parts.append(f"{name_ranks(ranks)} {verb(ranks, 'has', 'have')} no task, in {place}")
            continue
        words = f", {KIND_WORDS[kind]}" if KIND_WORDS[kind] else ""
        parts.append(f"{name_ranks(ranks)} {verb(ranks, 'is', 'are')} stuck in {place}{words}")
    return "; ".join(parts)


def stand_phrase(places: Mapping[int, str]) -> str:
    """``ranks 0-1 stand in serve (app.py:7)``, ranks of one place together."""
    grouped: dict[str, list[int]] = {}
    for rank in sorted(places):
        grouped.setdefault(places[rank], []).append(rank)
    parts = [
        f"{name_ranks(ranks)} {verb(ranks, 'stands', 'stand')} in {place}" for place, ranks in grouped.items()
    ]
    rest = len(parts) - _SHOWN_PLACES
    return "; ".join(parts[:_SHOWN_PLACES] + [f"{rest} more places"] * (rest > 0))


def busy_phrase(
    places: Mapping[int, tuple[str, Kind]], *, seconds: float, on_device: Collection[int] = ()
) -> str:
    """``rank 2 has been computing in evaluate (train.py:36) for 4 s``; ``on_device`` waits for its GPU.

    Of one look, or looks without a time, ``rank 2 is computing ...``: they do not show for how long.
    """
    parts: list[str] = []
    for (place, kind), ranks in _by_value(places):
        doing = "computing" if kind in ("user_code", "python_loop") else "busy"
        if not set(ranks).difference(on_device):
            doing = "waiting for its GPU" if len(ranks) == 1 else "waiting for their GPUs"
        during = f" for {seconds:.0f} s" if seconds >= 1 else ""
        was = verb(ranks, "has been", "have been") if during else verb(ranks, "is", "are")
        parts.append(f"{name_ranks(ranks)} {was} {doing} in {place}{during}")
    return "; ".join(parts)


def wait_phrase(calls: Mapping[int, str], *, for_whom: Sequence[int]) -> str:
    """``ranks 0-1,3 wait for it in all_reduce``; empty without waiting ranks."""
    if not calls:
        return ""
    ranks = sorted(calls)
    names = sorted({call for call in calls.values() if call})
    where = f" in {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" if names else ""  # noqa: PLR2004 - a line's worth
    whom = f" for {verb(for_whom, 'it', 'them')}" if for_whom else ""
    return f"{name_ranks(ranks)} {verb(ranks, 'waits', 'wait')}{whom}{where}"


def end_phrase(exit_facts: ExitFacts | None) -> str:
    """``was killed by SIGKILL``, ``ended with exit code 1: ValueError: ...``, ``raised ValueError: ...``."""
    if exit_facts is None or (exit_facts.code is None and not exit_facts.message.strip()):
        words = "has ended, its exit code is unknown"
    elif exit_facts.code is None:
        return f"raised {exit_facts.message.strip()}"
    elif exit_facts.code < 0:
        words = f"was killed by {_SIGNALS.get(-exit_facts.code, f'signal {-exit_facts.code}')}"
    else:
        words = f"ended with exit code {exit_facts.code}"
    message = exit_facts.message.strip() if exit_facts else ""
    return f"{words}: {message}" if message else words


def ends_phrase(ends: Mapping[int, str]) -> str:
    """``ranks 0-2 ended with exit code 1: ...``, ranks of one end together; ``ends`` as of ``end_phrase``."""
    grouped: dict[str, list[int]] = {}
    for rank in sorted(ends):
        grouped.setdefault(ends[rank], []).append(rank)
    return "; ".join(
        f"{name_ranks(ranks)} {text if len(ranks) == 1 else _plural(text)}" for text, ranks in grouped.items()
    )


def _plural(text: str) -> str:
    return f"were{text.removeprefix('was')}" if text.startswith("was ") else text


def join(*parts: str) -> str:
    """Parts of a summary, those that say something."""
    return "; ".join(part for part in parts if part)


def _by_value(places: Mapping[int, tuple[str, Kind]]) -> list[tuple[tuple[str, Kind], list[int]]]:
    grouped: dict[tuple[str, Kind], list[int]] = {}
    for rank in sorted(places):
        grouped.setdefault(places[rank], []).append(rank)
    return list(grouped.items())
