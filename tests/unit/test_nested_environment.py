"""Whose environment is that of a rank of a launcher below a worker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rankscope.diag.discover.rank_variables import identify
from rankscope.watchdog import environment
from rankscope.watchdog.nested import Nested, nested_rank, own_rank, task_named
from rankscope.watchdog.probe import boot

OF_THE_WORKER = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "run-7"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "8",
    "PMIX_NAMESPACE": "123",
}
SLURM = {"SLURM_PROCID": "3", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0"}


def test_a_rank_of_mpirun_below_a_worker_is_mpis_rank_in_a_slot_of_its_own() -> None:
    variables = {**OF_THE_WORKER, **OPEN_MPI, "RANKSCOPE_TASK": "", "RANKSCOPE_SLOT": "0"}
    assert nested_rank(variables) == Nested(rank=5, slot=1)
    identity = identify(variables)
    assert identity is not None
    assert (identity.rank, identity.world_size, identity.run_id) == (5, 8, "run-7")


def test_what_was_said_of_the_workers_node_is_not_said_of_a_launcher_s_below_it() -> None:
    """As many ranks as torch's agent has workers, but on eight nodes."""
    workers = {**OF_THE_WORKER, "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "RANKSCOPE_TASK": ""}
    identity = identify({**workers, **OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    assert identity is not None
    assert (identity.rank, identity.world_size, identity.local_size) == (5, 8, 1)


def test_the_workers_of_an_agent_that_runs_in_a_task_are_no_ranks_of_that_task() -> None:
    for task in (OPEN_MPI, SLURM):
        variables = {**OF_THE_WORKER, **task, "RANKSCOPE_TASK": task_named(task)}
        assert nested_rank(variables) is None
        identity = identify(variables)
        assert identity is not None
        assert (identity.rank, identity.source) == (0, "RANK")


def test_srun_below_a_worker_of_a_task_of_slurms_is_another_step() -> None:
    variables = {**OF_THE_WORKER, **SLURM, "SLURM_STEP_ID": "1", "RANKSCOPE_TASK": task_named(SLURM)}
    assert nested_rank(variables) == Nested(rank=3, slot=0)


def test_without_an_agent_of_ours_nothing_is_nested() -> None:
    assert nested_rank({**OF_THE_WORKER, **OPEN_MPI}) is None


def test_a_launcher_that_tells_no_local_rank_gives_slots_by_rank() -> None:
    assert nested_rank({"PMI_RANK": "2", "RANKSCOPE_TASK": "", "RANKSCOPE_SLOT": "1"}) == Nested(
        rank=2, slot=3
    )


def test_a_rank_of_mpirun_needs_no_rank_of_torchs_to_claim_its_slot() -> None:
    ours = {environment.TASK: "", environment.PAGE: "/job/page", environment.SLOT: "0"}
    for inherited in (OF_THE_WORKER, {}):
        variables = {**inherited, **OPEN_MPI, **ours}
        assert own_rank(variables) == "5"
        assert boot.claim_of(variables, pid=10) == boot.Claim(5, "/job/page", 1, 0, "")
    assert own_rank({**OF_THE_WORKER, **ours}) == "0"
    assert own_rank(ours) == ""
    assert boot.claim_of(ours, pid=10) is None


@given(
    st.dictionaries(
        st.sampled_from([*OPEN_MPI, *SLURM, "PMI_RANK", "RANKSCOPE_TASK", "RANKSCOPE_SLOT"]),
        st.text() | st.integers().map(str) | st.just("9" * 5000),
    )
)
def test_any_environment_gives_a_place_or_none(variables: dict[str, str]) -> None:
    nested = nested_rank(variables)
    assert nested is None or (nested.rank >= 0 and nested.slot >= 0)
