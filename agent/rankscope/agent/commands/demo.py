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
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from rankscope.agent.demo.faults import FAULTS
from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.model import RestartRecord
from rankscope.diag.store.events import TYPE_PREFIX, Event, read_events
from rankscope.diag.store.incidents import IncidentFolder, find_incident
from rankscope.diag.store.job import JobFolder, job_folder

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
    print("$ diag run", " ".join(command[3:]), flush=True)
    try:
        code = _run(command)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"\nthe job ended with exit code {code}; what follows is read from the stored files\n", flush=True)
    return max(code, _show(job_folder(run_id)))


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


def _run(command: list[str]) -> int:
    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        try:
            return process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.terminate()
            raise UsageError(f"the demonstration did not end within {DEADLINE:.0f} s") from None
        except KeyboardInterrupt:
            process.terminate()
            process.wait(DEADLINE)
            raise


def _show(folder: JobFolder) -> int:
    """Print diagnosis, decision and restart record; 0 when all three are there."""
    from rich.console import Console

    from rankscope.diag.report.text import render_text

    incident = find_incident(folder.incidents, None)
    if incident is None:
        print(f"no incident is stored in {folder.path}")
        return 1
    render_text(incident.diagnosis(), console=Console(highlight=False))
    _show_decision(incident)
    restarts = _restarts(folder)
    for record in restarts:
        print(
            f"restart {record.restarts} at {record.restart_time} on {record.node_name}: {record.result} "
            f"after {record.duration} s"
        )
    print(f"incident: {incident.path}")
    print(f"again:    diag analyze {folder.run_id}")
    return 0 if restarts else 1


def _show_decision(incident: IncidentFolder) -> None:
    try:
        decision = incident.decision()
    except StoreError as error:
        print(f"decision: {error}")
        return
    if decision is not None:
        print(f"decision: {decision.action}: {decision.reason}")


def _restarts(folder: JobFolder) -> list[RestartRecord]:
    records: list[RestartRecord] = []
    for path in sorted(folder.path.glob("nodes/*/events.jsonl")):
        events, _unreadable = read_events(path)
        records += [_record(event) for event in events if event.type == TYPE_PREFIX + "restart"]
    return records


def _record(event: Event) -> RestartRecord:
    return msgspec.convert(event.data, RestartRecord)
