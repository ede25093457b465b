"""What the titles of processes tell: their place in the job, and which of them are no ranks.

Servers and frameworks name their processes for ``ps`` and ``top``: ``VLLM::Worker_DP0_TP2``,
``sglang::scheduler_PP1_TP0``, ``ray::WorkerDict.update_actor``. Titles read in the sources of vLLM
(``multiproc_executor.py``, ``core.py``) and SGLang (``scheduler.py``, ``detokenizer_manager.py``), and in
public dumps. Pure: titles and dumps in, numbers and words out.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar

from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.ranks import MAX_RANKS
from rankscope.diag.read import StackDump

Process = TypeVar("Process", bound=Hashable)

_PLACE: Final = re.compile(r"(?:^|[_ ])(DP|PP|PCP|TP)(\d{1,5})(?=[_ ]|$)")
_WORKER: Final = re.compile(r"[\w-]+::(?:\w*[Ww]orker|\w*scheduler)(?=_|$)")
_SCHEDULER: Final = re.compile(r"[\w-]+::\w*scheduler")
_RAY_WORKER: Final = re.compile(r"ray::\w")
_ENGINE: Final = re.compile(r"[\w-]+::EngineCore(?=_|$)")
_FRONT_ENDS: Final = re.compile(
    r"VLLM::(?:APIServer|ApiServer|DPCoordinator)|sglang::(?!\w*scheduler)"
    r"|ray::(?:IDLE|TaskRunner|main_task|SplitCoordinator|JobSupervisor|ServeController|ProxyActor|_StatsActor)"
)
"""They take requests, or hand out tasks: no collective of the job is theirs."""
_SERVERS: Final = re.compile(
    r"(?:.* )?(?:(?:\S*/)?vllm serve|-m (?:vllm\.entrypoints|sglang\.launch_server))\b"
)
"""Command lines of front ends; older ones may run the first rank themselves."""
_ENGINE_FRAMES: Final = frozenset({"run_engine_core"})
_WORKER_FRAMES: Final = frozenset({"worker_busy_loop", "worker_main"})
# Slowest first, as vLLM lays its ranks out (``initialize_model_parallel``); SGLang's ranks are PP x TP.
_ORDER: Final = ("DP", "PP", "PCP", "TP")
_LONGEST: Final = 80


def numbered_by_titles(titles: Mapping[Process, str]) -> dict[Process, int]:
    """Ranks by the places that titles tell, empty where they do not give each process one of its own.

    How many there are in each dimension is taken from the titles themselves. SGLang's TP goes on over its
    replicas (DP) where these share attention: there they count only where it does not tell processes apart.
    """
    places = {process: _place(title) for process, title in titles.items()}
    if not places or not all(places.values()):
        return {}
    goes_on = all(_SCHEDULER.match(title) for title in titles.values())
    for dimensions in (_ORDER[1:], _ORDER) if goes_on else (_ORDER,):
        sizes = [1 + max(place.get(name, 0) for place in places.values()) for name in dimensions]
        ranks: dict[Process, int] = {}
        for process, place in places.items():
            rank = 0
            for name, size in zip(dimensions, sizes, strict=True):
                rank = rank * size + place.get(name, 0)
            ranks[process] = rank
        if len(set(ranks.values())) == len(ranks):
            return ranks if max(ranks.values()) < MAX_RANKS else {}
    return {}


def no_ranks(dumps: Sequence[StackDump]) -> list[bool]:
    """Of each dump, whether its process only serves those that are ranks: a front end, an engine, a driver.

    A vLLM engine without workers of its own runs the model itself; a front end that is alone is what was
    asked about.
    """
    has_workers = any(_is_worker(dump) for dump in dumps)
    found = [_is_front_end(dump) or (has_workers and _is_engine(dump)) for dump in dumps]
    return found if not all(found) else [False] * len(dumps)


def shown_title(dump: StackDump) -> str:
    """The title of a process that was given one, ``""`` for a mere command line."""
    first = dump.title.split(" ", 1)[0]
    is_title = "::" in first or _place(dump.title)
    return dump.title[:_LONGEST] if is_title else ""


def _place(title: str) -> dict[str, int]:
    if not _WORKER.match(title):
        return {}
    return {found[1]: int(found[2]) for found in _PLACE.finditer(title)}


def _is_worker(dump: StackDump) -> bool:
    is_ray = _RAY_WORKER.match(dump.title) is not None and _FRONT_ENDS.match(dump.title) is None
    return is_ray or _WORKER.match(dump.title) is not None or _runs(dump, _WORKER_FRAMES)


def _is_front_end(dump: StackDump) -> bool:
    if _FRONT_ENDS.match(dump.title):
        return True
    frames = (frame for thread in dump.threads for frame in thread.frames)
    return _SERVERS.match(dump.title) is not None and not any("torch/" in frame.file for frame in frames)


def _is_engine(dump: StackDump) -> bool:
    if _ENGINE.match(dump.title):
        return True
    return _runs(dump, _ENGINE_FRAMES) and not _runs(dump, _WORKER_FRAMES)


def _runs(dump: StackDump, functions: frozenset[str]) -> bool:
    return any(
        bare_function(frame.function) in functions and "vllm/" in frame.file
        for thread in dump.threads
        if thread.is_main
        for frame in thread.frames
    )
