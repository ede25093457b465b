"""An agent joins and leaves rounds over torch's own store: nothing of a round outlives it."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import cast

import psutil
from tests.jobs import until
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C

from rankscope.agent.evidence.taker import EvidenceTaker
from rankscope.agent.nodes.meeting import Meeting
from rankscope.agent.nodes.messages import Member
from rankscope.agent.nodes.store_link import Store, clone_of
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.joint import JointInquiry

PREFIX = "rankscope-nodes"


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith(PREFIX)]


class Connect:
    """Opens connections; whether it is still held is seen by a weak reference."""

    def __init__(self, store: object) -> None:
        self.connect = clone_of(store)
        self.count = 0

    def __call__(self) -> Store:
        self.count += 1
        return self.connect()


def test_a_round_that_is_left_leaves_no_thread_descriptor_or_store() -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    joint = JointInquiry(
        evidence=cast("EvidenceTaker", None),
        collector=Collector(),
        post=lambda message: message(),
        ended=dict,
        known=lambda: None,
        published=lambda *_: None,
        ruled=lambda _: None,
        say=lambda _: None,
    )
    before = psutil.Process().num_fds()
    gc.collect()
    gc.disable()
    try:
        for number in range(5):
            connect = Connect(PrefixStore(f"round-{number}", server))
            joint.join(Meeting(Member(0, 2, "here", (0, 1)), "run-7", 4, connect))
            until(lambda connect=connect: connect.count > 0, "a connection")  # type: ignore[misc]
            held = weakref.ref(connect)
            del connect
            joint.leave()
            until(lambda: not threads(), "the threads' end")
            until(lambda held=held: held() is None, "the store to be let go")  # type: ignore[misc]
    finally:
        gc.enable()
    until(lambda: psutil.Process().num_fds() <= before, "the descriptors to be closed")
