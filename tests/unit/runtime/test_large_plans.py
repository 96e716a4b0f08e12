"""Plans with many steps, and with large inputs and outputs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from planned_runs import Asked, now, slow
from runtime_world import Gated, Ledger, Store, journal_of, quick

from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.machine import ModelReplied
from geartrain.orchestrator import Approval, Done, Fail, FanOut, Graph, Pipeline, Plan, Step
from geartrain.persistence import StoreFailed
from geartrain.runtime import Agent
from geartrain.tools import tool


async def test_a_fan_out_keeps_its_bound_and_its_order(store: Store) -> None:
    ledger = Ledger()
    inputs = [f"{i}" for i in range(100)]
    read = ledger.read(1.0)
    reads = FanOut(read, [{"text": text, "after": (int(text) * 7) % 5} for text in inputs])
    async with store.runtime(Agent("team", plan=reads)) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()

    assert end.answer == "\n".join(f"read {i}" for i in range(100))
    assert ledger.peak == 8
    assert set(ledger.done.values()) == {1}


async def test_a_thousand_inputs_are_gone_through_in_bounded_memory(memory: Store) -> None:
    read = Ledger().read(1.0)
    plan = FanOut(read, [{"text": str(i)} for i in range(1_000)], at_once=50)
    async with memory.runtime(Agent("team", plan=plan), limits=Limits(calls_at_once_per_run=50)) as runtime:
        began = now()
        end = await (await runtime.start("team", "x")).wait_ended()
        assert end.answer is not None
        assert len(end.answer.splitlines()) == 1_000
        assert 20 <= now() - began < 30
        assert len(runtime._host.node.effects.plans) == 0


async def test_more_jobs_than_a_reply_holds_are_begun_by_and_by(memory: Store) -> None:
    ledger = Ledger()
    plan = FanOut(ledger.read(1.0), [{"text": "x"}] * 30, at_once=30)
    async with memory.runtime(Agent("team", plan=plan), limits=quick(calls_per_reply=4)) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.state == "FINISHED"
    assert sum(ledger.done.values()) == 30


async def test_large_outputs_are_passed_on_whole(memory: Store) -> None:
    @tool(read_only=True)
    async def many() -> str:
        """Return much."""
        return "word " * 10_000

    @tool(read_only=True)
    async def size(text: str) -> str:
        """Measure."""
        return str(len(text))

    async with memory.runtime(Agent("team", plan=Pipeline(many, size))) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer == "50000"


async def test_a_store_that_cannot_be_read_for_a_while_is_no_fault_of_the_plan(memory: Store) -> None:
    class Unread(Gated):
        unread = 3

        async def read(self, *args: Any, **options: Any) -> Any:
            if self.unread:
                self.unread -= 1
                raise StoreFailed("runs.db", "read", "the disk is busy")
            return await self.journal.read(*args, **options)

    journal = Unread(memory.journal)
    agent = Agent("team", plan=Pipeline(slow("a", 1, [])))
    async with memory.runtime(agent, target=journal) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert (end.answer, journal.unread) == ("a(x)", 0)


async def test_an_output_that_is_too_large_to_be_passed_on_is_shortened_and_its_size_says_so(memory: Store) -> None:
    @tool(read_only=True)
    async def many() -> str:
        """Return more than a call may be given."""
        return "word " * 10_000

    plan = Pipeline(many, answer=lambda p: f"{p['many'].size} {len(p['many'].text) < 20_000}")
    async with memory.runtime(Agent("team", plan=plan), limits=quick(argument_bytes=40_000)) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer == "50000 True"


async def test_jobs_that_one_event_does_not_hold_are_begun_by_and_by(memory: Store) -> None:
    ledger = Ledger()
    plan = FanOut(ledger.read(1.0), [{"text": "x" * 40_000}] * 20, at_once=20, gather=lambda steps: str(len(steps)))
    async with memory.runtime(Agent("team", plan=plan)) as runtime:
        run = await runtime.start("team", "x")
        end = await run.wait_ended()
        asked = [len(e.event.calls) for e in await journal_of(run, runtime) if isinstance(e.event, ModelReplied)]
    assert end.answer == "20"
    assert asked[0] == 6  # a quarter of an event, for arguments may be written twice as long and more
    assert sum(asked) == sum(ledger.done.values()) == 20


async def test_an_input_that_is_too_large_fails_its_step_and_no_other(memory: Store) -> None:
    fan_out = FanOut(slow("a", 1, []), ["x", "y" * 100_000, "z"], need=2)
    async with memory.runtime(Agent("team", plan=fan_out)) as runtime:
        end = await (await runtime.start("team", "go")).wait_at_rest()
    assert end.answer == "a(x)\n[error] the arguments are too large (100011 bytes)\na(z)"


@pytest.mark.parametrize(
    "plan",
    [Pipeline(Approval("Go?\ud800")), FanOut("helper", ["\ud800"]), Graph([Step("a", "helper", input="\ud800")])],
    ids=["question", "inputs", "input"],
)
def test_a_plan_with_a_text_that_cannot_be_stored_is_refused_when_a_runtime_is_opened(
    plan: Plan, memory: Store
) -> None:
    with pytest.raises(InvalidValue, match=r"the plan of agent 'team' must be made of what JSON can hold"):
        memory.runtime(Agent("team", plan=plan))


@pytest.mark.parametrize("how", ["done", "fails", "cancelled", "deadline"])
async def test_the_progress_of_a_run_is_let_go_of_when_it_ends_however_it_does(memory: Store, how: str) -> None:
    steps = [Step("a", slow("a", 10, [])), Step("b", slow("b", 10, []), after=["a"])]
    last = Fail("no") if how == "fails" else Done("yes")
    plan = Asked(lambda p: last if p.steps and not p.under_way else Graph(steps[:1]).next(p), steps[0].run)
    agents = Agent("team", plan=plan if how in ("done", "fails") else Graph(steps))
    async with memory.runtime(agents) as runtime:
        deadline = runtime._host.node.clock.now() + 15 if how == "deadline" else None
        run = await runtime.start("team", "x", deadline=deadline)
        await asyncio.sleep(5)
        assert len(runtime._host.node.effects.plans) == 1
        if how == "cancelled":
            await run.cancel(by="ops")
        await run.wait_ended()
        assert len(runtime._host.node.effects.plans) == 0


async def test_progress_that_has_no_room_is_read_again(memory: Store) -> None:
    reads = FanOut(Ledger().read(1.0), [{"text": str(i)} for i in range(20)], at_once=4)
    agent = Agent("team", plan=reads)
    async with memory.runtime(agent, limits=quick(plan_progress_bytes=1)) as runtime:
        runs = [await runtime.start("team", "x") for _ in range(3)]
        await asyncio.sleep(2.5)
        assert len(runtime._host.node.effects.plans) == 1
        ends = [await run.wait_ended() for run in runs]
    assert {end.answer for end in ends} == {"\n".join(f"read {i}" for i in range(20))}
