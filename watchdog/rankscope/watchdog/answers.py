"""How a worker that nobody may trace still answers: the files it leaves in a private folder.

The probe writes them, whoever captures reads them (diag.capture). ``<pid>.answer`` says that the process
answers ``DUMP_SIGNAL`` with the stacks of its threads in ``<pid>.stacks``; it goes away with the readiness,
so that no signal is sent to a process that would die of it. ``<pid>.sock`` is the socket of torch's worker
server. Pure: names and one line of text; it knows no signal handler and no socket.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

DUMP_SIGNAL: Final = 57
"""A real-time signal (``SIGRTMIN+23`` with glibc): a number, because worker and agent may have two libcs."""
LONGEST_SOCKET_PATH: Final = 107
"""Bytes of ``sun_path`` without the last one (unix(7))."""
_VERSION: Final = "1"


class Answer(NamedTuple):
    """What a process says of its readiness to dump its stacks.

    Attributes:
        start_ticks: its start time, which with the pid is its identity.
        fd: its descriptor of the stacks file, for a look whether it still is one.
        main_ident: ``threading`` ident of its main thread, as a dump names it.
        thread_id: kernel's id of the probe's thread, 0 before it runs.
    """

    start_ticks: int
    fd: int
    main_ident: int
    thread_id: int = 0


def answer_file(folder: str, pid: int) -> str:
    """Path of the file that says whether process ``pid`` answers the signal."""
    return f"{folder}/{pid}.answer"


def stacks_file(folder: str, pid: int) -> str:
    """Path of the file that process ``pid`` dumps its stacks into."""
    return f"{folder}/{pid}.stacks"


def socket_file(folder: str, pid: int) -> str:
    """Path of the socket of torch's worker server in process ``pid``."""
    return f"{folder}/{pid}.sock"


def fits_socket(path: str) -> bool:
    """Whether a socket can have that path."""
    return len(os.fsencode(path)) <= LONGEST_SOCKET_PATH


def write_answer(answer: Answer) -> str:
    """The text of an answer file."""
    return " ".join((_VERSION, *map(str, answer))) + "\n"


def read_answer(text: str) -> Answer | None:
    """An answer file's content, ``None`` when it is none of ours."""
    version, *numbers = text.split() or [""]
    if version != _VERSION or not all(number.isascii() and number.isdigit() for number in numbers):
        return None
    fields = [int(number) for number in numbers[: len(Answer._fields)]]
    return Answer(*fields) if len(fields) == len(Answer._fields) else None
