"""Dumps of the installed torch, taken from real gloo jobs, are read in both forms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rankscope.diag.model import FlightRecord
from rankscope.diag.read.flight_record import parse_record

JOB = """
import sys
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
tensor = torch.ones(3, 2)
dist.all_reduce(tensor)
group = dist.new_group([0, 1], group_desc="pair")
dist.broadcast(tensor, 0, group=group)
dist.all_gather_object([None, None], {"rank": rank})
if rank == 0:
    dist.send(tensor, 1)
else:
    dist.recv(tensor, 0)
pending = dist.all_reduce(tensor, async_op=True) if rank == 1 else None
trace = c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False)
open(f"{folder}/rank{rank}.pickle", "wb").write(trace)
trace = c10d._dump_fr_trace_json(includeCollectives=True, onlyActive=False)
open(f"{folder}/rank{rank}.json", "wb").write(trace if isinstance(trace, bytes) else trace.encode())
dist.distributed_c10d._get_default_store().set(f"dumped {rank}", "1")
dist.distributed_c10d._get_default_store().wait(["dumped 0", "dumped 1"])
if rank == 0:
    dist.all_reduce(tensor)
else:
    pending.wait()
dist.destroy_process_group()
"""


def test_a_real_job_s_dumps_are_read_whole(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(JOB)
    ranks = [
        subprocess.Popen([sys.executable, str(program), str(rank), str(tmp_path)], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    behind, ahead = _records(tmp_path, 0), _records(tmp_path, 1)
    for record in (*behind, *ahead):
        assert record.is_whole
        assert {group.description for group in record.groups} == {"default_pg", "pair"}
        assert record.entries[0].input_sizes == ((3, 2),)
    for waits, comes in zip(ahead, behind, strict=True):
        last = waits.entries[-1]
        assert (last.op, last.is_completed) == ("all_reduce", False)
        assert last.seq not in {one.seq for one in comes.entries if one.group == last.group}
    assert ahead[1].entries[-1].frames[-1].file == str(program)


def _records(folder: Path, rank: int) -> tuple[FlightRecord, FlightRecord]:
    found: list[FlightRecord] = []
    for kind in ("json", "pickle"):
        record, problems = parse_record((folder / f"rank{rank}.{kind}").read_bytes())
        assert not problems
        assert record is not None
        found.append(record)
    return found[0], found[1]
