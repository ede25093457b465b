"""``diag run``'s flags beside torchrun's: both spellings, in groups, and without eating a script.

It must not know what a setting does, nor read a value.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, Final

from rankscope.agent.settings.option import Option
from rankscope.agent.settings.table import AIMASTER_ARGS, GROUPS, OPTIONS, WITHOUT_MEANING

_OURS: Final[dict[str, Option[Any]]] = {
    spelling: option for option in (*OPTIONS, *WITHOUT_MEANING) for spelling in option.spellings
}
_NEGATIVE: Final = re.compile(r"-\d+(\.\d+)?(,.*)?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add Rankscope's flags to torchrun's parser, a group each; values stay text until they are resolved."""
    for title, meaning in GROUPS.items():
        group = parser.add_argument_group(f"rankscope: {title}", meaning)
        for option in OPTIONS:
            if option.group == title:
                _add(group, option, _help(option))
    for option in WITHOUT_MEANING:
        _add(parser, option, argparse.SUPPRESS)


def _add(group: argparse._ActionsContainer, option: Option[Any], text: str) -> None:
    group.add_argument(
        *option.spellings,
        dest=option.dest,
        action="append" if option.many else "store",
        metavar=option.metavar,
        default=None,
        help=text,
    )


def _help(option: Option[Any]) -> str:
    return f"{option.help} ({option.allowed}; default: {option.shown_default})".replace("%", "%%")


def keep_torch_s_own(parser: argparse.ArgumentParser) -> None:
    """Let torchrun's words mean what they mean there.

    Its abbreviations are not completed to flags of ours, and ``--max-restarts`` tells whether it was given
    (``None`` where not; its variable is read with the others).
    """
    complete = parser._get_option_tuples  # noqa: SLF001 - argparse has no public way

    def torch_only(option_string: str) -> Any:
        return [match for match in complete(option_string) if match[1] not in _OURS]

    parser._get_option_tuples = torch_only  # type: ignore[method-assign]  # noqa: SLF001
    parser.set_defaults(max_restarts=None)


def attach_values(arguments: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Write each of our flags and its value as one word, up to the script, whose own arguments stay.

    A switch may stand without a value: the word behind it is its value only if it is a truth value, else it
    is the script or the next flag. AIMaster's line begins with dashes, and is a value all the same.
    """
    words = list(arguments)
    attached: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--" or not word.startswith("-") or word == "-":
            return [*attached, word, *words]
        option = _OURS.get(word)
        if option is None:
            attached.append(word)
            if words and _takes_the_next(word, parser):
                attached.append(words.pop(0))
        elif option.words and not (words and words[0].lower() in option.words):
            attached.append(f"{word}=True")
        elif words and (option is AIMASTER_ARGS or _is_value(words[0])):
            attached.append(f"{word}={words.pop(0)}")
        else:
            attached.append(word)
    return attached


def _is_value(word: str) -> bool:
    return not word.startswith("-") or " " in word or _NEGATIVE.fullmatch(word) is not None


def _takes_the_next(word: str, parser: argparse.ArgumentParser) -> bool:
    """Whether a flag of torch's takes the word behind it; abbreviations and ``-r3`` are understood."""
    known = parser._option_string_actions  # noqa: SLF001 - argparse has no public way
    action = known.get(word)
    if action is None and word.startswith("--") and "=" not in word:
        longer = {
            id(each): each for name, each in known.items() if name.startswith(word) and name not in _OURS
        }
        action = next(iter(longer.values())) if len(longer) == 1 else None
    return action is not None and action.nargs is None
