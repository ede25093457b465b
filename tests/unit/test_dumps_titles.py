"""Titles of processes: places in the job, and processes that are no ranks."""

from __future__ import annotations

import pytest
from tests.dumps_factory import STUCK, WAITS, a_dump, a_file, gathered, python

from rankscope.diag.classify import load_catalogue
from rankscope.diag.dumps.job import DumpedJob
from rankscope.diag.dumps.titles import no_ranks, numbered_by_titles, shown_title
from rankscope.diag.judging.dumped import judge_dumped

ENGINE = (
    python("recv", 802, "vllm/distributed/device_communicators/shm_broadcast.py"),
    python("get_response", 387, "vllm/v1/executor/multiproc_executor.py"),
    python("run_engine_core", 1190, "vllm/v1/engine/core.py"),
)


@pytest.mark.parametrize(
    ("titles", "ranks"),
    [
        (["VLLM::Worker_TP2", "VLLM::Worker_TP0", "VLLM::Worker_TP1"], [2, 0, 1]),
        (["VLLM::Worker_PP1_TP1", "VLLM::Worker_PP0_TP0", "VLLM::Worker_PP0_TP1"], [3, 0, 1]),
        (["VLLM::Worker_DP1_EP1", "VLLM::Worker_DP0_EP0"], [1, 0]),
        (["VLLM::Worker_DP1_TP0_EP2", "VLLM::Worker_DP0_TP1_EP1", "VLLM::Worker_DP0_TP0_EP0"], [2, 1, 0]),
        (["VLLM::Worker_TP1_DP0_EP1", "VLLM::Worker_TP0_DP1_EP2"], [1, 2]),
        (["sglang::scheduler_TP3", "sglang::scheduler_TP0"], [3, 0]),
        (["sglang::scheduler_PP2_TP0", "sglang::scheduler_PP0_TP1"], [4, 1]),
        (["sglang::scheduler_DP1_TP2_EP2", "sglang::scheduler_DP0_TP1_EP1"], [2, 1]),
        (["sglang::semi_pd_scheduler_TP1", "sglang::semi_pd_scheduler_TP0"], [1, 0]),
    ],
)
def test_places_in_the_job_number_the_ranks(titles: list[str], ranks: list[int]) -> None:
    assert numbered_by_titles(dict(enumerate(titles))) == dict(enumerate(ranks))


@pytest.mark.parametrize(
    "titles",
    [
        [],
        ["VLLM::Worker", "VLLM::Worker"],
        ["VLLM::Worker_TP0", "VLLM::Worker_TP0"],  # two servers
        ["VLLM::Worker_TP0", "python train.py"],
        ["ray::WorkerDict.update_TP0", "ray::WorkerDict.update_TP1"],
        ["python TP0", "python TP1"],
        ["VLLM::Worker_TP99999_PP99999", "VLLM::Worker_TP0_PP1"],
    ],
)
def test_titles_that_do_not_place_every_process_number_none(titles: list[str]) -> None:
    assert numbered_by_titles(dict(enumerate(titles))) == {}


POLLS = (python("run_forever", 603, "asyncio/base_events.py"),)


def served(*titles: str) -> list[bool]:
    return no_ranks([a_dump(10 + at, *POLLS, title=title) for at, title in enumerate(titles)])


def test_engines_front_ends_and_drivers_are_no_ranks_beside_workers() -> None:
    assert served("VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::APIServer_0") == [True, False, True]
    assert served("VLLM::EngineCore_DP0", "ray::RayWorkerWrapper.execute_method") == [True, False]
    assert served("sglang::detokenizer", "sglang::scheduler_TP0", "sglang::tokenizer_worker:7") == [
        True,
        False,
        True,
    ]
    assert served("ray::TaskRunner.run", "ray::WorkerDict.update_actor", "ray::IDLE") == [True, False, True]
    assert served("/usr/bin/python3 -m sglang.launch_server --tp 2", "sglang::scheduler") == [True, False]
    assert served("/opt/bin/python /opt/bin/vllm serve m", "VLLM::EngineCore") == [True, False]


def test_an_engine_without_workers_runs_the_model_itself() -> None:
    assert served("VLLM::EngineCore_DP0", "VLLM::EngineCore_DP1") == [False, False]
    assert served("VLLM::EngineCore", "python notebook.py") == [False, False]
    assert served("sglang::detokenizer") == [False]


def test_an_engine_without_a_title_is_known_by_what_it_runs() -> None:
    worker = python("worker_busy_loop", 1010, "vllm/v1/executor/multiproc_executor.py")
    command = "/venv/bin/python -c from multiprocessing.spawn import spawn_main"
    engine = a_dump(10, *ENGINE, title=command)
    assert no_ranks([engine, a_dump(11, *WAITS, worker, title=command)]) == [True, False]
    assert no_ranks([engine, a_dump(11, *WAITS, title=command)]) == [False, False]


def test_a_front_end_that_runs_torch_itself_is_a_rank() -> None:
    dumps = [a_dump(10, *WAITS, title="python -m vllm.entrypoints.openai.api_server"), a_dump(11, *WAITS)]
    assert no_ranks(dumps) == [False, False]


def test_command_lines_are_no_titles() -> None:
    assert shown_title(a_dump(10, *WAITS, title="/venv/bin/python -u train.py --tag a::b")) == ""
    assert (
        shown_title(a_dump(10, *WAITS, title="ray::WorkerDict.update_actor"))
        == "ray::WorkerDict.update_actor"
    )


def test_ranks_are_numbered_by_titles_and_not_by_process_numbers_or_files() -> None:
    files = [
        a_file("stack_0.txt", a_dump(40, *STUCK, title="sglang::scheduler_PP1_TP1")),
        a_file("stack_1.txt", a_dump(41, *WAITS, title="sglang::scheduler_PP0_TP0")),
        a_file("stack_2.txt", a_dump(42, *WAITS, title="sglang::scheduler_PP1_TP0")),
        a_file("stack_3.txt", a_dump(43, *WAITS, title="sglang::scheduler_PP0_TP1", parent=41)),
        a_file("stack_4.txt", a_dump(39, *WAITS, title="sglang::detokenizer")),
    ]
    found = gathered(*files)
    assert [(rank.rank, rank.pid) for rank in found.snapshots[-1].ranks][:1] == [(0, 41)]
    assert "ranks are taken from the titles of their processes" in found.notes
    assert [dump.pid for dump in found.others] == [39]


def test_names_that_say_the_rank_are_stronger_than_titles() -> None:
    found = gathered(
        a_file("rank1.txt", a_dump(40, *WAITS, title="VLLM::Worker_TP0")),
        a_file("rank0.txt", a_dump(41, *WAITS, title="VLLM::Worker_TP1")),
    )
    assert [(rank.rank, rank.pid) for rank in found.snapshots[-1].ranks] == [(0, 41), (1, 40)]
    assert found.titles == {}


def test_a_diagnosis_tells_what_a_guessed_rank_is_called_and_where_the_engine_stands() -> None:
    dumps = [
        a_dump(9, *ENGINE, title="VLLM::EngineCore"),
        a_dump(12, *WAITS, title="VLLM::Worker_TP0"),
        a_dump(11, *STUCK, title="VLLM::Worker_TP1"),
        a_dump(10, *WAITS, title="VLLM::Worker_TP2"),
    ]
    found = gathered(a_file("stacks.txt", *dumps))
    job = DumpedJob((found.snapshots[-1], None), facts=found.facts, others=found.others, titles=found.titles)
    diagnosis, _ = judge_dumped(job, load_catalogue())
    assert diagnosis.world_size == 3
    assert (diagnosis.culprits, [rank.rank for rank in diagnosis.ranks]) == ((1,), [0, 1, 2])
    told = {(fact.source, fact.rank): fact.fact for fact in diagnosis.evidence}
    assert told["title", 1] == "it is VLLM::Worker_TP1 (process 11)"
    assert any(
        fact.startswith("VLLM::EngineCore (process 9), no rank, in recv (")
        and "called in get_response (" in fact
        for fact in told.values()
    )
