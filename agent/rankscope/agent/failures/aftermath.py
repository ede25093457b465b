"""Whether a message is what a rank says that fails because another did: ``aftermath.toml`` and the catalogue.

Pure. Such a rank is the root only where no failure explains it (``root``).
"""

from __future__ import annotations

import functools
import sys
from typing import Final

import msgspec

from rankscope.agent.failures.retryable import packaged_text
from rankscope.diag.classify.catalogue import Catalogue, load_catalogue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE: Final = "aftermath.toml"


class AftermathEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[aftermath]]``."""

    texts: tuple[str, ...]
    unless: tuple[str, ...] = ()


class OwnEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[own]]``: whose words these are has a cause of its own, whatever else stands there."""

    texts: tuple[str, ...]


class Aftermath(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``aftermath.toml``."""

    schema: int
    aftermath: tuple[AftermathEntry, ...]
    own: tuple[OwnEntry, ...]


@functools.lru_cache(maxsize=1)
def packaged_aftermath() -> Aftermath:
    """The table that comes with the package."""
    return msgspec.convert(tomllib.loads(packaged_text(FILE)), Aftermath)


def is_aftermath(message: str, *, catalogue: Catalogue | None = None) -> bool:
    """Whether this is what follows from another rank's end.

    Args:
        message: the line that a person would read.
        catalogue: knows the connections that closed; the packaged one by default.
    """
    table = packaged_aftermath()
    if any(text in message for entry in table.own for text in entry.texts):
        return False
    for entry in table.aftermath:
        if any(text in message for text in entry.texts):
            return not any(text in message for text in entry.unless)
    return (catalogue or load_catalogue()).is_consequence(message)
