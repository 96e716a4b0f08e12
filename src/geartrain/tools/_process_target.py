"""Where a worker process finds a tool: by module and name, as the module itself would say it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geartrain.tools._errors import ToolDefinitionError
from geartrain.tools._process_frames import Target
from geartrain.tools._tool import Tool


def target_of(tool: Tool) -> Target:
    """Return where a worker finds *tool*.

    Raises:
        ToolDefinitionError: It cannot be found by its name, or its hooks cannot; the message says what to do.
    """
    try:
        place, found = _looked_up(tool.function)
    except AttributeError as missing:
        reason = f"{missing} is not there, so no worker process can find it; define it at the top of its module"
        raise ToolDefinitionError(tool.name, reason) from None
    main = _main_of(tool) if place.startswith("__main__:") else ""
    if found is tool:
        return Target(tool.name, place, is_tool=True, main=main)
    if (found.function if isinstance(found, Tool) else found) is not tool.function:
        raise ToolDefinitionError(tool.name, f"{place} is something else by now, so no worker process can find it")
    verify, present = (_hook_place(tool, name) for name in ("verify", "present"))
    main = main or (_main_of(tool) if "__main__:" in f"{verify}{present}" else "")
    return Target(tool.name, place, is_tool=False, verify=verify, present=present, main=main)


def check_findable(tool: Tool) -> None:
    """Raise `ToolDefinitionError` if a worker process could not find *tool*."""
    target_of(tool)


def _looked_up(function: Callable[..., Any]) -> tuple[str, Any]:
    """Return where *function* says that it is, and what is there; raise `AttributeError(place)` if nothing is."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    place = f"{module}:{name}"
    value: Any = sys.modules.get(module or "")
    try:
        for part in name.split("."):
            value = getattr(value, part)
    except AttributeError:
        raise AttributeError(place) from None
    return place, value


def _hook_place(tool: Tool, name: str) -> str:
    hook = getattr(tool, name)
    if hook is None:
        return ""
    try:
        place, found = _looked_up(hook) if inspect.isfunction(hook) else ("", None)
    except AttributeError:
        found = None
    if found is not hook:
        reason = (
            f"its {name} cannot be found by a worker process; decorate the function where it is defined, with @tool"
        )
        raise ToolDefinitionError(tool.name, reason)
    return place


def _main_of(tool: Tool) -> str:
    """Return how a worker loads the program's main script."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return f"module:{spec.name}"
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file():
        reason = "is defined in an interactive session, where no worker process can find it; put it into a module"
        raise ToolDefinitionError(tool.name, reason)
    return f"path:{Path(file).resolve()}"
