"""What the server needs for the paths that a token opens: the control socket, the token, where records lie.

Everything here may fail, is said once, and costs the job nothing. The token itself is never said.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from rankscope.agent.bounded_call import TookTooLongError, within
from rankscope.agent.control.listener import Answering, ControlListener
from rankscope.agent.control.messages import SOCKET_NAME
from rankscope.agent.health import HealthProcess
from rankscope.agent.health.api.token import FILE_NAME, TokenError, job_token, keep_token
from rankscope.agent.health.offer import ApiOffer, Peer

_READ_SECONDS: Final = 2.0
"""For a file of the job folder: a lost share must not keep the launch."""


class Api:
    """One agent's part of it.

    Args:
        runtime: the agent's run-time folder.
        job_folder: where the records lie.
        given: a file with the token that the user named, ``""`` for the job's own.
        say: shows a line.

    Attributes:
        token: the secret, ``""`` while there is none; token_file where it lies.
        is_settled: whether the token is the user's, or all nodes that met have it.
    """

    def __init__(self, runtime: Path, job_folder: Path, *, given: str, say: Callable[[str], None]) -> None:
        self._runtime = runtime
        self._job_folder = job_folder
        self._given = given
        self._say = say
        self._listener: ControlListener | None = None
        self._offer: Callable[[], None] | None = None
        self._peers: tuple[Peer, ...] = ()
        self.token = self.token_file = ""
        self.is_settled = bool(given)

    def start(self, health: HealthProcess, node: str, answering: Answering) -> None:
        """Listen, have a token, and give the server what it needs.

        Args:
            health: the server.
            node: name of this agent's folder.
            answering: answers on the control socket.
        """
        self.token = self._token()
        if self.token:
            control = self._listen(answering)

            def offer() -> None:
                health.offer(
                    ApiOffer(
                        job_folder=str(self._job_folder),
                        node=node,
                        token=self.token,
                        control=control,
                        token_file=self.token_file,
                        peers=self._peers,
                    )
                )

            offer()
            self._offer = offer
        if health.api_trouble:
            self._say(f"{health.api_trouble}; the health server has its open paths only")

    def met(self, token: str, peers: tuple[Peer, ...]) -> None:
        """Nodes have met.

        Args:
            token: all of them have it, and this one now, unless the user gave another; ``""`` for none.
            peers: the other agents that can be asked.
        """
        if self._offer is None:
            return
        before = self.token, self._peers
        self._peers = peers
        if token and not self._given:
            self._agree(token)
        if (self.token, self._peers) != before:
            self._offer()

    def _agree(self, token: str) -> None:
        if token == self.token:
            self.is_settled = True
        elif self._kept(token):
            self.token, self.is_settled = token, True
            self._say(f"the job's token is that of its other nodes now (in {self.token_file})")

    def _kept(self, token: str) -> bool:
        """Whether there is a file that has it now."""
        for path in dict.fromkeys((self.token_file, str(self._runtime / FILE_NAME))):
            keep = partial(keep_token, Path(path), token)
            try:
                within(_READ_SECONDS, keep, name="rankscope-token")
            except (TokenError, TookTooLongError) as error:
                self._say(f"the token of the job's other nodes cannot be kept in {path}: {error}")
            else:
                self.token_file = path
                return True
        return False

    def close(self) -> None:
        """End the control socket."""
        if self._listener is not None:
            self._listener.close()

    def _listen(self, answering: Answering) -> str:
        path = self._runtime / SOCKET_NAME
        listener = ControlListener(path, answering)
        try:
            listener.start()
        except OSError as error:
            self._say(f"no control socket ({error.strerror or error}): no analysis and no change on request")
            return ""
        self._listener = listener
        return str(path)

    def _token(self) -> str:
        """The job's; where its folder cannot have one, one of this agent's own. ``""``: none can be had."""
        if self._given:
            return self._try(Path(self._given), given=Path(self._given)) or ""
        of_job, own = self._job_folder / FILE_NAME, self._runtime / FILE_NAME
        token = self._try(of_job)
        if token is None and (token := self._try(own)) is not None:
            self._say(f"the token of this agent alone is in {own}")
        return token or ""

    def _try(self, path: Path, *, given: Path | None = None) -> str | None:
        try:
            token = within(_READ_SECONDS, partial(job_token, path, given=given), name="rankscope-token")
        except TookTooLongError:
            self._say(f"no token: {path} did not answer within {_READ_SECONDS:g} s")
        except TokenError as error:
            self._say(f"{error}" + (f" ({error.hint})" if error.hint else ""))
        else:
            self.token_file = str(path)
            return token
        return None


def url_of(address: tuple[str, int]) -> str:
    """``http://host:port``."""
    host, port = address
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
