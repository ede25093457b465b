"""What people and hosts are called in a job's texts, and what they are called instead. Pure.

Each gets a name of its own (``user-1``, ``node-2``), the same everywhere, so that what belongs together still
does. Numbers are given in the order of the names, so the same job is redacted to the same bytes.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

_HOME: Final = re.compile(
    r"(?:/home|/Users|/export/home|/mnt/home|/nfs/home|/var/home)/([^/\s\"':;,()<>\[\]]+)"
)
_EMAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_IPV4: Final = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.-]*\.\d|\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){3,8}[0-9a-fA-F]{1,5}(?![\w:])")
_EVERYBODY: Final = frozenset(
    {
        "root",
        "user",
        "users",
        "ubuntu",
        "admin",
        "nobody",
        "shared",
        "data",
        "home",
        "python",
        "torch",
        "train",
        "removed",
        "mail",
        "address",
        "node",
    }
)
"""Names of no person: taken out of a path they stay in other texts."""
_SHORTEST: Final = 3
_MARKS: Final = frozenset({"removed", "mail", "e-mail"})
"""Words of the marks that stand for what was taken out."""


def users_in(text: str) -> set[str]:
    """Names of users whose home a text names."""
    return {name for name in _HOME.findall(text) if name not in {".", ".."}}


@dataclass(slots=True)
class Names:
    """Who is called what.

    Attributes:
        users: the new name of each.
        hosts: likewise; empty to keep hosts and addresses.
        homes: home folders that lie elsewhere, and what stands for them.
    """

    users: Mapping[str, str]
    hosts: Mapping[str, str]
    homes: Mapping[str, str] = field(default_factory=dict[str, str])
    keeps_addresses: bool = False
    _addresses: dict[str, str] = field(default_factory=dict[str, str])
    _user_word: re.Pattern[str] | None = None
    _host_word: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        people = [name for name in self.users if len(name) >= _SHORTEST and name not in _EVERYBODY]
        self._user_word = _words(people)
        self._host_word = _words(name for name in self.hosts if name not in _MARKS)

    def without_users(self, text: str) -> tuple[str, int]:
        """The text without users' names and homes, and how often they stood there."""
        count = 0
        for home, instead in self.homes.items():
            count += text.count(home)
            text = text.replace(home, instead)

        def renamed(found: re.Match[str]) -> str:
            nonlocal count
            name = found[1]
            if name not in self.users:
                return found[0]
            count += self.users[name] != name
            return f"{found[0][: -len(name)]}{self.users[name]}"

        text, letters = _EMAIL.subn("[e-mail]", text)
        text = _HOME.sub(renamed, text)
        text, words = _replace(self._user_word, self.users, text)
        return text, count + words + letters

    def without_hosts(self, text: str) -> tuple[str, int]:
        """The text without hosts' names and addresses, and how often they stood there."""
        text, count = _replace(self._host_word, self.hosts, text)
        if self.keeps_addresses:
            return text, count

        def renamed(found: re.Match[str]) -> str:
            nonlocal count
            instead = self._address(found[0])
            count += instead != found[0]
            return instead

        return _IPV6.sub(renamed, _IPV4.sub(renamed, text)), count

    def _address(self, text: str) -> str:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            address_text, _, port = text.rpartition(":")
            # ``fd00::1:29500``: the port of a connection stands behind its address.
            return (
                f"{self._address(address_text)}:{port}"
                if port.isdecimal() and address_text.count(":") > 1
                else text
            )
        if address.is_loopback or address.is_unspecified:
            return text
        return self._addresses.setdefault(text, f"address-{len(self._addresses) + 1}")


def numbered(names: Iterable[str], what: str) -> dict[str, str]:
    """A new name for each: ``user-1`` for the first of them. One that has such a name already keeps it."""
    all_names = set(names)
    new_already = re.compile(rf"{what}-\d+")
    free = (name for number in itertools.count(1) if (name := f"{what}-{number}") not in all_names)
    return {name: name if new_already.fullmatch(name) else next(free) for name in sorted(all_names)}


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    if not longest_first:
        return None
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9_])")


def _replace(pattern: re.Pattern[str] | None, names: Mapping[str, str], text: str) -> tuple[str, int]:
    count = 0

    def renamed(found: re.Match[str]) -> str:
        nonlocal count
        count += names[found[0]] != found[0]
        return names[found[0]]

    return (text if pattern is None else pattern.sub(renamed, text)), count
