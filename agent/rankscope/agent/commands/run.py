"""``diag run``: torchrun's command line through torch's own parser, launched by our agent."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from rankscope.agent.settings import OPTIONS, Settings, add_arguments, resolve
from rankscope.diag.errors import RankscopeError, UsageError
from rankscope.diag.streams import fill_closed, tell

if TYPE_CHECKING:
    from rankscope.agent.session import Session

SUMMARY = "launch a training job as torchrun does, watched"
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Those that torch handles by default (``--signals-to-handle``)."""


def main(arguments: Sequence[str]) -> int:
    """Launch a job.

    Returns:
        0 done, 1 failed (as torchrun), 2 usage, 75 run it again.
    """
    fill_closed()
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
    return parser.parse_args(arguments)


def build_parser() -> argparse.ArgumentParser:
    """Torch's own parser with Rankscope's group added.

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
    _keep_abbreviations(parser)

    def error(message: str) -> NoReturn:
        raise UsageError(f"{message} (diag run --help lists all flags)")

    parser.error = error  # type: ignore[method-assign]
    return parser


def _keep_abbreviations(parser: argparse.ArgumentParser) -> None:
    """Let torchrun's abbreviations mean what they mean there: ours are not completed."""
    complete = parser._get_option_tuples  # noqa: SLF001 - argparse has no public way
    ours = {"--" + option.name for option in OPTIONS} | {
        "--" + option.name.replace("-", "_") for option in OPTIONS
    }

    def torch_only(option_string: str) -> Any:
        return [match for match in complete(option_string) if match[1] not in ours]

    parser._get_option_tuples = torch_only  # type: ignore[method-assign]  # noqa: SLF001


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
    """Launch what was parsed; returns the exit status."""
    settings = resolve(arguments, os.environ)
    check_script(arguments)
    from rankscope.agent.torchrun import config_of

    try:
        config, entrypoint, entry_arguments = config_of(arguments)
    except (ValueError, AssertionError, RuntimeError) as error:
        raise UsageError(str(error)) from error
    return _launch(config, entrypoint, entry_arguments, settings, arguments)


def _launch(
    config: Any,
    entrypoint: Any,
    entry_arguments: list[str],
    settings: Settings,
    arguments: argparse.Namespace,
) -> NoReturn:
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record

    from rankscope.agent.launch import launch_agent
    from rankscope.agent.logs.wanted import capture_wanted
    from rankscope.agent.session import Session
    from rankscope.agent.torchrun import agent_factory, captured_logs

    session = Session(
        run_id=config.run_id,
        command=[arguments.training_script, *arguments.training_script_args],
        settings=settings,
        nodes=f"{config.min_nodes}:{config.max_nodes}",
    )
    capture, why = capture_wanted(
        settings.log_capture,  # type: ignore[arg-type]
        redirects_given=arguments.redirects != "0" or arguments.logs_specs is not None,
        tee_given=arguments.tee != "0",
        stdin_tty=os.isatty(0),
        stdout_tty=os.isatty(1),
    )
    if not capture and settings.log_capture != "off":
        session.console.say(why)
    result, code = "failed", 1
    # Torch sets its own handlers when the workers start; a signal before that must end everything as well.
    _handle_signals(session.signals.handle)
    leaving = threading.Lock()
    session.abandon = partial(_abandon, session, leaving)
    try:
        session.open(capture_logs=capture)
        config.logs_specs = captured_logs(session, config, is_function=callable(entrypoint))
        record(launch_agent)(config, entrypoint, entry_arguments, make_agent=agent_factory(session))
        result, code = "succeeded", 0
    except ChildFailedError:
        decision = session.decision
        code = decision.exit_code or 1 if decision is not None else 1
        traceback.print_exc()
    except SignalException as error:
        session.signals.acting()
        result = f"stopped by {error.sigval.name}"
        traceback.print_exc()
    except Exception:  # noqa: BLE001 - the process's edge: Python's own answer, our cleaning up
        traceback.print_exc()
    leaving.acquire()  # never given back: whoever has it ends the process
    session.signals.arm()
    try:
        session.finish_output()
    except SignalException:
        # Asked to end while a slow console was still taking output: what was lost has been said.
        session.signals.acting()
        code = code or 1
    # The rest takes a moment and must not be left half done.
    _handle_signals(signal.SIG_IGN)
    session.close(result=result, exit_code=code)
    _leave(code)


def _handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in _ENDING:
        with contextlib.suppress(ValueError):  # another thread than the main one may not
            signal.signal(number, handler)


def _abandon(session: Session, leaving: threading.Lock, sent: signal.Signals) -> None:
    """End the process from another thread: the main one is stuck in torch."""
    if not leaving.acquire(blocking=False):
        return
    session.services.finish_logs()
    session.close(result=f"stopped by {sent.name}", exit_code=1)
    os._exit(1)


def _leave(code: int) -> NoReturn:
    """End this process with ``code`` whatever the interpreter's teardown would meet.

    A thread that a signal left in torch's store aborts it there (134 instead of the code, seen once), and one
    that is stuck on a lost share would keep it for ever.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - what a normal end runs
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)
