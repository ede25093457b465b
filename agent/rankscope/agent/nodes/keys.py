"""The keys of the protocol in the job's store: who writes each, and when it goes.

All lie below the round's own prefix, so that a change of the membership starts from nothing. ``<n>`` is the
number of the incident in this round, from 1.

    key                     written by                          deleted
    turn                    any (compare and set, one up)       never
    roster/<rank>           each agent, once a round            never
    <n>/open                who opens it (the first wins)       by who wrote it
    <n>/clock               all (an atomic counter)             by the closer
    <n>/lead/<term>         who leads (the first wins)          by the closer
    <n>/a/<rank>[/<part>]   each agent: its first look          by who wrote it, else by the closer
    <n>/b/<rank>[/<part>]   each agent: its second look         by who wrote it, else by the closer
    <n>/verdict             a leader (the first wins)           by the closer
    <n>/ruling              any (the first wins)                never: ``over`` once a later one has ended
    <n>/ack/<rank>          each agent                          by the closer

A ruling is never deleted within its round, so that an agent that slept through it cannot write another. It
must not know what stands in a value.
"""

from __future__ import annotations

from typing import Final, Literal

Which = Literal["a", "b"]
PREFIX: Final = "rankscope/nodes/"
TURN: Final = f"{PREFIX}turn"
OVER: Final = b"over"
"""Stands where a ruling was, once a later incident has ended."""


def roster(rank: int) -> str:
    """Who the agent of a group rank is, and which ranks it has."""
    return f"{PREFIX}roster/{rank}"


def opening(number: int) -> str:
    """What opened an incident."""
    return f"{PREFIX}{number}/open"


def clock(number: int) -> str:
    """Counts the marks by which clocks are compared."""
    return f"{PREFIX}{number}/clock"


def lead(number: int, term: int) -> str:
    """Who leads in a term."""
    return f"{PREFIX}{number}/lead/{term}"


def look(number: int, which: Which, rank: int, part: int = 0) -> str:
    """A part of what an agent saw; part 0 is written last, and says how many there are."""
    name = f"{PREFIX}{number}/{which}/{rank}"
    return f"{name}/{part}" if part else name


def verdict(number: int) -> str:
    """What the job has."""
    return f"{PREFIX}{number}/verdict"


def ruling(number: int) -> str:
    """What is done about it; with it the incident is over."""
    return f"{PREFIX}{number}/ruling"


def ack(number: int, rank: int) -> str:
    """That an agent knows the ruling."""
    return f"{PREFIX}{number}/ack/{rank}"
