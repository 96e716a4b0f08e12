"""No task without an owner (AC-9): asyncio forgets a task that nobody holds, in the middle of its work."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from _source import Module, modules, parsed

# The files that start asyncio tasks, and who owns these. Whatever else runs does so in an anyio task group.
TASK_OWNERS = {
    "runtime/_host.py": "the host of a runtime's task group: kept, and awaited at closing",
    "runtime/_tasks.py": "effect tasks: started, timed out, cancelled, abandoned and awaited in this file",
    "actors/_hands.py": "a spare task, held until the hands are closed; one that works is its actor's, which ends it",
    "tools/_contain.py": "makes the tasks that a tool of the user's asks the loop for; whoever asked owns them",
    "testing/_misbehave_here.py": "tools that leave tasks behind on purpose, and hold them until they end",
    "persistence/_group.py": "the one committer of a store, held until the store is closed",
}
STARTERS = {
    "create_task",
    "ensure_future",
    "run_coroutine_threadsafe",
    "create_eager_task_factory",
    "Task",
    "_HandTask",
}


def starts(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in STARTERS:
                yield node


def dropped(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and node.value in starts(node):
            yield f"{module.path}:{node.lineno}: the task is dropped"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            loaded = {
                name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
            }
            for statement in ast.walk(node):
                if isinstance(statement, ast.Assign) and statement.value in starts(statement):
                    names = [target for target in statement.targets if isinstance(target, ast.Name)]
                    if len(names) == len(statement.targets) and not any(name.id in loaded for name in names):
                        yield f"{module.path}:{statement.lineno}: the task is held by nothing that outlives this line"


def test_tasks_are_started_only_where_their_owner_is() -> None:
    starting = {module.path for module in modules() if list(starts(module.tree))}

    assert starting <= set(TASK_OWNERS)


def test_no_task_is_dropped() -> None:
    assert [fault for module in modules() for fault in dropped(module)] == []


@pytest.mark.parametrize("line", ["asyncio.create_task(f())", "task = loop.create_task(f())", "_ = ensure_future(f())"])
def test_a_dropped_task_is_seen(line: str) -> None:
    assert list(dropped(parsed(f"def g():\n    {line}")))


@pytest.mark.parametrize(
    "line",
    ["self._task = loop.create_task(f())", "task = create_task(f())\n    tasks.add(task)", "return create_task(f())"],
)
def test_a_task_that_is_kept_or_handed_on_is_left_alone(line: str) -> None:
    assert not list(dropped(parsed(f"def g():\n    {line}")))
