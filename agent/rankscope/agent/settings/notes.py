"""What is said once at the start about words that have no effect. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from rankscope.agent.settings.layers import Chosen
from rankscope.agent.settings.table import READABLE, WITHOUT_MEANING
from rankscope.watchdog import environment

_PREFIX: Final = "RANKSCOPE_"
_KNOWN: Final = {option.variable for option in READABLE} | {
    value for name, value in vars(environment).items() if name.isupper()
}
_ALIKE: Final = 0.9
"""How alike a variable must be to a setting's to be called a mistake: others use the prefix as well."""


def ignored_words(chosen: Chosen) -> list[str]:
    """AIMaster's words that have no meaning here.

    Raises:
        UsageError: one is neither True nor False.
    """
    found = [chosen.source(option) for option in WITHOUT_MEANING if chosen.given(option) is not None]
    for option in WITHOUT_MEANING:
        chosen.value(option)
    return [f"{', '.join(found)}: no meaning here, ignored"] if found else []


def mistyped_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables that look like a setting's and are none."""
    notes: list[str] = []
    for name in sorted(environ.keys() - _KNOWN):
        near = difflib.get_close_matches(name, _KNOWN, 1, _ALIKE) if name.startswith(_PREFIX) else []
        if near:
            notes.append(f"there is no setting {ascii(name)[1:-1]}; did you mean {near[0]}?")
    return notes
