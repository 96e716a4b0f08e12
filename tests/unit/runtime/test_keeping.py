"""What a store keeps: runs are deleted when they have ended, one by one or by age, and counted all together."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling

from geartrain.errors import InvalidValue, RunNotFound
from geartrain.machine import Budget
from geartrain.models import Delay
from geartrain.persistence import RunNotEnded
from geartrain.runtime import Agent, Allow, Ask, Runtime


async def ended(runtime: Runtime, run_id: str) -> float:
    """Start a run, wait for its end, and return when that was."""
    run = await runtime.start("worker", "go", run_id=run_id)
    return (await run.wait_ended()).updated_at


async def ids(runtime: Runtime) -> set[str]:
    return {row.id for row in await runtime.list()}


def never_done() -> Any:
    return an_agent([Delay(1_000, "done")], name="slow")


async def test_an_ended_run_is_deleted_with_all_that_is_its_own(store: Store) -> None:
    async with store.runtime(an_agent(["done", "done again"])) as runtime:
        await ended(runtime, "r-1")

        await runtime.delete("r-1")

        assert await ids(runtime) == set()
        with pytest.raises(RunNotFound):
            await runtime.get("r-1")
        with pytest.raises(RunNotFound):
            await runtime.delete("r-1")
        with pytest.raises(RunNotFound):
            await runtime.snapshot("r-1")


async def test_an_id_may_begin_a_run_anew_when_its_first_is_deleted(store: Store) -> None:
    async with store.runtime(an_agent(["done", "done again"])) as runtime:
        await ended(runtime, "r-1")
        await runtime.delete("r-1")

        run = await runtime.start("worker", "something else", run_id="r-1")

        assert (await run.wait_ended()).input == "something else"


async def test_a_run_is_deleted_with_all_below_it_so_that_its_id_can_begin_the_same_tree_anew() -> None:
    def agents() -> Agent:
        leaf = an_agent(["found"] * 4, name="leaf")
        call = calling("leaf", '{"input": "go"}')
        middle = an_agent([[call], "merged"] * 2, name="middle", sub_agents=[leaf])
        called = calling("middle", '{"input": "go"}')
        return an_agent([[called, call], "done"] * 2, name="worker", sub_agents=[middle, leaf])

    async with Store().runtime(agents()) as runtime:
        await ended(runtime, "r-1")
        assert len(await ids(runtime)) == 4

        await runtime.delete("r-1")
        assert await ids(runtime) == set()

        await ended(runtime, "r-1")
        middle = next(row.id for row in await runtime.list() if row.agent == "middle")
        await runtime.delete(middle)
        assert len(await ids(runtime)) == 2


async def test_a_run_that_has_not_ended_is_not_deleted(store: Store) -> None:
    async with store.runtime(never_done()) as runtime:
        run = await runtime.start("slow", "go")
        with pytest.raises(RunNotEnded):
            await runtime.delete(run.id)

        assert await ids(runtime) == {run.id}
        await run.cancel("enough")
        await run.wait_ended()
        await runtime.delete(run.id)
        assert await ids(runtime) == set()


async def test_a_run_that_is_set_apart_after_its_end_can_be_deleted(memory: Store) -> None:
    async with memory.runtime(an_agent(["done"])) as runtime:
        await ended(runtime, "r-1")
    async with memory.opened() as journal:
        await journal.mark("r-1", "odd", now=1.0)

    async with memory.runtime() as runtime:
        await runtime.delete("r-1")

        assert await ids(runtime) == set()


async def test_pruning_deletes_what_ended_before_and_nothing_else(store: Store) -> None:
    async with store.runtime(an_agent(["done"] * 3), never_done()) as runtime:
        going = await runtime.start("slow", "go", run_id="r-going")
        for run_id in ("r-1", "r-2"):
            await ended(runtime, run_id)
            await asyncio.sleep(10)
        last = await ended(runtime, "r-3")

        counted = await runtime.prune(before=last, dry_run=True)
        before = await ids(runtime)
        gone = await runtime.prune(before=last)

        assert (counted, gone) == (2, 2)
        assert before == {"r-1", "r-2", "r-3", "r-going"}
        assert await ids(runtime) == {"r-3", going.id}
        assert await runtime.prune(before=datetime.fromtimestamp(last, UTC)) == 0


async def test_pruning_many_runs_takes_all_of_them(memory: Store) -> None:
    async with memory.runtime(an_agent(["done"] * 450)) as runtime:
        for number in range(450):
            last = await ended(runtime, f"r-{number}")

        assert await runtime.prune(before=last + 1) == 450
        assert await ids(runtime) == set()


@pytest.mark.parametrize("before", [float("nan"), float("inf"), "yesterday", True, datetime(2026, 1, 1)])  # noqa: DTZ001
async def test_what_is_no_time_prunes_nothing(before: Any, memory: Store) -> None:
    async with memory.runtime() as runtime:
        with pytest.raises(InvalidValue):
            await runtime.prune(before=before)


async def test_all_runs_together_are_what_they_are_one_by_one(store: Store, ledger: Ledger) -> None:
    read = [calling("read", '{"text": "a"}')]
    agents = (
        an_agent([read, "done"], ledger.read(), name="good"),
        an_agent([read, read, "done"], ledger.read(), name="poor", budget=Budget(max_turns=1)),
        an_agent([[calling("write")], "done"], ledger.write(), name="asks"),
        never_done(),
    )
    async with store.runtime(
        *agents, policy=lambda call, _run: Ask("?") if call.tool == "write" else Allow()
    ) as runtime:
        assert (await runtime.totals()).runs == 0
        assert (await runtime.totals()).moved_at is None
        for name in ("good", "poor", "asks"):
            await (await runtime.start(name, "go")).wait_at_rest()
        cancelled = await runtime.start("slow", "go")
        await cancelled.cancel("enough")
        await cancelled.wait_ended()
        rows = await runtime.list()

        totals = await runtime.totals()

        assert (await runtime.statistics()).totals == totals
    assert totals.runs == len(rows) == 4
    assert totals.by_state == {"SUSPENDED": 1, "FINISHED": 1, "FAILED": 1, "CANCELLED": 1}
    assert totals.errors_by_kind == {"budget": 1, "cancelled": 1}
    assert totals.errors_by_code == {"cancelled_by_user": 1, "max_turns_exceeded": 1}
    for name in ("turn_count", "input_tokens", "output_tokens", "tool_calls", "tool_failures"):
        assert getattr(totals, name) == sum(getattr(row, name) for row in rows), name
    assert totals.total_tokens == totals.input_tokens + totals.output_tokens > 0
    assert totals.moved_at == max(row.updated_at for row in rows)
    assert totals.set_apart == 0


async def test_an_error_of_a_newer_version_is_counted_among_the_others(memory: Store) -> None:
    async with memory.runtime(an_agent(["done"])) as runtime:
        await ended(runtime, "r-1")
        memory.journal._runs["r-1"].head.counters["error"] = "eaten_by_a_grue"  # type: ignore[index]

        totals = await runtime.totals()

    assert totals.errors_by_kind == {"other": 1}
