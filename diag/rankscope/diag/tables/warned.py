"""How tables say that something is missing: a list of sentences, and one Python warning for them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence


class IncompleteRecords(UserWarning):
    """Records of a job are missing, half written, or of a version that is not known here."""


def warn_of(said: Sequence[str], *, where: str, stacklevel: int) -> None:
    """One Python warning of all that is missing; nothing when nothing is.

    Args:
        said: what is missing, a sentence each.
        where: which job, or folder.
        stacklevel: of ``warnings.warn``, counted from the caller.
    """
    if not said:
        return
    more = f" (and {len(said) - 1} more, see .warnings)" if len(said) > 1 else ""
    warnings.warn(f"{where}: {said[0]}{more}", IncompleteRecords, stacklevel=stacklevel + 1)
