"""A run that rests or is over leaves memory, whatever was at work for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling

from geartrain.machine import Budget
from geartrain.models import Delay
from geartrain.runtime import Agent, Allow, RunHandle


async def slow_policy(_call: Any, _run: Any) -> Allow:
    await asyncio.sleep(50)
    return Allow()


async def slow_provider(_view: Any) -> str:
    await asyncio.sleep(50)
    return "found"


def at_work(what: str, ledger: Ledger) -> Agent:
    match what:
        case "model":
            return an_agent([Delay(100, "done")])
        case "policy":
            return an_agent([[calling("read")], "done"], ledger.read())
        case "read":
            return an_agent([[calling("read")], "done"], ledger.read(20))
        case "write":
            return an_agent([[calling("write")], "done"], ledger.write(20))
        case _:
            return an_agent(["done"], context=[slow_provider])


ACTS: dict[str, Callable[[RunHandle], Awaitable[object]]] = {
    "cancelled": lambda run: run.cancel("enough"),
    "paused": lambda run: run.pause(),
    "out of time": lambda run: run.wait_at_rest(),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("what", ["model", "policy", "read", "write", "provider"])
async def test_a_run_leaves_memory_whatever_was_at_work_when_it_came_to_rest(
    memory: Store, ledger: Ledger, what: str, act: str
) -> None:
    agent = at_work(what, ledger)
    policy = {"policy": slow_policy} if what == "policy" else {}
    async with memory.runtime(agent, **policy) as runtime:
        run = await runtime.start(agent, "go", budget=Budget(max_seconds=2 if act == "out of time" else 300))
        await asyncio.sleep(1)

        await ACTS[act](run)
        await run.wait_at_rest()

        await asyncio.wait_for(runtime.wait_at_rest(), 30)
        assert (await runtime.statistics()).runs_loaded == 0


async def test_a_caller_that_is_cancelled_while_a_run_is_loaded_leaves_nothing_in_memory() -> None:
    async with Store().runtime(an_agent(["done"])) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        await asyncio.sleep(2.0)
        for turns in range(12):
            acting = asyncio.ensure_future(run.pause(by="ops"))
            for _ in range(turns):
                await asyncio.sleep(0)
            acting.cancel()
            await asyncio.wait([acting])
            await asyncio.sleep(2.0)

            assert not runtime._host.node.actors, turns
