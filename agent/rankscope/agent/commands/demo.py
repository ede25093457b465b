"""``diag demo``: a real 4-rank training run in which one rank gets stuck.

What it prints at the end is read back from the stored files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, TextIO

import msgspec

from rankscope.agent.demo.faults import FAULTS
from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.store.events import TYPE_PREFIX, Event, read_events
from rankscope.diag.store.incidents import IncidentFolder, find_incident
from rankscope.diag.store.job import JobFolder, job_folder
from rankscope.diag.store.launches import RestartRecord

SUMMARY = "a real training run that hangs, is explained and restarted"
RANKS: Final = 4
STEPS: Final = 60
HANG_INTERVAL: Final = 15
"""Seconds until the hang is acted on; the default of 180 would make a long demonstration."""
DEADLINE: Final = 300.0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (diag demo --help)")


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag demo``."""
    parser = _Parser(prog="diag demo", description="Watch a training run hang, be explained and restarted.")
    parser.add_argument(
        "--rank", type=int, default=2, help=f"the rank that gets stuck, 0-{RANKS - 1} (default 2)"
    )
    faults = "; ".join(f"{fault.name}: {fault.what}" for fault in FAULTS.values())
    parser.add_argument("--fault", default="data_loading", choices=sorted(FAULTS), help=faults)
    parser.add_argument("--step", type=int, default=25, help=f"the step at which, 5-{STEPS - 1} (default 25)")
    parser.add_argument(
        "--json",
        action="store_true",
        help="what is stored as one object; the output of the job goes to standard error then",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the demonstration; 0 when the job was explained, restarted and finished."""
    options = prepare_parser().parse_args(arguments)
    if not 0 <= options.rank < RANKS:
        raise UsageError(f"--rank {options.rank}: 0 to {RANKS - 1} expected")
    if not 5 <= options.step < STEPS:  # noqa: PLR2004 - the rhythm must be known before the hang
        raise UsageError(f"--step {options.step}: 5 to {STEPS - 1} expected")
    run_id = time.strftime("demo-%Y%m%d-%H%M%S", time.gmtime())
    work = Path(tempfile.mkdtemp(prefix="rankscope-demo-"))
    command = _command(run_id, work, options)
    beside = sys.stderr if options.json else None
    print("$ diag run", " ".join(command[3:]), file=beside, flush=True)
    try:
        code = _run(command, output=beside)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    stored = _read(job_folder(run_id))
    if options.json:
        _print_json(stored, code)
    else:
        print(f"\nthe job ended with exit code {code}; what follows is read from the stored files\n")
        _print(stored)
    return max(code, 0 if stored.incident is not None and stored.restarts else 1)


def _command(run_id: str, work: Path, options: argparse.Namespace) -> list[str]:
    script = Path(__file__).resolve().parent.parent / "demo" / "train.py"
    return [
        sys.executable,
        "-m",
        "rankscope.agent",
        f"--nproc-per-node={RANKS}",
        "--max-restarts=2",
        f"--rdzv-id={run_id}",
        f"--job-hang-interval={HANG_INTERVAL}",
        str(script),
        f"--checkpoint={work / 'checkpoint.pt'}",
        f"--steps={STEPS}",
        f"--fault={options.fault}",
        f"--fault-rank={options.rank}",
        f"--fault-step={options.step}",
    ]


def _run(command: list[str], *, output: TextIO | None) -> int:
    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environ, stdout=output) as process:
        try:
            return process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.terminate()
            raise UsageError(f"the demonstration did not end within {DEADLINE:.0f} s") from None
        except KeyboardInterrupt:
            process.terminate()
            process.wait(DEADLINE)
            raise


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the run has left.

    Attributes:
        report: where the HTML report lies, beside what it is made from; ``None`` when there is none.
        trouble: what could not be read or written.
    """

    folder: JobFolder
    incident: IncidentFolder | None = None
    diagnosis: Diagnosis | None = None
    decision: Decision | None = None
    restarts: Sequence[RestartRecord] = ()
    report: Path | None = None
    trouble: Sequence[str] = ()


def _read(folder: JobFolder) -> _Stored:
    """What is stored of the job; its report is written."""
    incident = find_incident(folder.incidents, None)
    if incident is None:
        return _Stored(folder)
    # What a report takes is not loaded for `--help`.
    from rankscope.diag.commands.output_files import write_output
    from rankscope.diag.commands.report_files import html_report
    from rankscope.diag.judging.judged import Judged

    diagnosis, decision, trouble = incident.diagnosis(), None, list[str]()
    report: Path | None = incident.path / "report.html"
    try:
        write_output(str(report), html_report(Judged(diagnosis, incident=incident, folder=folder)))
    except StoreError as error:
        report = None
        trouble.append(f"report:   {error}")
    try:
        decision = incident.decision()
    except StoreError as error:
        trouble.append(f"decision: {error}")
    return _Stored(folder, incident, diagnosis, decision, _restarts(folder), report, trouble)


def _print(stored: _Stored) -> None:
    from rich.console import Console

    from rankscope.diag.report.text import render_text

    if stored.incident is None or stored.diagnosis is None:
        print(f"no incident is stored in {stored.folder.path}")
        return
    render_text(stored.diagnosis, console=Console(highlight=False))
    if stored.decision is not None:
        print(f"decision: {stored.decision.action}: {stored.decision.reason}")
    for record in stored.restarts:
        print(
            f"restart {record.restarts} at {record.restart_time} on {record.node_name}: {record.result} "
            f"after {record.duration} s"
        )
    print(f"incident: {stored.incident.path}")
    if stored.report is not None:
        print(f"report:   {stored.report}")
    for line in stored.trouble:
        print(line)
    print(f"again:    diag analyze {stored.folder.run_id}")


def _print_json(stored: _Stored, code: int) -> None:
    from rankscope.diag.report import as_told
    from rankscope.diag.streams import answer, json_line, tell

    told = {
        "schema": 1,
        "job": stored.folder.run_id,
        "exit_code": code,
        "folder": str(stored.folder.path),
        "incident": str(stored.incident.path) if stored.incident is not None else None,
        "report": str(stored.report) if stored.report is not None else None,
        "diagnosis": as_told(stored.diagnosis) if stored.diagnosis is not None else None,
        "decision": stored.decision,
        "restarts": stored.restarts,
    }
    for line in stored.trouble:
        tell(f"diag demo: {line}\n")
    answer(lambda out: print(json_line(told), end="", file=out))


def _restarts(folder: JobFolder) -> list[RestartRecord]:
    records: list[RestartRecord] = []
    for path in sorted(folder.path.glob("nodes/*/events.jsonl")):
        events, _unreadable = read_events(path)
        records += [_record(event) for event in events if event.type == TYPE_PREFIX + "restart"]
    return records


def _record(event: Event) -> RestartRecord:
    return msgspec.convert(event.data, RestartRecord)
