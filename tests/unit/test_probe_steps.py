"""How optimizer steps become a count of iterations."""

from __future__ import annotations

from types import ModuleType

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from rankscope.watchdog.probe.steps import StepCounter, StepHook


class Record:
    """A page that remembers what was written."""

    def __init__(self) -> None:
        self.counts: list[int] = []
        self.times: list[int] = []

    def __call__(self, count: int, now_ns: int) -> None:
        self.counts.append(count)
        self.times.append(now_ns)


def counts_of(order: str) -> list[int]:
    """Counts written when optimizers, one a letter, step in this order."""
    optimizers = {letter: object() for letter in order}
    record = Record()
    hook = StepCounter(record).hook
    for letter in order:
        hook(optimizers[letter], (), {})
    return record.counts


def test_one_optimizer_counts_its_steps() -> None:
    assert counts_of("aaa") == [1, 2, 3]


def test_two_optimizers_that_alternate_count_once_an_iteration() -> None:
    assert counts_of("ababab") == [1, 1, 2, 2, 3, 3]


def test_an_optimizer_that_steps_more_often_leads() -> None:
    assert counts_of("aaabaaab") == [1, 2, 3, 3, 4, 5, 6, 6]


def test_a_second_phase_with_a_new_optimizer_goes_on_at_once() -> None:
    assert counts_of("a" * 100 + "bbb")[-3:] == [100, 101, 102]


def test_an_optimizer_that_goes_on_alone_is_seen_at_once() -> None:
    assert counts_of("aaaab" + "bbb")[-3:] == [5, 6, 7]


def test_each_step_carries_its_time() -> None:
    record = Record()
    times = iter((10, 20))
    counter = StepCounter(record, clock=lambda: next(times))
    optimizer = object()
    counter.hook(optimizer, (), {})
    counter.hook(optimizer, (), {})
    assert record.times == [10, 20]


def test_a_page_that_fails_does_not_reach_the_training_loop() -> None:
    def closed(_count: int, _now_ns: int) -> None:
        raise ValueError("mmap closed or invalid")

    StepCounter(closed).hook(object(), (), {})


def test_silenced_it_writes_nothing() -> None:
    record = Record()
    counter = StepCounter(record)
    counter.silence()
    counter.hook(object(), (), {})
    assert record.counts == []


def test_many_short_lived_optimizers_do_not_grow_it_without_end() -> None:
    record = Record()
    hook = StepCounter(record).hook
    kept = [object() for _ in range(10_000)]
    for optimizer in kept:
        hook(optimizer, (), {})
    hook(kept[-1], (), {})
    assert record.counts[-1] == 2


def test_torchs_own_optimizers_are_counted_with_and_without_closure() -> None:
    record = Record()
    handle = register_optimizer_step_post_hook(StepCounter(record).hook)
    try:
        weight = torch.nn.Parameter(torch.ones(2))

        def loss() -> float:
            weight.grad = None
            value = (weight * weight).sum()
            value.backward()  # type: ignore[no-untyped-call]
            return float(value.detach())

        for optimizer in (
            torch.optim.SGD([weight], lr=0.1),
            torch.optim.AdamW([weight], lr=0.1, foreach=True),
            torch.optim.LBFGS([weight], max_iter=3),
        ):
            for _ in range(2):
                optimizer.step(loss)  # type: ignore[no-untyped-call]
    finally:
        handle.remove()
    assert record.counts == [1, 2, 2, 3, 3, 4]


def test_it_registers_with_torchs_module_and_lets_an_old_torch_be() -> None:
    counter = StepCounter(Record())
    registered: list[StepHook] = []
    module = ModuleType("torch.optim.optimizer")
    counter.attach(module)
    module.register_optimizer_step_post_hook = registered.append  # type: ignore[attr-defined]
    counter.attach(module)
    assert registered == [counter.hook]


def test_torch_compile_does_not_trace_into_the_hook() -> None:
    assert getattr(StepCounter(Record()).hook, "_torchdynamo_disable", False) is True
