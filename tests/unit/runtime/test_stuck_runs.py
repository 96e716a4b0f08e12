"""Runs that do not get on, at work: resent, failed, held, named; and what they refused, kept for whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, names_of

from geartrain.errors import EventRefused
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import Budget, PauseRequested, RunResumed, StuckRules
from geartrain.models import Delay, ModelReply, ModelUnavailable, ScriptedModel
from geartrain.persistence import REFUSALS_KEPT, RefusedEvent
from geartrain.runtime import Agent, Runtime, StuckRun
from geartrain.trace import TraceRecord

FREE = Budget(max_seconds=UNLIMITED, max_turns=UNLIMITED, max_tokens=UNLIMITED, max_tool_failures=UNLIMITED)
NO_PATROL = Limits(patrol_seconds=1_000_000)


class Busy:
    """A model that wants to be asked again two minutes later, twice."""

    name = "busy"

    def __init__(self) -> None:
        self.asked = 0

    async def reply(self, _request: Any, _emit: Any, /) -> ModelReply:
        self.asked += 1
        if self.asked < 3:
            raise ModelUnavailable("busy", "too many requests", retry_after_seconds=120.0)
        return ModelReply(text="done")


async def stuck_in(runtime: Runtime) -> list[StuckRun]:
    return [found async for found in runtime.stuck()]


async def recorded(runtime: Runtime, run_id: str, name: str) -> list[TraceRecord]:
    return [record async for record in runtime.timeline(run_id) if record.event == name]


async def test_an_effect_that_died_is_begun_again_by_the_patrol(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(20.0), budget=FREE)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        watch = run.watch()
        await asyncio.sleep(10)
        runtime._host.node.effects.forget(run.id)  # what no code of ours does
        ended = await run.wait_ended()

        assert ended.answer == "done"
        assert asyncio.get_running_loop().time() == pytest.approx(30 + 20)
        assert [r.payload["keys"] async for r in watch if r.event == "effects_were_dead"] == [["t1.c1.a1"]]
        assert "TimerFired" not in await names_of(run, runtime)


async def test_an_answer_that_nobody_will_bring_is_asked_for_once_more(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(20.0, timeout_seconds=25), budget=FREE)
    async with memory.runtime(agent, limits=NO_PATROL) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(10)
        runtime._host.node.effects.forget(run.id)
        ended = await run.wait_ended()

        assert ended.answer == "done"
        assert asyncio.get_running_loop().time() == pytest.approx(25 + 30 + 20)
        (record,) = await recorded(runtime, run.id, "run_stuck")
        assert record.payload["cause"] == "dead_effect"
        assert record.payload["action"] == "resend"
        assert (await runtime.replay(run.id)).difference is None


async def test_a_call_that_waits_for_a_place_is_not_taken_for_lost(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "done"] * 5, ledger.read(50.0, timeout_seconds=60), budget=FREE)
    async with memory.runtime(agent, limits=Limits(task_calls_at_once=1)) as runtime:
        runs = [await runtime.start("worker", "go") for _ in range(5)]
        ends = [await run.wait_ended() for run in runs]

        assert [end.tool_failures for end in ends] == [0] * 5
        assert ledger.peak == 1
        assert not [record for run in runs for record in await recorded(runtime, run.id, "run_stuck")]


@pytest.mark.parametrize("state", ["EXECUTE_TOOL", "MODEL_THINKING"])
async def test_a_limit_that_the_agent_sets_leaves_out_the_wait_for_a_place(
    memory: Store, ledger: Ledger, state: str
) -> None:
    """Else every attempt that had to wait for longer than that would be given up as soon as it begins."""
    rules = StuckRules(dwell={state: 20.0})
    if state == "EXECUTE_TOOL":
        agent = an_agent([[calling("read")], "done"], ledger.read(15.0), budget=FREE, stuck=rules)
    else:
        agent = Agent("worker", model=ScriptedModel([Delay(15.0, "done")]), budget=FREE, stuck=rules)
    limits = Limits(task_calls_at_once=1, model_calls_at_once=1)
    async with memory.runtime(agent, limits=limits) as runtime:
        runs = [await runtime.start("worker", "go") for _ in range(6)]
        ends = [await run.wait_ended() for run in runs]

        assert [(end.answer, end.tool_failures) for end in ends] == [("done", 0)] * 6
        assert asyncio.get_running_loop().time() == pytest.approx(6 * 15, abs=0.1)
        assert not [record for run in runs for record in await recorded(runtime, run.id, "run_stuck")]


async def test_a_model_within_its_attempts_is_not_taken_for_lost(memory: Store) -> None:
    """It may wait long between them, as its provider wishes; only the agent's own limit is shorter."""
    agent = Agent("worker", model=Busy(), budget=FREE)
    limits = Limits(model_call_seconds=10.0, dwell_seconds=1.0)
    async with memory.runtime(agent, limits=limits) as runtime:
        run = await runtime.start("worker", "go")

        assert (await run.wait_ended()).answer == "done"
        assert "TimerFired" not in await names_of(run, runtime)


@pytest.mark.parametrize(("action", "state", "code"), [("fail", "FAILED", "tool_lost"), ("suspend", "SUSPENDED", None)])
async def test_a_tool_over_the_limit_that_the_agent_sets_is_dealt_with_then(
    memory: Store, ledger: Ledger, action: Any, state: str, code: str | None
) -> None:
    rules = StuckRules(dwell={"EXECUTE_TOOL": 5.0}, on_dwell=action)
    agent = an_agent([[calling("read")], "done"], ledger.read(20.0), stuck=rules)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()

        assert rest.state == state
        assert (rest.error["code"] if rest.error else None) == code
        assert asyncio.get_running_loop().time() == pytest.approx(5.0)
        found = await stuck_in(runtime)
        assert [(each.cause, each.done) for each in found] == ([("dwell", "suspend")] if state == "SUSPENDED" else [])
        if state == "SUSPENDED":
            await run.resume()
            await asyncio.sleep(1)
            assert await stuck_in(runtime) == []


async def test_what_is_only_reported_is_told_once_and_listed_until_it_is_over(memory: Store, ledger: Ledger) -> None:
    told: list[str] = []

    def observer(records: Sequence[TraceRecord], /) -> None:
        told.extend(record.event for record in records)

    rules = StuckRules(dwell={"EXECUTE_TOOL": 5.0}, on_dwell="report")
    agent = an_agent([[calling("read")], "done"], ledger.read(25.0, timeout_seconds=100), stuck=rules, budget=FREE)
    async with memory.runtime(agent, observers=[observer]) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(4)
        assert await stuck_in(runtime) == []
        await asyncio.sleep(16)
        (found,) = await stuck_in(runtime)
        assert (found.run_id, found.cause, found.about, found.done) == (run.id, "dwell", "call t1.c1 of read", "report")
        assert (await run.wait_ended()).answer == "done"
        assert await stuck_in(runtime) == []

    assert told.count("run_stuck") == 1


async def test_a_model_that_repeats_itself_is_told_so_and_fails_in_the_end(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")]] * 50, ledger.read(), budget=FREE)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        ended = await run.wait_ended()

        assert ended.error is not None
        assert (ended.error["code"], ended.error["kind"], ended.turn_count) == ("no_progress", "model", 24)
        actions = [record.payload["action"] for record in await recorded(runtime, run.id, "run_stuck")]
        assert actions == ["nudge", "nudge", "fail"]
        assert (await runtime.replay(run.id)).difference is None


async def test_runs_that_rest_are_not_even_read_to_find_the_stuck_ones(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "done"] * 3, ledger.read(5.0))
    async with memory.runtime(agent) as runtime:
        ended = [await runtime.start("worker", "go") for _ in range(2)]
        for run in ended:
            await run.wait_ended()
        await runtime.start("worker", "go")
        loads, load = [], runtime._host.node.journal.load

        async def counted(run_id: str) -> Any:
            loads.append(run_id)
            return await load(run_id)

        runtime._host.node.journal.load = counted  # type: ignore[method-assign]
        assert await stuck_in(runtime) == []

        assert len(loads) == 1


# -- what was refused


async def test_a_refused_event_is_kept_with_its_reason(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(5.0))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        with pytest.raises(EventRefused):
            await runtime.deliver(run.id, RunResumed(id="early", time=0.0))
        await run.wait_ended()
    async with store.opened() as journal:
        (refused,) = await journal.refused(run.id)

    assert (refused.id, refused.type, refused.state, refused.reason) == (
        "early",
        "RunResumed",
        "EXECUTE_TOOL",
        "it is not paused",
    )


async def test_a_store_that_raises_at_what_was_refused_stops_nothing(memory: Store, ledger: Ledger) -> None:
    async def note(_refused: Mapping[str, Sequence[RefusedEvent]]) -> None:
        raise ZeroDivisionError("a bug in a driver")

    async with memory.runtime(an_agent([[calling("read")], "done"], ledger.read(5.0))) as runtime:
        runtime._host.node.journal.note_refused = note  # type: ignore[method-assign]
        run = await runtime.start("worker", "go")
        with pytest.raises(EventRefused):
            await runtime.deliver(run.id, RunResumed(id="early", time=0.0))
        await asyncio.sleep(3)

        assert (await run.wait_ended()).answer == "done"


async def test_a_flood_of_refused_events_is_written_once_a_second_and_only_the_newest(
    memory: Store, ledger: Ledger
) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(5.0))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await runtime.deliver(run.id, PauseRequested(id="pause", time=0.0))
        written: list[int] = []
        note = runtime._host.node.journal.note_refused

        async def counted(refused: Mapping[str, Sequence[RefusedEvent]]) -> None:
            written.append(sum(map(len, refused.values())))
            await note(refused)

        runtime._host.node.journal.note_refused = counted  # type: ignore[method-assign]
        for number in range(500):
            with pytest.raises(EventRefused):
                await runtime.deliver(run.id, PauseRequested(id=f"again {number}", time=0.0))
        await asyncio.sleep(3)

        kept = await runtime._host.node.journal.refused(run.id)
        assert written == [REFUSALS_KEPT]
        assert [refused.id for refused in kept] == [f"again {number}" for number in range(492, 500)]
