"""The errors of Rankscope. Only ``main`` turns them into exit codes.

::

    RankscopeError      hint: what to do; exit_code: of the command that ends with it
      UsageError        2   wrong flag, no such job, unreadable input
      CaptureError      1   a tool could not look at a process
      StoreError        1   a stored file cannot be read or written
"""

from __future__ import annotations


class RankscopeError(Exception):
    """Root of all errors; a worker's training loop never sees one.

    Attributes:
        hint: one line that says what to do, may be empty.
        exit_code: exit status of a command that ends with this error.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(RankscopeError):
    """What the user asked for cannot be done as asked."""

    exit_code = 2


class CaptureError(RankscopeError):
    """A tool could not look at a process."""


class StoreError(RankscopeError):
    """A stored file cannot be read or written."""
