"""What was given, and by whom: the command line, AIMaster's line, the environment, the file. Pure.

A layer is what one source gave, by the name of a setting; layers are in order of strength. Nothing is read
into a value here, and nothing is decided but which source is the stronger.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from rankscope.agent.settings.option import Option
from rankscope.agent.settings.parsing import Words
from rankscope.agent.settings.table import READABLE, TORCH_RESTARTS
from rankscope.diag.errors import UsageError

T = TypeVar("T")
COMMAND_LINE: Final = 0
ENVIRONMENT: Final = 1
FILE: Final = 2
AIMASTER: Final = 3
NOTHING: Final = 4
"""Strengths, the strongest first: AIMaster's defaults and ours give way to everything."""
_LONGEST_SHOWN: Final = 200
_COMMA: Final = "\0"


@dataclass(frozen=True, slots=True)
class Given:
    """What one source says of one setting.

    Attributes:
        words: as written; several for a list.
        source: for a person: the flag, the variable, or the file and its key.
        strength: of its source, smaller is stronger.
        aimaster: whether it stands in a line of AIMaster's arguments, or is AIMaster's default.
    """

    words: Words
    source: str
    strength: int
    aimaster: bool = False


Layer = Mapping[str, Given]


def split_words(option: Option[T], texts: Sequence[str]) -> Words:
    """The items of a list at its commas, ``,,`` for a comma of its own (torchrun's way); else the text."""
    if not option.many:
        return tuple(texts)
    parts = [part for text in texts for part in text.replace(",,", _COMMA).split(",")]
    return tuple(part.replace(_COMMA, ",") for part in parts)


def command_line(arguments: argparse.Namespace) -> Layer:
    """What the flags say."""
    found: dict[str, Given] = {}
    for option in READABLE:
        dest = "max_restarts" if option.name == TORCH_RESTARTS.name else option.dest
        value = cast("str | int | list[str] | None", getattr(arguments, dest, None))
        if value is None:
            continue
        texts = value if isinstance(value, list) else [str(value)]
        found[option.name] = Given(split_words(option, texts), option.flag, COMMAND_LINE)
    return found


def environment(environ: Mapping[str, str]) -> Layer:
    """What the variables say; an empty one says nothing."""
    return {
        option.name: Given(split_words(option, [text]), option.variable, ENVIRONMENT)
        for option in READABLE
        if (text := environ.get(option.variable, "")).strip()
    }


def refusal(option: Option[T], given: Given) -> UsageError:
    """One line: where, what, what is allowed."""
    # As it is typed: a comma of an item's own is two.
    words = [word.replace(",", ",,") for word in given.words] if option.many else given.words
    what = "(not shown)" if option.secret else _shown(words)
    return UsageError(f"{given.source} {what}: {option.allowed} expected")


def _shown(words: Sequence[str]) -> str:
    typed = ",".join(words)
    text = repr(typed) if typed.isprintable() else ascii(typed)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...'"


class Chosen:
    """The strongest that was given for each setting.

    Args:
        layers: the strongest first.
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        self._layers = tuple(layers)

    def given(self, option: Option[T]) -> Given | None:
        """The strongest, ``None`` when nobody said anything."""
        return next((layer[option.name] for layer in self._layers if option.name in layer), None)

    def source(self, option: Option[T]) -> str:
        """Where the value came from."""
        given = self.given(option)
        return given.source if given is not None else "default"

    def strength(self, option: Option[T]) -> int:
        """How strong its source is."""
        given = self.given(option)
        return given.strength if given is not None else NOTHING

    def value(self, option: Option[T]) -> T:
        """The value of the strongest, else the default.

        Raises:
            UsageError: it is not allowed.
        """
        given = self.given(option)
        return option.default if given is None else read(option, given)


def read(option: Option[T], given: Given) -> T:
    """The value of what was given.

    Raises:
        UsageError: it is not allowed; names the source, what it says and what is allowed.
    """
    try:
        return option.read(given.words)
    except ValueError:
        raise refusal(option, given) from None
