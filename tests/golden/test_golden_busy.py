"""Real hangs on a machine with more jobs than cores: late pages, waits for a core (tests/data/busy).

Three jobs of the fault matrix, looked at by ``diag run`` under a load of 8 to 22 on two cores. Each was
judged wrongly once.
"""

from __future__ import annotations

from pathlib import Path

from rankscope.diag.classify import communicating_ranks, diagnose, load_catalogue
from rankscope.diag.dumps import read_dumps
from rankscope.diag.model import Diagnosis, JobSnapshot

BUSY = Path(__file__).parents[1] / "data" / "busy"


def pair_of(name: str) -> tuple[JobSnapshot, JobSnapshot]:
    first, second = read_dumps([BUSY / name]).pair
    assert second is not None
    return first, second


def found_in(name: str) -> Diagnosis:
    return diagnose(
        pair_of(name),
        catalogue=load_catalogue(),
        source_line=lambda _file, _line: None,
        time="2026-11-30T12:00:00Z",
    )


def test_the_last_pages_of_ranks_that_have_ended_are_no_open_collective() -> None:
    """The other ranks' probes had written 34, 35 and 40 collectives when their scripts came to the end."""
    pages = [rank.progress for rank in pair_of("rank_lingers")[1].ranks if rank.progress is not None]
    assert any(group.enqueued > group.completed for page in pages for group in page.groups)
    found = found_in("rank_lingers")
    assert (found.verdict, found.kind, found.culprits, found.rule) == ("RankNonCommHang", "exit", (0,), "10")
    assert found.location is not None
    assert (found.location.function, found.location.line) == ("olive.yarrow", 38)
    assert all("not entered" not in one.fact for one in found.evidence)


def test_the_thread_that_holds_the_gil_decides_although_the_main_thread_stands_in_a_collective() -> None:
    """Its main thread was let out of collective 56, and waits for the GIL since."""
    found = found_in("gil_in_a_thread")
    assert (found.verdict, found.kind, found.culprits, found.rule) == (
        "RankNonCommHang",
        "native_gil",
        (1,),
        "4",
    )
    assert found.location is not None
    assert (found.location.function, found.location.line) == ("willow", 43)
    assert any(one.fact.startswith("main thread in main (jasper.py:81)") for one in found.evidence)


def test_a_rank_whose_main_thread_waits_for_the_gil_is_not_one_that_communicates() -> None:
    look = pair_of("gil_in_a_thread")[0]
    assert communicating_ranks(look, load_catalogue()) == {0, 2}


def test_a_main_thread_that_wakes_for_the_gil_only_does_nothing_however_long_it_waits_for_a_core() -> None:
    fact = next(one.fact for one in found_in("gil_in_a_thread").evidence if "voluntary switches" in one.fact)
    assert fact == "main thread 0 % CPU, 783 voluntary switches, 0 B/s of I/O in 4.0 s"
    assert found_in("gil_in_a_thread").confidence == "high"


def test_the_rank_behind_a_dead_link_is_named_although_only_one_of_its_connections_was_in_use() -> None:
    found = found_in("swallowed_packets")
    assert (found.verdict, found.kind, found.culprits, found.rule) == ("RankCommHang", "network", (2,), "7")
    assert found.confidence == "low"
    said = "the network lets nothing through between ranks 2 and 3: rank 2 is cut off;"
    assert found.summary.startswith(said)
    believed = "what rank 2 has open with ranks 0-1 is idle, and runs between the same addresses"
    assert believed in [one.fact for one in found.evidence]
