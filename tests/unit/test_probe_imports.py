"""A call after an import that leaves no trace in the module."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from rankscope.watchdog.probe.imports import after_import

NAME = "rankscope_probe_imported_once"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a module that nobody has imported; sys is as before afterwards."""
    file = tmp_path / f"{NAME}.py"
    file.write_text(
        "loader_while_running = __spec__.loader\n"
        "class Thing:\n    def __eq__(self, other):\n        return isinstance(other, Thing)\n"
        "    __hash__ = None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield file
    sys.modules.pop(NAME, None)


@pytest.mark.usefixtures("source")
def test_the_call_comes_once_after_the_modules_code_ran() -> None:
    seen: list[ModuleType] = []
    before = list(sys.meta_path)
    after_import(NAME, lambda module: seen.append(module) if hasattr(module, "Thing") else None)
    assert seen == []
    module = importlib.import_module(NAME)
    assert seen == [module]
    assert sys.meta_path == before
    importlib.reload(module)
    assert seen == [module]


@pytest.mark.usefixtures("source")
def test_a_module_already_loaded_gets_the_call_at_once() -> None:
    module = importlib.import_module(NAME)
    seen: list[ModuleType] = []
    before = list(sys.meta_path)
    after_import(NAME, seen.append)
    assert seen == [module]
    assert sys.meta_path == before


@pytest.mark.usefixtures("source")
def test_the_module_keeps_its_own_loader_and_can_be_pickled_and_inspected() -> None:
    after_import(NAME, lambda _module: None)
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert isinstance(spec.loader.get_source(NAME), str)  # type: ignore[union-attr]
    module = importlib.import_module(NAME)
    assert module.__spec__ is not None
    assert type(module.__spec__.loader) is SourceFileLoader
    assert module.__loader__ is module.__spec__.loader
    assert module.loader_while_running is module.__spec__.loader
    thing = module.Thing()
    assert pickle.loads(pickle.dumps(thing)) == thing


def test_an_import_that_fails_is_waited_for_again(source: Path) -> None:
    good = source.read_text()
    source.write_text("raise RuntimeError('not today')\n")
    seen: list[ModuleType] = []
    after_import(NAME, seen.append)
    with pytest.raises(RuntimeError, match="not today"):
        importlib.import_module(NAME)
    assert seen == []
    source.write_text(good + "\n")
    importlib.invalidate_caches()
    assert seen == [importlib.import_module(NAME)]


@pytest.mark.usefixtures("source")
def test_a_call_that_raises_does_not_fail_the_import() -> None:
    def refuse(_module: ModuleType) -> None:
        raise RuntimeError("ours, not the user's")

    after_import(NAME, refuse)
    assert importlib.import_module(NAME).Thing


@pytest.mark.usefixtures("source")
def test_two_who_wait_for_one_module_are_both_called() -> None:
    seen: list[str] = []
    after_import(NAME, lambda _module: seen.append("first"))
    after_import(NAME, lambda _module: seen.append("second"))
    importlib.import_module(NAME)
    assert sorted(seen) == ["first", "second"]


def test_a_module_that_does_not_exist_stays_a_module_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    after_import("rankscope_no_such_module", lambda _module: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rankscope_no_such_module")
