"""Show 6: a run paused in each of its states, and whatever a person can do to it, all in one timeline."""

from __future__ import annotations

import asyncio
from typing import Any

from runtime_world import Store, calling

from geartrain.limits import UNLIMITED
from geartrain.machine import Budget, ContextRules, RunState
from geartrain.models import Delay, ScriptedModel, answer
from geartrain.runtime import Agent, Allow, Ask, RunHandle, RunSnapshot
from geartrain.tools import tool

PAUSED_IN = {
    RunState.PREPARE_CONTEXT,
    RunState.MODEL_THINKING,
    RunState.WAIT_APPROVAL,
    RunState.EXECUTE_TOOL,
    RunState.COMPACT_OR_SAVE,
    RunState.SUSPENDED,
}


@tool(read_only=True)
async def read(text: str) -> str:
    """Read, slowly."""
    await asyncio.sleep(2.0)
    return text * 300


@tool(timeout_seconds=3.0)
async def write(text: str) -> str:
    """Write, and never say so."""
    await asyncio.sleep(100.0)
    return text


async def notes(_run: Any) -> str:
    """Remember, slowly."""
    await asyncio.sleep(2.0)
    return "a fact"


async def policy(call: Any, _run: Any) -> Any:
    """Think before allowing a read."""
    await asyncio.sleep(2.0)
    return Allow() if call.read_only else Ask("it writes")


def slow_agent() -> Agent:
    reads = [Delay(2.0, [calling("read", '{"text":"r"}')])] * 5
    writes = [Delay(2.0, [calling("write", '{"text":"w"}')])] * 2
    return Agent(
        "slow",
        model=ScriptedModel([*reads, *writes, Delay(30.0, answer("never heard"))], summary=Delay(2.0, "all read")),
        tools=[read, write],
        context=[notes],
        budget=Budget(max_turns=UNLIMITED, max_tokens=UNLIMITED),
        window=ContextRules(summarise=True, summarise_turns=2, summary_pause_turns=1),
    )


async def paused_in(run: RunHandle, seen: set[str]) -> RunSnapshot:
    """Pause the run once in every state that it comes through, until it waits for somebody."""
    while True:
        await asyncio.sleep(1.0)
        now = await run.snapshot()
        if now.ended or (now.at_rest and "paused" not in now.holds):
            return now
        if now.state not in seen:
            seen.add(now.state)
            await run.pause(by="ops", reason=f"in {now.state}")
            await run.wait_at_rest()
            await run.resume(by="ops")


async def test_a_run_paused_in_each_state_and_all_that_people_did_is_one_timeline(store: Store) -> None:
    agent, seen = slow_agent(), set[str]()
    async with store.runtime(agent, policy=policy) as runtime:
        run = await runtime.start(agent, "go")
        (asked,) = (await paused_in(run, seen)).waiting
        await run.pause(by="ops", reason="in SUSPENDED")
        seen.add("SUSPENDED")
        await run.resume(by="ops")
    async with store.runtime(agent, policy=policy) as runtime:
        run = await runtime.get(run.id)
        await run.approve(asked.call_id, by="desk")
        (doubt,) = (await paused_in(run, seen)).waiting
        await run.settle(doubt.call_id, by="audit", done=True, text="it is there")
        (second,) = (await paused_in(run, seen)).waiting
        await run.answer_call(second.call_id, "written by hand", by="sales")
        await asyncio.sleep(3.0)
        assert (await run.snapshot()).state == "MODEL_THINKING"
        await run.reply("done by all of us", by="legal")
        end = await run.wait_ended()
        records = [record async for record in runtime.timeline(run.id)]
        assert (await runtime.replay(run.id)).difference is None

    assert (end.state, end.answer) == ("FINISHED", "done by all of us")
    assert seen >= PAUSED_IN
    told = [(record.event, record.payload) for record in records]
    reasons = [payload["reason"] for event, payload in told if event == "pause_requested"]
    assert {f"in {state}" for state in PAUSED_IN} <= set(reasons)
    by = {event: payload.get("by") for event, payload in told if payload.get("by")}
    assert by["approval_decided"] == "desk"
    assert by["call_settled"] == "audit"
    assert by["turn_taken"] == "legal"
    assert by["tool_call_finished"] == "sales"
    assert by["run_resumed"] == "ops"
    assert [record.seq for record in records] == sorted(record.seq for record in records)
