"""Long names of C++ frames: what a person reads is short, and says which function it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.diag.report.short_frames import LONGEST, short_frame

TYPE = "std::tuple<at::Tensor, std::vector<c10::intrusive_ptr<c10d::Work, c10::detail::null<c10d::Work> > > >"
KERNEL = (
    f"c10::impl::wrap_kernel_functor_unboxed_<c10::impl::WrapFunctionIntoFunctor<{TYPE}, {TYPE}>, {TYPE}>"
)


@pytest.mark.parametrize(
    ("frame", "short"),
    [
        (
            f"{KERNEL}::call (libtorch_cpu.so)",
            "c10::impl::wrap_kernel_functor_unboxed_<...>::call (libtorch_cpu.so)",
        ),
        (
            f"{KERNEL}::call(c10::OperatorKernel*, {TYPE}) (libtorch_cpu.so)",
            None,
        ),
        (f"f(a::{'b' * 200}) (x.cpp:3)", "f(...) (x.cpp:3)"),
        (f"void (anonymous namespace)::run<{TYPE}, {TYPE}>()", "void (anonymous namespace)::run<...>()"),
        (f"a::operator<<<{TYPE}, {TYPE}> (lib.so)", "a::operator<<<...> (lib.so)"),
        (f"a::operator-><{TYPE}, {TYPE}> (lib.so)", "a::operator-><...> (lib.so)"),
        (f"cut::off<{TYPE}, {TYPE}, std::vec", "cut::off<..."),
        ("load_batch (train.py:8)", "load_batch (train.py:8)"),
        ("std::vector<int>::push_back (x.so)", "std::vector<int>::push_back (x.so)"),
        (f"main ({'/a' * 200}/train.py:8)", f"main ({'/a' * 200}/train.py:8)"),
    ],
)
def test_arguments_of_templates_go_first_and_the_place_stays(frame: str, short: str | None) -> None:
    found = short_frame(frame)
    assert short is None or found == short
    function, _, place = found.rpartition(" (") if found.endswith(")") and " (" in found else (found, "", "")
    assert len(function) <= LONGEST or place == frame.rpartition(" (")[2]
    assert frame.rpartition(" (")[2][-9:] in found or "..." in found


@given(st.text("<>()-:ab operator~, ", max_size=400))
def test_no_name_is_longer_than_the_longest_or_changed_when_it_is_short(name: str) -> None:
    frame = f"{name} (lib.so)"
    found = short_frame(frame)
    assert found.endswith(" (lib.so)")
    assert len(found) <= LONGEST + len(" (lib.so)")
    assert len(name) > LONGEST or found == frame
