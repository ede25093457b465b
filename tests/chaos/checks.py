"""Compares what came of a round with what it must come to; every difference is a line for a person.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tests.chaos.expected import STOPPING, Expected, Verdict
from tests.chaos.plan import Round
from tests.chaos.run import Incident, Seen
from tests.faults.found import Found, answer_of
from tests.faults.found import differences as differences_in

from rankscope.agent.records.replay import differences
from rankscope.diag.model import Diagnosis
from rankscope.diag.store.events import Event, unix_time

_ZOMBIE: Final = 20.0
"""Seconds for evidence and for stopping the others: so long may a worker that has ended be a zombie."""
_AMPLE: Final = 5.0
"""Seconds of an evidence budget within which a look is made on a busy machine too."""
_SILENT: Final = "log"
"""Is in the records only."""
_ACTIONS: Final = (_SILENT, "notify", "hold", "isolate", *STOPPING)
_DECISION: Final = "decision.json"
_SAYS_NOTHING: Final = ("Unknown", "Healthy")
_PUBLISHED: Final = ("incident.confirmed", "worker.failed")
_CANNOT: Final = "cannot write records"
_OUR_TROUBLE: Final = ("rankscope could not", "Exception ignored in", "Fatal Python error")


def wrong(one: Round, expected: Expected, seen: Seen) -> list[str]:
    """Everything in which a round is not as expected; empty when all is right."""
    return [
        *_ends(expected, seen),
        *_steps(expected, seen),
        *_says(expected, seen),
        *_named(expected, seen),
        *_before_the_kill(expected, seen),
        *_before_the_signal(one, seen),
        *_looked_on(expected, seen),
        *_alone(seen),
        *_leftovers(seen),
        *(_records(one, expected, seen) if expected.records else ()),
        *(_notices(seen) if one.settings.notices and expected.records else ()),
    ]


def _ends(expected: Expected, seen: Seen) -> Iterator[str]:
    if seen.exit_code != expected.exit_code:
        yield f"exit code {seen.exit_code}, not {expected.exit_code}"


def _steps(expected: Expected, seen: Seen) -> Iterator[str]:
    steps = seen.job.committed
    if steps != list(range(len(steps))):
        again = sorted({step for step in steps if steps.count(step) > 1})
        yield f"steps committed twice or out of order: {again or steps[:20]}"
    if expected.steps is not None and len(steps) != expected.steps:
        yield f"{len(steps)} steps committed, not {expected.steps}"


def _says(expected: Expected, seen: Seen) -> Iterator[str]:
    said = seen.job.said
    decided = [action for line in said.splitlines() if (action := _decided_in(line))]
    wanted = [action for action in expected.actions if action != _SILENT]
    if decided != wanted:
        yield f"it said {decided or 'nothing'}, not {wanted or 'anything'}"
    if expected.told and _CANNOT not in said:
        yield "it did not say that it cannot store its records"
    if said.count(_CANNOT) > seen.job.agents:
        yield f"it said {said.count(_CANNOT)} times that it cannot store its records"
    for text in _OUR_TROUBLE:
        if text in said:
            yield f"it said: {next(line for line in said.splitlines() if text in line)}"


def _decided_in(line: str) -> str:
    """The action, where the agent says one."""
    action = line.removeprefix("rankscope: ").partition(": ")[0]
    return action if line.startswith("rankscope: ") and action in _ACTIONS else ""


def _named(expected: Expected, seen: Seen) -> Iterator[str]:
    """Every fault found, nobody wrong, and none where there was none."""
    told = {name: incident.diagnosis for name, incident in seen.incidents.items()}
    blamed = [found for found in told.values() if found.verdict not in _SAYS_NOTHING]
    if not expected.faults:
        yield from (f"nothing was wrong, and it says: {found.summary}" for found in blamed)
        published = {event.subject for event in seen.events if event.name in _PUBLISHED}
        yield from (f"published although nothing was wrong: {name}" for name in published & told.keys())
        return
    for found in blamed:
        yield from _blamed_wrongly(expected, seen, found)
    if not expected.explained:
        return
    missing = [one for one in expected.verdicts if not any(_is(found, one) for found in blamed)]
    yield from (f"not found: {one}" for one in missing)
    if len(blamed) < expected.faults:
        said = [found.summary for found in told.values()]
        yield f"{len(blamed)} of {expected.faults} faults found: {said}"


def _blamed_wrongly(expected: Expected, seen: Seen, found: Diagnosis) -> Iterator[str]:
    if seen.answer is not None:
        differs = differences_in(seen.answer, Found(answer_of(found)))
        if differs:
            yield f"{', '.join(differs)} of {seen.answer}: {found.summary} ({answer_of(found)})"
    elif not any(_is(found, verdict) for verdict in expected.verdicts):
        yield f"blamed wrongly: {found.verdict} {found.culprits}, {found.summary}"


def _is(found: Diagnosis, verdict: Verdict) -> bool:
    return (found.verdict, found.culprits) == (verdict.verdict, verdict.culprits)


def _before_the_kill(expected: Expected, seen: Seen) -> Iterator[str]:
    """The files of an incident are older than the first end that its decision brought about."""
    if not expected.records or not expected.explained:
        return
    for decision in (event for event in seen.events if event.name == "decision"):
        if decision.data.get("action") not in STOPPING:
            continue
        incident = seen.incidents.get(decision.subject or "")
        if incident is None:
            yield f"no incident of the decision {decision.data.get('reason')}"
            continue
        yield from _stored_in_time(incident, decision, seen)


def _stored_in_time(incident: Incident, decision: Event, seen: Seen) -> Iterator[str]:
    if _DECISION not in incident.written:
        yield f"{decision.subject}: {_DECISION} is missing"
    if incident.diagnosis.verdict == "Exited":
        return  # those that wait for a rank that is dead may end by themselves, at any time
    written, began = max(incident.written.values()), unix_time(decision.time) or 0.0
    ends = [end.at for end in seen.onlooker.ends.values() if end.at is not None and end.at >= began]
    first = min(ends, default=None)
    if first is not None and written > first:
        yield f"{decision.subject}: written {written - first:.3f} s after the first worker was ended"


def _before_the_signal(one: Round, seen: Seen) -> Iterator[str]:
    """An agent that is asked to end looks at its workers before it ends them, and stores the look.

    It is judged and written while they end: for that they are not needed.
    """
    for act, at in seen.acts:
        if act.deed != "agent SIGTERM" or act.when != "step" or one.settings.budget < _AMPLE:
            continue
        looks = [seen.incidents.get(event.subject or "") for event in seen.events if event.name == "stopping"]
        look = next((look for look in looks if look is not None), None)
        if look is None:
            yield "no look at the workers was stored before they were ended"
            continue
        first = min((end.at for end in seen.onlooker.ends.values() if end.at and end.at >= at), default=None)
        if first is not None and look.looked > first:
            yield f"the look was taken {look.looked - first:.3f} s after the first worker was ended"


def _looked_on(expected: Expected, seen: Seen) -> Iterator[str]:
    """What was not looked at is not right for that."""
    if not seen.onlooker.is_whole:
        yield "nobody looked on to the end"
    if expected.launches is not None and not seen.onlooker.ends:
        yield "no worker was seen"


def _alone(seen: Seen) -> Iterator[str]:
    """No worker of a killed agent runs beside those of the next one."""
    ends = list(seen.onlooker.ends.values())
    for killed in (at for act, at in seen.acts if act.deed == "agent SIGKILL"):
        first = min((end.began for end in ends if end.began > killed), default=None)
        for end in ends:
            if end.began < killed and first is not None and (end.at is None or end.at > first):
                yield f"process {end.pid} (rank {end.rank}) of a killed agent ran beside its successors"


def _leftovers(seen: Seen) -> Iterator[str]:
    for pid, command in seen.left.items():
        yield f"process {pid} is left: {command}"
    for zombie in seen.onlooker.zombies.values():
        if zombie.seconds > _ZOMBIE:
            yield f"process {zombie.pid} was a zombie for {zombie.seconds:.0f} s"
    if seen.files:
        yield f"left on disk: {', '.join(seen.files)}"


def _notices(seen: Seen) -> Iterator[str]:
    """Each decision is told to the command, also the last one before the end."""
    told = seen.job.notices
    for event in seen.events:
        said = event.name == "decision" and event.data.get("action") != _SILENT
        if said and event.id not in told:
            yield f"no notice of {event.data.get('action')}: {event.data.get('reason')}"


def _records(one: Round, expected: Expected, seen: Seen) -> Iterator[str]:
    yield from _events(expected, seen.events)
    if seen.history_error:
        yield f"diag history: {seen.history_error}"
        return
    asked = {event.subject or "" for event in seen.events if event.name == "decision"}
    if asked <= seen.incidents.keys():  # the reasons are made of them
        diagnoses = {name: incident.diagnosis for name, incident in seen.incidents.items()}
        yield from differences(seen.events, diagnoses)
    yield from _history(one, expected, seen)


def _events(expected: Expected, events: Sequence[Event]) -> Iterator[str]:
    numbers = [event.number for event in events]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"events are missing or twice: {numbers}"
    actions = [str(event.data.get("action")) for event in events if event.name == "decision"]
    if actions != list(expected.actions):
        yield f"recorded {actions}, not {list(expected.actions)}"
    started = sum(event.name == "job.started" for event in events)
    if started != expected.agents:
        yield f"{started} agents recorded, not {expected.agents}"


def _history(one: Round, expected: Expected, seen: Seen) -> Iterator[str]:
    history = seen.history
    restarts, cycles = history.get("restarts"), history.get("cycles")
    assert isinstance(restarts, list)
    assert isinstance(cycles, list)
    if len(restarts) != expected.restarts:
        yield f"{len(restarts)} restarts in the history, not {expected.restarts}"
    if expected.launches is not None and len(cycles) != expected.launches:
        results = [cycle["result"] for cycle in cycles]
        yield f"{len(cycles)} cycles in the history, not {expected.launches}: {results}"
    if history.get("result") != expected.result:
        yield f"the history's result is {history.get('result')!r}, not {expected.result!r}"
    if history.get("warnings") and one.place == "plain":
        yield f"the history warns: {history['warnings']}"
    spent, wall = history.get("spent"), history.get("wall")
    assert isinstance(spent, list)
    assert isinstance(wall, (int, float))
    total = sum(float(part["seconds"]) for part in spent)
    if abs(total - wall) > 0.01:
        yield f"the time spent adds up to {total:.3f} s of {wall:.3f} s"
