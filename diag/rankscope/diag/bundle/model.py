"""The nouns of a bundle; the manifest is a file in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from rankscope.diag.model import SCHEMA

FORMAT: Final = "rankscope-bundle"
MANIFEST: Final = "MANIFEST.json"


class BundledFile(msgspec.Struct, frozen=True):
    """One file of a bundle.

    Attributes:
        name: below the bundle's folder.
        sha256: of its content, hexadecimal.
        removed: what was taken out, and how often.
        note: what else was done to it (a log that is cut).
    """

    name: str
    size_bytes: int
    sha256: str
    removed: dict[str, int] = {}
    note: str = ""


class LeftOut(msgspec.Struct, frozen=True):
    """A file of the job that is not in the bundle, and why."""

    name: str
    reason: str


class Manifest(msgspec.Struct, frozen=True):
    """What a bundle holds.

    Attributes:
        version: of Rankscope.
        hosts_kept: whether hosts and addresses have their own names in it.
        removed: what was taken out of all files together.
    """

    job: str
    version: str
    hosts_kept: bool
    files: tuple[BundledFile, ...]
    left_out: tuple[LeftOut, ...] = ()
    removed: dict[str, int] = {}
    format: str = FORMAT
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Contents:
    """A bundle before it is written: the manifest, and each file's bytes in its order."""

    manifest: Manifest
    data: tuple[bytes, ...]
