"""Plans that go on in another process, and plans that have changed meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from planned_runs import slow
from runtime_world import Ledger, Store, calling

from geartrain.machine import Usage
from geartrain.models import ScriptedModel
from geartrain.orchestrator import Graph, Pipeline, Step
from geartrain.runtime import Agent


def counted(ledger: Ledger) -> Agent:
    read = ledger.read(1.0)
    steps = [
        Step("a", ledger.write(1.0)),
        Step("b", read, after=["a"]),
        Step("c", read, input={"text": "{input}", "after": 2.0}),
        Step("d", read, after=["b", "c"], input="{b}+{c}"),
    ]
    return Agent("team", plan=Graph(steps, answer="{a}|{d}"))


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5, 2.5, 3.5, 4.5])
async def test_a_plan_goes_on_in_another_process_where_it_was(store: Store, ledger: Ledger, seconds: float) -> None:
    async with store.runtime(counted(ledger)) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(seconds)
    async with store.runtime(counted(ledger)) as runtime:
        end = await (await runtime.get(run.id)).wait_ended()
        replayed = await runtime.replay(run.id)

    assert end.answer == "wrote x|read read wrote x+read x"
    assert max(ledger.done.values()) == 1
    assert replayed.difference is None
    assert end.usage == Usage()


async def test_a_changed_plan_goes_on_if_it_has_all_that_was_begun(memory: Store) -> None:
    log: list[str] = []
    a, b = slow("a", 5, log), slow("b", 5, log)
    async with memory.runtime(Agent("team", plan=Pipeline(a), tools=[b])) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(1)
    async with memory.runtime(Agent("team", plan=Pipeline(a, b))) as runtime:
        end = await (await runtime.get(run.id)).wait_ended()
    assert end.answer == "b(a(x))"


async def test_a_changed_plan_that_runs_what_the_agent_had_not_sets_its_run_apart(memory: Store) -> None:
    a, b = slow("a", 5, []), slow("b", 5, [])
    async with memory.runtime(Agent("team", plan=Pipeline(a))) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(1)
    async with memory.runtime(Agent("team", plan=Pipeline(a, b))) as runtime:
        rest = await (await runtime.get(run.id)).wait_at_rest()
    assert rest.holds == ("quarantined",)


async def test_a_plan_without_a_step_that_was_begun_sets_its_run_apart_until_it_is_put_back(store: Store) -> None:
    log: list[str] = []
    a, b = slow("a", 5, log), slow("b", 5, log)
    before = Agent("team", plan=Pipeline(a, b))
    async with store.runtime(before) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(6)
    async with store.runtime(Agent("team", plan=Pipeline(b))) as runtime:
        rest = await (await runtime.get(run.id)).wait_at_rest()
        assert rest.holds == ("quarantined",)
    async with store.runtime(before) as runtime:
        again = await runtime.get(run.id)
        await again.resume()
        end = await again.wait_ended()
    assert end.answer == "b(a(x))"
    assert log.count("a ends") == 1


@pytest.mark.parametrize("planned_first", [True, False])
async def test_a_run_does_not_change_between_a_plan_and_a_model(memory: Store, planned_first: bool) -> None:
    plan = Agent("team", plan=Pipeline(slow("a", 5, [])))
    model = Agent("team", model=ScriptedModel([[], "no"]), tools=[slow("a", 5, [])])
    first, second = (plan, model) if planned_first else (model, plan)
    async with memory.runtime(first) as runtime:
        run = await runtime.start("team", "x")
        if not planned_first:
            await run.pause()
    async with memory.runtime(second) as runtime:
        again = await runtime.get(run.id)
        if not planned_first:
            await again.resume()
        rest = await again.wait_at_rest()
    assert rest.holds == ("quarantined",)


async def test_a_run_handed_over_to_a_plan_begins_the_plan(memory: Store) -> None:
    team = Agent("team", plan=Pipeline(slow("a", 1, [])))
    desk = Agent("desk", model=ScriptedModel([[calling("hand_off_to_team", provider_id="call_1")]]), handoffs=[team])
    async with memory.runtime(desk) as runtime:
        end = await (await runtime.start("desk", "x")).wait_ended()
    assert (end.agent, end.answer) == ("team", "a(x)")
