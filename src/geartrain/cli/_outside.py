"""`reply` and `answer`: what somebody outside brings a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from geartrain.cli._acts import Found, Setting, chosen, do, find_going
from geartrain.cli._agents import cast_of
from geartrain.cli._errors import OptionInvalid
from geartrain.errors import InvalidValue
from geartrain.machine import HANDOFF_PREFIX, RequestedCall
from geartrain.tools import ArgumentsInvalid


async def reply(setting: Setting, given: str, text: str, calls: Sequence[str], turn: int | None) -> int:
    """Take the model's turn, the one that was named or else that which is awaited now; return the exit code."""
    requested = tuple(map(_requested, calls))
    if not requested and not text.strip():
        raise OptionInvalid("reply", "TEXT or --call is needed: a turn is an answer, calls, or both")
    found = await find_going(setting, given)
    _check(setting, found, requested)
    turn = turn or found.snapshot.turn_count + 1
    return await do(setting, found, lambda handle: handle.reply(text, calls=requested, by=setting.by, turn=turn))


def _requested(given: str) -> RequestedCall:
    """Return the call that `TOOL JSON` names."""
    tool, _, arguments = given.strip().partition(" ")
    arguments = arguments.strip() or "{}"
    try:
        value: Any = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise OptionInvalid("--call", f"the arguments of {tool!r} are not JSON: {problem}") from None
    if not tool or not isinstance(value, dict):
        raise OptionInvalid("--call", f"must be a tool's name and a JSON object, got {given!r}")
    return RequestedCall(tool=tool, arguments=arguments)


def _check(setting: Setting, found: Found, calls: Sequence[RequestedCall]) -> None:
    """Refuse calls that cannot run: a model would be told and try again, a person who mistyped has lost a turn.

    Raises:
        OptionInvalid: There is no such tool, or the arguments do not fit it.
    """
    if not calls or found.spec is None:
        return
    name, spec = found.snapshot.agent, found.spec
    tools = cast_of(setting.app, setting.folder, recorded=spec).of_run(name).tools
    others = [*(each.name for each in spec.sub_agents), *(f"{HANDOFF_PREFIX}{other}" for other in spec.handoffs)]
    known = [*(each.name for each in spec.tools), *others]
    for call in calls:
        if call.tool not in known:
            there_are = ", ".join(known) or "none"
            raise OptionInvalid("--call", f"agent {name!r} has no tool {call.tool!r}; there are: {there_are}")
        if call.tool in tools:
            try:
                tools[call.tool].decode(call.arguments)
            except ArgumentsInvalid as problem:
                raise OptionInvalid("--call", str(problem)) from None


async def answer(setting: Setting, given: str, call_id: str | None, text: str, status: str) -> int:
    """Answer a call in its tool's place; return the exit code."""
    if status not in ("ok", "error"):
        raise InvalidValue("--status", "ok or error", status)
    found = await find_going(setting, given)
    if call_id is None:
        wanted = "which call to answer? it must be waiting for an answer from outside"
        call_id = chosen(setting, found, None, "answer", wanted).id
    return await do(
        setting,
        found,
        lambda handle: handle.answer_call(call_id, text, by=setting.by, status=status),  # type: ignore[arg-type]
    )
