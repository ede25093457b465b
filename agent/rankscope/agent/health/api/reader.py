"""The reader's process: ``rankscope.agent.health.api.reader``, questions on stdin, answers on stdout.

Reading and decoding large records holds Python's interpreter for hundreds of milliseconds, and a lost share
holds a thread for good: beside the probes neither may happen, so it happens here. It asks nobody and listens
to nothing; it ends when its stdin does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from rankscope.agent.health.api.questions import AnswerHead, Question
from rankscope.agent.health.lifetime import LOOK_SIGNAL, follow_parent

PROCESS_NAME: Final = "rankscope-read"
_NICENESS: Final = 5
"""Training and probes go first."""


def main(arguments: list[str] | None = None) -> int:
    """Answer until stdin ends.

    Args:
        arguments: the job folder.

    Returns:
        Exit code: always 0.
    """
    [folder] = sys.argv[1:] if arguments is None else arguments
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for ignored in (signal.SIGINT, signal.SIGHUP, LOOK_SIGNAL):
        signal.signal(ignored, signal.SIG_IGN)
    follow_parent(PROCESS_NAME)
    os.nice(_NICENESS)
    logging.raiseExceptions = False
    logging.basicConfig(level=logging.ERROR, format=f"{PROCESS_NAME}: %(message)s")
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        _answer_all(Path(folder), sys.stdin.buffer, sys.stdout.buffer)
    return 0


def _answer_all(folder: Path, asked: BinaryIO, told: BinaryIO) -> None:
    from rankscope.agent.health.api.record_answers import RecordAnswers
    from rankscope.agent.health.api.refusal import NoAnswerError
    from rankscope.diag.store.job import JobFolder

    answering = RecordAnswers(JobFolder(folder))
    decoder = msgspec.json.Decoder(Question)
    for line in asked:
        try:
            status, data = HTTPStatus.OK, answering.answer(decoder.decode(line))
        except NoAnswerError as refusal:
            status, data = HTTPStatus(refusal.status), refusal.why.encode("utf-8", "replace")
        except Exception:  # the edge of this process: what is damaged must not end it
            logging.getLogger(PROCESS_NAME).exception("cannot answer")
            status, data = HTTPStatus.INTERNAL_SERVER_ERROR, b"the records cannot be read"
        told.write(msgspec.json.encode(AnswerHead(status, len(data))) + b"\n")
        told.write(data)
        told.flush()


if __name__ == "__main__":
    sys.exit(main())
