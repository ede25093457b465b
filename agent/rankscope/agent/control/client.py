"""The client of an agent's control socket, for an asyncio program beside it; loads no torch.

Every question has a deadline and a bound on its answer; what goes wrong is one ``ControlError``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from rankscope.agent.control.messages import (
    ANALYZE_SECONDS,
    ANSWER_SECONDS,
    MAX_ANSWER,
    Analyze,
    Answer,
    ChangeSettings,
    GetRecords,
    RecordsAnswer,
    Request,
    SettingsAnswer,
    Value,
    refused,
)

T = TypeVar("T")


class ControlClient:
    """Asks one agent; a connection for each question.

    Args:
        path: its control socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    async def analyze(self, *, by: str = "", timeout: float = ANALYZE_SECONDS) -> bytes:
        """Have the ranks of this agent looked at now.

        Args:
            by: who asks, for the record.
            timeout: seconds to wait at most.

        Returns:
            The diagnosis as JSON, as ``diag analyze --json`` prints it.

        Raises:
            ControlError: a refusal (``busy`` while another one is under way), or no answer.
        """
        return bytes(await self._ask(Analyze(by), timeout))

    async def change_settings(
        self, change: Mapping[str, Value], *, by: str = "", timeout: float = ANSWER_SECONDS
    ) -> SettingsAnswer:
        """Change settings while the job runs.

        Args:
            change: new values by option name; none to read those in force.
            by: who asks, for the record.
            timeout: seconds to wait at most.

        Raises:
            ControlError: ``bad_request`` names what is not allowed, and nothing was changed; or no answer.
        """
        answer = await self._ask(ChangeSettings(dict(change), by), timeout)
        return self._decode(answer, SettingsAnswer)

    async def records(self, *, timeout: float = ANSWER_SECONDS) -> RecordsAnswer:
        """What is in the agent's memory because it could not be written.

        Args:
            timeout: seconds to wait at most.

        Raises:
            ControlError: no answer.
        """
        return self._decode(await self._ask(GetRecords(), timeout), RecordsAnswer)

    async def _ask(self, request: Request, timeout: float) -> msgspec.Raw:
        try:
            line = await asyncio.wait_for(self._exchange(msgspec.json.encode(request) + b"\n"), timeout)
        except (asyncio.TimeoutError, TimeoutError):
            raise refused("unavailable", f"the agent did not answer within {timeout:g} s") from None
        except (asyncio.LimitOverrunError, ValueError):
            raise refused("failed", f"the agent's answer has more than {MAX_ANSWER} bytes") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise refused("unavailable", f"the agent cannot be reached: {reason}", retry_after=1) from None
        if not line.endswith(b"\n"):
            raise refused("unavailable", "the agent ended the connection without an answer", retry_after=1)
        answer = self._decode(line, Answer)
        if answer.error is not None:
            raise refused(answer.error.kind, answer.error.detail, retry_after=answer.error.retry_after)
        if not bytes(answer.ok):
            raise refused("failed", "the agent's answer says nothing")
        return answer.ok

    async def _exchange(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=MAX_ANSWER)
        try:
            writer.write(line)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.transport.abort()  # all is said; an agent that does not read must not hold us

    @staticmethod
    def _decode(line: bytes | msgspec.Raw, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(line, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise refused("failed", f"the agent's answer cannot be read: {error}") from None
