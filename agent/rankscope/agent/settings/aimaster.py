"""AIMaster's lines: its arguments in one text, and what holds when it leaves something out. Pure.

It must not know which setting does what; names and readers are the table's.
"""

from __future__ import annotations

import difflib
import shlex
from typing import Final

from rankscope.agent.settings.layers import AIMASTER, Given, Layer, split_words
from rankscope.agent.settings.option import Option
from rankscope.agent.settings.table import AIMASTER_ARGS, DIAG_CONFIG, READABLE, TORCH_RESTARTS
from rankscope.diag.errors import UsageError

DEFAULTS: Final = {
    "job-execution-mode": "Sync",
    "enable-job-restart": "False",
    "max-num-of-job-restart": "3",
    "enable-job-hang-detection": "False",
    "job-hang-interval": "1800",
    "enable-c4d-hang-detection": "False",
    "c4d-log-level": "Warning",
    "enable-job-exit-hang-detection": "False",
    "job-exit-hang-interval": "600",
    "fault-tolerant-policy": "ExitCodeAndErrorMsg",
    "max-num-of-same-error": "10",
    "max-tolerated-failure-rate": "-1",
    "isolate-nodes": "True",
}
"""Source: PAI's documentation of AIMaster, its parameters. It isolates nodes without being asked."""
_SOURCE: Final = "AIMaster's default"
_NAMES: Final = {
    option.name: option
    for option in READABLE
    if option.name not in {AIMASTER_ARGS.name, DIAG_CONFIG.name, TORCH_RESTARTS.name}
}


def line(given: Given) -> Layer:
    """What a line of AIMaster's arguments says, with the strength of whoever gave it.

    Raises:
        UsageError: an argument that is not known, one without a value, an open quote.
    """
    texts: dict[str, list[str]] = {}
    words = _words(given)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        option = _option(name, given)
        if not equals:
            text = _next_value(option, words, given)
        texts.setdefault(option.name, []).append(text)
    return {
        name: Given(
            split_words(_NAMES[name], each),
            f"{given.source} {_NAMES[name].flag}",
            given.strength,
            aimaster=True,
        )
        for name, each in texts.items()
    }


def defaults() -> Layer:
    """What holds when AIMaster's line leaves something out."""
    return {name: Given((text,), _SOURCE, AIMASTER, aimaster=True) for name, text in DEFAULTS.items()}


def _words(given: Given) -> list[str]:
    try:
        return shlex.split(given.words[-1])
    except ValueError as error:
        raise UsageError(f"{given.source}: {str(error).lower()}") from None


def _option(name: str, given: Given) -> Option[object]:
    option = _NAMES.get(name[2:].replace("_", "-")) if name.startswith("--") else None
    if option is not None:
        return option
    near = difflib.get_close_matches(name.lstrip("-").replace("_", "-"), _NAMES, 1)
    hint = f"; did you mean --{near[0]}?" if near else ""
    raise UsageError(f"{given.source}: {name[:100]!r} is no argument of AIMaster's{hint}")


def _next_value(option: Option[object], words: list[str], given: Given) -> str:
    """The word behind a flag: a switch may stand alone, everything else needs one."""
    if option.words and not (words and words[0].lower() in option.words):
        return "True"
    if not words or words[0].startswith("--"):
        raise UsageError(f"{given.source} {option.flag}: {option.allowed} expected")
    return words.pop(0)
