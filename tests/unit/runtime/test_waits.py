"""Starting once, waiting, leaving memory, draining, closing, opening."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import anyio
import pytest
from runtime_world import Gated, LastingJournal, Ledger, Store, an_agent, calling, names_of, settle

from geartrain.actors import Cell
from geartrain.clock import LoopClock
from geartrain.errors import GeartrainError, InvalidValue, RunExists, RuntimeClosed
from geartrain.limits import Limits
from geartrain.models import Delay
from geartrain.persistence import OwnershipLost, StoreBusy, StoreUnusable
from geartrain.runtime import Agent, Ask, LiveExecutor, Runtime
from geartrain.runtime._actor import RunActor
from geartrain.runtime._effects._model import ModelEffect
from geartrain.runtime._effects._tool import ToolEffect


def ask(_call: Any, _run: Any) -> Ask:
    return Ask()


async def test_fifty_equal_starts_with_one_key_are_one_run_and_another_body_is_refused(store: Store) -> None:
    """HT-4: also after a restart, also with some callers gone."""
    agent = an_agent([Delay(5, "done")])
    async with store.runtime(agent) as runtime:
        starts = [asyncio.ensure_future(runtime.start("worker", "go", idempotency_key="k")) for _ in range(50)]
        starts.insert(20, asyncio.ensure_future(runtime.start("worker", "other", idempotency_key="k")))
        await asyncio.sleep(0)
        starts[3].cancel()
        got = await asyncio.gather(*starts, return_exceptions=True)
        ids = {each.id for each in got if not isinstance(each, BaseException)}
        assert len(ids) == 1
        assert [type(each) for each in got if isinstance(each, Exception)] == [RunExists]
        (run_id,) = ids
        assert (await runtime.statistics()).store.runs == 1
        await (await runtime.get(run_id)).wait_ended()
        assert (await runtime.start("worker", "go", idempotency_key="k")).id == run_id
    async with store.runtime(agent) as runtime:
        assert (await runtime.start("worker", "go", idempotency_key="k")).id == run_id
        with pytest.raises(RunExists):
            await runtime.start("worker", "go", idempotency_key="k", labels={"a": "b"})
        assert (await runtime.statistics()).store.runs == 1


async def test_cancelling_a_wait_cancels_nothing_else(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(5.0))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.wait_ended(), 1)
        waits = [asyncio.ensure_future(run.wait_ended()) for _ in range(3)]
        await asyncio.sleep(1)
        waits[0].cancel()
        assert (await waits[1]).answer == (await waits[2]).answer == "done"
        assert runtime._host.node.waiters == {}


async def test_a_wait_for_a_run_that_is_not_in_memory_ends_when_it_moves(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write(1.0))
    async with store.runtime(agent, policy=ask) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await settle()
        assert (await runtime.statistics()).runs_loaded == 0
    async with store.runtime(agent, policy=ask) as runtime:
        run = await runtime.get(run.id)
        assert (await run.wait_at_rest()).holds == ("approval(t1.c1)",)
        waits = [asyncio.ensure_future(run.wait_ended()) for _ in range(2)]
        await settle()
        assert (await runtime.statistics()).runs_loaded == 0
        await run.approve("t1.c1", by="me")
        assert [(await wait).answer for wait in waits] == ["done", "done"]
        await settle()
        assert (await runtime.statistics()).runs_loaded == 0
        assert (await run.wait_ended()).answer == "done"


async def test_waiting_for_a_run_that_nothing_recovers_takes_it_up(store: Store) -> None:
    agent = an_agent([Delay(5, "done")])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
    async with store.runtime(agent, recover="none") as runtime:
        await asyncio.sleep(60)
        assert (await runtime.snapshot(run.id)).state == "MODEL_THINKING"
        assert (await (await runtime.get(run.id)).wait_ended()).answer == "done"


async def test_a_thousand_runs_share_the_places_for_tools_fairly(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")] * 2, "done"], ledger.read(1.0))
    async with memory.runtime(agent, limits=Limits(task_calls_at_once=50)) as runtime:
        runs = [await runtime.start("worker", str(n)) for n in range(1_000)]
        ends = [await run.wait_ended() for run in runs]
        assert {end.answer for end in ends} == {"done"}
        assert ledger.peak == 50
        # Fair: nearly every run has its first call before any has its second; the first found the places free.
        first_thousand = {key.rsplit(".", 1)[0] for key in ledger.order[:1_000]}
        assert len(first_thousand) >= 950
        await settle()
        statistics = await runtime.statistics()
        assert (statistics.runs_loaded, statistics.effects, statistics.effect_tasks) == (0, 0, 0)


async def test_one_run_does_not_keep_the_others_from_their_places(memory: Store, ledger: Ledger) -> None:
    greedy = an_agent([[calling("read")] * 60, "done"], ledger.read(1.0), name="greedy")
    modest = an_agent([[calling("read")], "done"], ledger.read(1.0), name="modest")
    async with memory.runtime(greedy, modest, limits=Limits(task_calls_at_once=4)) as runtime:
        await runtime.start("greedy", "go")
        await settle()
        end = await (await runtime.start("modest", "go")).wait_ended()
        assert end.active_seconds <= 3


async def test_nothing_of_an_ended_run_stays_in_memory(memory: Store, ledger: Ledger) -> None:
    """RS-1."""
    agent = an_agent([[calling("write")], "done"], ledger.write(1.0))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        watch = run.watch()
        await settle()
        gc.collect()
        kinds = (RunActor, Cell, ToolEffect, ModelEffect)
        before = _count(*kinds)
        await run.wait_ended()
        await settle()
        gc.collect()
        assert _count(*kinds) <= before - 3
        gone = weakref.ref(watch)
        del watch
        gc.collect()
        assert gone() is None
        node = runtime._host.node
        assert (node.actors, node.waiters, node.hub._watches, node.hub._followers) == ({}, {}, {}, {})


def _count(*kinds: type) -> int:
    return sum(issubclass(type(each), kinds) for each in gc.get_objects())


async def test_readers_who_go_away_without_a_word_are_not_kept(memory: Store) -> None:
    """CN-3: a consumer leaves after one event, by break, cancellation, or garbage; the run goes on."""
    async with memory.runtime(an_agent([Delay(100, "done")])) as runtime:
        run = await runtime.start("worker", "go")
        for _ in range(100):
            async for _entry in run.events():
                break
            waiting = asyncio.ensure_future(anext(run.watch()))
            following = asyncio.ensure_future(_drained(run, after=1))
            await settle()
            waiting.cancel()
            following.cancel()
            await asyncio.wait([waiting, following])
            run.watch()
        del waiting, following
        await settle()
        gc.collect()
        await settle()
        hub = runtime._host.node.hub
        assert sum(map(len, hub._watches.values())) == 0
        assert hub._followers == {}
        assert (await run.wait_ended()).answer == "done"
        assert len([entry async for entry in run.events()]) == 2


async def _drained(run: Any, after: int) -> int:
    count = 0
    async for _ in run.events(after=after):
        count += 1
    return count


async def test_draining_starts_nothing_new_and_lets_what_runs_finish(store: Store, ledger: Ledger) -> None:
    calls = [calling("write"), calling("write")]
    agent = an_agent([calls, "done"], ledger.write(3.0))
    later = an_agent([Delay(5, [calling("write")]), "done"], ledger.write(), name="later")
    async with store.runtime(agent, later) as runtime:
        run = await runtime.start("worker", "go")
        other = await runtime.start("later", "go")
        await asyncio.sleep(1)
        await runtime.drain()
        assert ledger.done == {f"{run.id}/t1.c1": 1}
        with pytest.raises(RuntimeClosed):
            await runtime.start("worker", "go")
        await asyncio.sleep(100)
        assert len(ledger.begun) == 1
        assert (await runtime.statistics()).effects == 0
    async with store.runtime(agent, later) as runtime:
        assert (await (await runtime.get(run.id)).wait_ended()).answer == "done"
        assert (await (await runtime.get(other.id)).wait_ended()).answer == "done"
        assert set(ledger.done.values()) == {1}
        assert len(ledger.done) == 3


async def test_draining_ends_although_calls_wait_for_places_and_models_for_their_next_try(
    memory: Store, ledger: Ledger
) -> None:
    from geartrain.models import ModelUnavailable  # noqa: PLC0415

    agent = an_agent([[calling("read")] * 20, "done"], ledger.read(2.0))
    down = an_agent([ModelUnavailable("m", "busy", retry_after_seconds=100)], name="down")
    outside = an_agent([[calling("read")], "done"], ledger.read(external=True, timeout_seconds=500), name="outside")
    async with memory.runtime(agent, down, outside) as runtime:
        for name in ("worker", "down", "outside"):
            await runtime.start(name, "go")
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await runtime.drain()
        assert asyncio.get_running_loop().time() - began < 5
        assert sum(ledger.done.values()) == 8


async def test_closing_lets_a_started_write_finish_within_the_grace(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write(4.0))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
    async with store.runtime(agent) as runtime:
        assert (await (await runtime.get(run.id)).wait_ended()).answer == "done"
        assert list(ledger.done.values()) == [1]


async def test_a_write_that_outlasts_the_grace_is_in_doubt_at_the_next_open(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write(100.0, timeout_seconds=200))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 12
    async with store.runtime(agent) as runtime:
        rest = await (await runtime.get(run.id)).wait_at_rest()
        assert rest.holds == ("in_doubt(t1.c1)",)
        assert sum(ledger.begun.values()) == 1


async def test_a_write_that_was_about_to_be_journalled_when_closing_is_not_in_doubt(
    memory: Store, ledger: Ledger
) -> None:
    """Closed in the very moments around the start of a write: it is done, or it waits, but nobody has to ask."""
    agent = an_agent([[calling("write")], "done"], ledger.write())
    for ticks in range(30):
        ledger.done.clear()
        async with memory.runtime(agent) as runtime:
            run = await runtime.start("worker", "go")
            for _ in range(ticks):
                await asyncio.sleep(0)
        async with memory.runtime(agent) as runtime:
            end = await (await runtime.get(run.id)).wait_at_rest()
            assert (end.state, list(ledger.done.values())) == ("FINISHED", [1]), ticks


async def test_everybody_who_waits_is_told_when_the_runtime_closes(memory: Store, ledger: Ledger) -> None:
    async with memory.runtime(an_agent([Delay(100, "done")])) as runtime:
        run = await runtime.start("worker", "go")
        waits = [asyncio.ensure_future(run.wait_ended()), asyncio.ensure_future(_drained(run, after=1))]
        watching = asyncio.ensure_future(_watched(run))
        await settle()
    for wait in waits:
        with pytest.raises(RuntimeClosed):
            await wait
    await watching
    for attempt in (run.wait_ended, run.snapshot, run.pause, runtime.statistics, lambda: runtime.start("worker", "go")):
        with pytest.raises(RuntimeClosed):
            await attempt()
    await runtime.aclose()
    await runtime.wait_closed()


async def _watched(run: Any) -> None:
    async for _ in run.watch():
        pass


async def test_a_runtime_is_opened_in_one_task_and_closed_in_another(store: Store, ledger: Ledger) -> None:
    """RS-4: also when whoever closes it is cancelled, and from within another scope."""
    agent = an_agent([[calling("read")], "done"], ledger.read(1.0))
    runtime = store.runtime(agent)
    await asyncio.create_task(runtime.__aenter__())
    run = await runtime.start("worker", "go")
    with anyio.CancelScope() as scope:
        await run.wait_ended()
        closing = asyncio.create_task(runtime.aclose())
        scope.cancel()
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await runtime.wait_closed()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    async with store.runtime(agent) as again:
        assert (await again.snapshot(run.id)).answer == "done"


async def test_two_runtimes_on_one_store_are_refused_and_the_first_goes_on(store: Store) -> None:
    agent = an_agent([Delay(5, "done")])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        with pytest.raises(StoreBusy):
            async with store.runtime(agent):
                pass
        assert (await run.wait_ended()).answer == "done"


async def test_a_runtime_that_lost_its_claim_starts_nothing_and_closes(memory: Store, ledger: Ledger) -> None:
    """JR-7: numbers stay unique, each epoch has one owner, the loser runs no tool."""
    agent = an_agent([Delay(5, [calling("write")]), "done"], ledger.write())
    async with memory.runtime(agent, target=Unclosed(memory.journal)) as loser:
        run = await loser.start("worker", "go")
        await settle()
        memory.journal._claimed = False  # as if its lease had run out
        async with memory.runtime(agent, target=Unclosed(memory.journal)) as winner:
            assert (await (await winner.get(run.id)).wait_ended()).answer == "done"
            await asyncio.sleep(10)
            with pytest.raises(RuntimeClosed):
                await loser.start("worker", "go")
            assert list(ledger.done.values()) == [1]
            assert (await winner.replay(run.id)).difference is None


class Unclosed(Gated):
    async def aclose(self) -> None:
        pass


async def test_an_executor_that_cannot_be_closed_keeps_no_store(store: Store) -> None:
    class Stubborn(LiveExecutor):
        async def aclose(self, seconds: float) -> None:
            raise ValueError(f"not within {seconds} s")

    agent = an_agent(["done", "done"])
    async with store.runtime(agent, executor=Stubborn) as runtime:
        await (await runtime.start(agent, "go")).wait_ended()

    async with store.runtime(agent) as runtime:
        assert (await (await runtime.start(agent, "go")).wait_ended()).answer == "done"


async def test_an_open_that_fails_leaves_nothing_behind(store: Store) -> None:
    before = asyncio.all_tasks()

    def broken(_limits: Any, _threads: Any) -> LiveExecutor:
        raise ValueError("no executor")

    with pytest.raises(ValueError, match="no executor"):
        async with store.runtime(an_agent(["done"]), executor=broken):
            pass
    with pytest.raises(InvalidValue):
        store.runtime(an_agent(["done"]), an_agent(["done"]))
    if store.path is not None:
        with pytest.raises((StoreUnusable, GeartrainError)):
            async with Runtime.open(store.path / "no" / "folder.db", clock=LoopClock()):
                pass
    assert asyncio.all_tasks() == before
    async with store.runtime(an_agent(["done"])) as runtime:
        assert (await (await runtime.start("worker", "go")).wait_ended()).answer == "done"


async def test_an_open_that_is_cancelled_leaves_nothing_behind(store: Store) -> None:
    before = asyncio.all_tasks()
    for ticks in range(12):
        opening = asyncio.ensure_future(store.runtime(an_agent(["done"])).__aenter__())
        for _ in range(ticks):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await opening.result().aclose()
    assert asyncio.all_tasks() == before
    async with store.runtime(an_agent(["done"])) as runtime:
        assert (await (await runtime.start("worker", "go")).wait_ended()).answer == "done"


@pytest.mark.parametrize(
    "options",
    [
        {"instructions": 5},
        {"on_denied": "shrug"},
        {"on_budget": 5},
        {"max_output_tokens": 1.5},
    ],
    ids=str,
)
async def test_an_agent_that_could_not_be_read_back_is_refused_at_open(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        Runtime.open(LastingJournal(), agents=[Agent("worker", **options)])


async def test_garbage_collected_at_every_step_nothing_vanishes(memory: Store, ledger: Ledger) -> None:
    """AC-9."""
    agent = an_agent([[calling("read"), calling("write")], "done"], ledger.read(1.0), ledger.write(1.0))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        wait = asyncio.ensure_future(run.wait_ended())
        while not wait.done():
            gc.collect(0)
            await asyncio.sleep(0.05)
        assert wait.result().answer == "done"


async def test_what_waits_in_a_mailbox_when_the_runtime_closes_is_answered(memory: Store) -> None:
    """AC-1: a hundred acts at once, the runtime closed at every k."""
    agent = an_agent([Delay(1_000, "done")])
    for ticks in range(0, 12, 2):
        async with memory.runtime(agent, limits=Limits(messages_per_turn=5, queued_inputs=1_000)) as runtime:
            run = await runtime.start("worker", "go")
            acts = [asyncio.ensure_future(run.send(str(n))) for n in range(100)]
            for _ in range(ticks):
                await asyncio.sleep(0)
        got = await asyncio.wait_for(asyncio.gather(*acts, return_exceptions=True), 1)
        told = [each for each in got if isinstance(each, int)]
        assert {type(each) for each in got} <= {int, RuntimeClosed}
        async with memory.runtime(agent) as runtime:
            assert (await names_of(run, runtime)).count("InputReceived") == len(told)
            await (await runtime.get(run.id)).cancel()


async def test_losing_ownership_is_an_error_of_the_world(memory: Store) -> None:
    assert issubclass(OwnershipLost, GeartrainError)
