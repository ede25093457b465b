"""The process of ``diag run``: a launch from open records to the exit code, whatever stands in the way.

It owns the process: signal handlers, and an end by ``os._exit`` that neither a lost share nor a thread stuck
in torch's store can hold up. It must not know how a command line is read nor what the agent does.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any, Final, NoReturn

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent.launcher import launch_agent
from rankscope.agent.logs.wanted import capture_wanted
from rankscope.agent.own_session import session_of
from rankscope.agent.session import Session
from rankscope.agent.settings.values import Settings
from rankscope.agent.torchrun import agent_factory, captured_logs
from rankscope.diag.errors import RankscopeError
from rankscope.diag.streams import tell

_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Those that torch handles by default (``--signals-to-handle``)."""
_FAILED: Final = 1


def run_job(
    config: LaunchConfig,
    entrypoint: Callable[..., Any] | str,
    arguments: Sequence[str],
    *,
    settings: Settings,
    command: Sequence[str],
    redirects_given: bool,
    tee_given: bool,
) -> NoReturn:
    """Launch a job and end this process with its exit code.

    Args:
        config: torch's launch configuration; its log specs are replaced where output is captured.
        entrypoint: what every worker runs.
        arguments: its arguments.
        settings: what the user wants.
        command: what is trained, for the record.
        redirects_given: torchrun's ``--redirects``, or log specs of the user's, are in use.
        tee_given: torchrun's ``--tee`` is.
    """
    session = session_of(config, command, settings)
    capture, why = capture_wanted(
        settings.log_capture,
        redirects_given=redirects_given,
        tee_given=tee_given,
        stdin_tty=os.isatty(0),
        stdout_tty=os.isatty(1),
    )
    if not capture and settings.log_capture != "off":
        session.console.say(why)
    result, code = "failed", _FAILED
    # Torch sets its own handlers when the workers start; a signal before that must end everything as well.
    _handle_signals(session.signals.handle)
    leaving = threading.Lock()
    session.beside_main.abandon = partial(_abandon, session, leaving)
    try:
        session.open(capture_logs=capture)
        for note in settings.notes:
            session.console.say(note)
        config.logs_specs = captured_logs(session, config, is_function=callable(entrypoint))
        record(launch_agent)(config, entrypoint, arguments, make_agent=agent_factory(session))
        result, code = "succeeded", 0
    except ChildFailedError:
        code = _decided(session)
        traceback.print_exc()
    except SignalException as error:
        session.signals.acting()
        result, code = f"stopped by {error.sigval.name}", _decided(session)
        # Where in torch the signal found the main thread says nothing; its error's name is what logs are
        # searched for.
        tell(f"diag run: {result} ({type(error).__name__}: {error})\n")
    except RankscopeError as error:
        code = error.exit_code
        tell(f"diag run: {error}\n")
    except Exception:  # noqa: BLE001 - the process's edge: Python's own answer, our cleaning up
        code = _decided(session)
        traceback.print_exc()
    leaving.acquire()  # never given back: whoever has it ends the process
    session.signals.arm()
    try:
        session.finish_output()
    except SignalException as error:
        # Asked to end while a slow console was still taking output: what was lost has been said.
        session.signals.acting()
        if code == 0:
            result, code = f"stopped by {error.sigval.name}", _FAILED
    # The rest takes a moment and must not be left half done.
    _handle_signals(signal.SIG_IGN)
    session.close(result=result, exit_code=code)
    _leave(code)


def _decided(session: Session) -> int:
    """The exit code of a job that did not succeed: what was decided last says which."""
    decision = session.decision
    return (decision.exit_code if decision is not None else None) or _FAILED


def _handle_signals(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in _ENDING:
        with contextlib.suppress(ValueError):  # another thread than the main one may not
            signal.signal(number, handler)


def _abandon(session: Session, leaving: threading.Lock, result: str) -> None:
    """End the process from another thread: the main one is stuck in torch."""
    if not leaving.acquire(blocking=False):
        return
    code = _decided(session)
    try:
        session.services.finish_logs(hurried=True)
        session.close(result=result, exit_code=code)
    except Exception:  # noqa: BLE001 - the process's edge: nobody else could end it any more
        traceback.print_exc()
    finally:
        os._exit(code)


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
