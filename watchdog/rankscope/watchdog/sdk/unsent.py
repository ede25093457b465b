"""What belongs into the record and found the agent's pipe full, until it is sent. Knows no pipe.

Only the last of a kind is kept: a script that sets a value again and again costs one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Lines = Sequence[Mapping[str, object]]


class Unsent:
    """Lines by the name of their event. May be changed in the middle of any method, by a signal handler."""

    def __init__(self) -> None:
        self._lines: dict[str, Lines] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, name: str, lines: Lines) -> None:
        """Keep ``lines`` in place of those of the same name; of settings, those not set again stay."""
        if name == "settings":
            lines = [{"values": {**_values(self._lines.get(name, ())), **_values(lines)}}]
        self._lines[name] = lines

    def all(self) -> list[tuple[str, Lines]]:
        """Names with their lines, in the order in which they came."""
        return list(self._lines.items())

    def settle(self, name: str, lines: Lines) -> None:
        """Forget ``lines``, unless others have taken their place."""
        if self._lines.get(name) is lines:
            self._lines.pop(name, None)


def _values(lines: Lines) -> Mapping[str, object]:
    values = lines[0].get("values") if lines else None
    return values if isinstance(values, Mapping) else {}
