"""Left in the middle and opened again: killed, changed, damaged, newer; others go on."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from typing import Any

import msgspec
import pytest
from runtime_world import Ledger, Store, an_agent, calling, names_of, results_of, settle

from geartrain.errors import FormatUnknown, GeartrainError, RunSetApart
from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.models import Delay
from geartrain.persistence import RunCorrupt
from geartrain.runtime import Agent, Ask, Deny
from geartrain.tools import tool

SMALL = Limits(checkpoint_bytes=1)


@pytest.mark.parametrize("ticks", range(0, 40, 3))
async def test_a_killed_run_goes_on_and_does_each_write_at_most_once(memory: Store, ledger: Ledger, ticks: int) -> None:
    """CR-1, CR-9 in process: left at every moment, with the journal as it was then."""
    calls = [calling("read"), calling("write"), calling("read")]
    agent = an_agent([calls, "done"], ledger.read(), ledger.write())
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        for _ in range(ticks):
            await asyncio.sleep(0)
        left = memory.journal.as_killed()
        ledger.alive = False
    ledger.alive = True
    killed = Store()
    killed.journal = left
    left._claimed = False
    async with killed.runtime(agent) as runtime:
        run = await runtime.get(run.id)
        rest = await run.wait_at_rest()
        if rest.holds:
            assert rest.holds == ("in_doubt(t1.c2)",)
            await run.settle("t1.c2", by="me", done=True, text="wrote ")
            rest = await run.wait_ended()
        assert rest.answer == "done"
        assert [text for _, text in await results_of(run, runtime)] == ["read ", "wrote ", "read "]
        assert ledger.done[f"{run.id}/t1.c2"] <= 1
        assert (await runtime.replay(run.id)).difference is None


@pytest.mark.parametrize("finished", list(itertools.product([False, True], repeat=4)))
async def test_results_belong_to_their_calls_whatever_had_finished_at_the_kill(
    memory: Store, ledger: Ledger, finished: tuple[bool, ...]
) -> None:
    """JR-1: the merged message is the same byte by byte, whichever subset was done."""
    first = True

    async def read(position: int) -> str:
        """Read."""
        if first and not finished[position]:
            await asyncio.sleep(1_000)
        await asyncio.sleep((position * 7) % 4)
        return f"read {position}"

    calls = [calling("read", f'{{"position": {n}}}') for n in range(4)]
    agent = an_agent([calls, "done"], tool(read_only=True, timeout_seconds=2_000)(read))
    async with memory.runtime(agent, limits=Limits(grace_seconds=0.1)) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(10)
    first = False
    async with memory.runtime(agent) as runtime:
        await (await runtime.get(run.id)).wait_ended()
        revived = [m for m in agent.model.requests[-1].messages if m.role in ("tool", "assistant")]  # type: ignore[attr-defined]
    assert [message.text for message in revived[1:]] == [f"read {n}" for n in range(4)]
    assert [call.id for call in revived[0].calls] == [message.call_id for message in revived[1:]]


@pytest.mark.parametrize(
    "state", ["thinking", "backing off", "policy", "approval", "reading", "writing", "doubt", "paused", "queued"]
)
async def test_closing_ends_no_run_whatever_its_state(store: Store, ledger: Ledger, state: str) -> None:
    """CR-8, CR-9: nothing is cancelled, nothing failed; each goes on when the store is opened again."""
    from geartrain.models import Attempts, ModelUnavailable  # noqa: PLC0415

    model: Any = [[calling("read" if state in ("reading", "queued") else "write")], "done"]
    if state == "thinking":
        model = [Delay(10, "done")]
    if state == "backing off":
        model = [Attempts(ModelUnavailable("m", "busy"), "done")]
    tools = [ledger.read(10.0), ledger.write(3.0, timeout_seconds=1 if state == "doubt" else 30)]

    async def slow(_call: Any, _run: Any) -> Any:
        await asyncio.sleep(3)
        return Deny("late") if closed else Ask()

    closed = False
    policies: dict[str, Any] = {"policy": slow, "approval": lambda *_: Ask()}
    options: dict[str, Any] = {"policy": policies[state]} if state in policies else {}
    agent = an_agent(model, *tools, on_denied="tell")
    async with store.runtime(agent, limits=Limits(task_calls_at_once=1), **options) as runtime:
        if state == "queued":
            await runtime.start("worker", "go")
        run = await runtime.start("worker", "go")
        await asyncio.sleep(0.5)
        if state == "paused":
            await run.pause()
        if state == "doubt":
            await run.wait_at_rest()
    closed = True
    async with store.runtime(agent, **options) as runtime:
        run = await runtime.get(run.id)
        names = await names_of(run, runtime)
        assert not {"CancelRequested", "GraceElapsed", "ModelFailed"} & set(names)
        rest = await run.wait_at_rest()
        if rest.holds == ("paused",):
            await run.resume()
        elif rest.waiting and rest.waiting[0].waits_for == "approval":
            await run.approve("t1.c1", by="me")
        elif rest.waiting:
            await run.settle("t1.c1", by="me", done=True)
        assert (await run.wait_ended()).answer == "done"
        assert set(ledger.done.values()) <= {1}


@pytest.mark.parametrize("bad", ["unknown tool", "unknown agent", "checkpoint", "gone spec"])
async def test_one_run_that_cannot_go_on_stops_nobody(store: Store, ledger: Ledger, bad: str) -> None:
    """CR-5: three interrupted runs, the middle one bad: the others finish, it is parked with its reason."""
    good = an_agent([Delay(5, [calling("read")]), Delay(5, "done")], ledger.read(), name="good")
    odd = an_agent([Delay(5, [calling("write")]), Delay(5, "done")], ledger.write(), name="odd")
    async with store.runtime(good, odd, limits=SMALL) as runtime:
        runs = [await runtime.start(name, "go", run_id=f"r-{n}") for n, name in enumerate(["good", "odd", "good"])]
        await asyncio.sleep(7)
    if bad == "checkpoint":
        _spoil_checkpoint(store, "r-1")
    if bad == "gone spec":
        _spoil_spec(store, "r-1")
    agents = [good] if bad == "unknown agent" else [good, an_agent(["", Delay(1, "done")], name="odd")]
    async with store.runtime(*agents) as runtime:
        for run in (runs[0], runs[2]):
            assert (await (await runtime.get(run.id)).wait_ended()).answer == "done"
        middle = await runtime.get("r-1")
        match bad:
            case "unknown agent":
                rest = await middle.wait_at_rest()
                assert rest.holds == ("quarantined",)
            case "gone spec":
                with pytest.raises(RunSetApart):
                    await middle.wait_at_rest()
                (row,) = [row for row in await runtime.list() if row.id == "r-1"]
                assert row.set_apart
            case _:
                assert (await middle.wait_ended()).answer == "done"
    if bad == "unknown agent":
        async with store.runtime(good, odd) as runtime:
            middle = await runtime.get("r-1")
            await middle.resume(by="me")
            assert (await middle.wait_ended()).answer == "done"


def _spoil_checkpoint(store: Store, run_id: str) -> None:
    if store.path is None:
        run = store.journal._runs[run_id]
        run.checkpoint, run.checkpoint_seq = None, 0  # what a store gives whose checkpoint fails its checksum
        return
    with sqlite3.connect(store.path) as connection:
        changed = connection.execute("UPDATE checkpoints SET body = body || 'x' WHERE run_id = ?", (run_id,))
        assert changed.rowcount == 1


def _spoil_spec(store: Store, run_id: str) -> None:
    if store.path is None:
        store.journal._runs[run_id].specs.clear()
        return
    with sqlite3.connect(store.path) as connection:
        connection.execute("DELETE FROM run_specs WHERE run_id = ?", (run_id,))


def _rows(store: Store, run_id: str) -> list[tuple[Any, ...]]:
    if store.path is None:
        return [tuple(msgspec.structs.astuple(event)) for event in store.journal._runs[run_id].events]
    with sqlite3.connect(store.path) as connection:
        return connection.execute("SELECT * FROM events WHERE run_id = ? ORDER BY seq", (run_id,)).fetchall()


@pytest.mark.parametrize("what", ["event version", "event type", "checkpoint version", "body"])
async def test_what_a_newer_version_wrote_is_refused_and_left_as_it_is(memory: Store, what: str) -> None:
    """JR-5: both versions named, the run set apart, nothing written; the others load."""
    agent = an_agent([Delay(5, "done")])
    async with memory.runtime(agent, limits=SMALL) as runtime:
        run = await runtime.start("worker", "go", run_id="r-new")
        other = await runtime.start("worker", "go", run_id="r-other")
        await run.send("hello")
        await settle()
    kept = memory.journal._runs["r-new"]
    last = kept.events[-1]
    match what:
        case "event version":
            kept.events[-1] = msgspec.structs.replace(last, version=9)
        case "event type":
            kept.events[-1] = msgspec.structs.replace(last, type="PlanetsAligned")
        case "checkpoint version":
            kept.checkpoint, kept.checkpoint_version, kept.checkpoint_seq = b"{}", 9, 1
        case _:
            kept.events[-1] = msgspec.structs.replace(last, body=b'{"type":"InputReceived"}')
    before = list(kept.events)
    async with memory.runtime(agent) as runtime:
        assert (await (await runtime.get(other.id)).wait_ended()).answer == "done"
        run = await runtime.get("r-new")
        for attempt in (run.wait_ended, run.pause, run.wait_at_rest):
            with pytest.raises((RunSetApart, FormatUnknown)) as refused:
                await attempt()
            assert "this version reads" in str(refused.value)
        with pytest.raises((FormatUnknown, RunCorrupt)):
            await run.snapshot()
        assert [row.id for row in await runtime.list()] == ["r-other", "r-new"] or len(await runtime.list()) == 2
        await asyncio.sleep(100)
    assert memory.journal._runs["r-new"].events == before
    assert memory.journal._marks == {}


async def test_an_extra_field_in_what_is_stored_is_passed_over(memory: Store) -> None:
    """JR-5."""
    agent = an_agent([Delay(5, "done"), "done"])
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await run.send("hello")
    kept = memory.journal._runs[run.id]
    body = msgspec.json.decode(kept.events[-1].body) | {"mood": "good"}
    kept.events[-1] = msgspec.structs.replace(kept.events[-1], body=msgspec.json.encode(body))
    async with memory.runtime(agent) as runtime:
        assert (await (await runtime.get(run.id)).wait_ended()).answer == "done"


async def test_one_flipped_byte_sets_that_run_apart_and_no_other(tmp_path: Any) -> None:
    """Each row of the run in turn; its journal stays as it is."""
    store = Store(tmp_path / "runs.db")
    agent = an_agent([Delay(5, "done"), "done"])
    async with store.runtime(agent) as runtime:
        for n in range(3):
            run = await runtime.start("worker", "go", run_id=f"r-{n}")
            await run.send("hello")
        await run.pause()
    for seq in (1, 2):
        with sqlite3.connect(store.path or "") as connection:
            (body,) = connection.execute(
                "SELECT body FROM events WHERE run_id = ? AND seq = ?", (f"r-{seq}", seq)
            ).fetchone()
            flipped = bytes([body[0] ^ 1]) + bytes(body[1:])
            connection.execute("UPDATE events SET body = ? WHERE run_id = ? AND seq = ?", (flipped, f"r-{seq}", seq))
    before = [_rows(store, f"r-{n}") for n in (1, 2)]
    async with store.runtime(agent) as runtime:
        assert (await (await runtime.get("r-0")).wait_ended()).answer == "done"
        for n in (1, 2):
            run = await runtime.get(f"r-{n}")
            for attempt in (run.wait_ended, run.cancel, run.resume):
                with pytest.raises((RunSetApart, RunCorrupt)):
                    await attempt()
            with pytest.raises(GeartrainError):
                await anext(_skip(run.events(), 5))
        await settle()
        assert [bool(row.set_apart) for row in sorted(await runtime.list(), key=lambda row: row.id)] == [
            False,
            True,
            True,
        ]
        assert [call.call_id async for call in runtime.approvals()] == []
    assert [_rows(store, f"r-{n}") for n in (1, 2)] == before


async def _skip(entries: Any, count: int) -> Any:
    for _ in range(count):
        await anext(entries)
    yield await anext(entries)


async def test_the_recorded_spec_decides_when_the_agent_changed(store: Store, ledger: Ledger) -> None:
    """Instructions and limits are those of the start; a renamed tool is a failed call."""
    old = an_agent([Delay(5, [calling("write")]), "done"], ledger.write(), instructions="be kind")
    async with store.runtime(old) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
    new = an_agent([Delay(5, [calling("write")]), "done"], ledger.write(name="scribe"), instructions="be quick")
    async with store.runtime(new) as runtime:
        run = await runtime.get(run.id)
        end = await run.wait_ended()
        assert (end.answer, end.tool_failures) == ("done", 1)
        ((status, text),) = await results_of(run, runtime)
        assert status is ResultStatus.ERROR
        assert "gone" in text
        assert new.model.requests[-1].messages[0].text == "be kind"  # type: ignore[attr-defined]
        assert not ledger.done


async def test_a_read_that_has_become_a_write_is_asked_about_and_journalled(store: Store, ledger: Ledger) -> None:
    """Of the recorded and today's safety flags the stricter ones count."""
    from geartrain.runtime import default_policy  # noqa: PLC0415

    old = an_agent([Delay(5, [calling("read")]), "done"], ledger.read())
    async with store.runtime(old, policy=default_policy) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
    new = an_agent([Delay(5, [calling("read")]), "done"], tool(name="read")(ledger.read().function))
    async with store.runtime(new, policy=default_policy) as runtime:
        run = await runtime.get(run.id)
        rest = await run.wait_at_rest()
        assert rest.holds == ("approval(t1.c1)",)
        await run.approve("t1.c1", by="me")
        assert (await run.wait_ended()).answer == "done"
        assert "ToolStarted" in await names_of(run, runtime)


async def test_a_checkpoint_of_another_run_is_not_taken_for_this_ones(memory: Store) -> None:
    agent = an_agent([Delay(5, "done")])
    async with memory.runtime(agent) as runtime:
        await runtime.start("worker", "go", run_id="r-0")
        await runtime.start("worker", "go", run_id="r-1")
        await settle()
        from geartrain.machine import encode_run  # noqa: PLC0415

        foreign = encode_run(runtime._host.node.actors["r-0"].run)  # type: ignore[attr-defined]
    kept = memory.journal._runs["r-1"]
    kept.checkpoint, kept.checkpoint_seq = foreign, 1
    async with memory.runtime(agent) as runtime:
        with pytest.raises(RunSetApart):
            await (await runtime.get("r-1")).wait_ended()
        assert (await (await runtime.get("r-0")).wait_ended()).answer == "done"


async def test_early_failures_are_seen_alike_by_whoever_waits_polls_or_follows(memory: Store) -> None:
    """AC-5."""
    agent = Agent("worker", model=_Broken())
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        entries = [entry async for entry in run.events()]
        assert end.error is not None
        assert (end.state, end.error["code"]) == ("FAILED", "model_failed")
        assert entries[-1].path[-1] == "FAILED"
        assert (await run.snapshot()).error == end.error


class _Broken:
    name = "broken"

    def reply(self, request: Any, emit: Any, /) -> Any:
        raise RuntimeError("set-up failed")
