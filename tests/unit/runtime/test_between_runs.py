"""What the runs of a tree send each other arrives: over crashes and failing stores, and while they leave memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from runtime_world import Gated, LastingJournal, Ledger, Store, an_agent, calling, quick
from teams import below, delegate, searcher, shown, team

from geartrain.models._scripted import Delay
from geartrain.persistence import CommitUnknown, Entry, StoreFailed
from geartrain.runtime import Agent, Allow
from geartrain.tools import ask_user


async def test_after_a_crash_those_that_were_at_work_keep_their_places() -> None:
    ledger = Ledger()

    def agents() -> Agent:
        return team(
            *[delegate("search")] * 6, below=[an_agent([[calling("read")], "a"], ledger.read(9.0), name="search")]
        )

    store, limits = Store(), quick(sub_agents_at_once_per_tree=2)
    async with store.runtime(agents(), limits=limits) as runtime:
        await runtime.start("team", "go", run_id="r-root")
        await asyncio.sleep(5.0)
        left = store.journal.as_killed()
    store.journal, ledger.peak = left, 0
    async with store.runtime(agents(), limits=limits) as runtime:
        assert (await (await runtime.get("r-root")).wait_at_rest()).answer == "done"

    assert ledger.peak == 2


async def test_a_tree_killed_after_any_append_comes_to_the_same_answer_with_each_effect_once() -> None:
    ledger = Ledger()

    def agents() -> Agent:
        worker = an_agent([[calling("write")], "found"], ledger.write(1.0, idempotent=True), name="leaf")
        middle = an_agent([[delegate("leaf"), delegate("leaf")], "merged"], name="middle", sub_agents=[worker])
        return team(delegate("middle"), delegate("leaf"), below=[middle, worker])

    for kill_after in range(1, 100):
        ledger.done.clear()
        ledger.alive = True
        store = Store()
        left = killed_after(store, kill_after, ledger)
        async with store.runtime(agents()) as runtime:
            await (await runtime.start("team", "go", run_id="r-root")).wait_at_rest()
        if not left:
            break
        ledger.alive = True
        store.journal = left[0]
        async with store.runtime(agents()) as runtime:
            run = await runtime.get("r-root")
            assert (await run.wait_at_rest()).answer == "done", kill_after
            assert await shown(run, runtime) == [("ok", "merged"), ("ok", "found")]
            assert len(await below(run, runtime)) == 4
            assert len(ledger.done) == 3  # by key: an idempotent write may be repeated
            assert await runtime._host.node.journal.runnable() == []
    assert 20 < kill_after < 99


def killed_after(store: Store, appends: int, ledger: Ledger) -> list[LastingJournal]:
    """Return where a copy of the store will be as it is right after so many appends; the world ends with it."""
    left: list[LastingJournal] = []
    journal, count = store.journal, 0
    write = journal._write

    def counted(entry: Any) -> None:
        nonlocal count
        write(entry)
        count += 1
        if count == appends:
            left.append(journal.as_killed())
            ledger.alive = False

    journal._write = counted  # type: ignore[method-assign]
    return left


class SlowInbox(LastingJournal):
    """Takes ten seconds to read what waits for the root."""

    async def inbox(self, run_id: str, *, limit: int) -> Any:
        found = await super().inbox(run_id, limit=limit)
        await asyncio.sleep(10.0 if run_id == "r-root" else 0.0)
        return found


async def test_what_arrives_at_a_run_that_has_ended_is_taken_out_of_the_store() -> None:
    """A root is cancelled before it has heard that its sub-agent has ended."""
    agent = team(delegate("search"), below=[searcher(Delay(3.0, "found"))])
    async with Store().runtime(agent, target=SlowInbox()) as runtime:
        run = await runtime.start(agent, "go", run_id="r-root")
        await asyncio.sleep(5.0)
        await run.cancel(by="ops")

        assert (await run.wait_ended()).state == "CANCELLED"
        assert [each.state for each in await below(run, runtime)] == ["FINISHED"]
        assert await runtime._host.node.journal.runnable() == []


class FailingToLetGo(Gated):
    """Fails once to write what takes something out of the store and changes nothing else."""

    def append(self, entry: Entry) -> asyncio.Future[int]:
        self.error = None
        if entry.consumed and not entry.events and not self.failing:
            self.error = StoreFailed("runs.db", "append", "disk full")
        return super().append(entry)


async def test_the_store_is_known_to_write_again_when_what_changes_nothing_is_taken_out_of_it() -> None:
    journal = FailingToLetGo(LastingJournal())
    agent = team(delegate("search"), below=[searcher(Delay(30.0, "found"))])
    async with Store().runtime(agent, target=journal) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(1.0)
        (child,) = await below(run, runtime)
        await (await runtime.get(child.id)).pause(by="ops")
        await run.pause(by="ops")  # which its sub-agent, paused already, refuses
        await asyncio.sleep(1.5)

        assert journal.failing
        assert not runtime._host.node.circuit.open


class Unsure(Gated):
    """A journal that does not know what became of the first appends to any run."""

    def __init__(self, journal: LastingJournal) -> None:
        super().__init__(journal)
        self.left = 3

    def append(self, entry: Entry) -> asyncio.Future[int]:
        if not self.left:
            return super().append(entry)
        self.left -= 1
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_exception(CommitUnknown("runs.db", "append", "no answer"))
        return future


@pytest.mark.parametrize("target", [LastingJournal.opened, Unsure])
async def test_a_sub_agents_run_that_is_damaged_has_failed_to_the_one_that_waits_for_it(target: Any) -> None:
    """Charged with all that is known of it; what works for it ends."""
    leaf = an_agent([[calling("read")], "found"], Ledger().read(20.0), name="leaf")
    middle = an_agent([[delegate("leaf")], "merged"], name="middle", sub_agents=[leaf])
    agent = team(delegate("middle"), below=[middle])
    store = Store()
    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(5.0)
        hurt = (await run.snapshot()).sub_agents[0].run_id
        left = store.journal.as_killed()
    left._runs[hurt].events[0] = replace(left._runs[hurt].events[0], path="FINISHED")
    async with store.runtime(agent, target=target(left)) as runtime:
        run = await runtime.get(run.id)

        rest = await run.wait_at_rest()

        assert rest.answer == "done"
        ((status, text),) = await shown(run, runtime)
        assert status == "error"
        assert text.startswith(f"system: system_error: its run {hurt} is damaged: ")
        found = {each.agent: each for each in await runtime.list(root=run.id)}
        assert found["middle"].set_apart
        assert (found["leaf"].state, found["leaf"].error) == ("CANCELLED", "cancelled_by_parent")
        assert rest.tree_usage.total_tokens == sum(each.input_tokens + each.output_tokens for each in found.values())


async def test_a_runtime_at_rest_has_brought_every_tree_to_rest() -> None:
    """As `geartrain work` does it: also what was left between a start and its sub-agents, and between these and it."""
    ledger = Ledger()
    worker = an_agent([[calling("write")], "found"], ledger.write(1.0, idempotent=True), name="w")
    agent = team(*[delegate("w")] * 5, below=[worker])
    for kill_after in (3, 5, 8, 12, 20):
        ledger.alive = True
        store = Store()
        left = killed_after(store, kill_after, ledger)
        async with store.runtime(agent, limits=quick(sub_agents_at_once_per_tree=2)) as runtime:
            await (await runtime.start(agent, "go", run_id="r-root")).wait_at_rest()
        store.journal = left[0]
        async with store.runtime(agent, policy=lambda *_: Allow()) as runtime:
            await runtime.wait_at_rest()

            assert await runtime._host.node.journal.runnable() == []
            assert {row.state for row in await runtime.list()} == {"FINISHED"}


@pytest.mark.parametrize("wait", ["wait_ended", "wait_at_rest"])
async def test_a_tree_that_was_left_in_the_middle_is_moved_by_whoever_waits_for_its_root(wait: str) -> None:
    """In a runtime that recovers nothing by itself."""
    ledger = Ledger()
    worker = an_agent([[calling("read")], "found"], ledger.read(5.0), name="w")
    middle = an_agent([[delegate("w")], "merged"], name="middle", sub_agents=[worker])
    agent = team(delegate("middle"), below=[middle])
    store = Store()
    left = killed_after(store, 9, ledger)
    async with store.runtime(agent) as runtime:
        await (await runtime.start(agent, "go", run_id="r-root")).wait_at_rest()
    store.journal = left[0]
    async with store.runtime(agent, recover="none") as runtime:
        run = await runtime.get("r-root")

        assert (await getattr(run, wait)()).answer == "done"


class CountingJournal(LastingJournal):
    """Counts how often a run is read."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []

    async def load(self, run_id: str) -> Any:
        self.loads.append(run_id)
        return await super().load(run_id)


async def test_a_parent_stays_in_memory_as_long_as_it_hears_of_its_sub_agents_now_and_then() -> None:
    journal = CountingJournal()
    below = [searcher(Delay(2.0 * n + 1, "found"), name=f"s{n}") for n in range(15)]
    agent = team(*[delegate(each.name) for each in below], below=below)
    async with Store().runtime(agent, target=journal) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_ended()

        assert journal.loads.count(run.id) == 0


async def test_a_parent_that_hears_of_no_sub_agent_for_some_seconds_leaves_memory() -> None:
    agent = team(delegate("search"), below=[searcher(Delay(60.0, "found"))])
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(1)
        assert run.id in runtime._host.node.actors
        await asyncio.sleep(10)

        assert run.id not in runtime._host.node.actors
        assert (await run.wait_ended()).answer == "done"


class FailingInbox(LastingJournal):
    """Cannot read, for some time, what waits for a run."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def inbox(self, run_id: str, *, limit: int) -> Any:
        if self.failures:
            self.failures -= 1
            raise StoreFailed("store.db", "read", "disk I/O error")
        return await super().inbox(run_id, limit=limit)


async def test_whoever_waits_for_a_tree_to_rest_waits_out_a_store_that_cannot_be_read() -> None:
    journal = FailingInbox()
    asker = an_agent([[calling("ask_user", '{"question":"which?"}')]], ask_user, name="asker")
    agent = team(delegate("asker"), below=[asker])
    async with Store().runtime(agent, target=journal) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
        journal.failures = 3

        assert (await run.wait_at_rest()).at_rest
        assert journal.failures == 0


async def test_what_is_sent_to_a_run_that_leaves_memory_meanwhile_is_brought_to_it_all_the_same() -> None:
    journal = SlowInbox()
    agent = team(delegate("search"), below=[searcher(Delay(3.0, "found"))])
    async with Store().runtime(agent, target=journal) as runtime:
        run = await runtime.start(agent, "go", run_id="r-root")
        await asyncio.sleep(60.0)

        assert (await run.snapshot()).answer == "done"
