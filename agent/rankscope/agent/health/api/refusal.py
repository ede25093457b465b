"""The one error of what answers questions about records: its status and a line for a person."""

from __future__ import annotations


class NoAnswerError(Exception):
    """There is no answer.

    Args:
        status: as HTTP has it.
        why: one line.
        retry_after: seconds after which it may be worth asking again, ``None`` when that is not known.
    """

    def __init__(self, status: int, why: str, *, retry_after: int | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.retry_after = retry_after
