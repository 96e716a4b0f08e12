"""The source of the package, read as syntax: what the architecture tests look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import geartrain

ROOT = Path(geartrain.__file__).parent
FRONT_DOOR = "geartrain"


@dataclass(frozen=True)
class Module:
    """One file: its dotted name below the package (`mailbox._lanes`; the front door is empty) and its tree."""

    name: str
    path: str
    is_package: bool
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The part of the house it belongs to: the first component of its name."""
        return self.name.split(".")[0] or FRONT_DOOR


@dataclass(frozen=True)
class Import:
    """One import: of a module, and of the name in it if there is one."""

    module: str
    name: str | None
    line: int


def parsed(text: str, name: str = "mailbox._sample", *, is_package: bool = False) -> Module:
    """Return *text* as the module *name*."""
    return Module(name, f"{name.replace('.', '/')}.py", is_package, text, ast.parse(text))


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of the package."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        parts = relative.with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        text = path.read_text("utf-8")
        found.append(Module(name, str(relative), is_package, text, ast.parse(text)))
    return tuple(found)


def imports(module: Module) -> Iterator[Import]:
    """Yield every import in *module*: for typing only, within functions and by `import_module` too."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, None, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, node)
            yield from (Import(source, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Import(first.value, None, node.lineno)


def own_imports(module: Module) -> Iterator[tuple[str, Import]]:
    """Yield what *module* imports from this package, each with its dotted path below the package."""
    children = {other.name for other in modules()}
    for found in imports(module):
        top, _, below = found.module.partition(".")
        if top != "geartrain":
            continue
        inner = f"{below}.{found.name}".lstrip(".") if found.name else below
        if found.name and inner in children:  # `from geartrain import faults` imports a module
            yield inner, Import(f"geartrain.{inner}", None, found.line)
        else:
            yield below, found


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = ["geartrain", *module.name.split(".")]
    parts = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
