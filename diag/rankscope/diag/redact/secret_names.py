"""What names a secret has: variables, keys, flags, and the flags of single programs. Pure.

A name with ``token`` is that of a secret, one with ``tokens`` or ``tokenizer`` is training's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

_WORDS: Final = re.compile(
    r"passwd|password|passphrase|passcode|secret|token(?!s|iz|[_-]?(?:count|id|per|len|num))|api[_-]?key"
    r"|access[_-]?key|private[_-]?key|account[_-]?key|auth[_-]?key|signing[_-]?key|encryption[_-]?key"
    r"|credential|authorization|cookie|signature|session[_-]?key"
    r"|webhook(?:s|[_-]?(?:url|uri|address))?(?![\w-])"
    r"|(?<![a-z])pwd(?![a-z])|(?<![a-z])pass(?![a-z])|_auth(?![a-z])",
    re.IGNORECASE,
)
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*_(?:KEY|PAT|PW|PSK|CREDS?|SAS|DSN)")
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NEVER_A_NUMBER: Final = re.compile(r"pass|pwd|secret|credential", re.IGNORECASE)
SECRET_SETTINGS: Final = frozenset({"webhook", "notify-command"})
"""Settings of ``diag run`` whose values are secrets; every other one explains what the job did."""
_SHORT_FLAGS: Final = (
    (re.compile(r"sshpass|mysql\w*|mariadb[\w-]*|mongo\w*"), re.compile("-p")),
    (re.compile(r"redis-cli"), re.compile("-a")),
    (re.compile(r"wandb"), re.compile("login|--relogin")),
    (re.compile(r"ldap\w+"), re.compile("-w")),
    (re.compile(r"curl|https?|wget"), re.compile("-[uUb]|--(?:proxy-)?user|--oauth2-bearer|--cookie")),
)
_LOGIN: Final = re.compile(r"docker|podman|nerdctl|helm|skopeo|oras|az")


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret, also when it is percent-encoded or in camel case."""
    plain = _CAMEL.sub("_", unquote(name).replace(" ", "_"))
    return bool(_WORDS.search(plain) or _VARIABLE.fullmatch(plain))


def may_be_a_number(name: str) -> bool:
    """Whether a number under a secret's name is none: ``token=5``, but not ``password=5``."""
    return not _NEVER_A_NUMBER.search(name)


def secret_flag(program: str, words: Sequence[str]) -> re.Pattern[str] | None:
    """The flag of a program that a secret stands behind.

    Args:
        program: its name, without a folder.
        words: of its command line, the first few.
    """
    for names, flag in _SHORT_FLAGS:
        if names.fullmatch(program):
            return flag
    return re.compile("-p") if _LOGIN.fullmatch(program) and "login" in words else None
