"""What fits on a screen and in a head."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from _source import Module, modules, parsed

FILE_LINES = 500
FUNCTION_LINES = 60
NESTING = 4
POSITIONAL_PARAMETERS = 5

# Functions that may take more positional parameters, and why.
MANY_PARAMETERS = {
    "search_code": "a tool: its parameters are its schema, and models give them by name",
    "_ranked_lines": "to be made smaller: it was there before this test",
}

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match


def nesting(node: ast.AST) -> int:
    """Return how deep blocks lie in one another below *node*; an `elif` lies no deeper than its `if`."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS | ast.ClassDef | ast.Lambda):
            continue  # measured on its own
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, nesting(child) + (isinstance(child, BLOCKS) and not is_elif))
    return deepest


def too_large(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > FILE_LINES:
        yield f"{module.path}: {lines} lines"
    for node in ast.walk(module.tree):
        if not isinstance(node, FUNCTIONS):
            continue
        where = f"{module.path}:{node.lineno}: {node.name}"
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_LINES:
            yield f"{where} has {length} lines"
        if nesting(node) > NESTING:
            yield f"{where} nests {nesting(node)} deep"
        parameters = [name.arg for name in (*node.args.posonlyargs, *node.args.args)]
        count = len([name for name in parameters if name not in {"self", "cls"}])
        if count > POSITIONAL_PARAMETERS and node.name not in MANY_PARAMETERS:
            yield f"{where} takes {count} positional parameters"


def test_files_functions_and_nesting_stay_small() -> None:
    assert [fault for module in modules() for fault in too_large(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n" * 501,
        "def f():\n" + "    x = 1\n" * 60,
        "def f():\n if a:\n  for b in c:\n   while d:\n    with e:\n     try: pass\n     finally: pass",
        "def f(a, b, c, d, e, g): pass",
    ],
)
def test_what_is_one_too_large_is_seen(text: str) -> None:
    assert list(too_large(parsed(text)))


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n" * 500,
        "def f():\n" + "    x = 1\n" * 59,
        "def f():\n if a: pass\n elif b: pass\n elif c: pass\n elif d: pass\n elif e: pass\n elif g: pass",
        "def f(self, a, b, c, d, e, *, g): pass",
    ],
)
def test_what_just_fits_is_left_alone(text: str) -> None:
    assert not list(too_large(parsed(text)))
