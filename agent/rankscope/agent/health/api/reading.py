"""The server's end of its reader: one process, started when it is first needed, killed when it is silent.

Questions wait in a bounded queue; each has a deadline that its wait counts for. It knows no HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec

from rankscope.agent.health.api.questions import AnswerHead, Question
from rankscope.agent.health.api.refusal import NoAnswerError

ANSWER_SECONDS: Final = 15.0
"""That an answer may take, the wait for those before it included."""
MOST_WAITING: Final = 64
_LARGEST: Final = 256 << 20
_RETRY_AFTER: Final = 5
_MOST_STUCK: Final = 2
"""Readers that were killed and do not end: the kernel waits for a share that is gone."""
_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10));"
    " from rankscope.agent.health.api.reader import main; sys.exit(main())"
)


class Reading:
    """Asks the reader of one job folder.

    Args:
        folder: the job's.
        seconds: that an answer may take.
    """

    def __init__(self, folder: Path, *, seconds: float = ANSWER_SECONDS) -> None:
        self._folder = folder
        self._seconds = seconds
        self._process: asyncio.subprocess.Process | None = None
        self._killed: list[asyncio.subprocess.Process] = []
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[bytes]] = set()
        self._waiting = 0

    @property
    def pid(self) -> int | None:
        """Of the reader, ``None`` while there is none."""
        return self._process.pid if self._process is not None else None

    async def ask(self, question: Question) -> bytes:
        """The answer to a question, as JSON.

        Raises:
            NoAnswerError: there is none, or none in time.
        """
        if self._waiting >= MOST_WAITING:
            raise NoAnswerError(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many readers of the records", retry_after=_RETRY_AFTER
            )
        # A task of its own: a client that goes in the middle must not cut off the reader's answer.
        task = asyncio.create_task(self._in_time(question), name="rankscope-health-read")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[bytes]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it has been told, or nobody waits for it any more

    async def _in_time(self, question: Question) -> bytes:
        self._waiting += 1
        try:
            head, data = await asyncio.wait_for(self._in_turn(question), self._seconds)
        except (asyncio.TimeoutError, TimeoutError):
            raise NoAnswerError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the records could not be read within {self._seconds:g} s",
                retry_after=_RETRY_AFTER,
            ) from None
        except (OSError, EOFError, ValueError, msgspec.DecodeError):
            raise NoAnswerError(
                HTTPStatus.SERVICE_UNAVAILABLE, "the records could not be read just now", retry_after=1
            ) from None
        finally:
            self._waiting -= 1
        if head.status != HTTPStatus.OK:
            retry_after = 1 if head.status == HTTPStatus.SERVICE_UNAVAILABLE else None
            raise NoAnswerError(head.status, data.decode("utf-8", "replace"), retry_after=retry_after)
        return data

    async def _in_turn(self, question: Question) -> tuple[AnswerHead, bytes]:
        async with self._turn:
            process = await self._running()
            try:
                return await self._exchange(process, question)
            except BaseException:
                # Cut off in the middle of an answer, or it does not answer: the next question has a new one.
                self._drop(process)
                raise

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        self._killed = [one for one in self._killed if one.returncode is None]
        if len(self._killed) >= _MOST_STUCK:
            raise NoAnswerError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the file system with the records does not answer",
                retry_after=_RETRY_AFTER,
            )
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-c",
            _BOOT,
            "\n".join(path for path in sys.path if path.startswith("/")),
            str(self._folder),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
        )
        return self._process

    async def _exchange(
        self, process: asyncio.subprocess.Process, question: Question
    ) -> tuple[AnswerHead, bytes]:
        asked, told = process.stdin, process.stdout
        if asked is None or told is None:
            raise EOFError
        asked.write(msgspec.json.encode(question) + b"\n")
        await asked.drain()
        line = await told.readline()
        if not line:
            raise EOFError
        head = msgspec.json.decode(line, type=AnswerHead)
        if not 0 <= head.size <= _LARGEST:
            raise ValueError(head.size)
        return head, await told.readexactly(head.size)

    def _drop(self, process: asyncio.subprocess.Process) -> None:
        if self._process is process:
            self._process = None
            self._killed.append(process)
        with contextlib.suppress(ProcessLookupError):
            process.kill()

    async def close(self) -> None:
        """End the reader."""
        for task in list(self._tasks):
            task.cancel()
        process = self._process
        if process is None:
            return
        self._drop(process)
        with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
            await asyncio.wait_for(process.wait(), 1.0)
