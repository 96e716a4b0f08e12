"""Cancelling: what cooperates ends in a second, what does not is abandoned, named, and never heard of by the model."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, names_of, results_of

from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.models import Delay, Emit, ModelReply, ModelRequest
from geartrain.runtime import Agent, Allow, Ask, Runtime
from geartrain.runtime._reading._runs import read_run
from geartrain.testing.misbehaviour import BAD_TOOLS, BadTool
from geartrain.tools import tool
from geartrain.trace import TraceRecord

HERE = [bad for bad in BAD_TOOLS.values() if bad.isolation == "task"]
GRACE = 5.0
# Nothing that any of them leaves behind runs for longer.
ALL_OVER = 200.0


def told(records: list[TraceRecord], event: str) -> list[dict[str, Any]]:
    return [record.payload for record in records if record.event == event]


async def seen(records: list[TraceRecord], event: str) -> list[dict[str, Any]]:
    """What observers were told of that kind, once their thread has had its turn."""
    for _ in range(50):
        if found := told(records, event):
            return found
        await asyncio.to_thread(lambda: None)
    return []


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("read_only", [True, False], ids=["read", "write"])
@pytest.mark.parametrize("bad", HERE, ids=lambda bad: bad.name)
async def test_a_cancelled_run_ends_in_time_whatever_its_tool_does(
    memory: Store, bad: BadTool, read_only: bool
) -> None:
    """CN-2, CN-11: acknowledged, ended within a second or the grace, one result a call, nothing afterwards."""
    before = asyncio.all_tasks()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    agent = an_agent([[calling(bad.name)], Delay(50, "never heard")], bad.tool(read_only=read_only))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(2)
        await run.cancel("enough")
        cancelled_at = now()
        end = await run.wait_ended()
        took, names = now() - cancelled_at, await names_of(run, runtime)
        results = await results_of(run, runtime)
        await asyncio.sleep(ALL_OVER)

        assert (end.state, end.error and end.error["code"]) == ("CANCELLED", "cancelled_by_user")
        # A started write has the grace to finish: what is cut off in the middle is in doubt.
        assert took <= (1 if read_only and bad.stops != "late" else GRACE + 1)
        assert len(results) == 1
        assert await names_of(run, runtime) == names
        assert (await runtime.statistics()).effect_tasks == 0
        assert len(runtime._host.node.attempts) == 0
    assert asyncio.all_tasks() == before


async def test_the_conversation_goes_on_after_a_cancel_in_the_middle_of_calls(memory: Store, ledger: Ledger) -> None:
    """CN-11: each call has its result, so the next run begins with a history that a provider takes."""
    tools = [BAD_TOOLS[name].tool() for name in ("swallow_cancel_always", "block_for_seconds")]
    replies = [[calling("swallow_cancel_always"), calling("block_for_seconds", '{"seconds": 0.1}')], "well"]
    async with memory.runtime(an_agent(replies, *tools, ledger.read())) as runtime:
        first = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await first.cancel("enough")
        await first.wait_ended()
        again = await runtime.start("worker", "and now?", continues=first.id)
        end = await again.wait_ended()
        assert end.state == "FINISHED"
        messages = (await read_run(runtime._host.node.journal, again.id)).run.messages
        answered = [message.call_id for message in messages if message.role == "tool"]
        assert answered == [call.id for message in messages for call in message.calls]
        assert len(answered) == 4


@pytest.mark.parametrize("name", ["swallow_cancel_always", "clean_up_for_long"])
async def test_what_goes_on_after_the_grace_is_named_and_so_is_its_end(memory: Store, name: str) -> None:
    """CN-2: its late result is traced, and nobody else hears of it."""
    records: list[TraceRecord] = []
    agent = an_agent([[calling(name)], "never heard"], BAD_TOOLS[name].tool())
    async with memory.runtime(agent, observers=[records.extend]) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.cancel("enough")
        await run.wait_ended()
        assert (await runtime.statistics()).effects_abandoned == (f"{run.id}/t1.c1.a1",)
        await asyncio.sleep(ALL_OVER)
        assert (await runtime.statistics()).effects_abandoned == ()
        [abandoned] = await seen(records, "effect_abandoned")
        [late] = await seen(records, "late_result")
    assert abandoned == {"key": "t1.c1.a1", "still_runs": [f"{run.id}/t1.c1.a1"]}
    assert late["key"] == "t1.c1.a1"
    assert late["ended"] == ("returned" if name == "swallow_cancel_always" else "cancelled")


async def test_the_tasks_that_a_cancelled_tool_has_left_are_named(memory: Store) -> None:
    records: list[TraceRecord] = []
    agent = an_agent([[calling("wait_for_stubborn_tasks")], ""], BAD_TOOLS["wait_for_stubborn_tasks"].tool())
    async with memory.runtime(agent, observers=[records.extend]) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.cancel("enough")
        await run.wait_ended()
        [abandoned] = await seen(records, "effect_abandoned")
        await asyncio.sleep(ALL_OVER)
    assert sorted(abandoned["still_runs"]) == [f"task stubborn task {number} of a tool" for number in range(3)]


async def test_tasks_of_a_tool_that_stop_when_they_are_told_to_are_not_named(memory: Store) -> None:
    """PT-2: a tool that cleans up after itself has left nothing."""
    records: list[TraceRecord] = []

    async def tidy() -> str:
        """Cancel what was started."""
        parts = [asyncio.create_task(asyncio.sleep(1_000)) for _ in range(5)]
        try:
            await asyncio.wait(parts)
        finally:
            for part in parts:
                part.cancel()
        return "done"

    agent = an_agent([[calling("tidy")], ""], tool(read_only=True)(tidy))
    async with memory.runtime(agent, observers=[records.extend]) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.cancel("enough")
        await run.wait_ended()
        await asyncio.sleep(1)
        assert await seen(records, "run_finished")
    assert told(records, "effect_abandoned") == []


async def test_what_a_cancelled_tool_does_on_a_thread_is_named_until_it_ends(memory: Store) -> None:
    records: list[TraceRecord] = []
    agent = an_agent([[calling("block_for_a_moment")], ""], BAD_TOOLS["block_for_a_moment"].tool(timeout_seconds=0.01))
    async with memory.runtime(agent, observers=[records.extend]) as runtime:
        run = await runtime.start("worker", "go")
        while not runtime._host.node.threads.statistics().busy:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await run.cancel("enough")
        end = await run.wait_ended()
        [abandoned] = await seen(records, "effect_abandoned")
        await asyncio.to_thread(time.sleep, 0.3)
        await asyncio.sleep(0)
        [late] = await seen(records, "late_result")
        assert runtime._host.node.threads.statistics().abandoned == 0
    assert end.state == "CANCELLED"
    assert abandoned == {"key": "t1.c1.a1", "still_runs": ["block_for_a_moment on a thread"]}
    assert late == {"key": "t1.c1.a1", "ended": "returned"}


class _Stubborn:
    """A model client that swallows every cancellation for a while."""

    name = "stubborn"

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        await BAD_TOOLS["swallow_cancel_always"].function()
        return ModelReply(text="much too late")


async def test_a_model_that_swallows_its_cancellation_is_abandoned_and_its_reply_dropped(memory: Store) -> None:
    records: list[TraceRecord] = []
    agent = Agent("worker", model=_Stubborn())
    async with memory.runtime(agent, observers=[records.extend]) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.cancel("enough")
        began = now()
        end = await run.wait_ended()
        assert now() - began <= GRACE + 1
        await asyncio.sleep(ALL_OVER)
        [abandoned] = await seen(records, "effect_abandoned")
        assert (await seen(records, "late_result"))[0]["key"] == abandoned["key"]
    assert end.state == "CANCELLED"
    assert end.answer is None


@pytest.mark.parametrize("read_only", [True, False], ids=["read", "write"])
@pytest.mark.parametrize("name", ["never_answer", "swallow_cancel_always", "clean_up_for_long"])
async def test_closing_takes_the_grace_and_a_second_at_most_whatever_runs(
    memory: Store, name: str, read_only: bool
) -> None:
    """CR-8: and no run ends because of it."""
    agent = an_agent([[calling(name)], "well"], BAD_TOOLS[name].tool(read_only=read_only))
    runtime: Runtime = memory.runtime(agent)
    async with runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        began = now()
    assert now() - began <= GRACE + 1
    async with memory.runtime(agent, recover="none") as runtime:
        assert (await runtime.snapshot(run.id)).state in ("EXECUTE_TOOL", "SUSPENDED")
    await asyncio.sleep(ALL_OVER)


async def test_an_approval_hook_that_swallows_its_cancellation_does_not_lengthen_the_closing(memory: Store) -> None:
    async def stubborn(_call: Any) -> None:
        await BAD_TOOLS["swallow_cancel_always"].function()

    slow = BAD_TOOLS["swallow_cancel_always"].tool(read_only=False, name="slow")
    agents = (
        an_agent([[calling("ask")]], Ledger().write(name="ask")),
        an_agent([[calling("slow")]], slow, name="other"),
    )

    def policy(call: Any, _run: Any) -> Allow | Ask:
        return Ask("who knows") if call.tool == "ask" else Allow()

    async with memory.runtime(*agents, policy=policy, on_approval=stubborn, limits=Limits(grace_seconds=2)) as runtime:
        await runtime.start("worker", "go")
        await runtime.start("other", "go")
        await asyncio.sleep(1)
        began = now()
    assert now() - began <= 3
    await asyncio.sleep(ALL_OVER)


async def test_a_result_that_comes_after_the_cancel_and_within_the_grace_is_kept(memory: Store) -> None:
    agent = an_agent([[calling("swallow_cancel_and_answer")], ""], BAD_TOOLS["swallow_cancel_and_answer"].tool())
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.cancel("enough")
        await run.wait_ended()
        assert await results_of(run, runtime) == [(ResultStatus.OK, "an answer that comes too late")]
