"""Answers requests of the control socket: has ranks looked at, changes settings, tells what is in memory.

Called in the socket's thread; a look is answered later, from the thread that judged it. Nothing here decides
anything about the job, or stops a worker.
"""

from __future__ import annotations

import msgspec

from rankscope.agent.answering.live_settings import LiveSettings
from rankscope.agent.control.listener import Reply
from rankscope.agent.control.messages import (
    Analyze,
    ChangeSettings,
    GetRecords,
    RecordsAnswer,
    Refusal,
    Request,
)
from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.watching.on_demand import NotLookedError
from rankscope.agent.watching.watch import Watch
from rankscope.diag.model import Diagnosis
from rankscope.diag.report import as_told
from rankscope.diag.streams import json_bytes


class Answers:
    """What one agent answers.

    Args:
        watch: looks.
        records: have what could not be written.
        ledger: keeps that somebody has asked.
        settings: those in force.
    """

    def __init__(self, *, watch: Watch, records: Records, ledger: Ledger, settings: LiveSettings) -> None:
        self._watch = watch
        self._records = records
        self._ledger = ledger
        self._settings = settings

    def answer(self, request: Request, reply: Reply) -> None:
        """Begin to answer; see ``control.listener.Answering``.

        Raises:
            ControlError: the request is refused.
        """
        match request:
            case Analyze():
                self._analyze(request.by, reply)
            case ChangeSettings():
                reply(_raw(self._settings.change(request.change, by=request.by)))
            case GetRecords():
                reply(_raw(self._unwritten()))

    def _analyze(self, by: str, reply: Reply) -> None:
        def answer(found: Diagnosis | NotLookedError) -> None:
            if isinstance(found, NotLookedError):
                reply(_refusal(found))
                return
            self._ledger.analyzed(found, by)
            reply(msgspec.Raw(json_bytes(as_told(found))))

        try:
            self._watch.look_now(answer)
        except NotLookedError as error:
            reply(_refusal(error))

    def _unwritten(self) -> RecordsAnswer:
        events, diagnoses = self._records.unwritten()
        return RecordsAnswer(self._records.trouble, events, diagnoses)


def _refusal(error: NotLookedError) -> Refusal:
    return Refusal(error.why, str(error), error.retry_after)


def _raw(answer: msgspec.Struct) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(answer))
