"""The agents of a job agree on the ranks that ``--rank-assignment`` asks for, through the round's store.

Every agent writes its group and, if it names them, its ranks; group rank 0 checks all of them and writes the
answer, which every agent reads: workers start with it, or none start. One writer a key, every wait has a
deadline. Which ranks are right is decided in ``layout``. It must not know how the agents met.
"""

from __future__ import annotations

import importlib
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import msgspec
from torch.distributed import Store  # type: ignore[attr-defined]  # re-exported from torch._C

from rankscope.agent.ranks.layout import (
    FLAG,
    ByFunction,
    Explicit,
    Group,
    Placed,
    Scheme,
    Torch,
    check_size,
    parse_scheme,
    place,
)
from rankscope.diag.errors import UsageError
from rankscope.diag.ranks import fold_ranks

TIMEOUT: Final = 60.0
"""Seconds for the groups of a complete rendezvous to write a few bytes each."""
_PREFIX: Final = "rankscope/ranks"
_FIRST_PAUSE: Final = 0.01
_LAST_PAUSE: Final = 0.5
_BATCH: Final = 64
"""Keys read at once: many small values, and a bounded answer (8 MiB is the store's limit)."""


UsersFunction = Callable[[list[tuple[str, int, int]]], object]
"""Gets role, group rank and size of every group; returns ranks by group rank, as a mapping or a sequence."""


class _Claim(msgspec.Struct, frozen=True):
    """One agent's group, and the ranks it names; ``None`` where a function names them."""

    role: str
    size: int
    ranks: tuple[int, ...] | None


class _Answer(msgspec.Struct, frozen=True):
    """What group rank 0 found: by group rank and local rank, or why not."""

    error: str = ""
    placed: dict[int, tuple[tuple[int, int], ...]] = msgspec.field(
        default_factory=dict[int, tuple[tuple[int, int], ...]]
    )
    world_size: int = 0
    role_sizes: dict[str, int] = msgspec.field(default_factory=dict[str, int])


def agree_on_ranks(
    store: Store,
    scheme: Scheme,
    group: Group,
    *,
    groups: int,
    timeout: float = TIMEOUT,
) -> tuple[Placed, ...]:
    """The places of this agent's workers, once all agents agree.

    Args:
        store: the round's, the same for all. One without rounds (static) still has the last answer, and it is
            the same: neither groups nor flags change while such a job runs.
        scheme: how this agent wants it.
        group: this agent's workers.
        groups: agents of this round.
        timeout: seconds to wait for the others.

    Raises:
        UsageError: the ranks do not fit together, or a group names none; every agent raises the same.
    """
    ranks = scheme.of(group.size) if isinstance(scheme, Explicit) else None
    claim = _Claim(group.role, group.size, ranks)
    store.set(f"{_PREFIX}/{group.group_rank}", msgspec.json.encode(claim).decode())
    if group.group_rank == 0:
        answer = _decide(store, scheme, groups, timeout)
        store.set(f"{_PREFIX}/answer", msgspec.json.encode(answer).decode())
    # Group rank 0 may wait as long as that for the others before it answers.
    if not _wait(store, [f"{_PREFIX}/answer"], 2 * timeout):
        raise UsageError(f"{FLAG}: group rank 0 did not say within {2 * timeout:g} s which ranks there are")
    answer = msgspec.json.decode(store.get(f"{_PREFIX}/answer"), type=_Answer)
    if answer.error:
        raise UsageError(answer.error)
    of_role = answer.role_sizes.get(group.role, group.size)
    return tuple(
        Placed(rank, role_rank, answer.world_size, of_role)
        for rank, role_rank in answer.placed.get(group.group_rank, ())
    )


def _decide(store: Store, scheme: Scheme, groups: int, timeout: float) -> _Answer:
    """Read what all agents want and check it (group rank 0)."""
    try:
        claims = _read_claims(store, groups, timeout)
        members = [Group(claim.role, number, claim.size) for number, claim in enumerate(claims)]
        wanted = _wanted(scheme, claims, members)
        placed = place(members, wanted)
    except UsageError as error:
        return _Answer(error=str(error))
    sizes: dict[str, int] = {}
    for member in members:
        sizes[member.role] = sizes.get(member.role, 0) + member.size
    return _Answer(
        placed={number: tuple((one.rank, one.role_rank) for one in of) for number, of in placed.items()},
        world_size=sum(member.size for member in members),
        role_sizes=sizes,
    )


def _read_claims(store: Store, groups: int, timeout: float) -> list[_Claim]:
    keys = [f"{_PREFIX}/{number}" for number in range(groups)]
    if not _wait(store, keys, timeout):
        silent = [number for number, key in enumerate(keys) if not store.check([key])]
        raise UsageError(
            f"{FLAG}: group ranks {fold_ranks(silent)} named no ranks within {timeout:g} s; "
            "it must be given to the agent of every node"
        )
    return [msgspec.json.decode(store.get(key), type=_Claim) for key in keys]


def _wanted(scheme: Scheme, claims: Sequence[_Claim], groups: Sequence[Group]) -> Mapping[int, Sequence[int]]:
    unnamed = [number for number, claim in enumerate(claims) if claim.ranks is None]
    if not isinstance(scheme, ByFunction):
        if unnamed:
            raise UsageError(
                f"{FLAG}: group ranks {fold_ranks(unnamed)} leave the ranks to a function, others name them: "
                "the same way must be given on every node"
            )
        return {number: claim.ranks or () for number, claim in enumerate(claims)}
    if len(unnamed) < len(claims):
        raise UsageError(f"{FLAG}: some nodes name their ranks and others leave them to a function")
    return _call(scheme, groups)


def _call(scheme: ByFunction, groups: Sequence[Group]) -> dict[int, tuple[int, ...]]:
    """Ask the user's function; whatever it does wrong is the user's to read."""
    where = f"{FLAG} {scheme.module}:{scheme.name}"
    try:
        answer = load_function(scheme)([(group.role, group.group_rank, group.size) for group in groups])
        rows = answer.items() if isinstance(answer, Mapping) else enumerate(answer)  # type: ignore[arg-type]  # a user's
        return {int(number): tuple(int(rank) for rank in ranks) for number, ranks in rows}
    except UsageError:
        raise
    except Exception as error:  # the user's own function: whatever it raises
        raise UsageError(f"{where} failed: {type(error).__name__}: {error}") from error


def check_scheme(wanted: str, size: int, *, alone_as: str | None = None) -> None:
    """See what one node can see before anything is started: how many ranks, whether a function is there.

    Args:
        wanted: how this node wants it, the setting's text.
        size: its workers.
        alone_as: their role if there is no other node: then all of it can be seen.

    Raises:
        UsageError: it cannot be.
    """
    scheme = parse_scheme(wanted)
    check_size(scheme, size)
    if isinstance(scheme, ByFunction):
        load_function(scheme)
    if alone_as is not None and not isinstance(scheme, Torch):
        group = Group(alone_as, 0, size)
        ranks = {0: scheme.of(size)} if isinstance(scheme, Explicit) else _call(scheme, [group])
        place([group], ranks)


def load_function(scheme: ByFunction) -> UsersFunction:
    """Import the user's function.

    Raises:
        UsageError: there is no such module or function.
    """
    where = f"{FLAG} {scheme.module}:{scheme.name}"
    try:
        found = operator.attrgetter(scheme.name)(importlib.import_module(scheme.module))
    except Exception as error:  # the user's own module: whatever importing it raises
        raise UsageError(f"{where}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise UsageError(f"{where} is no function")
    return cast("UsersFunction", found)


def _wait(store: Store, keys: list[str], timeout: float) -> bool:
    """Whether all keys are there in time; polls, a blocking wait holds up every user of the connection."""
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while not all(store.check(keys[at : at + _BATCH]) for at in range(0, len(keys), _BATCH)):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE)
    return True
