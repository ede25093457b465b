"""What is left to chance in a trial: rank, world size, step, and the names in the program, all from one seed.

The same row, seed and place of the fault draw the same, on any machine. The names say nothing: a verdict that
is right because a function is called ``save_checkpoint`` is no verdict.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.faults.rows import Row

_WORDS: Final = (
    "acorn alder amber aspen basalt birch bramble cedar cinder clover copper coral crane cypress dune ember "
    "falcon fennel fern finch flint garnet ginger hazel heath heron indigo ivory jasper juniper lagoon larch "
    "laurel lichen linden maple marble marten meadow mica mulberry myrtle nettle ochre olive opal orchid "
    "osprey otter pebble pewter pine plover poplar quartz quince raven rowan russet saffron sage sorrel "
    "sparrow tansy tarn thistle thrush topaz umber walnut willow wren yarrow"
)
WORDS: Final = tuple(_WORDS.split())
"""What functions, classes and files are called in the copies; no program uses one (a test says so)."""
_FIRST_STEP: Final = 25
_LAST_STEP: Final = 45
"""Some seconds of steps: the clocks have learned the job's rhythm (the fifth step would be start-up)."""


@dataclass(frozen=True)
class Draw:
    """What was drawn for a trial.

    Attributes:
        seed: it came from.
        rank: that has the fault.
        ranks: world size.
        at: the step at which it happens.
        file: what the program's copy is called.
        names: of the row's ``renames``, what each is called in the copy.
    """

    seed: int
    rank: int
    ranks: int
    at: int
    file: str = "program.py"
    names: Mapping[str, str] = field(default_factory=dict[str, str])


def draw(row: Row, seed: int, *, zero: bool) -> Draw:
    """The draw of a row.

    Args:
        row: gives the bounds, and its name to the seed.
        seed: of the whole matrix.
        zero: whether rank 0 has the fault; any other one otherwise.
    """
    chance = random.Random(f"{seed} {row.name} {zero}")
    ranks = chance.randint(row.least_ranks, row.most_ranks)
    file, *words = chance.sample(WORDS, 1 + len(row.renames))
    return Draw(
        seed=seed,
        rank=0 if zero else chance.randint(1, ranks - 1),
        ranks=ranks,
        at=chance.randint(_FIRST_STEP, _LAST_STEP),
        file=f"{file}.py",
        names=dict(zip(row.renames, words, strict=True)),
    )
