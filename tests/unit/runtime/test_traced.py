"""What a tool traces: told live, kept with the result, bounded, and never taken for what the run did."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest
from runtime_world import Store, an_agent, calling, journal_of, settle

from geartrain.machine import ToolFinished, WriteInDoubt
from geartrain.runtime import Runtime
from geartrain.runtime._effects._traced import BYTES_KEPT, NOT_KEPT, RECORDS_KEPT
from geartrain.runtime._reading import _projection
from geartrain.tools import ToolContext, tool
from geartrain.trace import TraceRecord


@tool(read_only=True)
async def steps(context: ToolContext, count: int = 2) -> str:
    """Trace some steps."""
    for n in range(count):
        context.trace("step", n=n)
        await asyncio.sleep(1)
    return "ok"


@tool(read_only=True)
def on_a_thread(context: ToolContext) -> str:
    """Trace from a thread."""
    context.trace("step", thread=threading.current_thread() is not threading.main_thread())
    return "ok"


@tool(timeout_seconds=1)
async def hanging_write(context: ToolContext) -> str:
    """Trace, and never return."""
    context.trace("sent", to="the bank")
    await asyncio.sleep(10_000)
    return "ok"


@tool(read_only=True)
async def odd(context: ToolContext) -> str:
    """Trace what cannot be kept as it is."""
    context.trace("run_finished", state="FINISHED")
    context.trace("state_transition")
    context.trace("n" * 500, call_id="t9.c9", other=object(), deep=[{"a": float("nan")}])
    context.trace(5)  # type: ignore[arg-type]
    context.trace("\ud800\x00")
    context.trace("big", text="x" * 100_000)
    return "ok"


async def timeline(runtime: Runtime, run_id: str) -> list[TraceRecord]:
    return [record async for record in runtime.timeline(run_id)]


@pytest.mark.parametrize("name", ["steps", "on_a_thread"])
async def test_the_timeline_of_an_old_run_has_what_its_tools_traced(store: Store, name: str) -> None:
    agent = an_agent([[calling(name)], "done"], steps, on_a_thread)
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
    async with store.runtime() as runtime:
        records = await timeline(runtime, run.id)
        told = [record for record in records if record.event == "step"]
        assert [r.payload for r in told] == (
            [{"n": 0, "call_id": "t1.c1"}, {"n": 1, "call_id": "t1.c1"}]
            if name == "steps"
            else [{"thread": True, "call_id": "t1.c1"}]
        )
        assert records[records.index(told[-1]) + 1].event == "tool_call_finished"
        assert told[0].seq == records[records.index(told[-1]) + 1].seq
        assert (await runtime.replay(run.id)).difference is None


async def test_each_record_has_its_own_time(memory: Store) -> None:
    async with memory.runtime(an_agent([[calling("steps")], "done"], steps)) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        first, second = [r.ts for r in await timeline(runtime, run.id) if r.event == "step"]
        assert second - first == pytest.approx(1.0, abs=0.01)


async def test_whoever_watches_is_told_once_and_at_once(memory: Store) -> None:
    told: list[TraceRecord] = []
    agent = an_agent([[calling("steps")], "done"], steps)
    async with memory.runtime(agent, observers=[told.extend]) as runtime:
        run = await runtime.start("worker", "go")
        watch = run.watch()
        await asyncio.sleep(0.5)
        seen = [watch._records[n].event for n in range(len(watch._records))]
        assert seen.count("step") == 1
        await run.wait_ended()
        assert [record.event async for record in watch].count("step") == 2
    assert [record.event for record in told].count("step") == 2


async def test_a_call_that_is_timed_out_keeps_what_it_traced(store: Store) -> None:
    agent = an_agent([[calling("steps", '{"count": 50}')], "done"], steps)
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
        await asyncio.sleep(500)
        (finished,) = [e.event for e in await journal_of(run, runtime) if isinstance(e.event, ToolFinished)]
        # The tool is timed out after 30 of its steps.
        assert [each.name for each in finished.traced] == ["step"] * 30


async def test_many_records_are_cut_off(memory: Store) -> None:
    @tool(read_only=True)
    async def chatty(context: ToolContext) -> str:
        """Trace too much."""
        for n in range(RECORDS_KEPT * 3):
            context.trace("step", n=n)
        return "ok"

    @tool(read_only=True)
    async def wordy(context: ToolContext) -> str:
        """Trace too long."""
        for _ in range(9):
            context.trace("step", text="x" * (BYTES_KEPT // 4))
        return "ok"

    async with memory.runtime(an_agent([[calling("chatty"), calling("wordy")], "done"], chatty, wordy)) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        events = [e.event for e in await journal_of(run, runtime)]
        finished = {event.call_id: event.traced for event in events if isinstance(event, ToolFinished)}
        assert (len(finished["t1.c1"]), len(finished["t1.c2"])) == (RECORDS_KEPT + 1, 3 + 1)
        assert [(each[-1].name, each[-1].payload) for each in (finished["t1.c1"], finished["t1.c2"])] == [
            (NOT_KEPT, {"records": RECORDS_KEPT * 2}),
            (NOT_KEPT, {"records": 6}),
        ]


async def test_a_write_in_doubt_keeps_what_it_traced(store: Store) -> None:
    async with store.runtime(an_agent([[calling("hanging_write")], "done"], hanging_write)) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        (doubt,) = [e.event for e in await journal_of(run, runtime) if isinstance(e.event, WriteInDoubt)]
        assert [(each.name, each.payload) for each in doubt.traced] == [("sent", {"to": "the bank"})]
        assert [r.payload for r in await timeline(runtime, run.id) if r.event == "sent"] == [
            {"to": "the bank", "call_id": "t1.c1"}
        ]


async def test_what_a_tool_traces_never_passes_for_what_the_run_did(store: Store) -> None:
    async with store.runtime(an_agent([[calling("odd")], "done"], odd)) as runtime:
        run = await runtime.start("worker", "go")
        watch = run.watch()
        await run.wait_ended()
        live = [record.event async for record in watch]
        assert live.count("run_finished") == 1
        assert live[-1] == "run_finished"
        records = await timeline(runtime, run.id)
        assert [record.event for record in records].count("run_finished") == 1
        own = [r for r in records if r.event.startswith(("tool.", "nnn", "\\", "big"))]
        assert [r.event[:20] for r in own] == [
            "tool.run_finished", "tool.state_transitio", "n" * 20, "\\ud800\\x00", "big",
        ]  # fmt: skip
        assert all(record.payload["call_id"] == "t1.c1" for record in own)
        assert "not_traced" in own[-1].payload


def test_every_name_of_the_runtimes_own_is_kept_from_tools() -> None:
    folder = Path(_projection.__file__).parents[1]
    projected = re.findall(r'yield \(?\s*"(\w+)"', (folder / "_reading" / "_projection.py").read_text("utf-8"))
    live = [re.findall(r'hub\.live\w*\([^,"]+, "(\w+)"', path.read_text("utf-8")) for path in folder.rglob("*.py")]
    names = {*projected, *(name for each in live for name in each)}

    assert names <= _projection.OWN_NAMES
    assert len(names) > 20
