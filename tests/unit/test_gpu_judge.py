"""What the facts of a GPU mean, by table; the facts as NVML gave them on real and on broken hardware."""

from __future__ import annotations

import msgspec
import pytest

from rankscope.agent.checks.gpu_facts import GpuFacts, GpuReport, XidSeen
from rankscope.agent.checks.gpu_judge import judge_gpu, judge_report, names
from rankscope.agent.checks.xids import UNKNOWN, XIDS
from rankscope.agent.health.model import Check

H100 = GpuFacts(
    index=3,
    name="NVIDIA H100 80GB HBM3",
    bus="00000000:9B:00.0",
    listens=True,
    uncorrected=0,
    remap_pending=False,
    remap_failed=False,
    throttled=0x4,  # at its power limit, as under any full load
    temperature=64,
    is_busy=True,
    link_width=16,
    max_link_width=16,
    link_generation=5,
    max_link_generation=5,
)
ACTIONS = ("reset", "reboot", "check", "reseat", "replace", "restart", "nvidia-smi", "run NVIDIA's", "look")
"""Every line about something wrong says what to do about it."""


def with_(**changes: object) -> GpuFacts:
    return msgspec.structs.replace(H100, **changes)


FINE = [
    ("a busy H100 at its power limit", H100),
    ("idle, with its link slowed down", with_(is_busy=False, link_generation=1, throttled=0x1)),
    ("without ECC, remapping and PCIe figures (a vGPU)", GpuFacts(index=3, name="GRID A100-7C")),
    ("a corrected past: Xid 31 two hours ago", with_(xids=(XidSeen(31, 1, 7300.0),))),
    ("clocks set by an application", with_(throttled=0x2 | 0x10)),
]
WRONG = [
    ("lost", with_(is_lost=True), "bus", "fail", "fallen off the bus"),
    ("a reset is asked for", with_(needs_reset=True), "driver", "fail", "asks for a reset"),
    ("cannot be asked", with_(trouble="Unknown Error"), "driver", "warn", "cannot be asked: Unknown Error"),
    ("Xid 79", with_(xids=(XidSeen(79),)), "xid-79", "fail", "fallen off the bus"),
    ("Xid 48 hours ago", with_(xids=(XidSeen(48, 1, 90_000.0),)), "xid-48", "fail", "uncorrectable"),
    ("Xid 31 just now", with_(xids=(XidSeen(31, 12, 5.0),)), "xid-31", "warn", "Xid 31, 12 times"),
    ("an Xid nobody knows", with_(xids=(XidSeen(999),)), "xid-999", "warn", "catalogue"),
    ("uncorrected errors", with_(uncorrected=2), "ecc", "warn", "2 uncorrectable memory errors"),
    ("rows that wait", with_(remap_pending=True, uncorrected=1), "ecc", "warn", "waits to be set aside"),
    ("no rows are left", with_(remap_failed=True, remap_pending=True), "ecc", "fail", "replaced"),
    ("hot", with_(throttled=0x20, temperature=91), "thermal", "warn", "heat at 91 degrees"),
    ("too hot", with_(throttled=0x48, temperature=None), "thermal", "warn", "heat, in hardware:"),
    ("power brake", with_(throttled=0x88), "power", "warn", "power brake"),
    ("a slowdown of hardware without a reason", with_(throttled=0x8), "power", "warn", "in hardware"),
    ("half of its lanes", with_(link_width=8), "pcie-width", "warn", "PCIe x8 of x16"),
    ("a slow link", with_(link_generation=3), "pcie-generation", "warn", "PCIe generation 3 of 5"),
]


@pytest.mark.parametrize("facts", [facts for _, facts in FINE], ids=[name for name, _ in FINE])
def test_nothing_is_said_of_a_gpu_that_is(facts: GpuFacts) -> None:
    assert judge_gpu(facts) == {"gpu:3": Check("pass", facts.name)}


@pytest.mark.parametrize(
    ("facts", "what", "status", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_what_is_wrong_is_one_check_with_what_to_do(
    facts: GpuFacts, what: str, status: str, words: str
) -> None:
    found = judge_gpu(facts)
    assert set(found) == {"gpu:3", f"gpu:3:{what}"}
    assert found["gpu:3"] == Check(found[f"gpu:3:{what}"].status, "NVIDIA H100 80GB HBM3 at 00000000:9B:00.0")
    check = found[f"gpu:3:{what}"]
    assert check.status == status
    assert words in check.output
    assert any(action in check.output for action in ACTIONS), check.output
    assert len(check.output) <= 200  # what an open path shows of it
    assert what in names() or what.startswith("xid-")


def test_several_things_are_several_checks_and_the_gpu_is_as_bad_as_the_worst() -> None:
    found = judge_gpu(with_(xids=(XidSeen(95), XidSeen(45)), link_width=4, throttled=0x40))
    assert {name.rpartition(":")[2]: check.status for name, check in found.items()} == {
        "3": "fail",
        "xid-95": "fail",
        "xid-45": "warn",
        "pcie-width": "warn",
        "thermal": "warn",
    }


def test_nothing_else_is_believed_of_a_gpu_that_is_lost() -> None:
    found = judge_gpu(with_(is_lost=True, uncorrected=2**32 - 1, link_width=0, throttled=0xFF))
    assert set(found) == {"gpu:3", "gpu:3:bus"}


def test_a_link_of_no_lanes_is_no_link_that_was_read() -> None:
    assert set(judge_gpu(with_(link_width=0))) == {"gpu:3"}


@pytest.mark.parametrize("number", sorted(XIDS))
def test_every_known_xid_says_what_to_do_in_one_line(number: int) -> None:
    check = judge_gpu(with_(xids=(XidSeen(number, 3),)))[f"gpu:3:xid-{number}"]
    assert f"Xid {number}, 3 times: " in check.output
    assert any(action in check.output for action in (*ACTIONS, "see the error before")), check.output
    assert len(check.output) <= 200
    assert UNKNOWN.status == "warn"


@pytest.mark.parametrize(
    ("report", "checks"),
    [
        (GpuReport(absent="no driver library"), {"gpu": Check("pass", "not present (no driver library)")}),
        (GpuReport(), {"gpu": Check("pass", "not present")}),
        (
            GpuReport(trouble="a version mismatch"),
            {
                "gpu": Check(
                    "warn",
                    "the driver cannot be asked: a version mismatch; see nvidia-smi on the node",
                )
            },
        ),
        (
            GpuReport(gpus=(GpuFacts(0, name="A"), GpuFacts(1, is_lost=True))),
            {
                "gpu:0": Check("pass", "A"),
                "gpu:1": Check("fail", ""),
                "gpu:1:bus": judge_gpu(with_(is_lost=True))["gpu:3:bus"],
            },
        ),
    ],
)
def test_a_whole_report(report: GpuReport, checks: dict[str, Check]) -> None:
    assert judge_report(report) == checks


def test_a_report_is_the_same_after_its_way_through_the_pipe() -> None:
    report = GpuReport(gpus=(with_(xids=(XidSeen(31, 2, 4.5),)), GpuFacts(4, trouble="x")))
    assert msgspec.json.decode(msgspec.json.encode(report), type=GpuReport) == report
