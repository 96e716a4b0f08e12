"""A call that cannot begin is in the timeline like any other: asked for, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from runtime_world import Store, calling

from geartrain.machine import RequestedCall
from geartrain.models import ScriptedModel
from geartrain.runtime import Agent, Allow, Deny
from geartrain.tools import tool


@tool(read_only=True)
async def look(key: int) -> str:
    """Look."""
    return str(key)


def policy(call: Any, _run: Any) -> Any:
    return Deny("not that one") if call.arguments["key"] == 13 else Allow()


async def told(calls: Sequence[RequestedCall]) -> list[tuple[str, str, str]]:
    model = ScriptedModel([list(calls), "done"])
    agent = Agent("looker", model=model, tools=[look], on_denied="tell")
    async with Store().runtime(agent, policy=policy) as runtime:
        run = await runtime.start(agent, "Look.")
        await run.wait_ended()
        return [
            (record.event, record.payload["call_id"], record.payload.get("status", ""))
            async for record in runtime.timeline(run.id)
            if record.event in ("tool_call_requested", "tool_call_finished")
        ]


UNKNOWN = calling("lok", '{"key":1}')
BAD = calling("look", '{"key":"one"}')
DENIED = calling("look", '{"key":13}')
GOOD = calling("look", '{"key":1}')


@pytest.mark.parametrize(("call", "status"), [(UNKNOWN, "error"), (BAD, "error"), (DENIED, "denied"), (GOOD, "ok")])
async def test_the_only_call_of_a_reply_is_told_with_its_end(call: RequestedCall, status: str) -> None:
    assert await told([call]) == [("tool_call_requested", "t1.c1", ""), ("tool_call_finished", "t1.c1", status)]


@pytest.mark.parametrize("calls", [(UNKNOWN, UNKNOWN), (UNKNOWN, BAD, DENIED), (UNKNOWN, GOOD), (DENIED, GOOD)])
async def test_each_call_of_a_reply_is_told_once_however_they_end(calls: tuple[RequestedCall, ...]) -> None:
    ids = [f"t1.c{n}" for n in range(1, len(calls) + 1)]
    records = await told(calls)
    assert [call_id for event, call_id, _ in records if event == "tool_call_requested"] == ids
    assert sorted(call_id for event, call_id, _ in records if event == "tool_call_finished") == ids
