"""One setting: its name, how it is spelled, what is allowed, what it means.

It must not know which settings there are, nor where a value comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from rankscope.agent.settings.parsing import Words

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Option(Generic[T_co]):
    """One setting.

    Attributes:
        name: dashed, without the leading dashes.
        group: its group in ``--help`` and in the reference.
        read: turns what was given into a value; ``ValueError`` when it is not allowed.
        default: its value when nothing was given.
        allowed: what is allowed, for the error line, the help and the reference.
        shown: the default in words, empty for the value itself.
        metavar: what stands for the value in ``--help``.
        many: a list: the flag may be repeated, and its text has commas (``,,`` for a comma of its own).
        words: for a flag that may be given without a value (then it is True): the words that are one.
        variable_name: its variable where that is not made of its name.
        secret: its values are not shown whole.
    """

    name: str
    group: str
    read: Callable[[Words], T_co]
    default: T_co
    allowed: str
    help: str
    shown: str = ""
    metavar: str = "X"
    many: bool = False
    words: frozenset[str] = frozenset()
    variable_name: str = ""
    secret: bool = False

    @property
    def flag(self) -> str:
        """``--name``."""
        return f"--{self.name}"

    @property
    def spellings(self) -> tuple[str, ...]:
        """The flag with dashes and with underscores."""
        return tuple(dict.fromkeys((self.flag, "--" + self.name.replace("-", "_"))))

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return self.variable_name or "RANKSCOPE_" + self.name.replace("-", "_").upper()

    @property
    def dest(self) -> str:
        """The attribute argparse keeps it under."""
        return "rankscope_" + self.name.replace("-", "_")

    @property
    def shown_default(self) -> str:
        """The default as help and reference show it."""
        return self.shown or str(self.default)
