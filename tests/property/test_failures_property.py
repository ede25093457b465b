"""Failures under random input: one error stays one, two stay two, nothing is too strange for it."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.failures_factory import CLOSED, T0, an_end

from rankscope.agent.failures.error_file import parse_error_file
from rankscope.agent.failures.exit_codes import exit_phrase
from rankscope.agent.failures.identity import LONGEST, error_identity
from rankscope.agent.failures.last_words import last_words
from rankscope.agent.failures.model import WorkerEnd
from rankscope.agent.failures.retryable import judge
from rankscope.agent.failures.root import choose_root
from rankscope.agent.failures.telling import tell

numbers = st.integers(0, 10**9)
small = st.integers(0, 9999)
ports = st.integers(1024, 65535)
letters = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
hexadecimal = st.text("0123456789abcdef", min_size=12, max_size=12)
ipv4 = st.builds("{}.{}.{}.{}".format, *[st.integers(0, 255)] * 4)
stamps = st.datetimes().map(lambda moment: moment.isoformat(sep=" ", timespec="seconds"))
VOLATILE = {
    "rank": st.builds("rank {}".format, small),
    "ranks": st.lists(small, min_size=1, max_size=9).map("ranks {}".format),
    "pid": st.builds("pid {}".format, numbers),
    "thread": st.builds("Thread-{}".format, small),
    "device": st.builds("cuda:{}".format, st.integers(0, 99)),
    "pointer": st.builds("0x{}".format, hexadecimal),
    "address": st.builds("{}:{}".format, ipv4, ports),
    "host": st.builds("({}, {})".format, letters, ports),
    "uuid": st.uuids().map(str),
    "stamp": stamps,
    "seconds": st.builds("{} seconds".format, numbers),
    "size": st.builds("{} MiB".format, numbers),
    "step": st.builds("step {}".format, numbers),
    "folder": st.builds("/tmp/{}{}/x.json".format, letters, small),
}
stretches = st.sampled_from([*VOLATILE])
words = st.sampled_from(
    [
        "failed",
        "cannot",
        "open",
        "layer",
        "[Errno 5]",
        "shape",
        "'key'",
        "of",
        "expected 3",
        "gradient",
        "(nan)",
    ]
)
kinds = st.sampled_from(["ValueError", "RuntimeError", "OSError", "torch.distributed.DistBackendError"])
SHAPES = st.tuples(kinds, st.lists(st.one_of(words, stretches), min_size=1, max_size=8))


@st.composite
def runs_of_one_error(draw: st.DrawFn) -> tuple[str, str]:
    """The text of one error in two runs."""
    kind, parts = draw(SHAPES)
    texts = (" ".join(draw(VOLATILE[part]) if part in VOLATILE else part for part in parts) for _ in range(2))
    one, other = (f"{kind}: {text}" for text in texts)
    return one, other


@st.composite
def two_errors(draw: st.DrawFn) -> tuple[str, str]:
    """Texts of two errors, whatever differs from run to run."""
    first, second = draw(st.tuples(SHAPES, SHAPES).filter(lambda pair: pair[0] != pair[1]))
    one, other = (
        f"{kind}: " + " ".join(draw(VOLATILE[part]) if part in VOLATILE else part for part in parts)
        for kind, parts in (first, second)
    )
    return one, other


@given(runs_of_one_error())
def test_one_error_is_one_in_every_run(pair: tuple[str, str]) -> None:
    assert error_identity(pair[0]) == error_identity(pair[1])


@given(two_errors())
def test_two_errors_are_two_in_every_run(pair: tuple[str, str]) -> None:
    assert error_identity(pair[0]) != error_identity(pair[1])


@given(st.one_of(st.text(max_size=300), st.lists(st.one_of(words, numbers.map(str))).map(" ".join)))
def test_an_identity_is_one_short_line_and_its_own(text: str) -> None:
    identity = error_identity(text)
    assert len(identity) <= LONGEST
    assert len(identity.splitlines()) <= 1
    if len(identity) < LONGEST:
        assert error_identity(identity) == identity


@given(
    st.sampled_from(["a-", "1.", "[1,", "0:", "a.1", "/tmp/", "%|", "f" * 9, "rank 1, ", "aA9_"]),
    st.integers(0, 9),
)
def test_no_text_takes_long(piece: str, more: int) -> None:
    began = time.thread_time()
    error_identity((piece * 100_000)[more:])
    assert time.thread_time() - began < 1.0


@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"Traceback (most recent call last):\n", b"what(): ", b"{"]),
)
def test_no_bytes_are_too_strange(data: bytes, before: bytes) -> None:
    text = (before + data).decode("utf-8", "replace")
    found = last_words(text)
    told = tell(an_end(0), parse_error_file(before + data, changed=T0), found)
    assert told.message
    assert len(told.message) <= 500
    assert "\n" not in told.message


ends = st.builds(
    an_end,
    st.just(0),
    after=st.sampled_from([0.0, 0.001, 0.3, 1.0, 7.0]),
    code=st.sampled_from([0, 1, 3, -6, -9, -11, -15, None]),
    said=st.sampled_from(["", "ValueError: bad", CLOSED]),
    stopped_at=st.sampled_from([None, T0 + 0.5]),
    node=st.sampled_from(["a", "b"]),
    uncertainty=st.sampled_from([0.0, 1.0]),
)


@given(st.lists(ends, max_size=6), st.randoms(use_true_random=False))
def test_the_root_does_not_depend_on_the_order(found: list[WorkerEnd], random: Random) -> None:
    told = [tell(replace(end, rank=rank), None, None) for rank, end in enumerate(found)]
    failure = choose_root(told)
    random.shuffle(told)
    assert choose_root(told) == failure
    if failure is None:
        assert all(one.exit_code == 0 or one.stopped_at is not None for one in told)
        return
    assert failure.exit_code != 0
    assert failure.rank not in failure.tied_with
    own = [
        one
        for one in told
        if one.exit_code not in (0, -15) and not one.is_aftermath and one.stopped_at is None
    ]
    if failure.message == CLOSED:
        assert not own or all(one.failed_at > failure.at for one in own)


@given(st.one_of(st.none(), st.integers(-70, 300)), st.lists(st.text(max_size=40), max_size=4))
def test_every_end_is_judged(code: int | None, lines: list[str]) -> None:
    assert judge(code, lines).because
    assert judge(code, lines) == judge(code, lines)
    assert exit_phrase(code)
