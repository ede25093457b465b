"""The process that delivers notices: the agent is never held up by it, and ends with it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.health_factory import PATIENCE, eventually
from tests.notices_factory import (
    PATIENT,
    QUICK,
    Receiver,
    a_receiver,
    a_script,
    an_event,
    arrive,
    bodies,
    hangs,
    is_alive,
    noted,
    ok,
    sending,
    settings,
    status,
    the_desk,
)
from tests.standing import stand_still

from rankscope.agent.notices.delivery import Notices


def test_offering_never_waits_while_everything_hangs(tmp_path: Path) -> None:
    blocked, released = threading.Event(), threading.Event()

    def never_returns(data: dict[str, object]) -> None:
        blocked.set()
        released.wait(PATIENCE)

    script = a_script(tmp_path / "tell", "sleep 1000")
    with a_receiver(hangs) as receiver:
        wanted = settings(receiver.url, command=script)
        notices = Notices(wanted, lambda text: None, never_returns, limits=replace(QUICK, tries=1))
        desk = the_desk()
        try:
            notices.offer(an_event(0))
            assert blocked.wait(PATIENCE)
            stand_still(desk.pid)

            def offers() -> None:
                for number in range(20_000):
                    notices.offer(an_event(number))

            offering = threading.Thread(target=offers)
            offering.start()
            offering.join(PATIENCE)
            assert not offering.is_alive()
            assert blocked.is_set()
            assert not released.is_set()
        finally:
            released.set()
            notices.close(0.0)
            eventually(lambda: not is_alive(desk), "the desk has ended")


def test_more_than_the_queue_holds_drops_the_oldest_and_tells_how_many() -> None:
    with a_receiver(hangs, ok) as receiver:
        with sending(
            settings(receiver.url), limits=replace(QUICK, waiting=3, tries=9, try_seconds=2)
        ) as sent:
            sent.offer(*map(an_event, range(6)))
            eventually(lambda: bodies(receiver)[-1:] == ["id-5"], "the last one arrives")
            sent.notices.close()
        assert len(set(bodies(receiver))) in (3, 4)  # whether the first one had been begun
        (dropped,) = sent.failed
        assert dropped == {
            "target": f"webhook {receiver.url}",
            "reason": "too many notices were waiting",
            "dropped": 6 - len(set(bodies(receiver))),
        }


def test_a_target_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    with a_receiver(hangs) as stuck, a_receiver() as receiver:
        script = a_script(tmp_path / "tell", "sleep 1000")
        with sending(settings(stuck.url, receiver.url, command=script), limits=PATIENT) as sent:
            sent.offer(*map(an_event, range(5)))
            arrive(receiver, *(f"id-{number}" for number in range(5)))
            assert bodies(stuck) == ["id-0"]


def test_a_desk_that_stands_still_is_replaced() -> None:
    with a_receiver() as receiver, sending(settings(receiver.url), limits=replace(QUICK, tries=9)) as sent:
        desk = the_desk()
        stand_still(desk.pid)
        sent.offer(an_event(1))
        arrive(receiver, "id-1")
        assert not is_alive(desk)


def test_a_desk_that_is_killed_is_replaced_and_its_try_repeated() -> None:
    with a_receiver(hangs, ok) as receiver, sending(settings(receiver.url), limits=PATIENT) as sent:
        sent.offer(an_event(1))
        eventually(lambda: bool(receiver.requests), "the first try is under way")
        the_desk().kill()
        arrive(receiver, "id-1", "id-1")
        eventually(lambda: bool(receiver.gone), "the first try has ended with its desk")
        sent.all_arrive()


def test_the_end_waits_for_the_last_notice() -> None:
    seen = threading.Event()

    def slow(receiver: Receiver, connection: socket.socket) -> None:
        seen.wait(PATIENCE)
        ok(receiver, connection)

    with a_receiver(slow) as receiver, sending(settings(receiver.url), limits=PATIENT) as sent:
        sent.offer(an_event(1, "job.ended"))
        closing = threading.Thread(target=sent.notices.close, args=(PATIENCE,))
        closing.start()
        eventually(lambda: bool(receiver.requests), "it is sent")
        assert closing.is_alive()
        seen.set()
        closing.join(PATIENCE)
        assert not closing.is_alive()
    assert sent.failed == []


def test_the_end_has_a_deadline_and_tells_of_each_notice_that_is_left() -> None:
    with a_receiver(hangs) as receiver, sending(settings(receiver.url), limits=PATIENT) as sent:
        sent.offer(an_event(1), an_event(2), an_event(3, "job.ended"))
        eventually(lambda: bool(receiver.requests), "the first try is under way")
        sent.notices.close(0.2)
        assert [one["notice"] for one in sent.failed] == ["id-1", "id-2", "id-3"]
        assert {one["reason"] for one in sent.failed} == {"the job ended before it was delivered"}
        sent.offer(an_event(4))
        sent.notices.close(0.2)
        assert len(sent.failed) == 3


def test_of_many_notices_left_at_the_end_the_rest_is_told_as_a_number() -> None:
    with a_receiver(hangs) as receiver, sending(settings(receiver.url), limits=PATIENT) as sent:
        sent.offer(*map(an_event, range(30)))
        sent.notices.close(0.0)
        assert [one["notice"] for one in sent.failed[:10]] == [f"id-{number}" for number in range(10)]
        assert sent.failed[10:] == [
            {
                "target": f"webhook {receiver.url}",
                "reason": "the job ended before it was delivered",
                "dropped": 20,
            }
        ]


def test_the_end_does_not_wait_for_a_pause() -> None:
    limits = replace(PATIENT, first_pause=500.0, longest_pause=500.0, notice_seconds=5000.0)
    with a_receiver(status(500), ok) as receiver, sending(settings(receiver.url), limits=limits) as sent:
        sent.offer(an_event(1))
        eventually(lambda: bool(receiver.requests), "the first try is under way")
        sent.notices.close(PATIENCE)
        assert bodies(receiver) == ["id-1", "id-1"]
    assert sent.failed == []


AGENT = """
import sys, time
from tests.notices_factory import PATIENT, an_event, settings
from rankscope.agent.notices.delivery import Notices
notices = Notices(settings(sys.argv[1], command=sys.argv[2]), print, print, limits=PATIENT)
notices.offer(an_event(1))
time.sleep(1000)
"""


def test_an_agent_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    script = a_script(tmp_path / "tell", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    with a_receiver(hangs) as receiver:
        agent = subprocess.Popen([sys.executable, "-c", AGENT, receiver.url, script])
        try:
            command = noted(tmp_path / "pid")
            eventually(lambda: bool(receiver.requests), "the request is under way")
            family = psutil.Process(agent.pid).children(recursive=True)
            assert command in family
        finally:
            agent.kill()
            agent.wait()
        eventually(lambda: not any(map(is_alive, family)), "everything has ended")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_all_processes_of_a_job_does_not_end_the_desk(number: signal.Signals) -> None:
    with a_receiver() as receiver, sending(settings(receiver.url), limits=PATIENT) as sent:
        sent.offer(an_event(1))
        arrive(receiver, "id-1")
        desk = the_desk()
        desk.send_signal(number)
        sent.offer(an_event(2))
        arrive(receiver, "id-2")
        assert the_desk() == desk
