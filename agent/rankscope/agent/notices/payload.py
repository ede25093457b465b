"""What is sent: an event as CloudEvents JSON, or as one line of text for Slack. Pure.

CloudEvents 1.0.2, HTTP binding, structured mode: the whole event is the body. Added to what ``events.jsonl``
has: ``datacontenttype``, and ``job``, the run id, as an extension attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rankscope.diag.store.events import Event

CLOUDEVENTS_TYPE: Final = "application/cloudevents+json; charset=utf-8"
JSON_TYPE: Final = "application/json; charset=utf-8"
MAX_BYTES: Final = 64 * 1024
"""Longest body; brokers that speak CloudEvents must take events of this size (primer, "Size limits")."""
_LONGEST_TEXT: Final = 3000
_SHORT: Final = 1000
_Data = Mapping[str, object]


def cloudevent(event: Event, *, job: str) -> bytes:
    """The event in CloudEvents' JSON format, ``MAX_BYTES`` at most: past it the texts in its data are cut."""
    fields: dict[str, object] = {
        "specversion": event.specversion,
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "time": event.time,
        "datacontenttype": "application/json",
    }
    if event.subject:
        fields["subject"] = event.subject
    if event.sequence:
        fields["sequence"] = event.sequence
    if job:
        fields["job"] = job
    body = msgspec.json.encode({**fields, "data": event.data})
    if len(body) <= MAX_BYTES:
        return body
    short = {name: _cut(value) for name, value in list(event.data.items())[:20]}
    return msgspec.json.encode({**fields, "data": {**short, "cut": True}})


def _cut(value: object) -> object:
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:_SHORT]


def slack(event: Event, *, job: str) -> bytes:
    """Slack's ``{"text": ...}``: which job and node, and one sentence, in which nothing is markup."""
    place = f"*{_escaped(job)}* on {_escaped(event.source)}" if job else _escaped(event.source)
    return msgspec.json.encode({"text": f"{place}: {_escaped(sentence(event))}"})


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def sentence(event: Event) -> str:
    """What happened, for a person."""
    name = event.name
    say = _SENTENCES.get(name)
    text = say(event.data) if say is not None else f"{name} {msgspec.json.encode(event.data).decode()}"
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."


def _recovered(data: _Data) -> str:
    if "reason" in data:
        return f"recovered: {data['reason']}"
    return f"recovered by itself after {data.get('seconds', '?')} s"


def _restarted(data: _Data) -> str:
    return f"workers run again (restart {data.get('restarts', '?')}): {data.get('reason', '')}"


def _worker_failed(data: _Data) -> str:
    ended = f"rank {data.get('rank', '?')} ended with exit code {data.get('exit_code', '?')}"
    return f"{ended}: {data['message']}" if data.get("message") else ended


def _message(data: _Data) -> str:
    content = str(data.get("content", ""))
    return f"rank {data['rank']} says: {content}" if "rank" in data else content or "(no text)"


def _settings_changed(data: _Data) -> str:
    if "changed" in data:
        return f"settings changed: {msgspec.json.encode(data['changed']).decode()}"
    return f"rank {data.get('rank', '?')} set {msgspec.json.encode(data.get('values', {})).decode()}"


def _job_ended(data: _Data) -> str:
    code = data.get("exit_code")
    return f"{data.get('result', 'ended')}" + (f", exit code {code}" if code is not None else "")


_SENTENCES: Final[Mapping[str, Callable[[_Data], str]]] = {
    "incident.confirmed": lambda data: f"{data.get('verdict', '?')}: {data.get('summary', '')}",
    "incident.recovered": _recovered,
    "slow": lambda data: f"slow: {data.get('summary', '')}",
    "worker.failed": _worker_failed,
    "worker.left": lambda data: f"rank {data.get('rank', '?')}, process {data.get('pid', '?')}, did not end",
    "decision": lambda data: f"{data.get('action', '?')}: {data.get('reason', '')}",
    "restart": _restarted,
    "message": _message,
    "settings.changed": _settings_changed,
    "stopping": lambda data: f"workers are stopped: {data.get('reason', '')}",
    "job.ended": _job_ended,
}
