"""Readers: bytes of one dump format to the nouns of the model, one format a module.

A reader never sees a process, a path or a clock, and never raises on any bytes: it returns what it
could read and says what it could not.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.diag.model import ThreadStack


@dataclass(frozen=True, slots=True)
class Read:
    """What a reader got out of a dump.

    Attributes:
        threads: the threads it could read, in the order of the dump.
        problems: one line for each thing it could not read, empty when all was understood.
    """

    threads: tuple[ThreadStack, ...] = ()
    problems: tuple[str, ...] = ()
