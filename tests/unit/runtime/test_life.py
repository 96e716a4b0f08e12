"""Pause, resume, cancel, deadline, budgets, steering: in every state, with tools that obey and tools that do not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, journal_of, names_of, results_of, settle

from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import Budget, CancelRequested, ModelReplied, ResultStatus
from geartrain.models import Delay
from geartrain.models._scripted import Entry
from geartrain.runtime import Agent, Ask, Runtime
from geartrain.tools import Tool, tool

STATES = ["thinking", "policy", "approval", "reading", "writing", "paused", "in doubt"]


def in_state(state: str, ledger: Ledger) -> tuple[Agent, Any]:
    """An agent whose run comes to rest in *state* for a while, and the policy that goes with it."""
    calls: Sequence[Entry] = [[calling("read" if state == "reading" else "write")], "done"]
    if state == "thinking":
        calls = [Delay(10, [calling("read")]), "done"]
    tools = [ledger.write(10.0, timeout_seconds=5 if state == "in doubt" else 30), ledger.read(10.0)]

    async def slow(_call: Any, _run: Any) -> Any:
        await asyncio.sleep(3)
        return None

    policies: dict[str, Any] = {"policy": slow, "approval": lambda *_: Ask()}
    return an_agent(calls, *tools), policies.get(state)


async def come_to(state: str, runtime: Runtime) -> Any:
    run = await runtime.start("worker", "go")
    if state == "in doubt":
        await run.wait_at_rest()
    elif state == "paused":
        await run.pause()
        await asyncio.sleep(20)
    else:
        await asyncio.sleep(1)
    return run


@pytest.mark.parametrize("state", STATES)
async def test_a_cancelled_run_ends_within_the_grace_whatever_its_state(
    store: Store, ledger: Ledger, state: str
) -> None:
    agent, policy = in_state(state, ledger)
    async with store.runtime(agent, **({"policy": policy} if policy else {})) as runtime:
        run = await come_to(state, runtime)
        began = asyncio.get_running_loop().time()
        await run.cancel("enough", by="me")
        end = await run.wait_ended()
        assert end.error == {"code": "cancelled_by_user", "kind": "cancelled", "message": "enough"}
        assert asyncio.get_running_loop().time() - began <= 5.1
        await settle()
        assert (await runtime.statistics()).effects == 0
        assert (await runtime.replay(run.id)).difference is None


@pytest.mark.parametrize("state", STATES)
async def test_a_paused_run_starts_nothing_and_goes_on_where_it_was(store: Store, ledger: Ledger, state: str) -> None:
    agent, policy = in_state(state, ledger)
    async with store.runtime(agent, **({"policy": policy} if policy else {})) as runtime:
        run = await come_to(state, runtime)
        if state != "paused":
            await run.pause(by="me", reason="lunch")
        await asyncio.sleep(100)
        rest = await run.snapshot()
        assert rest.state == "SUSPENDED"
        assert "paused" in rest.holds
        assert rest.active_seconds < 25
        await run.resume(by="me")
        rest = await run.wait_at_rest()
        if rest.waiting:
            waits = rest.waiting[0]
            await (run.approve if waits.waits_for == "approval" else run.settle)(  # type: ignore[operator]
                "t1.c1", by="me", **({} if waits.waits_for == "approval" else {"done": True})
            )
            rest = await run.wait_ended()
        assert rest.answer == "done"
        assert max(ledger.done.values(), default=0) <= 1


def _swallowing(times: int, ledger: Ledger) -> Tool:
    async def write() -> str:
        """Write."""
        left, until = times, asyncio.get_running_loop().time() + 500
        while asyncio.get_running_loop().time() < until:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                left -= 1
                if left < 0:
                    raise
                if times < 5 and left == 0:
                    break
        ledger.note("late")
        return "late result"

    return tool(timeout_seconds=400)(write)


@pytest.mark.parametrize("times", [0, 1, 3, 1_000_000])
@pytest.mark.parametrize("flag", ["read", "write"])
async def test_a_tool_that_swallows_its_cancellation_does_not_keep_the_run(
    memory: Store, ledger: Ledger, times: int, flag: str
) -> None:
    """CN-2: the run is cancelled after the grace; a late result is never fed to the model."""
    write = _swallowing(times, ledger)
    chosen = write if flag == "write" else tool(read_only=True, timeout_seconds=400, name="write")(write.function)
    async with memory.runtime(an_agent([[calling("write")], "done"], chosen)) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await run.cancel()
        end = await run.wait_ended()
        assert asyncio.get_running_loop().time() - began <= 5.1
        assert end.state == "CANCELLED"
        if times == 1_000_000:
            await asyncio.sleep(6)
            assert (await runtime.statistics()).effects_abandoned == (f"{run.id}/t1.c1.a1",)
        await asyncio.sleep(600)
        assert (await run.snapshot()).seq == end.seq
        assert (await runtime.statistics()).effects_abandoned == ()
        assert len(agent_requests(runtime)) == 1


def agent_requests(runtime: Runtime) -> Any:
    return runtime._host.settings.agents["worker"].agent.model.requests  # type: ignore[attr-defined]


async def test_a_write_that_ends_within_the_grace_keeps_its_result(memory: Store, ledger: Ledger) -> None:
    async with memory.runtime(an_agent([[calling("write")], "done"], ledger.write(4.0))) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.cancel()
        await run.wait_ended()
        assert await results_of(run, runtime) == [(ResultStatus.OK, "wrote ")]


async def test_cancelling_leaves_each_call_with_a_result(store: Store, ledger: Ledger) -> None:
    """CN-11: reads cancelled, a started write in doubt, what never started not_started; the event stream ends."""
    calls = [calling("read"), calling("write"), calling("read")]
    agent = an_agent([calls, "done"], ledger.read(1.0), ledger.write(1_000.0, timeout_seconds=900))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(2)
        followed = asyncio.ensure_future(_all(run))
        await run.cancel()
        await run.wait_ended()
        statuses = [status for status, _ in await results_of(run, runtime)]
        assert statuses == [ResultStatus.OK, ResultStatus.IN_DOUBT, ResultStatus.NOT_STARTED]
        assert (await followed)[-1].path[-1] == "CANCELLED"
    agent = an_agent([calls, "done"], ledger.read(1_000.0))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.cancel()
        await run.wait_ended()
        statuses = [status for status, _ in await results_of(run, runtime)]
        assert statuses == [ResultStatus.CANCELLED, ResultStatus.ERROR, ResultStatus.CANCELLED]


async def _all(run: Any) -> list[Any]:
    return [entry async for entry in run.events()]


async def test_the_first_cause_of_an_end_stays(memory: Store, ledger: Ledger) -> None:
    async with memory.runtime(
        an_agent([[calling("write")], "done"], ledger.write(100.0, timeout_seconds=90))
    ) as runtime:
        run = await runtime.start("worker", "go", deadline=memory_now() + 3)
        await asyncio.sleep(1)
        await run.cancel("first")
        with pytest.raises(Exception, match="ending already"):
            await run.cancel("second")
        end = await run.wait_ended()
        assert end.error is not None
        assert end.error["message"] == "first"
        entries = await journal_of(run, runtime)
        assert sum(isinstance(entry.event, CancelRequested) for entry in entries) == 1


def memory_now() -> float:
    return 1_767_225_600.0 + asyncio.get_running_loop().time()


async def test_a_deadline_ends_a_call_within_a_second_and_keeps_its_siblings(store: Store, ledger: Ledger) -> None:
    """CN-7: the reason says which limit and where."""
    calls = [calling("read"), calling("read", '{"after": 600}')]
    async with store.runtime(an_agent([calls, "done"], ledger.read(1.0, timeout_seconds=900))) as runtime:
        deadline = datetime.fromtimestamp(memory_now(), UTC) + timedelta(seconds=60)
        run = await runtime.start("worker", "go", deadline=deadline)
        end = await run.wait_ended()
        assert end.error is not None
        assert end.error["code"] == "deadline_exceeded"
        assert "EXECUTE_TOOL" in end.error["message"]
        assert end.updated_at - end.created_at <= 61
        assert [status for status, _ in await results_of(run, runtime)] == [ResultStatus.OK, ResultStatus.CANCELLED]


async def test_active_seconds_end_a_run_in_the_middle_of_a_model_that_drips(memory: Store) -> None:
    """CN-7."""

    class Dripping:
        name = "dripping"

        async def reply(self, request: Any, emit: Any, /) -> Any:
            while True:
                emit("x")
                await asyncio.sleep(60)

    agent = Agent("worker", model=Dripping(), budget=Budget(max_seconds=70))
    async with memory.runtime(agent) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.error is not None
        assert end.error["code"] == "timeout"
        assert "MODEL_THINKING" in end.error["message"]
        assert 70 <= end.active_seconds <= 71


async def test_time_spent_suspended_or_closed_is_not_active(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write(1.0), budget=Budget(max_seconds=5))
    async with store.runtime(agent, policy=lambda *_: Ask()) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1_000)
    await asyncio.sleep(1_000)
    async with store.runtime(agent, policy=lambda *_: Ask()) as runtime:
        run = await runtime.get(run.id)
        await run.approve("t1.c1", by="me")
        end = await run.wait_ended()
        assert end.answer == "done"
        assert end.active_seconds < 2


async def test_a_budget_that_suspends_is_raised_and_the_run_goes_on(store: Store, ledger: Ledger) -> None:
    agent = an_agent(
        [[calling("read")], [calling("read")], "done"],
        ledger.read(),
        budget=Budget(max_turns=1),
        on_budget="suspend",
    )
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("budget",)
    async with store.runtime(agent) as runtime:
        run = await runtime.get(run.id)
        await run.raise_budget(Budget(max_turns=9), by="me")
        assert (await run.snapshot()).budget == Budget(max_turns=9)
        assert (await run.wait_ended()).answer == "done"
        assert set(ledger.done.values()) == {1}


async def test_what_is_said_is_heard_at_the_next_model_call_once(store: Store, ledger: Ledger) -> None:
    heard: list[list[str]] = []

    def second(request: Any) -> str:
        heard.append([message.text for message in request.messages if message.role == "user"])
        return "done"

    agent = an_agent([[calling("read")], second], ledger.read(5.0))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.send("also this", by="me")
        await run.send("and that", by="me")
        assert (await run.wait_ended()).answer == "done"
        assert heard == [["go", "also this", "and that"]]


async def test_what_is_said_while_the_answer_is_written_gets_an_answer_too(memory: Store) -> None:
    agent = an_agent([Delay(5, "early"), lambda request: "heard " + request.messages[-1].text])
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
        await run.send("wait")
        assert (await run.wait_ended()).answer == "heard wait"


async def test_a_run_that_never_stops_is_ended_at_the_most_events_that_are_kept(memory: Store, ledger: Ledger) -> None:
    agent = Agent(
        "worker",
        model=_endless(),
        tools=[ledger.read()],
        budget=Budget(max_turns=UNLIMITED, max_tokens=UNLIMITED, max_seconds=UNLIMITED),
        stuck=None,
    )
    async with memory.runtime(agent, limits=Limits(events_per_run=100)) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        assert end.error is not None
        assert end.error["code"] == "cancelled_by_system"
        assert 100 <= end.seq < 110


def _endless() -> Any:
    from geartrain.models._scripted import ScriptedModel  # noqa: PLC0415

    return ScriptedModel([[calling("read")]], repeat=True)


async def test_a_run_left_in_its_grace_is_ended_when_it_is_opened_again(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write(1_000.0, timeout_seconds=900))
    async with store.runtime(agent, limits=Limits(grace_seconds=5)) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.cancel("enough")
    async with store.runtime(agent) as runtime:
        end = await (await runtime.get(run.id)).wait_ended()
        assert end.state == "CANCELLED"
        assert [status for status, _ in await results_of(run, runtime)] == [ResultStatus.IN_DOUBT]
        assert "ModelReplied" in await names_of(run, runtime)
        assert sum(isinstance(e.event, ModelReplied) for e in await journal_of(run, runtime)) == 1
