"""The reports of Horovod's stall inspector, in the forms of its versions."""

from __future__ import annotations

import pytest
from tests.reading_factory import read
from tests.watchdog_lines import of_log

SAID = (
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are "
    "waiting for remainder of ranks for more than {0} seconds. This may indicate that different ranks are "
    "trying to submit different tensors, or that only subset is, which will cause deadlock. "
)
NEW = "[2020-07-12 16:50:57.724380: W /tmp/horovod/common/stall_inspector.cc:105] " + SAID
OLD = "[2019-04-13 13:56:31.861697: W horovod/common/operations.cc:588] "
FORMS = {
    "missing": [NEW.format(60), "Missing ranks:", "1: [allreduce.a, allreduce.b ...]", "3: [allreduce.c]"],
    "stalled": [NEW.format(60), "Stalled ranks:", "1!: [allreduce.a]", "3: [allreduce.c]"],
    "ops": [
        OLD + SAID.format(60),
        "Stalled ops:HorovodBroadcast_bias_0 [missing ranks: 1, 3]",
        f"{OLD}HorovodBroadcast_kernel_0 [missing ranks: 1]",
    ],
    "ready": [
        f"WARNING: {SAID.format(60)}Stalled ops: allreduce.a [ready ranks: 4, 0, 2], x [ready ranks: 4, 2, 0]"
    ],
}


@pytest.mark.parametrize("prefix", ["", "[1,0]<stderr>:", "[default0]: "])
@pytest.mark.parametrize("form", list(FORMS))
def test_every_form_tells_the_missing_ranks(form: str, prefix: str) -> None:
    lines = ["step 4100", *FORMS[form], "step 4101"]
    facts = read("".join(f"{prefix}{line}\n" for line in lines).encode()).facts
    assert {(fact.kind, fact.rank, fact.seconds) for fact in facts} == {
        ("stalled", 1, 60.0),
        ("stalled", 3, 60.0),
    }


def test_the_newest_report_counts() -> None:
    first = [NEW.format(60), "Missing ranks:", "0: [allreduce.a]"]
    later = [NEW.format(120), "Missing ranks:", "2: [allreduce.b]"]
    (fact,) = read("\n".join([*first, *later]).encode()).facts
    assert (fact.rank, fact.seconds) == (2, 120.0)


def test_the_labels_of_tasks_stay_labels() -> None:
    lines = ["0: " + NEW.format(60), "0: Missing ranks:", "0: 3: [allreduce.a]", "1: [allreduce] took 3 s"]
    (fact,) = read("\n".join(lines).encode()).facts
    assert fact.rank == 3


def test_missing_ranks_are_named_and_say_nothing_themselves() -> None:
    diagnosis, left = of_log(*(f"[1,0]<stderr>:{line}" for line in FORMS["missing"]))
    assert (diagnosis.verdict, diagnosis.culprits, diagnosis.confidence) == ("RankNonCommHang", (1, 3), "low")
    assert "for 60 s" in diagnosis.summary
    assert {line.rank for line in diagnosis.evidence} == {None}
    assert not left


def test_ranks_that_all_miss_something_are_not_named() -> None:
    lines = ["Missing ranks:", "0: [a]", "1: [b]"]
    diagnosis, _ = of_log(NEW.format(60), *lines)
    assert (diagnosis.verdict, diagnosis.culprits) == ("Unknown", ())
