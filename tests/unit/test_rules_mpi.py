"""MPI's calls, which C++ frames alone may show: what they are called, and ranks in different ones."""

from __future__ import annotations

import pytest
from tests.classify_factory import a_rank, judge_still, native, torch_frame, user

from rankscope.diag.classify.mpi_calls import mpi_call
from rankscope.diag.model import Frame

MPI = "libmpi.so.40"


@pytest.mark.parametrize(
    ("frame", "call"),
    [
        (native("PMPI_Allreduce", MPI), "MPI_Allreduce"),
        (native("MPI_Barrier", MPI), "MPI_Barrier"),
        (native("PMPI_Bcast_c", MPI), "MPI_Bcast"),
        (native("PMPI_Comm_split", MPI), "MPI_Comm_split"),
        (native("__pyx_pf_6mpi4py_3MPI_4Comm_188allreduce", "MPI.so"), "MPI_Allreduce"),
        (native("__pyx_pw_6mpi4py_3MPI_9Intracomm_21exscan", "MPI.so"), "MPI_Exscan"),
        (torch_frame("Comm.Allreduce", "mpi4py/MPI.src/Comm.pyx", 1049), "MPI_Allreduce"),
        (native("MPIDI_CH3I_Progress", MPI), ""),
        (native("MPIR_Barrier_intra_dissemination", MPI), ""),
        (native("PMPIX_Harmonize", MPI), ""),
        (native("ncclAllReduce", "libnccl.so.2"), ""),
        (user("allreduce", 3), ""),
    ],
)
def test_a_call_is_named_by_its_entry(frame: Frame, call: str) -> None:
    assert mpi_call(frame) == call


def within(*entries: str, below: tuple[Frame, ...] = ()) -> tuple[Frame, ...]:
    """A stack inside of a call of Open MPI."""
    return (
        native("opal_progress", "libopen-pal.so.40"),
        native("ompi_request_default_wait", MPI),
        *(native(entry, MPI) for entry in entries),
        *below,
    )


def test_ranks_in_different_calls_of_mpi_went_different_ways() -> None:
    barrier = within("ompi_coll_base_barrier_intra_bruck", "PMPI_Barrier")
    reduce = within("ompi_coll_base_allreduce_intra_recursivedoubling", "PMPI_Allreduce")
    found = judge_still(*(a_rank(rank).but(frames=reduce if rank == 1 else barrier) for rank in range(4)))
    assert (found.kind, found.culprits, found.rule) == ("desync", (1,), "9")
    assert "rank 1 in MPI_Allreduce; ranks 0,2-3 wait in MPI_Barrier" in found.summary


def test_ranks_in_one_call_of_mpi_are_told_in_which() -> None:
    barrier = within("mca_coll_han_barrier_intra_simple", "PMPI_Barrier", below=(user("step", 7),))
    found = judge_still(*(a_rank(rank).but(frames=barrier) for rank in range(4)))
    assert found.kind != "desync"
    assert {rank.position for rank in found.ranks} == {"MPI_Barrier"}


def test_a_collective_whose_entry_is_out_of_sight_is_a_wait_still() -> None:
    inner = within("ompi_coll_tuned_allreduce_intra_dec_fixed")
    loading = (user("load_batch", 8),)
    found = judge_still(*(a_rank(rank).but(frames=loading if rank == 2 else inner) for rank in range(4)))
    assert found.culprits == (2,)


def test_a_collective_made_of_messages_is_the_collective() -> None:
    inner = within("PMPI_Recv", "MPIR_Bcast_intra_binomial", "PMPI_Bcast")
    found = judge_still(*(a_rank(rank).but(frames=inner) for rank in range(4)))
    assert {rank.position for rank in found.ranks} == {"MPI_Bcast"}
