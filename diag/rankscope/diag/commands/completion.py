"""``diag completion``: a script that lets a shell complete verbs, flags, and the ids of stored jobs."""

from __future__ import annotations

import argparse
import contextlib
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from rankscope.diag.commands.flags import VerbParser
from rankscope.diag.errors import RankscopeError

SUMMARY = "shell completion: bash, zsh, fish"
SHELLS: Final = ("bash", "zsh", "fish")
_GROUP: Final = "rankscope.commands"
_JOBS: Final = {"job", "names"}
"""Arguments that a job's name may be given for."""
_FILES: Final = {"output", "html", "folded", "speedscope", "catalogue", "user_code", "shared"}
_LIST: Final = """local jobs="${RANKSCOPE_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/rankscope}/jobs" """
# bash inserts a candidate as it is, unquoted: only names as jobs' folders have them are offered.
_PREAMBLE: Final = {
    "bash": f"""
_rankscope_jobs() {{
  {_LIST}
  local name
  for name in "$jobs"/*/; do
    name="${{name%/}}"
    name="${{name##*/}}"
    case "$name" in
      .*|*[!-A-Za-z0-9_.~@+,=:%]*) ;;
      "$1"*) printf '%s\\n' "$name" ;;
    esac
  done
  compgen -f -- "$1"
}}
""",
    "zsh": f"""
_rankscope_jobs() {{
  {_LIST}
  local -a ids
  ids=("$jobs"/*(N/:t))
  compadd -a ids
  _files
}}
""",
    "fish": """
function _rankscope_jobs
  set -l state ~/.local/state
  test -n "$XDG_STATE_HOME"; and set state $XDG_STATE_HOME
  set -l home $state/rankscope
  test -n "$RANKSCOPE_HOME"; and set home $RANKSCOPE_HOME
  for folder in $home/jobs/*/
    string replace -r '.*/(.*)/$' '$1' -- $folder
  end
end
""",
}
_FISH_JOBS: Final = "(_rankscope_jobs)"
"""shtab puts it between double quotes, so there is neither a quote nor a variable in it."""


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag completion``."""
    parser = VerbParser(
        prog="diag completion",
        description="Print a script for a shell: diag completion bash > "
        "~/.local/share/bash-completion/completions/diag",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Print the script.

    Returns:
        0.
    """
    options = prepare_parser().parse_args(arguments)
    import shtab

    from rankscope.diag.streams import answer

    text = shtab.complete(_whole_parser(), shell=options.shell, preamble=_PREAMBLE[options.shell])
    answer(lambda out: print(text, file=out))
    return 0


def _whole_parser() -> argparse.ArgumentParser:
    """All verbs as one parser, with what a shell needs to know of their arguments."""
    from importlib.metadata import entry_points

    whole = argparse.ArgumentParser(prog="diag")
    verbs = whole.add_subparsers()
    for entry in sorted(entry_points(group=_GROUP), key=lambda entry: entry.name):
        module = importlib.import_module(entry.value)
        own = _parser_of(module)
        if own is not None:
            _describe(own)
        parents = [own] if own is not None else []
        verbs.add_parser(
            entry.name,
            parents=parents,
            add_help=own is None,
            help=module.SUMMARY,
            conflict_handler="resolve",
        )
    return whole


def _parser_of(module: ModuleType) -> argparse.ArgumentParser | None:
    """The parser of a verb; that of ``run`` is torch's, and takes its import."""
    with contextlib.suppress(AttributeError, RankscopeError):
        build = getattr(module, "prepare_parser", None) or module.build_parser
        parser: argparse.ArgumentParser = build()
        return parser
    return None


def _describe(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:  # noqa: SLF001 - argparse tells them no other way
        complete: object = None
        if action.dest in _JOBS and not action.option_strings:
            complete = {"bash": "_rankscope_jobs", "zsh": "_rankscope_jobs", "fish": _FISH_JOBS}
        elif action.dest in _FILES:
            import shtab

            complete = shtab.FILE
        if complete is not None:
            action.complete = complete  # type: ignore[attr-defined]  # shtab reads it
