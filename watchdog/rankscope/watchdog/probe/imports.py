"""Calls a function once, right after a module was imported by whoever imports it.

A finder on ``sys.meta_path`` lets the other finders find the module and lends its spec a loader that gives
the true loader back before the module's code runs: the module, its spec, ``importlib.reload`` and pickling
see nothing of ours. Nothing is imported from here, and it does not matter which module is waited for.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def after_import(name: str, call: Callable[[ModuleType], None]) -> None:
    """Call ``call(module)`` once the module ``name`` is imported; at once if it is already.

    Args:
        name: full dotted name.
        call: must not raise; what it raises all the same is dropped, the import succeeds.
    """
    module = sys.modules.get(name)
    if module is not None and not _is_initializing(module):
        _call_safely(call, module)
        return
    sys.meta_path.insert(0, _Finder(name, call))


def _is_initializing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _call_safely(call: Callable[[ModuleType], None], module: ModuleType) -> None:
    # The edge to the user's import, which must not fail for us.
    with contextlib.suppress(Exception):
        call(module)


class _Finder:
    """Waits on ``sys.meta_path`` for one module, and leaves once it was imported."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._call = call

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        for finder in self._next_finders():
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    # No importlib.abc.Loader: inheriting it would hide what __getattr__ passes on.
                    spec.loader = _Loader(spec.loader, self._imported)  # type: ignore[assignment]
                return spec
        return None

    def _next_finders(self) -> list[object]:
        finders: list[object] = list(sys.meta_path)
        return finders[finders.index(self) + 1 :] if self in finders else []

    def _imported(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            _call_safely(self._call, module)


class _Loader:
    """Stands in for a module's loader until the module's code runs, and passes everything on to it."""

    def __init__(self, loader: object, imported: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._imported = imported

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        create = getattr(self._loader, "create_module", None)
        module: ModuleType | None = create(spec) if create is not None else None
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader  # type: ignore[assignment]
        module.__loader__ = self._loader  # type: ignore[assignment]
        self._loader.exec_module(module)  # type: ignore[attr-defined]
        self._imported(module)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_loader"], name)
