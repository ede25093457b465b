"""A job that somebody ended by Ctrl-C: the tracebacks tell where each rank stood."""

from __future__ import annotations

import pytest
from tests.dumps_factory import STUCK, a_dump, a_file, gathered, ranks_of
from tests.reading_factory import read

from rankscope.diag.classify import Catalogue, diagnose
from rankscope.diag.classify.log_words import with_log_facts
from rankscope.diag.dumps.names import read_name
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.model import Diagnosis

HEADER = "Traceback (most recent call last):"
ROOT = '  File "/app/train.py", line 90, in <module>\n    main()\n'
REDUCES = (
    '  File "/app/train.py", line 40, in main\n    dist.all_reduce(loss)\n'
    '  File "/venv/lib/site-packages/torch/distributed/distributed_c10d.py", line 2, in all_reduce\n'
    "    work.wait()\n"
)
LOADS = '  File "/app/data.py", line 7, in read_sample\n    return open(path).read()\n'
WORKER = (
    '  File "/usr/lib/python3.11/multiprocessing/process.py", line 314, in _bootstrap\n    self.run()\n'
    '  File "/venv/torch/utils/data/_utils/worker.py", line 275, in _worker_loop\n    r = index_queue.get()\n'
)
AGENT = (
    '  File "/venv/torch/distributed/elastic/server/api.py", line 835, in _invoke_run\n    time.sleep(1)\n'
)


def interrupted(*frames: str, by: str = "KeyboardInterrupt") -> str:
    return f"{HEADER}\n{''.join(frames)}{by}\n"


def a_log(name: str, *texts: str, prefix: str = "") -> Source:
    lines = [f"{prefix}{line}" for text in texts for line in text.splitlines()]
    return Source(name, read_name([name]), read("\n".join(lines) + "\n"))


def judged(*sources: Source) -> Diagnosis:
    found = gathered(*sources)
    diagnosis = diagnose(
        (found.snapshots[-1], None), catalogue=Catalogue.load(), source_line=lambda _f, _l: None, time="t"
    )
    return with_log_facts(diagnosis, found.facts)[0]


@pytest.mark.parametrize(
    "by",
    ["KeyboardInterrupt", "KeyboardInterrupt: ", "lightning.pytorch.utilities.exceptions.SIGTERMException"],
)
def test_who_stood_elsewhere_when_all_were_interrupted_is_the_culprit(by: str) -> None:
    found = judged(
        *(
            a_log(f"rank{rank}.log", interrupted(ROOT, LOADS if rank == 2 else REDUCES, by=by))
            for rank in range(4)
        )
    )
    assert (found.verdict, found.culprits, found.confidence) == ("RankNonCommHang", (2,), "low")
    assert found.location is not None
    assert (found.location.file, found.location.line) == ("/app/data.py", 7)
    assert "interrupted from outside" in found.summary


def test_prefixes_tell_whose_traceback_it_is() -> None:
    texts = [
        "\n".join(
            f"[rank{rank}]: {line}" for line in interrupted(ROOT, LOADS if rank else REDUCES).splitlines()
        )
        for rank in (0, 1)
    ]
    ranks = ranks_of(a_log("train.log", *texts))
    assert {rank: one.threads[0].frames[0].function for rank, one in ranks.items()} == {
        0: "all_reduce",
        1: "read_sample",
    }
    assert ranks[1].source == "traceback"
    assert ranks[1].threads[0].frames[0].source == "return open(path).read()"
    assert not any(one.exit for one in ranks.values())


def test_what_breaks_behind_an_interruption_is_no_cause() -> None:
    chained = (
        interrupted(ROOT, LOADS),
        "During handling of the above exception, another exception occurred:\n\n",
        interrupted(ROOT, by="RuntimeError: worker exited unexpectedly"),
        interrupted(ROOT, REDUCES),
        interrupted(ROOT, by="BrokenPipeError: [Errno 32] Broken pipe"),
    )
    ranks = ranks_of(a_log("rank0.log", *chained))
    assert ranks[0].exit is None
    assert ranks[0].threads[0].frames[0].function == "read_sample"


def test_a_failure_before_the_interruption_is_told() -> None:
    found = gathered(
        a_log("rank1.log", interrupted(ROOT, by="ValueError: bad batch"), interrupted(ROOT, REDUCES))
    )
    assert [fact.text for fact in found.facts] == ["ValueError: bad batch", "KeyboardInterrupt"]


def test_loader_workers_and_launchers_are_no_ranks() -> None:
    ranks = ranks_of(
        a_log("rank0.log", interrupted(WORKER), interrupted(ROOT, REDUCES), interrupted(WORKER)),
        a_log("torchrun.log", interrupted(ROOT, AGENT)),
    )
    assert list(ranks) == [0]
    assert ranks[0].threads[0].frames[0].function == "all_reduce"


def test_a_dump_by_a_tool_counts_before_a_traceback() -> None:
    ranks = ranks_of(
        a_file("rank0.pyspy.txt", a_dump(10, *STUCK)), a_log("rank0.log", interrupted(ROOT, REDUCES))
    )
    assert (ranks[0].source, ranks[0].threads[0].frames[0].function) == ("py-spy", "load_batch")


def test_tracebacks_whose_ranks_nothing_tells_are_counted() -> None:
    found = gathered(a_log("console.log", interrupted(ROOT, REDUCES), interrupted(ROOT, LOADS)))
    assert not found.snapshots[-1].ranks
    assert found.notes == ("console.log: 2 tracebacks of interrupted processes whose ranks are not told",)
