"""The page of what Python programs may import: public names, their arguments, how their docstrings begin.

Read from the sources without importing them (torch would come along). What is public: ``__all__`` of the
modules that ``MODULES`` names. It must not know what the names do.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.pages.parts import table

ROOT: Final = Path(__file__).resolve().parents[2]
MODULES: Final = (
    "rankscope.diag",
    "rankscope.agent",
    "rankscope.watchdog.job_monitor",
    "rankscope.watchdog.timers",
)
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_LIST: Final = "__all__"


@dataclass(frozen=True, slots=True)
class Name:
    """One public name.

    Attributes:
        shown: how it is called, with its arguments.
        does: the first sentence of its docstring.
    """

    module: str
    name: str
    shown: str
    does: str


def source_of(module: str) -> Path:
    """The file of a module of ours."""
    parts = module.split(".")
    path = ROOT / parts[1] / Path(*parts)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public_names(module: str) -> list[Name]:
    """What a module offers, methods of its own classes behind each class."""
    found: list[Name] = []
    for name in _listed(module):
        where, definition = _definition(module, name)
        if definition is None:
            continue
        found.append(_name(where, definition))
        if isinstance(definition, ast.ClassDef):
            found += [
                _name(where, method, of=definition.name)
                for method in definition.body
                if isinstance(method, ast.FunctionDef) and not method.name.startswith("_")
            ]
    return found


def render() -> str:
    """The tables of all modules."""
    parts: list[str] = []
    for module in MODULES:
        rows = [[f"`{one.shown}`", one.does] for one in public_names(module)]
        if rows:
            parts.append(f"## {module}\n\n{table(['name', 'what'], rows)}")
    return "\n\n".join(parts)


def _tree(module: str) -> ast.Module:
    return ast.parse(source_of(module).read_text())


def _listed(module: str) -> list[str]:
    for node in _tree(module).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id == _LIST and isinstance(node, ast.Assign):
            return [str(one) for one in ast.literal_eval(node.value)]
    return []


def _definition(module: str, name: str) -> tuple[str, _Definition | None]:
    """Where a name is defined: here, or where it is imported from."""
    tree = _tree(module)
    for defined in reversed(tree.body):  # what @overload promises stands before what does it
        if isinstance(defined, _Definition) and defined.name == name:
            return module, defined
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rankscope."):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(node.module, alias.name)
    return module, None


def _name(module: str, node: _Definition, *, of: str = "") -> Name:
    prefix = f"{of}." if of else ""
    is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list)
    arguments = "" if is_property else f"({_arguments(node)})"
    does = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
    return Name(module, prefix + node.name, f"{prefix}{node.name}{arguments}", does)


def _arguments(node: _Definition) -> str:
    """Arguments with their defaults; of a class those of its ``__init__``, else its fields."""
    if isinstance(node, ast.ClassDef):
        made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        if made:
            return _arguments(made[0])
        fields = [
            one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
        return ", ".join(_field(one) for one in fields)
    shown = ast.unparse(_without_types(node.args))
    words = [word for word in shown.split(", ") if word not in ("self", "cls")]
    return ", ".join(words)


def _field(node: ast.AnnAssign) -> str:
    name = ast.unparse(node.target)
    return f"{name}={ast.unparse(node.value)}" if node.value is not None else name


def _without_types(arguments: ast.arguments) -> ast.arguments:
    everybody = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for one in (*everybody, arguments.vararg, arguments.kwarg):
        if one is not None:
            one.annotation = None
    return arguments
