"""Real dumps of real jobs made to hang (tests/data/stacks), each with its truth beside it.

py-spy's JSON, and the state, wait channel and exit codes that ``truth.json`` noted: a single dump, so no
answer may be sure.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot, ProcessFacts, RankSnapshot
from rankscope.diag.read.pyspy import parse_pyspy_json

DATA = Path(__file__).parents[1] / "data" / "stacks"
# The lines of the program that the dumps are of, where C calls leave no frame.
LINES = {85: "with L:", 176: "time.sleep(3600)", 179: "w.wait()"}


class Expected(NamedTuple):
    kind: str
    function: str | None
    line: int | None


EXPECTED = {
    "async_wait": Expected("user_code", "async_wait", 176),
    "busy_loop": Expected("python_loop", "busy_loop", 106),
    "checkpoint_write": Expected("checkpoint", "checkpoint_write", 147),
    "crash": Expected("dead", None, None),
    "dataloader_main_sleep": Expected("data_loading", "SlowSet.read_remote_shard", 57),
    "dataloader_worker_sleep": Expected("data_loading", "_dl", 63),
    "ddp_backward": Expected("user_code", "validate", 192),
    "dstate": Expected("frozen", None, None),
    "exit_hang": Expected("exit", "_shutdown", 1590),
    "fsdp2": Expected("user_code", "fsdp2", 218),
    "gil_native": Expected("native_gil", "<lambda>", 265),
    "lock_blocked": Expected("lock", "guarded", 85),
    "mismatch_op": Expected("desync", "mismatch_op", 96),
    "missing_collective": Expected("user_code", "missing_collective", 39),
    "missing_collective_all_in_comm": Expected("desync", "missing_collective_all_in_comm", 48),
    "p2p_recv": Expected("user_code", "p2p_recv", 226),
    "sigstop": Expected("frozen", None, None),
    "store_rendezvous": Expected("startup", "store_rendezvous", 162),
}


class Truth(NamedTuple):
    culprits: tuple[int, ...]
    verdict: str
    job: JobSnapshot


def case(scenario: str) -> Truth:
    truth = json.loads((DATA / scenario / "truth.json").read_text())
    ranks: list[RankSnapshot] = []
    for rank in range(truth["world_size"]):
        tool = truth["tools"][str(rank)]
        read = parse_pyspy_json((DATA / scenario / f"rank{rank}.pyspy.json").read_bytes(), pid=tool["pid"])
        facts = ProcessFacts(tool["pid"], 1, 1, 0.0, tool["state"], "python", wchan=tool["wchan"])
        code = tool["poll"]
        ranks.append(
            RankSnapshot(
                rank=rank,
                pid=tool["pid"],
                observed=bool(read.threads),
                reason=None if read.threads else read.problems[0],
                source="py-spy",
                threads=read.threads,
                facts=facts,
                exit=None if code is None else ExitFacts(code),
            )
        )
    job = JobSnapshot(scenario, 0.0, truth["world_size"], tuple(ranks))
    return Truth(tuple(truth["culprits"]), truth["class"], job)


def judged(job: JobSnapshot) -> Diagnosis:
    return diagnose(
        (job, None),
        catalogue=load_catalogue(),
        source_line=lambda file, line: LINES.get(line) if file.endswith("scen.py") else None,
        time="t",
    )


@pytest.mark.parametrize("scenario", sorted(EXPECTED))
def test_a_real_hang_is_explained(scenario: str) -> None:
    truth, expected = case(scenario), EXPECTED[scenario]
    found = judged(truth.job)
    assert (found.verdict, found.culprits) == (truth.verdict, truth.culprits)
    assert found.kind == expected.kind
    place = (found.location.function, found.location.line) if found.location else (None, None)
    assert place == (expected.function, expected.line)
    assert found.confidence != "high" or found.verdict == "Exited"


def test_a_slow_job_in_a_single_dump_is_named_with_low_confidence_only() -> None:
    found = judged(case("slow").job)
    assert (found.culprits, found.confidence) == ((1,), "low")


def test_the_data_holds_no_case_without_an_expectation() -> None:
    assert {folder.name for folder in DATA.iterdir()} == {*EXPECTED, "slow"}
