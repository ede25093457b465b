"""Decides whether workers' output is captured (``--log-capture``); pure, knows settings and terminals."""

from __future__ import annotations

from typing import Literal

Setting = Literal["auto", "on", "off"]


def capture_wanted(
    setting: Setting, *, redirects_given: bool, tee_given: bool, stdin_tty: bool, stdout_tty: bool
) -> tuple[bool, str]:
    """Whether to capture, and why, as a line for the user.

    Args:
        setting: what the user asked for.
        redirects_given: torchrun's ``--redirects`` was given (and is not 0).
        tee_given: torchrun's ``--tee`` was given (and is not 0).
        stdin_tty: the agent's stdin is a terminal.
        stdout_tty: the agent's stdout is a terminal.
    """
    torch_files = " and ".join(
        flag for flag, given in (("--redirects", redirects_given), ("--tee", tee_given)) if given
    )
    if setting == "off":
        return False, "log capture is off as asked; log signals are off"
    if setting == "on":
        unused = f"; {torch_files} not used" if torch_files else ""
        return True, f"log capture is on as asked{unused}"
    if torch_files:
        return False, f"log capture is off: {torch_files} given, torchrun's own files are used"
    if stdin_tty and stdout_tty:
        return False, "log capture is off: stdin and stdout are terminals; log signals are off"
    return True, "log capture is on"
