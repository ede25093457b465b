"""Make a bundle ready: read the job's files, learn who is named in them, redact, and list what came of it."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import os
import pwd
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec

from rankscope.diag import proc
from rankscope.diag.bundle.files import Found, files_of
from rankscope.diag.bundle.model import BundledFile, Contents, LeftOut, Manifest
from rankscope.diag.bundle.reading import read_text, redact_text, tail_bytes
from rankscope.diag.errors import StoreError
from rankscope.diag.redact.names import Names, numbered, users_in
from rankscope.diag.redact.secret_names import is_secret_name
from rankscope.diag.redact.text import Redactor
from rankscope.diag.store.files import read_regular
from rankscope.diag.store.job import JobFolder, folder_name

_NODE: Final = msgspec.json.Decoder(dict[str, object])


def contents_of(
    folder: JobFolder,
    *,
    logs: bool,
    keep_hosts: bool,
    each: Callable[[Sequence[Found], str], Iterable[Found]] = lambda files, _what: files,
) -> Contents:
    """A bundle of a job, ready to be written.

    Args:
        folder: the job's.
        logs: whether the ends of the workers' logs belong in it.
        keep_hosts: whether hosts and addresses keep their names.
        each: goes through the files, and shows how far it is.
    """
    found = files_of(folder.path, logs=logs)
    tail = tail_bytes(sum(one.form == "log" for one in found))
    left_out = [LeftOut(one.name, one.reason) for one in found if one.form is None]
    texts: list[tuple[Found, str, str]] = []
    for one in each([one for one in found if one.form is not None], "reading"):
        try:
            texts.append((one, *read_text(one, tail=tail)))
        except StoreError as error:
            left_out.append(LeftOut(one.name, str(error)))
    names = _names(folder, (text for _, text, _ in texts), keep_hosts=keep_hosts)
    redactor = Redactor(names, _known_secrets(folder))
    files: list[BundledFile] = []
    data: list[bytes] = []
    by_path = {one.path: (text, note) for one, text, note in texts}
    for one in each([one for one, _, _ in texts], "redacting"):
        text, note = by_path[one.path]
        content = redact_text(one, text, redactor)
        name = _safe_name(one.name, redactor)
        digest = hashlib.sha256(content).hexdigest()
        files.append(BundledFile(name, len(content), digest, redactor.counted(), note))
        data.append(content)
    named = [LeftOut(_safe_name(one.name, redactor), redactor.text(one.reason)) for one in left_out]
    job = redactor.text(_run_id(folder))
    manifest = Manifest(job, version("rankscope"), keep_hosts, tuple(files), tuple(named), _total(files))
    return Contents(manifest, tuple(data))


def _run_id(folder: JobFolder) -> str:
    job = folder.job()
    return job.run_id if job is not None and job.run_id else folder.run_id


def _total(files: Iterable[BundledFile]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for file in files:
        total.update(file.removed)
    return dict(sorted(total.items()))


def _safe_name(name: str, redactor: Redactor) -> str:
    """The name of a file with no host or user in it; folders are named after hosts."""
    return "/".join(folder_name(redactor.text(unquote(part))) for part in name.split("/"))


def _names(folder: JobFolder, texts: Iterable[str], *, keep_hosts: bool) -> Names:
    users = _own_names()
    hosts = {socket.gethostname()}
    for text in texts:
        users |= users_in(text)
    for node in folder.path.glob("nodes/*"):
        hosts.add(unquote(node.name))
    hosts |= {name.partition("~")[0] for name in hosts}
    hosts |= {str(agent.node) for agent in folder.agents()} | _hosts_of_incidents(folder)
    called = numbered(users, "user")
    home = os.path.expanduser("~")  # noqa: PTH111 - as a text
    elsewhere = {home: "/home/" + called.get(_user(), "user")} if home.count("/") > 1 else {}
    return Names(
        users=called,
        hosts={} if keep_hosts else numbered(filter(None, hosts - {"localhost"}), "node"),
        homes={path: instead for path, instead in elsewhere.items() if not users_in(path)},
        keeps_addresses=keep_hosts,
    )


def _hosts_of_incidents(folder: JobFolder) -> set[str]:
    """Nodes that diagnoses name: of another cluster's job, put here from elsewhere."""
    found: set[str] = set()
    for path in folder.path.glob("incidents/*/diagnosis.json"):
        try:
            told = _NODE.decode(read_regular(path))
        except (OSError, msgspec.DecodeError):
            continue
        nodes = told.get("nodes")
        found |= {str(node) for node in nodes} if isinstance(nodes, list) else set()
        ranks = told.get("ranks")
        for rank in ranks if isinstance(ranks, list) else ():
            found |= {str(rank["node"])} if isinstance(rank, dict) and rank.get("node") else set()
    return found


def _own_names() -> set[str]:
    """Users that the texts may name without a home: whose job it is, and who asks."""
    return {_user()} - {""}


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        pass
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _known_secrets(folder: JobFolder) -> set[str]:
    """Secrets that can be known by value: the job's token, and what is in the environments at hand."""
    found = {value for name, value in os.environ.items() if is_secret_name(name)}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        found.add((folder.path / "token").read_text().strip())
    for agent in folder.agents():
        processes = [(agent.pid, agent.start_ticks)]
        processes += [(worker.pid, worker.start_ticks) for worker in agent.workers]
        for pid, start_ticks in processes:
            if start_ticks and proc.start_ticks(pid) == start_ticks:
                environ = proc.environ(pid) or {}
                found |= {value for name, value in environ.items() if is_secret_name(name)}
    return {value for value in found if "\n" not in value and not Path(value).is_absolute()}
