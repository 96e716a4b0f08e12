"""Opening a call: what the recorded spec makes of what a model asked for, be it the error that it is."""

from __future__ import annotations

from typing import Final

import msgspec

from geartrain.ids import digest
from geartrain.machine._draft import Draft
from geartrain.machine._run import Call
from geartrain.machine._shorten import brief
from geartrain.machine._spec import ToolSpec
from geartrain.machine._states import ALLOWED, DONE, PROPOSED, ResultStatus
from geartrain.machine._values import CallResult, RequestedCall, ToolCall

HANDOFF_PREFIX: Final = "hand_off_to_"
# How long a call waits for an event that does not say so itself.
WAIT_SECONDS: Final = 300.0


def too_many(draft: Draft) -> str:
    """Return what is told of a call beyond the limits."""
    limits = draft.spec.limits
    return f"too many calls: at most {limits.calls_per_reply} of one reply are run, {limits.open_calls} at a time"


def received(draft: Draft, own_id: str, request: RequestedCall) -> Call:
    """Return a call just as it was asked for."""
    return Call(
        id=own_id,
        tool=request.tool[:200],
        arguments=request.arguments,
        arguments_digest=digest(request.arguments.encode("utf-8", "surrogatepass")),
        provider_id=request.provider_id[:200],
        since=draft.now,
    )


def opened(draft: Draft, call: Call, request: RequestedCall) -> Call:
    """Return the call as the recorded spec sees it: with its flags, or with the error that it is."""
    spec = draft.spec
    problem = arguments_problem(request)
    target = request.tool.removeprefix(HANDOFF_PREFIX)
    if request.tool.startswith(HANDOFF_PREFIX) and target in spec.handoffs:
        return _handoff(draft, call, target)
    sub_agent, tool = spec.sub_agent(request.tool), spec.tool(request.tool)
    if sub_agent is None and tool is None:
        known = ", ".join([*(each.name for each in spec.tools), *(each.name for each in spec.sub_agents)])
        return done_at_once(
            call, ResultStatus.ERROR, brief(f"there is no tool {call.tool!r}; there are: {known or 'none'}")
        )
    if problem:
        return done_at_once(call, ResultStatus.ERROR, problem)
    if sub_agent is not None:
        return msgspec.structs.replace(call, sub_agent=True)
    assert tool is not None
    ask_user = tool.kind == "ask_user"
    return msgspec.structs.replace(
        call,
        read_only=tool.read_only,
        idempotent=tool.idempotent,
        verify=tool.verify,
        external=tool.external,
        ask_user=ask_user,
        event=tool.kind if tool.kind in ("publish", "wait_for") else "",
        timeout_seconds=_seconds(tool, request.arguments),
        status=ALLOWED if ask_user else PROPOSED,
    )


class _Wait(msgspec.Struct, frozen=True):
    timeout_seconds: float = WAIT_SECONDS


def _seconds(tool: ToolSpec, arguments: str) -> float:
    """Return how long a call may take: one that waits for an event, as it says itself."""
    if tool.kind != "wait_for":
        return tool.timeout_seconds
    try:
        seconds = msgspec.json.decode(arguments, type=_Wait).timeout_seconds
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return tool.timeout_seconds
    return min(seconds, tool.timeout_seconds) if seconds > 0 else tool.timeout_seconds


def _handoff(draft: Draft, call: Call, target: str) -> Call:
    if draft.run.handing_off is not None:
        return done_at_once(call, ResultStatus.REFUSED, "only one handoff at a time: another one comes first")
    own = ToolCall(id=call.id, tool=target, arguments=call.arguments, provider_id=call.provider_id)
    draft.set(handing_off=own)
    return done_at_once(call, ResultStatus.OK, f"handed off to {target}")


def arguments_problem(request: RequestedCall) -> str:
    """Return what is wrong with a call's arguments as JSON, or an empty text."""
    if request.oversized:
        return f"the arguments are too large ({request.oversized} bytes)"
    try:
        value = msgspec.json.decode(request.arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        return f"the arguments are not JSON: {problem}"
    return "" if isinstance(value, dict) else "the arguments must be a JSON object"


def done_at_once(call: Call, status: ResultStatus, text: str) -> Call:
    """Return a call that has its result without having run."""
    return msgspec.structs.replace(call, status=DONE, result=CallResult(status=status, text=text, size=len(text)))
