"""What an exit code means: a signal, by Python's sign or by the shell's sum, and the words for it. Pure."""

from __future__ import annotations

import signal
from typing import Final

from rankscope.agent.failures.struck import STOP_SIGNALS

BY_SHELL: Final = 128
"""What a shell, and programs like one, add to a signal's number for their exit code."""
_MEANINGS: Final = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGABRT: "aborted",
    signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction",
}
_SHELLS: Final = {126: "command cannot be executed", 127: "command not found"}


def signal_of(code: int | None) -> signal.Signals | None:
    """The signal that ended a process with this exit code, ``None`` when it was none."""
    if code is None or code == 0:
        return None
    number = -code if code < 0 else code - BY_SHELL
    try:
        return signal.Signals(number) if number > 0 else None
    except ValueError:
        return None


def as_shell_code(code: int) -> int:
    """An exit code as a shell or Kubernetes shows it: 137 for -9."""
    return BY_SHELL - code if code < 0 else code


def exit_phrase(code: int | None) -> str:
    """In words: ``killed by SIGKILL``, ``ended by SIGTERM``, ``ended with exit code 3``."""
    if code is None:
        return "ended, its exit code is not known"
    sent = signal_of(code)
    if sent is None:
        meaning = _SHELLS.get(code, "")
        return f"ended with exit code {code}{f' ({meaning})' if meaning else ''}"
    if sent in STOP_SIGNALS:
        return f"ended by {sent.name}"
    meaning = _MEANINGS.get(sent, "")
    return f"killed by {sent.name}{f' ({meaning})' if meaning else ''}"
