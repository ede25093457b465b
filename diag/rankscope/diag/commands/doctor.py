"""``diag doctor``: says before a job hangs whether this host lets it be diagnosed, and what to do if not.

The checks themselves lie in ``rankscope.diag.doctor``; here is the order of the lines, how they look, and
what the answer is as an exit code.
"""

from __future__ import annotations

import argparse
import functools
import socket
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from rankscope.diag.commands.flags import VerbParser, named, seconds
from rankscope.diag.doctor import Finding, Status
from rankscope.diag.doctor.apart import Check, run_apart
from rankscope.diag.model import SCHEMA
from rankscope.diag.streams import answer, json_line

SUMMARY = "is this host ready: can ranks be read, records be stored"
EXIT_READY: Final = 0
EXIT_MISSING: Final = 3
EXIT_UNKNOWN: Final = 5
_MOST_PORT: Final = 65535
_WIDTH: Final = 100
_INDENT: Final = 24


class Answer(msgspec.Struct, frozen=True):
    """What ``--json`` prints.

    Attributes:
        host: this host.
        time: ISO 8601, UTC.
        status: the worst of the findings.
        findings: one a line of the text form.
    """

    host: str
    time: str
    status: Status
    findings: tuple[Finding, ...]
    schema: int = SCHEMA


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag doctor``."""
    parser = VerbParser(
        prog="diag doctor", description="Check beforehand whether jobs of this host can be diagnosed."
    )
    parser.add_argument("--json", action="store_true", help="machine-readable, one object")
    parser.add_argument(
        "--shared",
        type=named,
        metavar="DIR",
        help="a folder that all nodes should share: leaves a marker, lists the others'",
    )
    parser.add_argument(
        "--port",
        type=_port,
        action="append",
        default=[],
        metavar="N",
        help="a port that should be free (--diag-port); may be given again",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="seconds one check may take (default 10); the import of torch six times that",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Check this host.

    Returns:
        0 all there is needed, 3 something is missing that diagnosis needs, 5 that could not be found out.
    """
    options = prepare_parser().parse_args(arguments)
    findings: list[Finding] = []
    for found in run_apart(_checks(options)):
        if not options.json:
            _show(_lines(found, after=findings))
        findings += found
    if options.json:
        _show(json_line(_answer(findings)).rstrip("\n"))
    return exit_code(findings)


def _show(text: str) -> None:
    answer(lambda out: print(text, file=out))


def exit_code(findings: Sequence[Finding]) -> int:
    """What is missing outranks what is not known."""
    if any(finding.status == "fail" for finding in findings):
        return EXIT_MISSING
    if any(finding.needed and not finding.known for finding in findings):
        return EXIT_UNKNOWN
    return EXIT_READY


def _checks(options: argparse.Namespace) -> list[Check]:
    # Imported here: what a check needs is loaded before the fork, what `--help` needs is not much.
    from rankscope.diag.doctor import folders, gpus, limits, shared, torch_features, tracing, visibility

    check = functools.partial(Check, timeout=options.timeout)
    # A tool is tried on two processes.
    slow = functools.partial(Check, timeout=3 * options.timeout)
    checks = [slow(name, functools.partial(tracing.check_tool, name), needed=True) for name in tracing.TOOLS]
    checks += [
        check("ptrace", tracing.check_rights),
        check("/proc", visibility.check_visibility, needed=True),
        check("run-time folder", folders.check_runtime, needed=True),
        check("store", folders.check_store, needed=True),
    ]
    if options.shared:
        path = Path(options.shared).absolute()
        checks.append(
            check(f"shared folder {path}", functools.partial(shared.check_shared, path), needed=True)
        )
    return [
        *checks,
        check(folders.SHARED_MEMORY, folders.check_shared_memory),
        check("loopback", functools.partial(limits.check_ports, options.port), needed=True),
        check("open files", limits.check_files),
        check("locked memory", limits.check_locked_memory),
        check("core files", limits.check_core_files),
        check("clock", limits.check_clock),
        check("GPU", gpus.check_gpus),
        # A cold import from a share takes its time.
        Check("torch", torch_features.check_torch, timeout=6 * options.timeout),
    ]


def _answer(findings: Sequence[Finding]) -> Answer:
    worst = max(findings, key=lambda finding: ("ok", "warn", "fail").index(finding.status))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Answer(socket.gethostname(), now, worst.status, tuple(findings))


def _lines(findings: Sequence[Finding], *, after: Sequence[Finding]) -> str:
    """Status, subject, value, and below it the remedy, once."""
    shown: list[str] = []
    for finding in findings:
        lines = textwrap.wrap(finding.value, _WIDTH - _INDENT, break_long_words=False, break_on_hyphens=False)
        shown.append(f"{finding.status:<5} {finding.what:<16}  {lines[0] if lines else ''}".rstrip())
        is_known = bool(finding.remedy) and any(finding.remedy == other.remedy for other in after)
        remedy = ["as above"] if is_known else finding.remedy.splitlines()
        below = [*lines[1:], *(f"{'   ' if place else '-> '}{line}" for place, line in enumerate(remedy))]
        shown += [f"{'':{_INDENT}}{line}" for line in below]
    return "\n".join(shown)


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MOST_PORT)) else 0
    if not 0 < port <= _MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r}: 1 to {_MOST_PORT} expected")
    return port
