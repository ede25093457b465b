"""Torch's registry joined with its record: which groups are shown, under which name, with which numbers."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import pytest

from rankscope.watchdog.page import MAX_GROUPS, GroupSeq
from rankscope.watchdog.probe.groups import GroupReader, members_hash


class Group:
    """Stands where torch has a ProcessGroup: an object that dicts are keyed by and weak references know."""


class Torch:
    """The part of ``torch.distributed`` that is read, with groups that the test makes and destroys."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = SimpleNamespace(default_pg=None, pg_map={}, pg_names={}, pg_group_ranks={})
        self.record: dict[str, tuple[int, str, int, int]] = {}
        self.binding = SimpleNamespace(_dump_fr_trace=self._dump)
        monkeypatch.setitem(
            sys.modules, "torch.distributed.distributed_c10d", SimpleNamespace(_world=self.world)
        )
        monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", self.binding)
        monkeypatch.delenv("TORCH_FR_BUFFER_SIZE", raising=False)
        monkeypatch.delenv("TORCH_NCCL_TRACE_BUFFER_SIZE", raising=False)

    def make(self, name: str, *ranks: int, backend: str = "gloo") -> None:
        group = Group()
        self.world.default_pg = self.world.default_pg or group
        self.world.pg_names[group] = name
        self.world.pg_map[group] = (backend, None)
        self.world.pg_group_ranks[group] = {rank: index for index, rank in enumerate(ranks)}

    def destroy(self) -> None:
        self.world.default_pg = None
        for table in (self.world.pg_map, self.world.pg_names, self.world.pg_group_ranks):
            table.clear()

    def run(self, number: int, name: str, enqueued: int, completed: int) -> None:
        self.record[str(number)] = (number, name, enqueued, completed)

    def _dump(self, **flags: bool) -> bytes:
        dump: dict[str, object] = {
            "pg_status": {
                key: {"last_enqueued_collective": enqueued, "last_completed_collective": completed}
                for key, (_number, _name, enqueued, completed) in self.record.items()
            }
        }
        if flags["includeCollectives"]:
            dump["entries"] = [
                {"pg_id": number, "process_group": (name, "")} for number, name, *_ in self.record.values()
            ]
        return pickle.dumps(dump)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return Torch(monkeypatch)


def test_a_group_shows_its_name_members_and_numbers(torch: Torch) -> None:
    torch.make("0", 0, 1)
    torch.run(0, "0", 5, 4)
    assert GroupReader().read() == (GroupSeq("0", 2, 5, 4, members_hash([0, 1])),)


def test_a_group_without_a_collective_shows_none(torch: Torch) -> None:
    torch.make("0", 0, 1)
    torch.make("1", 0)
    torch.run(0, "0", 5, 4)
    assert GroupReader().read()[1] == GroupSeq("1", 1, -1, -1, members_hash([0]))


def test_a_group_of_a_backend_that_is_not_recorded_is_left_out(torch: Torch) -> None:
    torch.make("0", 0, 1, backend="mpi")
    assert GroupReader().read() == ()


def test_while_a_number_has_no_name_a_silent_group_may_be_its_and_is_left_out(torch: Torch) -> None:
    torch.make("0", 0, 1)
    torch.run(3, "", 1, 1)
    assert GroupReader().read() == ()


def test_groups_of_others_are_not_shown(torch: Torch) -> None:
    torch.make("0", 0, 1)
    torch.world.pg_group_ranks[-100] = {1: 0}
    torch.world.pg_names[-100] = "2"
    assert [group.name for group in GroupReader().read()] == ["0"]


def test_before_and_after_torch_distributed_is_in_use_there_are_no_groups(torch: Torch) -> None:
    reader = GroupReader()
    assert reader.read() == ()
    torch.make("0", 0, 1)
    assert len(reader.read()) == 1
    torch.destroy()
    assert reader.read() == ()


@pytest.mark.parametrize("seen_in_between", [True, False])
def test_begun_again_the_group_of_the_same_name_starts_anew(torch: Torch, seen_in_between: bool) -> None:
    reader = GroupReader()
    torch.make("0", 0, 1)
    torch.run(0, "0", 900, 900)
    reader.read()
    torch.destroy()
    if seen_in_between:
        reader.read()
    torch.make("0", 0, 1)
    assert [(group.enqueued, group.completed) for group in reader.read()] == [(-1, -1)]


def test_a_process_group_is_not_kept_alive(torch: Torch) -> None:
    ended: list[str] = []

    class Watched(Group):
        def __del__(self) -> None:
            ended.append("ended")

    reader = GroupReader()
    group = Watched()
    torch.world.default_pg = "some default group"
    torch.world.pg_names[group] = "0"
    torch.world.pg_map[group] = ("gloo", None)
    torch.world.pg_group_ranks[group] = {0: 0}
    del group
    assert len(reader.read()) == 1
    torch.destroy()
    assert ended == ["ended"]


def test_a_record_that_is_switched_off_says_nothing(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    torch.make("0", 0, 1)
    assert GroupReader().read() == ()


def test_an_older_torchs_nccl_record_does_not_say_none_for_gloo(torch: Torch) -> None:
    torch.binding._dump_nccl_trace = torch.binding._dump_fr_trace
    del torch.binding._dump_fr_trace
    torch.make("0", 0, 1, backend="gloo")
    torch.make("1", 0, 1, backend="nccl")
    torch.run(4, "1", 2, 2)
    assert [group.name for group in GroupReader().read()] == ["1"]


def test_a_group_with_two_backends_shows_both_records(torch: Torch) -> None:
    other = Torch.__new__(Torch)
    other.record = {"0": (0, "0", 70, 69)}
    torch.binding._dump_nccl_trace = other._dump
    torch.make("0", 0, 1, backend="cpu:gloo,cuda:nccl")
    torch.run(0, "0", 2, 2)
    shown = {group.name: (group.enqueued, group.completed) for group in GroupReader().read()}
    assert shown == {"0": (70, 69), "0/cpu": (2, 2)}


def test_with_more_groups_than_the_page_holds_open_collectives_come_first(torch: Torch) -> None:
    for number in range(MAX_GROUPS + 5):
        torch.make(str(number), 0, 1)
        torch.run(number, str(number), 3, 3)
    torch.run(MAX_GROUPS + 4, str(MAX_GROUPS + 4), 4, 3)
    assert GroupReader().read()[0].name == str(MAX_GROUPS + 4)


def test_the_hash_of_members_is_of_the_set_and_fixed_for_ever() -> None:
    assert members_hash([1, 0]) == members_hash([0, 1]) != members_hash([0, 2])
    assert members_hash([0, 1]) == 0x70A94C03EEAA82EB
    assert members_hash([]) != 0
