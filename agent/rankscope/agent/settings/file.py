"""The settings file: TOML with the flags' names, dashed or underscored, flat or in a ``[rankscope]`` table.

It gives a layer, and leaves its values to whoever reads settings.
"""

from __future__ import annotations

import difflib
import os
import stat
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final, cast

from rankscope.agent.bounded_call import TookTooLongError, within
from rankscope.agent.settings.layers import FILE, Given, Layer, refusal, split_words
from rankscope.agent.settings.option import Option
from rankscope.agent.settings.table import DIAG_CONFIG, READABLE
from rankscope.diag.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE_NAME: Final = "config.toml"
TABLE: Final = "rankscope"
_LARGEST: Final = 1 << 20
_READ_TIMEOUT: Final = 5.0
"""Seconds; a share that does not answer must not keep the launch."""
_NAMES: Final = {option.name: option for option in READABLE if option.name != DIAG_CONFIG.name}


class _UnreadableError(Exception):
    """A file cannot be read; its text says why."""


class _MissingError(_UnreadableError):
    """There is no such file."""


def named_layer(named: Given) -> Layer:
    """What the file says that was named.

    Raises:
        UsageError: it cannot be read or is no TOML, a key is not known, a value is of no use.
    """
    text = named.words[-1]
    if not text.strip():
        raise refusal(DIAG_CONFIG, named)
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - a name that nobody has stays as it is
    try:
        return parse(_read_within(path), _printable(text))
    except _UnreadableError as why:
        raise UsageError(f"{named.source} {text!a}: cannot be read ({why})") from None


def found_layer(home: Path) -> tuple[Layer, str]:
    """What the file in the store's root says, and a line when it is there and cannot be read.

    A store that is lost costs records, and no launch: so does its settings file.

    Raises:
        UsageError: it is no TOML, a key is not known, a value is of no use.
    """
    name = _printable(str(home / FILE_NAME))
    try:
        return parse(_read_within(home / FILE_NAME), name), ""
    except _MissingError:
        return {}, ""
    except _UnreadableError as why:
        return {}, f"{name} cannot be read ({why}): none of its settings holds"


def parse(data: bytes, name: str) -> Layer:
    """What a settings file says.

    Args:
        data: its content.
        name: how it is called in messages.

    Raises:
        UsageError: no TOML, an unknown key (the nearest is named), a value that is no text, number, truth
            value or list of such, one setting given twice.
    """
    try:
        document = cast("dict[str, object]", tomllib.loads(data.decode()))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: not TOML ({_first_line(error)})") from None
    flat = {key: value for key, value in document.items() if key != TABLE}
    table = document.get(TABLE, {})
    if not isinstance(table, Mapping):
        raise UsageError(f"{name}: {TABLE} is a table of settings, written [{TABLE}]")
    found: dict[str, Given] = {}
    for key, value in (*flat.items(), *cast("Mapping[str, object]", table).items()):
        option = _option(key, name)
        if option.name in found:
            raise UsageError(f"{name}: {option.name} is given twice")
        source = f"{name}: {key}"
        found[option.name] = Given(_words(option, value, source), source, FILE)
    return found


def _option(key: str, name: str) -> Option[object]:
    plain = key.replace("_", "-")
    if plain in _NAMES:
        return _NAMES[plain]
    near = difflib.get_close_matches(plain, _NAMES, 1)
    hint = f"did you mean {near[0]}?" if near else "diag run --help lists them"
    raise UsageError(f"{name}: there is no setting {key[:100]!a}; {hint}")


def _words(option: Option[object], value: object, source: str) -> tuple[str, ...]:
    """A value as the same text that a flag would have; a list's items need no commas."""
    if isinstance(value, str):
        return split_words(option, [value])
    if isinstance(value, (bool, int, float)):
        return (str(value).lower(),)  # as TOML spells it
    if option.many and isinstance(value, list):
        items = cast("list[object]", value)
        if all(isinstance(item, (str, int)) and not isinstance(item, bool) for item in items):
            return tuple(str(item) for item in items)
    if option.many and isinstance(value, dict):
        return tuple(f"{key}={item}" for key, item in cast("dict[str, object]", value).items())
    raise UsageError(f"{source}: {option.allowed} expected")


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def _read_within(path: Path) -> bytes:
    """The content of a file, read beside, so that a share that does not answer can be left.

    Raises:
        _UnreadableError: why not.
    """
    try:
        return within(_READ_TIMEOUT, partial(_content, path), name="rankscope-settings")
    except TookTooLongError:
        raise _UnreadableError(f"no answer within {_READ_TIMEOUT:g} s") from None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _MissingError(error.strerror) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise _UnreadableError(reason or _first_line(error)) from None


def _content(path: Path) -> bytes:
    # Before it is opened: a pipe that nobody writes to would not answer.
    if not stat.S_ISREG(path.stat().st_mode) and str(path) != os.devnull:
        raise ValueError("not a plain file")
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"more than {_LARGEST >> 20} MiB")
    return data
