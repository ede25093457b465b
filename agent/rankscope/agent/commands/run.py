"""``diag run``: torchrun's command line through torch's own parser, launched by our agent."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rankscope.agent.own_memory import share_arenas
from rankscope.agent.settings.command_line import add_arguments, attach_values, keep_torch_s_own
from rankscope.agent.settings.resolution import resolve
from rankscope.diag.errors import RankscopeError, UsageError
from rankscope.diag.streams import fill_closed, tell

SUMMARY = "launch a training job as torchrun does, watched"


def main(arguments: Sequence[str]) -> int:
    """Launch a job.

    Returns:
        0 done, 1 failed (as torchrun), 2 usage, 75 run it again, 93 do not.
    """
    fill_closed()
    share_arenas()
    try:
        return run(parse(list(arguments)))
    except RankscopeError as error:
        tell(f"diag run: {error}\n")
        return error.exit_code


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read torchrun's flags and ours.

    Raises:
        UsageError: a wrong flag or value; one line.
    """
    parser = build_parser()
    return parser.parse_args(attach_values(arguments, parser))


def build_parser() -> argparse.ArgumentParser:
    """Torch's own parser with Rankscope's groups added.

    Raises:
        RankscopeError: there is no torch to launch with.
    """
    try:
        from torch.distributed.run import get_args_parser
    except ImportError as missing:
        raise RankscopeError(
            f"torch cannot be imported ({missing}), and it launches the workers: pip install torch beside "
            f"rankscope, for {sys.executable}"
        ) from missing

    parser = get_args_parser()
    parser.prog = "diag run"
    parser.description = "Launch a distributed training job as torchrun does, watched by Rankscope."
    add_arguments(parser)
    keep_torch_s_own(parser)

    def error(message: str) -> NoReturn:
        raise UsageError(f"{message} (diag run --help lists all flags)")

    parser.error = error  # type: ignore[method-assign]
    return parser


def check_script(arguments: argparse.Namespace) -> None:
    """See that there is something to run, before anything starts.

    Raises:
        UsageError: the script or command does not exist.
    """
    script: str = arguments.training_script
    if arguments.module or script == "-" or "${" in script:
        return  # a module, a script on stdin, a name that torch completes for each rank
    if arguments.no_python and not arguments.run_path:
        if shutil.which(script) is None:
            raise UsageError(f"no such command: {script}")
        return
    if not Path(script).exists():
        raise UsageError(f"no such script: {script}")


def run(arguments: argparse.Namespace) -> int:
    """Launch what was parsed; ends the process with the job's exit status once it has begun.

    Raises:
        UsageError: a setting or one of torchrun's flags cannot be what it is.
    """
    settings = resolve(arguments, os.environ)
    settings.apply_to(arguments)
    check_script(arguments)
    from rankscope.agent.job_process import run_job
    from rankscope.agent.ranks.assignment import check_scheme
    from rankscope.agent.torchrun import config_of

    try:
        config, entrypoint, entry_arguments = config_of(arguments)
    except (ValueError, AssertionError, RuntimeError) as error:
        raise UsageError(str(error)) from error
    alone_as = config.role if config.max_nodes == 1 else None
    check_scheme(settings.rank_assignment, config.nproc_per_node, alone_as=alone_as)
    return run_job(
        config,
        entrypoint,
        entry_arguments,
        settings=settings,
        command=[arguments.training_script, *arguments.training_script_args],
        redirects_given=arguments.redirects != "0" or arguments.logs_specs is not None,
        tee_given=arguments.tee != "0",
    )
