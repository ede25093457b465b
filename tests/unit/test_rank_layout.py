"""Which global rank each worker has (``--rank-assignment``): what is read, placed, and refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore  # type: ignore[attr-defined]  # re-exported from torch._C

from rankscope.agent.ranks.assignment import agree_on_ranks
from rankscope.agent.ranks.layout import (
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


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("torch", Torch()),
        ("offset:4", Explicit(first=4)),
        ("explicit:4,5, 6,7", Explicit((4, 5, 6, 7))),
        ("my.layout:by_rack", ByFunction("my.layout", "by_rack")),
    ],
)
def test_every_form_is_read(text: str, scheme: Scheme) -> None:
    assert parse_scheme(text) == scheme


@pytest.mark.parametrize(
    "text",
    ["", "torch:1", "offset", "offset:-1", "explicit:", "explicit:1,,2", "explicit:a", "a b:c", "offset:x"],
)
def test_everything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape("torch, offset:N, explicit:4,5,6,7 or module:function")):
        parse_scheme(text)


def test_a_node_that_names_too_few_ranks_is_refused_before_it_meets_anybody() -> None:
    with pytest.raises(UsageError, match="explicit:0,1 names 2 ranks for 3 workers"):
        check_size(Explicit((0, 1)), 3)
    check_size(Explicit(first=7), 3)


def test_ranks_of_a_role_are_counted_by_global_rank() -> None:
    groups = [Group("trainer", 0, 2), Group("reader", 1, 1), Group("trainer", 2, 1)]
    placed = place(groups, {0: (3, 0), 1: (1,), 2: (2,)})
    assert placed[0] == (Placed(3, 2, 4, 3), Placed(0, 0, 4, 3))
    assert placed[1] == (Placed(1, 0, 4, 1),)
    assert placed[2] == (Placed(2, 1, 4, 3),)


@pytest.mark.parametrize(
    ("ranks", "complaint"),
    [
        (
            {0: (0, 1), 1: (1, 2)},
            "rank 1 is given more than once (group ranks 0-1); rank 3 is given to nobody",
        ),
        ({0: (0, 1), 1: (2,)}, "group rank 1 has 2 workers and 1 rank"),
        ({0: (0, 1), 1: (2, 7)}, "rank 7 is outside of 0-3 (4 workers in all)"),
        ({0: (0, 1)}, "ranks 2-3 are given to nobody"),
        ({0: (-1, 1), 1: (2, 3)}, "rank -1 is outside of 0-3"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_the_names_of_the_ranks(
    ranks: dict[int, tuple[int, ...]], complaint: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(complaint)):
        place([Group("trainer", 0, 2), Group("trainer", 1, 2)], ranks)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_order_of_all_ranks_is_a_layout(sizes: list[int], random: object) -> None:
    order = list(range(sum(sizes)))
    random.shuffle(order)  # type: ignore[attr-defined]  # hypothesis' own Random
    groups = [Group("default", number, size) for number, size in enumerate(sizes)]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    ranks = {number: order[start : start + sizes[number]] for number, start in enumerate(starts)}
    placed = place(groups, ranks)
    assert {number: [one.rank for one in of] for number, of in placed.items()} == ranks
    assert all(one.role_rank == one.rank for of in placed.values() for one in of)


def agents(*schemes: Scheme, size: int = 2, timeout: float = 20.0) -> list[tuple[Placed, ...] | str]:
    """What agents with these schemes agree on through one store, each in a thread; an error is its text."""
    store = HashStore()

    def agree(number: int) -> tuple[Placed, ...] | str:
        group = Group("default", number, size)
        try:
            return agree_on_ranks(store, schemes[number], group, groups=len(schemes), timeout=timeout)
        except UsageError as error:
            return str(error)

    with ThreadPoolExecutor(len(schemes)) as pool:
        return list(pool.map(agree, range(len(schemes))))


def ranks_of(found: list[tuple[Placed, ...] | str]) -> list[list[int]]:
    assert all(not isinstance(one, str) for one in found), found
    return [[placed.rank for placed in one if isinstance(placed, Placed)] for one in found]


def test_agents_agree_on_the_ranks_that_each_names() -> None:
    assert ranks_of(agents(Explicit(first=2), Explicit((1, 0)))) == [[2, 3], [1, 0]]


def test_every_agent_hears_what_does_not_fit() -> None:
    first, second = agents(Explicit(first=0), Explicit(first=1))
    assert first == second
    assert "rank 1 is given more than once" in str(first)


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ByFunction]:
    """Writes a module with a function ``place`` and returns the scheme that names it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(body: str) -> ByFunction:
        name = f"layout_{abs(hash(body))}"
        (tmp_path / f"{name}.py").write_text(f"def place(groups):\n    {body}\n")
        return ByFunction(name, "place")

    return write


def test_a_function_gets_every_group_and_gives_every_rank(layout: Callable[[str], ByFunction]) -> None:
    scheme = layout(
        "return {g: range(2 - 2 * g, 4 - 2 * g) for role, g, size in groups if role == 'default'}"
    )
    assert ranks_of(agents(scheme, scheme)) == [[2, 3], [0, 1]]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("return [[0, 1], [1, 2]]", "rank 1 is given more than once"),
        ("return None", "failed: TypeError"),
        ("raise KeyError('rack 7')", "failed: KeyError: 'rack 7'"),
    ],
)
def test_a_function_that_goes_wrong_is_told_to_every_agent(
    layout: Callable[[str], ByFunction], body: str, complaint: str
) -> None:
    scheme = layout(body)
    first, second = agents(scheme, scheme)
    assert first == second
    assert complaint in str(first)


def test_a_function_that_is_not_there_is_one_line() -> None:
    (found,) = agents(ByFunction("no_such_module_anywhere", "place"))
    assert "--rank-assignment no_such_module_anywhere:place: ModuleNotFoundError" in str(found)


def test_nodes_that_want_it_different_ways_are_refused(layout: Callable[[str], ByFunction]) -> None:
    scheme = layout("return [[0, 1], [2, 3]]")
    assert "some nodes name their ranks" in str(agents(scheme, Explicit(first=2))[0])
    assert "leave the ranks to a function" in str(agents(Explicit(first=2), scheme)[0])


def test_a_node_without_the_flag_is_named_after_a_while() -> None:
    store = HashStore()
    with pytest.raises(UsageError, match=r"group ranks 1-2 named no ranks within 0\.05 s"):
        agree_on_ranks(store, Explicit(first=0), Group("default", 0, 2), groups=3, timeout=0.05)
