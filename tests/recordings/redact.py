"""Takes this machine out of a job's records: paths, addresses, the boot. Pure: texts in, texts out.

Every text of a file is replaced alike, so that what is the same place stays the same. What is left that looks
like a path of a person or a scratch folder is refused, not published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_LEFT_OVER: Final = re.compile(r"/(?:root|home|Users|tmp|var/tmp|work|mnt|builds?)/[^\"\s]*")
_ADDRESS: Final = re.compile(r"\b(?!127\.)(?:\d{1,3}\.){3}\d{1,3}(?=[:\"])")
ELSEWHERE: Final = "192.0.2.1"
"""An address of the block for documentation (RFC 5737)."""


def redacted(text: str, places: Mapping[str, str]) -> str:
    """A file's text without what is only true here.

    Args:
        text: the file's.
        places: what stands for each text to be replaced; longer ones go first.

    Raises:
        ValueError: a path is left that is one of this machine.
    """
    for place in sorted(places, key=len, reverse=True):
        text = text.replace(place, places[place])
    text = _ADDRESS.sub(ELSEWHERE, text)
    left = _LEFT_OVER.search(text)
    if left is not None:
        raise ValueError(f"a path of this machine is left: {left.group()}")
    return text
