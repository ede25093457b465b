"""The answers that are made of stored records. Blocking: files are read; it runs in the reader's process.

What is read is kept as long as the files are the same ones, so that polling costs a look at their names; of
event logs only what came is read. What cannot be read is left out and told in ``warnings``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from rankscope.agent.control.messages import InForce, Value
from rankscope.agent.health.api import answers, questions
from rankscope.agent.health.api.event_answers import EventAnswers
from rankscope.agent.health.api.refusal import NoAnswerError
from rankscope.diag.errors import StoreError
from rankscope.diag.history.model import JobHistory
from rankscope.diag.history.read import JobRecords, read_job
from rankscope.diag.history.state import state_of_records
from rankscope.diag.history.story import history_of
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import ENDED, AgentFile, JobFolder

T = TypeVar("T")
_FRESH: Final = 5.0
"""Seconds after which it is read again whether agents live, although no file has changed."""

Identity = tuple[Hashable, ...]


def identity_of(paths: Iterable[Path]) -> Identity:
    """What is another value as soon as one of the files is another one, or has other content."""
    found: list[Hashable] = []
    for path in paths:
        try:
            seen = path.stat()
        except OSError:
            continue
        found.append((str(path), seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns))
    return tuple(found)


class RecordAnswers:
    """Answers questions about one job folder."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._events = EventAnswers(folder)
        self._kept: dict[str, tuple[Identity, float, object]] = {}
        self._diagnoses: dict[Path, tuple[Identity, Diagnosis | None, Decision | None, str]] = {}

    def answer(self, question: questions.Question) -> bytes:
        """The answer as JSON.

        Raises:
            NoAnswerError: there is none.
        """
        match question:
            case questions.ReadEvents():
                return self._events.read(question)
            case questions.FollowEvents():
                return msgspec.json.encode(self._events.follow(question))
            case questions.DrawPage():
                return msgspec.json.encode(_drawn(question))
            case _:
                return msgspec.json.encode(self._stored_answer(question))

    def _stored_answer(self, question: questions.Stored) -> object:
        match question:
            case questions.ReadJob():
                return self._job(question)
            case questions.ReadIncidents():
                return self._incidents(question)
            case questions.ReadIncident():
                return self._incident(question)
            case questions.ReadRestarts():
                _records, history = self._history()
                return answers.RestartsAnswer(history.job, history.restarts, history.warnings)
            case questions.ReadSettings():
                return self._settings(question)
            case questions.ReadOthers():
                return self._others(question)
            case questions.ReadPage():
                return self._page(question)

    # What is read, and kept while nothing has changed.

    def _files(self) -> list[Path]:
        root = self._folder.path
        incidents = [*root.glob("incidents/*/diagnosis.json"), *root.glob("incidents/*/decision.json")]
        return [self._folder.job_file, *sorted(root.glob("nodes/*/agent.json")), *sorted(incidents)]

    def _keep(self, name: str, identity: Identity, make: Callable[[], T]) -> T:
        now = time.monotonic()
        kept = self._kept.get(name)
        if kept is not None and kept[0] == identity and now - kept[1] < _FRESH:
            return kept[2]  # type: ignore[return-value]  # made by the same function before
        value = make()
        self._kept[name] = (identity, now, value)
        return value

    def _records(self) -> JobRecords:
        events = self._events.read_on()
        identity = (events.state, *identity_of(self._files()))
        return self._keep("records", identity, lambda: read_job(self._folder, log=events.content))

    def _history(self) -> tuple[JobRecords, JobHistory]:
        records = self._records()
        # Kept with the records: as long as it holds them, no others have their id.
        return self._keep("history", (id(records),), lambda: (records, history_of(records)))

    def _agents(self) -> tuple[AgentFile, ...]:
        files = sorted(self._folder.path.glob("nodes/*/agent.json"))
        return self._keep("agents", identity_of(files), self._folder.agents)

    # What is answered.

    def _job(self, question: questions.ReadJob) -> answers.JobAnswer:
        records, history = self._history()
        state, result, ended = state_of_records(records, now=time.time())
        return answers.JobAnswer(
            job=records.run_id,
            node=question.node,
            phase=question.phase,
            state=state,
            created=history.created,
            ended=ended,
            result=result,
            command=history.command,
            asked_nodes=history.asked_nodes,
            world_size=history.world_size,
            nodes=tuple(_node_entry(agent) for agent in self._agents()),
            restarts=len(history.restarts),
            incidents=len(records.diagnoses),
            last_incident=max(records.diagnoses, default=None),
            warnings=history.warnings,
        )

    def _incidents(self, question: questions.ReadIncidents) -> answers.IncidentsAnswer:
        entries: dict[str, answers.IncidentEntry] = {}
        warnings: list[str] = []
        for path in sorted(self._folder.incidents.glob("*/diagnosis.json")):
            diagnosis, decision, trouble = self._stored(path.parent)
            if trouble:
                warnings.append(trouble)
            if diagnosis is not None:
                entries[path.parent.name] = _incident_entry(path.parent.name, diagnosis, decision)
        for diagnosis in question.unwritten.diagnoses:
            name = diagnosis.incident or ""
            if name not in entries:
                entries[name] = _incident_entry(name, diagnosis, None, stored=False)
        ordered = tuple(entries[name] for name in sorted(entries))
        return answers.IncidentsAnswer(self._folder.run_id, ordered, tuple(warnings))

    def _stored(self, path: Path) -> tuple[Diagnosis | None, Decision | None, str]:
        identity = identity_of([path / "diagnosis.json", path / "decision.json"])
        kept = self._diagnoses.get(path)
        if kept is not None and kept[0] == identity:
            return kept[1:]
        incident = IncidentFolder(path)
        diagnosis, decision, trouble = None, None, ""
        try:
            diagnosis = incident.diagnosis()
            decision = incident.decision()
        except StoreError as error:
            trouble = str(error)
        self._diagnoses[path] = (identity, diagnosis, decision, trouble)
        return diagnosis, decision, trouble

    def _incident(self, question: questions.ReadIncident) -> answers.IncidentAnswer:
        # Compared with what is there, never made into a path: an id may hold anything.
        there = {path.parent.name: path.parent for path in self._folder.incidents.glob("*/diagnosis.json")}
        path = there.get(question.id)
        if path is not None:
            diagnosis, decision, trouble = self._stored(path)
            if diagnosis is None:
                raise NoAnswerError(HTTPStatus.NOT_FOUND, f"its record cannot be read: {trouble}")
            return answers.IncidentAnswer(question.id, diagnosis, decision)
        for diagnosis in question.unwritten.diagnoses:
            if diagnosis.incident == question.id:
                return answers.IncidentAnswer(question.id, diagnosis, None, stored=False)
        raise NoAnswerError(
            HTTPStatus.NOT_FOUND, "the job has no incident of that id; /v1/incidents lists them"
        )

    def _settings(self, question: questions.ReadSettings) -> answers.SettingsBody:
        nodes = [one for one in self._records().nodes if one.node == question.node]
        started = [one for node in nodes for one in node.events if one.name == "job.started"]
        recorded = started[-1].data.get("settings") if started else None
        settings: dict[str, InForce] = {}
        for name, told in (recorded if isinstance(recorded, dict) else {}).items():
            try:
                settings[str(name)] = msgspec.convert(told, InForce)
            except msgspec.ValidationError:
                settings[str(name)] = InForce(_plain(told), "")
        return answers.SettingsBody(self._folder.run_id, live=False, settings=settings)

    def _others(self, question: questions.ReadOthers) -> questions.Others:
        agents = [one for one in self._agents() if not one.beside and one.phase != ENDED]
        others = [one for one in agents if one.node != question.node]
        world_size = max((one.world_size for one in agents), default=0)
        return questions.Others(world_size, tuple(entry for one in others for entry in _rank_entries(one)))

    def _page(self, question: questions.ReadPage) -> object:
        from rankscope.agent.health.live.document import read_live_page

        if question.incident:
            self._incident(questions.ReadIncident(question.incident, question.unwritten))
        return read_live_page(
            self._folder,
            made=iso_time(time.time()),
            unwritten=question.unwritten.events,
            diagnoses=question.unwritten.diagnoses,
            incident=question.incident or None,
            records=self._records(),
        )


def _plain(told: object) -> Value:
    return told if isinstance(told, str | int | float | bool) or told is None else str(told)


def _node_entry(agent: AgentFile) -> answers.NodeEntry:
    return answers.NodeEntry(
        node=agent.node,
        pid=agent.pid,
        phase=agent.phase,
        restart_count=agent.restart_count,
        host=agent.host,
        port=agent.port,
        api=agent.api,
        ranks=tuple(worker.rank for worker in agent.workers),
        beside=agent.beside,
    )


def _rank_entries(agent: AgentFile) -> Iterable[answers.RankEntry]:
    """What another agent has stored of its workers: that they were started, and nothing of how they do."""
    for worker in agent.workers:
        yield answers.RankEntry(
            rank=worker.rank,
            node=agent.node,
            local_rank=worker.local_rank,
            pid=worker.pid,
            state="unobserved",
            source="records",
        )


def _incident_entry(
    name: str, diagnosis: Diagnosis, decision: Decision | None, *, stored: bool = True
) -> answers.IncidentEntry:
    return answers.IncidentEntry(
        id=name,
        time=diagnosis.time,
        verdict=diagnosis.verdict,
        kind=diagnosis.kind,
        severity=diagnosis.severity,
        confidence=diagnosis.confidence,
        culprits=diagnosis.culprits,
        nodes=diagnosis.nodes,
        summary=diagnosis.summary,
        action=decision.action if decision is not None else None,
        stored=stored,
    )


def _drawn(question: questions.DrawPage) -> object:
    from rankscope.diag.report.html.page_data import page_data

    diagnosis = msgspec.json.decode(question.diagnosis, type=Diagnosis)
    return page_data(diagnosis, made=iso_time(time.time()))
