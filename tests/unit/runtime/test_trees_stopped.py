"""Trees that are cancelled, paused or out of time while their process dies: between the append of one run and the
next, with any time in which nobody is at work, and by a process that has none of the tree in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from runtime_world import LastingJournal, Ledger, Store, an_agent, calling, quick
from teams import delegate, team

from geartrain.clock import LoopClock
from geartrain.machine import Budget
from geartrain.runtime import Agent, RunHandle, Runtime

ROOT = "r-root"
DEADLINE_SECONDS = 20.0


@dataclass
class Tree:
    """A root with two runs below it, each with two below, each with a tool that takes its time."""

    deadline: float | None = None
    tool: str = "read"
    store: Store = field(default_factory=Store)

    def agents(self) -> Agent:
        ledger = Ledger()
        tool = ledger.read(25.0) if self.tool == "read" else ledger.write(25.0)
        leaf = an_agent([[calling(self.tool)], "found"], tool, name="leaf", budget=Budget(max_seconds=1e6))
        middle = an_agent([[delegate("leaf"), delegate("leaf")], "merged"], name="middle", sub_agents=[leaf])
        return team(delegate("middle"), delegate("middle"), below=[middle])

    @asynccontextmanager
    async def life(self, recover: str = "none") -> AsyncIterator[tuple[Runtime, RunHandle]]:
        async with self.store.runtime(self.agents(), clock=LoopClock(), recover=recover) as runtime:
            yield runtime, await runtime.start("team", "go", run_id=ROOT, deadline=self.deadline)

    def killed_after(self, appends: int) -> list[LastingJournal]:
        """Return where the store will be as it is right after so many more appends."""
        left: list[LastingJournal] = []
        journal, count, write = self.store.journal, 0, self.store.journal._write

        def counted(entry: Any) -> None:
            nonlocal count
            write(entry)
            count += 1
            if count == appends:
                left.append(journal.as_killed())

        journal._write = counted  # type: ignore[method-assign]
        return left


async def left_behind(runtime: Runtime) -> list[str]:
    """Return what of a tree is not over, though its root has ended."""
    runs = [f"{run.id} is {run.state}" for run in await runtime.list(limit=1_000) if not run.error and not run.at_rest]
    alive = [f"{run.id} is {run.state}" for run in await runtime.list(limit=1_000) if run.state == "SUSPENDED"]
    return [*runs, *alive, *map(str, await runtime._host.node.journal.runnable())]


async def cancel(run: RunHandle) -> None:
    now = await run.snapshot()
    if not (now.ending or now.ended):
        await run.cancel("enough", by="ops")


async def nothing(_run: RunHandle) -> None:
    """Do nothing: the time does."""


Act = Callable[[RunHandle], Awaitable[None]]
ACTS: dict[str, tuple[Act, str]] = {
    "cancel": (cancel, "cancelled_by_user"),
    "deadline": (nothing, "deadline_exceeded"),
}


@pytest.mark.parametrize("down_seconds", [0.0, 4_000.0])
@pytest.mark.parametrize("tool", ["read", "write"])
@pytest.mark.parametrize("how", ACTS)
async def test_a_tree_whose_process_dies_anywhere_in_its_end_is_ended_by_the_next_and_leaves_nobody(
    how: str, tool: str, down_seconds: float
) -> None:
    """A write under way is awaited within the grace; the time in which nobody is at work is no part of it."""
    act, code = ACTS[how]
    for appends in range(1, 60):
        tree = Tree(tool=tool)
        if how == "deadline":
            tree.deadline = LoopClock().now() + DEADLINE_SECONDS
        async with tree.life() as (_, run):
            await asyncio.sleep(5.0)
            left = tree.killed_after(appends)
            await act(run)
            await run.wait_ended()
        if not left:
            break
        tree.store.journal = left[0]
        await asyncio.sleep(down_seconds)

        async with tree.life() as (runtime, run):
            await act(run)
            rest = await run.wait_ended()

            assert rest.error is not None
            assert (rest.error["code"], await left_behind(runtime)) == (code, []), appends
    assert 10 < appends < 59


@pytest.mark.parametrize("down_seconds", [0.0, 4_000.0])
async def test_a_tree_whose_process_dies_anywhere_in_a_pause_is_paused_and_resumed_by_the_next(
    down_seconds: float,
) -> None:
    for appends in range(1, 60):
        tree = Tree()
        async with tree.life() as (_, run):
            await asyncio.sleep(5.0)
            left = tree.killed_after(appends)
            await run.pause(by="ops")
            await run.wait_at_rest()
        if not left:
            break
        tree.store.journal = left[0]
        await asyncio.sleep(down_seconds)

        async with tree.life() as (runtime, run):
            rest = await run.wait_at_rest()
            states = {each.agent: each.state for each in await runtime.list()}
            assert (rest.holds, set(states.values())) == (("paused",), {"SUSPENDED"}), appends
            left = tree.killed_after(appends)
            await run.resume(by="ops")
            assert (await run.wait_at_rest()).answer == "done"
        if not left:
            continue
        tree.store.journal = left[0]
        await asyncio.sleep(down_seconds)
        async with tree.life() as (runtime, run):
            assert (await run.wait_at_rest()).answer == "done", appends
            assert await left_behind(runtime) == []
    assert 5 < appends < 59


async def test_what_a_dead_process_has_left_of_a_tree_goes_on_side_by_side() -> None:
    tree = Tree()
    left = tree.killed_after(9)
    async with tree.life() as (_, run):
        await run.wait_ended()
    tree.store.journal = left[0]
    began = asyncio.get_running_loop().time()

    async with tree.life() as (_, run):
        assert (await run.wait_ended()).answer == "done"

    assert asyncio.get_running_loop().time() - began == pytest.approx(25.0, abs=1.0)


async def test_the_time_in_which_a_start_waits_for_its_place_is_not_active_time() -> None:
    ledger = Ledger()
    leaf = an_agent([[calling("read")], "found"], ledger.read(20.0), name="leaf", budget=Budget(max_seconds=30.0))
    agent = team(delegate("leaf"), delegate("leaf"), delegate("leaf"), below=[leaf])
    async with Store().runtime(agent, limits=quick(sub_agents_at_once_per_tree=1)) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_ended()).answer == "done"

        runs = [await (await runtime.get(each.id)).snapshot() for each in await runtime.list() if each.parent]
        assert [each.active_seconds for each in runs] == pytest.approx([20.0] * 3)
        assert sorted(each.created_at - runs[-1].created_at for each in runs) == pytest.approx([0.0, 20.0, 40.0])
