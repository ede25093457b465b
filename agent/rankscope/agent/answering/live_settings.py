"""The settings in force, and their change while the job runs: recorded first, in force right after.

What can be changed and how it is read is ``settings.live``'s (pure). It must not know who reads a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rankscope.agent.control.messages import Change, InForce, SettingsAnswer, Value, refused
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.settings.live import CHANGEABLE, DECIDE_ANEW, changed
from rankscope.agent.settings.shown import described
from rankscope.agent.settings.values import Settings
from rankscope.diag.errors import UsageError

_LONGEST_SHOWN: Final = 100


class LiveSettings:
    """One agent's settings. ``change`` is for one thread.

    Args:
        settings: those at the start.
        ledger: keeps each change.
        use: makes settings hold; whether a hang that was acted on is to be decided about anew is its second
            argument.
        say: shows a line.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        ledger: Ledger,
        use: Callable[[Settings, bool], None],
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._use = use
        self._say = say

    def change(self, wanted: Mapping[str, Value], *, by: str) -> SettingsAnswer:
        """Change what is wanted, all of it or nothing; tells what is in force then.

        Args:
            wanted: by name; nothing: only tell.
            by: who asks.

        Raises:
            ControlError: something is not allowed.
        """
        try:
            settings = changed(self._settings, wanted)
        except UsageError as error:
            raise refused("bad_request", str(error)) from None
        before, after = described(self._settings), described(settings)
        differing = {
            name: Change(before[name]["value"], after[name]["value"])
            for name in after
            if before[name]["value"] != after[name]["value"]
        }
        if differing:
            self._record(differing, by)
        self._settings = settings
        if differing:
            self._use(settings, not DECIDE_ANEW.isdisjoint(differing))
        return SettingsAnswer(
            differing,
            {name: InForce(one["value"], one["source"], name in CHANGEABLE) for name, one in after.items()},
        )

    def _record(self, differing: Mapping[str, Change], by: str) -> None:
        # First: a decision that follows from it must not stand before it.
        self._ledger.settings_changed_by(by, {name: (one.old, one.new) for name, one in differing.items()})
        told = ", ".join(f"{name} {_short(one.old)} -> {_short(one.new)}" for name, one in differing.items())
        who = by if by.isprintable() else ascii(by)
        self._say(f"settings changed{f' by {_short(who)}' if who else ''}: {told}")


def _short(value: Value) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
