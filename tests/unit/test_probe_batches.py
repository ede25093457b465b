"""Batches are counted by looking at torch's own iterators now and then."""

from __future__ import annotations

import copy
import gc
import importlib.util
import inspect
import threading
import weakref
from types import ModuleType
from typing import Any

import pytest

from rankscope.watchdog.probe.batches import LOADER_MODULE, Batches


@pytest.fixture
def loaders() -> ModuleType:
    """Torch's module executed once more: its classes are the test's own and may be changed."""
    spec = importlib.util.find_spec(LOADER_MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def batches(loaders: ModuleType) -> Batches:
    made = Batches()
    made.attach(loaders)
    return made


def take(iterator: Any, count: int) -> None:
    for _ in range(count):
        next(iterator)


def test_batches_of_all_living_iterators_add_up(loaders: ModuleType, batches: Batches) -> None:
    train, test = (iter(loaders.DataLoader(range(100), batch_size=2)) for _ in range(2))
    assert batches.total() == 0
    take(train, 3)
    assert batches.total() == 3
    take(test, 4)
    take(train, 1)
    assert batches.total() == batches.total() == 8


def test_an_iterator_that_ended_keeps_what_it_had_at_the_last_look(
    loaders: ModuleType, batches: Batches
) -> None:
    loader = loaders.DataLoader(range(10))
    iterator = iter(loader)
    take(iterator, 4)
    assert batches.total() == 4
    take(iterator, 2)
    del iterator
    gc.collect()
    assert batches.total() == 4
    take(again := iter(loader), 3)
    assert batches.total() == 7
    del again


def test_epochs_shorter_than_a_beat_still_move_the_count(loaders: ModuleType, batches: Batches) -> None:
    loader = loaders.DataLoader(range(10))
    seen = []
    for _ in range(3):
        list(loader)
        gc.collect()
        seen.append(batches.total())
    assert seen == [1, 2, 3]


def test_an_iterator_that_begins_again_is_counted_from_its_start(
    loaders: ModuleType, batches: Batches
) -> None:
    """As persistent workers have it: the iterator is reset, not replaced."""
    loader = loaders.DataLoader(range(100))
    iterator = iter(loader)
    take(iterator, 10)
    assert batches.total() == 10
    iterator._reset(loader)
    assert batches.total() == 10
    take(iterator, 3)
    assert batches.total() == 13
    take(iterator, 9)
    iterator._reset(loader)
    take(iterator, 2)
    assert batches.total() == 15


def test_no_iterator_lives_longer(loaders: ModuleType, batches: Batches) -> None:
    iterator = iter(loaders.DataLoader(range(10)))
    batches.total()
    alive = weakref.ref(iterator)
    del iterator
    assert alive() is None


def test_a_beat_that_never_comes_costs_no_memory(loaders: ModuleType, batches: Batches) -> None:
    for _ in range(5000):
        loaders._BaseDataLoaderIter.__new__(loaders._BaseDataLoaderIter)
    assert len(batches._new) <= 4096
    assert batches.total() <= 4096
    assert batches._followed == []


def test_classes_of_the_user_are_made_as_without_us(loaders: ModuleType) -> None:
    def all_kinds() -> list[tuple[object, ...]]:
        """Each kind of subclass once: what was made, and which of its parts were called with what."""
        root = loaders._SingleProcessDataLoaderIter
        called: list[tuple[object, ...]] = []

        class Plain(root):  # type: ignore[misc, valid-type]
            pass

        class OwnNew(root):  # type: ignore[misc, valid-type]
            def __new__(cls, loader: object, more: int = 0) -> OwnNew:  # noqa: PYI034 - Python 3.10
                called.append(("new", more))
                return super().__new__(cls)  # type: ignore[no-any-return]

            def __init__(self, loader: object, more: int = 0) -> None:
                super().__init__(loader)

        class WithArguments:
            def __new__(cls, *args: object, **kwargs: object) -> WithArguments:  # noqa: PYI034
                called.append(("arguments", len(args), sorted(kwargs)))
                return super().__new__(cls)

        class Mixed(root, WithArguments):  # type: ignore[misc, valid-type]
            pass

        class Dictionary(root, dict):  # type: ignore[misc, valid-type, type-arg]
            pass

        class Counted(root):  # type: ignore[misc, valid-type]
            _num_yielded = property(lambda self: 1 / 0, lambda self, value: None)

        loader = loaders.DataLoader(range(4), batch_size=2)
        made: list[Any] = [
            Plain(loader),
            OwnNew(loader, 3),
            Mixed(loader=loader),
            Dictionary(loader),
        ]
        results = [(type(one).__name__, [batch.tolist() for batch in one]) for one in made]
        counted = Counted.__new__(Counted)
        assert type(counted) is Counted
        return [*called, *results]

    without = all_kinds()
    batches = Batches()
    batches.attach(loaders)
    assert all_kinds() == without
    keep = iter(loaders.DataLoader(range(4)))
    take(keep, 2)
    assert batches.total() > 0


def test_an_attribute_that_raises_or_is_no_number_is_no_batch(loaders: ModuleType, batches: Batches) -> None:
    class Raises(loaders._BaseDataLoaderIter):  # type: ignore[misc, name-defined]
        _num_yielded = property(lambda self: 1 / 0)

    class Text(loaders._BaseDataLoaderIter):  # type: ignore[misc, name-defined]
        _num_yielded = "many"

    odd = [Raises.__new__(Raises), Text.__new__(Text)]
    good = iter(loaders.DataLoader(range(4)))
    take(good, 2)
    assert batches.total() == 2
    take(good, 1)
    assert batches.total() == 3
    del odd


def test_a_loader_that_resumes_in_the_middle_as_torchdatas_does_is_followed(
    loaders: ModuleType, batches: Batches
) -> None:
    class Stateful(loaders._SingleProcessDataLoaderIter):  # type: ignore[misc, name-defined]
        def __init__(self, loader: object, resume_at: int) -> None:
            self.yielded = 0
            super().__init__(loader)
            for _ in range(resume_at):
                next(self._sampler_iter)
            self._num_yielded = resume_at

    loader = loaders.DataLoader(range(10))
    iterator = Stateful(loader, 4)
    first = batches.total()
    assert next(iterator).tolist() == [4]
    assert batches.total() == first + 1


def test_copying_fails_or_works_as_torch_has_it(loaders: ModuleType, batches: Batches) -> None:
    class Copied(loaders._SingleProcessDataLoaderIter):  # type: ignore[misc, name-defined]
        def __getstate__(self) -> dict[str, object]:
            return {"_num_yielded": self._num_yielded}

    with pytest.raises(NotImplementedError):
        copy.copy(iter(loaders.DataLoader(range(4))))
    twin = copy.copy(Copied(loaders.DataLoader(range(4))))
    assert type(twin) is Copied
    assert list(inspect.signature(loaders._SingleProcessDataLoaderIter).parameters) == ["loader"]


def test_switched_off_nothing_is_remembered(loaders: ModuleType, batches: Batches) -> None:
    batches.silence()
    take(iter(loaders.DataLoader(range(4))), 2)
    assert batches.total() == 0


@pytest.mark.parametrize("torch", ["nothing", "a function", "a class with a __new__"])
def test_a_torch_without_these_names_is_left_alone(torch: str) -> None:
    class OwnNew:
        def __new__(cls, needed: object) -> OwnNew:  # noqa: PYI034 - Python 3.10
            return super().__new__(cls)

    module = ModuleType(LOADER_MODULE)
    if torch != "nothing":
        vars(module)["_BaseDataLoaderIter"] = OwnNew if torch == "a class with a __new__" else take
    before = dict(vars(module)), dict(vars(OwnNew))
    Batches().attach(module)
    assert (dict(vars(module)), dict(vars(OwnNew))) == before


def test_iterators_made_in_threads_while_the_probe_looks_are_all_counted(
    loaders: ModuleType, batches: Batches
) -> None:
    kept: list[object] = []

    def run() -> None:
        loader = loaders.DataLoader(range(5))
        for _ in range(100):
            iterator = iter(loader)
            take(iterator, 2)
            kept.append(iterator)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    last = 0
    while any(thread.is_alive() for thread in threads):
        now = batches.total()
        assert now >= last
        last = now
    for thread in threads:
        thread.join()
    assert batches.total() == 4 * 100 * 2
