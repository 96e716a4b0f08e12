"""What records say of a call: pure, from the call alone."""

from __future__ import annotations

from typing import Any, Final

from msgspec import to_builtins

from geartrain.ids import sub_agent_run_id
from geartrain.limits import UNLIMITED
from geartrain.machine import Call, Run, ToolCall

Payload = dict[str, Any]

# Characters of a text that are shown; the journal has the whole.
_SHOWN: Final = 2_000


def short(text: str) -> str:
    """Return a text as it is shown: not too much of it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def delegated(run: Run, call: Call) -> Payload:
    """Return which run is started for a sub-agent's call, and what it may use."""
    payload: Payload = {"call_id": call.id, "agent": call.tool, "run_id": sub_agent_run_id(run.id, call.id)}
    if call.share is not None:
        payload["share"] = {name: value for name, value in to_builtins(call.share).items() if value != UNLIMITED}
    return payload


def result_in(run: Run, call_id: str) -> Payload | None:
    """Return what the context has as the result of a call that is no longer open."""
    for message in reversed(run.messages):
        if message.call_id == call_id:
            text = message.text.removeprefix(f"[{message.status}] ")
            status = str(message.status)
            return {"call_id": call_id, "tool": message.tool, "status": status, "text": short(text), "size": len(text)}
    return None


def role_of(call: Call | None) -> Payload:
    """Return what a call is if it is no tool's."""
    return {"role": call.role} if call is not None and call.role != "tool" else {}


def requested(call: Call | ToolCall, *, planned: bool = False) -> Payload:
    """Return what was asked for; a plan's steps have names."""
    step = {"step": call.provider_id} if planned and call.provider_id else {}
    return {"call_id": call.id, "tool": call.tool, "arguments": short(call.arguments), **step}


def call_finished(call: Call) -> Payload:
    """Return what became of a call that has its result."""
    assert call.result is not None
    result = call.result
    payload: Payload = {
        "call_id": call.id,
        "tool": call.tool,
        "status": str(result.status),
        "text": short(result.text),
        "size": result.size,
    }
    if result.by:
        payload["by"] = result.by
    return payload
