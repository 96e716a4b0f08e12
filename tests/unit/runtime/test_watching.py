"""Observers, watchers, followers, timelines and replays: all of them listen, none of them changes anything."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import msgspec
import pytest
from runtime_world import Ledger, Store, an_agent, calling, settle

from geartrain.clock import LoopClock
from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.machine import Budget, ContextRules
from geartrain.models import Delay, ModelReply
from geartrain.persistence import MemoryJournal
from geartrain.runtime import Agent, Ask, Runtime, log_records
from geartrain.runtime._reading._shortenings import seen as seen_by
from geartrain.trace import TraceRecord

EXPECTED = {
    "state_transition",
    "llm_call_started",
    "llm_call_finished",
    "tool_call_requested",
    "permission_evaluated",
    "tool_call_finished",
    "context_compacted",
    "checkpoint_saved",
    "run_finished",
}


def busy_agent(ledger: Ledger) -> Agent:
    """An agent whose run has a record of every kind."""
    replies = [[calling("read"), calling("write")], [calling("read", '{"text": "xxxxxxxxxxxx"}')], "done"]
    return an_agent(replies, ledger.read(1.0), ledger.write(1.0), window=ContextRules(messages=5))


async def _lived(store: Store, agent: Agent, **options: Any) -> tuple[str, list[Any]]:
    clock = LoopClock(1_767_225_600.0 - asyncio.get_running_loop().time())
    async with store.runtime(agent, limits=Limits(checkpoint_bytes=1), clock=clock, **options) as runtime:
        run = await runtime.start("worker", "go", run_id="r")
        await run.wait_ended()
    return run.id, await store.rows(run.id)


def _garbage(records: Any) -> None:
    for record in records:
        record.payload.clear()
        record.payload["x"] = object()
    records.clear()
    return 5  # type: ignore[return-value]


def _raising(error: BaseException) -> Any:
    def observer(_records: Any) -> None:
        raise error

    return observer


async def test_observers_that_misbehave_change_no_byte_and_others_get_everything(store: Store) -> None:
    """HT-5."""
    blocked, seen = threading.Event(), []

    def blocking(_records: Any) -> None:
        blocked.wait(60)

    _, plain = await _lived(Store(), busy_agent(Ledger()))
    observers = [
        _raising(ValueError("bad")),
        _garbage,
        _raising(SystemExit(3)),
        _raising(type("Own", (BaseException,), {})()),
        blocking,
        seen.extend,
        log_records,
        lambda: None,
    ]
    try:
        run_id, watched = await _lived(store, busy_agent(Ledger()), observers=observers)
    finally:
        blocked.set()
    assert watched == plain
    async with store.runtime(busy_agent(Ledger())) as runtime:
        assert [record for record in seen if record.seq] == [record async for record in runtime.timeline(run_id)]


async def test_an_observer_that_is_slow_misses_records_and_they_are_counted(memory: Store, ledger: Ledger) -> None:
    blocked = threading.Event()

    def slow(_records: Any) -> None:
        blocked.wait(20)

    async with memory.runtime(busy_agent(ledger), observers=[slow], limits=Limits(observer_records=5)) as runtime:
        await (await runtime.start("worker", "go")).wait_ended()
        (statistics,) = (await runtime.statistics()).observers
        blocked.set()
    assert statistics.dropped > 0


async def test_the_trace_has_every_kind_of_record_and_the_timeline_is_the_same(store: Store, ledger: Ledger) -> None:
    seen: list[TraceRecord] = []
    async with store.runtime(busy_agent(ledger), observers=[seen.extend], limits=Limits(checkpoint_bytes=1)) as runtime:
        run = await runtime.start("worker", "go")
        watch = run.watch()
        watched = [record async for record in watch]
        assert watched[-1].event == "run_finished"
        timeline = [record async for record in runtime.timeline(run.id)]
    assert {record.event for record in timeline} >= EXPECTED
    assert [record for record in seen if record.seq] == timeline
    assert [record for record in watched if record.seq] == timeline[-len([r for r in watched if r.seq]) :]
    assert [record.seq for record in timeline] == sorted(record.seq for record in timeline)
    live_only = {record.event for record in seen if not record.seq}
    assert live_only == {"llm_delta"}


async def test_a_full_timeline_shows_what_each_model_call_saw(memory: Store, ledger: Ledger) -> None:
    agent = busy_agent(ledger)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        saw = [
            record.payload["saw"]
            async for record in runtime.timeline(run.id, full=True)
            if record.event == "llm_call_started"
        ]
    requests = agent.model.requests  # type: ignore[attr-defined]
    assert saw == [seen_by(request.messages) for request in requests]


async def test_a_replay_finds_a_planted_difference(memory: Store, ledger: Ledger) -> None:
    async with memory.runtime(busy_agent(ledger)) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        assert (await runtime.replay(run.id)).difference is None
        events = memory.journal._runs[run.id].events
        for position in range(len(events)):
            kept = events[position]
            events[position] = msgspec.structs.replace(kept, path=kept.path + ">SUSPENDED")
            report = await runtime.replay(run.id)
            assert report.difference is not None
            assert report.difference.seq == position + 1
            events[position] = kept
        missing = events.pop(2)
        report = await runtime.replay(run.id)
        assert report.difference is not None
        events.insert(2, missing)


async def test_replaying_calls_no_model_and_no_tool(memory: Store, ledger: Ledger) -> None:
    agent = busy_agent(ledger)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        before = (len(agent.model.requests), sum(ledger.done.values()))  # type: ignore[attr-defined]
        await runtime.replay(run.id)
        [record async for record in runtime.timeline(run.id)]
        assert (len(agent.model.requests), sum(ledger.done.values())) == before  # type: ignore[attr-defined]


async def test_a_client_that_reconnects_at_every_entry_sees_the_journal_once(store: Store, ledger: Ledger) -> None:
    """HT-1: no gap, no double, the end once; also across a restart."""
    agent = an_agent([[calling("read")], [calling("write")], "done"], ledger.read(1.0), ledger.write(1.0))

    async def follow(runtime: Runtime, until: int) -> None:
        while len(joined) < until:
            async for entry in (await runtime.get("r")).events(after=joined[-1].seq if joined else 0):
                joined.append(entry)
                break
            else:
                return

    joined: list[Any] = []
    async with store.runtime(agent) as runtime:
        await runtime.start("worker", "go", run_id="r")
        await follow(runtime, 4)
    async with store.runtime(agent) as runtime:
        await follow(runtime, 1_000)
        whole = [entry async for entry in (await runtime.get("r")).events()]
    assert joined == whole
    assert [entry.seq for entry in joined] == list(range(1, len(whole) + 1))
    assert sum(entry.path[-1:] == ("FINISHED",) for entry in joined) == 1


@pytest.mark.parametrize("after", [-5, 0, 2, 10**9])
async def test_following_from_any_number_ends_with_the_run(store: Store, ledger: Ledger, after: int) -> None:
    async with store.runtime(busy_agent(ledger)) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        entries = [entry.seq async for entry in run.events(after=after)]
        assert entries == list(range(max(after, 0) + 1, end.seq + 1))


async def test_watching_a_run_that_is_over_ends_at_once(store: Store) -> None:
    async with store.runtime(an_agent(["done"])) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        assert [record async for record in run.watch()] == []


async def test_a_watcher_sees_pieces_of_replies_and_a_slow_one_misses_the_oldest(memory: Store) -> None:
    class Chatty:
        name = "chatty"

        async def reply(self, request: Any, emit: Any, /) -> Any:
            for n in range(100):
                emit(f"piece {n}")
            emit(None)
            emit("\ud800")
            await asyncio.sleep(1)
            return ModelReply(text="done")

    async with memory.runtime(Agent("worker", model=Chatty()), limits=Limits(watch_records=10)) as runtime:
        run = await runtime.start("worker", "go")
        watch = run.watch()
        await run.wait_ended()
        records = [record async for record in watch]
        assert len(records) == 10
        assert watch.dropped > 90
        assert records[-1].event == "run_finished"


async def test_a_watch_that_is_closed_ends_and_the_run_goes_on(memory: Store) -> None:
    async with memory.runtime(an_agent([Delay(5, "done")])) as runtime:
        run = await runtime.start("worker", "go")
        watch = run.watch()
        reading = asyncio.ensure_future(anext(watch))
        await settle()
        watch.close()
        with pytest.raises(StopAsyncIteration):
            await reading
        assert (await run.wait_ended()).answer == "done"


async def test_both_stores_keep_the_same_journal_of_the_same_odd_text(tmp_path: Any) -> None:
    """ST-9: NUL, lone surrogates and control characters in user text, arguments, results, ids, labels, context."""
    odd = "a\x00b\ud800\udfffc\x07\u2028"

    async def lived(store: Store) -> list[Any]:
        ledger = Ledger()
        calls = (
            calling("write", '{"text": "\\u0000\\ud83d\\ude00\u2028"}', odd),
            calling("write", '{"text": "' + odd, odd),
        )
        replies = [ModelReply(text=odd, calls=calls), odd]
        agent = an_agent(replies, ledger.write(), instructions=odd, on_denied="tell")
        async with store.runtime(agent, policy=lambda *_: Ask(odd)) as runtime:
            run = await runtime.start(
                "worker",
                odd,
                idempotency_key=odd,
                principal=odd,
                permissions=[odd],
                labels={odd: odd},
                context={odd: [odd, {odd: odd}]},
            )
            await run.wait_at_rest()
            await run.send(odd, by=odd)
            await run.pause(by=odd, reason=odd)
            await run.resume(by=odd)
            await run.deny("t1.c1", by=odd, reason=odd)
            end = await run.wait_ended()
            assert end.state in ("FINISHED", "FAILED")
            assert (await runtime.replay(run.id)).difference is None
        return await store.rows(run.id)

    assert await lived(Store()) == await lived(Store(tmp_path / "runs.db"))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
async def test_a_number_that_is_none_is_refused_at_the_edge(memory: Store, number: float) -> None:
    async with memory.runtime(an_agent(["done"])) as runtime:
        with pytest.raises(InvalidValue):
            await runtime.start("worker", "go", context={"x": [number]})
        with pytest.raises(InvalidValue):
            await runtime.start("worker", "go", deadline=number)
        with pytest.raises(InvalidValue):
            Budget(max_seconds=number)
        assert (await runtime.statistics()).store.runs == 0


async def test_a_runtime_over_a_journal_of_ones_own_closes_it(memory: Store) -> None:
    journal = MemoryJournal()
    async with Runtime.open(journal, agents=[an_agent(["done"])], clock=LoopClock()) as runtime:
        await (await runtime.start("worker", "go")).wait_ended()
    assert journal._closed
