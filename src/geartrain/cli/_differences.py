"""Where the spec that a run was started with differs from what the agent is today: pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from geartrain.cli._text import one_line
from geartrain.machine import AgentSpec, ToolSpec

_FLAGS: Final = ("kind", "read_only", "idempotent", "verify", "external", "timeout_seconds")
_PLAIN: Final = ("shares", "model", "on_denied", "on_budget", "consult", "max_output_tokens", "rules_version")
_STRUCTS: Final = ("budget", "context", "limits")
_WHOLE: Final = (
    "instructions",
    "stop_when",
    "output_schema",
    "sub_agents",
    "handoffs",
    "providers",
    "guarded",
    "price",
    "summary_price",
    "stuck",
    "plan",
)


def differences(recorded: AgentSpec, today: AgentSpec) -> list[str]:
    """Return what has changed since the spec was recorded, a safe line each; none if nothing has."""
    return [one_line(line, 200) for line in _changes(recorded, today)]


def _changes(recorded: AgentSpec, today: AgentSpec) -> Iterator[str]:
    yield from _tools(recorded, today)
    for name in _PLAIN:
        before, now = getattr(recorded, name), getattr(today, name)
        if before != now:
            yield f"{name}: {before or 'none'} then, {now or 'none'} now"
    for name in _STRUCTS:
        before, now = getattr(recorded, name), getattr(today, name)
        for field in before.__struct_fields__:
            if getattr(before, field) != getattr(now, field):
                yield f"{name}.{field}: {getattr(before, field)} then, {getattr(now, field)} now"
    for name in _WHOLE:
        if getattr(recorded, name) != getattr(today, name):
            yield f"{name}: changed"


def _tools(recorded: AgentSpec, today: AgentSpec) -> Iterator[str]:
    before = {tool.name: tool for tool in recorded.tools}
    now = {tool.name: tool for tool in today.tools}
    for name, tool in before.items():
        if name not in now:
            yield f"tool {name}: gone{_renamed(tool, today, before)}"
        else:
            yield from _tool(tool, now[name])
    for name in now:
        if name not in before:
            yield f"tool {name}: new"


def _renamed(tool: ToolSpec, today: AgentSpec, before: dict[str, ToolSpec]) -> str:
    """Return a guess at a new name: a tool that was not there and is the same but for its name."""
    for other in today.tools:
        if other.name not in before and msgspec.structs.replace(other, name=tool.name) == tool:
            return f" (perhaps it is called {other.name} now)"
    return ""


def _tool(before: ToolSpec, now: ToolSpec) -> Iterator[str]:
    for flag in _FLAGS:
        if getattr(before, flag) != getattr(now, flag):
            yield f"tool {before.name}: {flag} {getattr(before, flag)} then, {getattr(now, flag)} now"
    if before.parameters != now.parameters:
        yield f"tool {before.name}: takes other arguments"
    if before.description != now.description:
        yield f"tool {before.name}: described otherwise"
