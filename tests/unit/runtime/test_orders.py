"""Approvals, inputs, pauses and restarts in any order: the tools' own ledger says that it was done as decided."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_world import Store, an_agent, calling, journal_of, results_of

from geartrain.errors import EventRefused
from geartrain.limits import UNLIMITED
from geartrain.machine import Budget
from geartrain.models import answer
from geartrain.runtime import Agent, Allow, Ask, RunHandle, Runtime
from geartrain.runtime._reading._runs import read_run
from geartrain.testing.virtual_time import virtual_time_backend
from geartrain.tools import ToolContext, ask_user, tool

WRITES = ("t1.c1", "t1.c2", "t1.c4", "t2.c1", "t2.c3")
# In each turn two calls look the same, so that nothing but its id tells a call.
SAME = calling("write", '{"text":"same"}')
TURNS: Sequence[Any] = (
    [SAME, SAME, calling("look"), calling("write", '{"text":"other"}')],
    [SAME, calling("ask_user", '{"question":"which?"}'), SAME],
    answer("done"),
)
ACTS = st.one_of(
    st.tuples(st.sampled_from(["approve", "deny", "edit", "approve", "deny"]), st.sampled_from(WRITES)),
    st.tuples(st.sampled_from(["send", "pause", "resume", "resume", "restart", "wait"]), st.just("")),
)


class World:
    """A store, one run, somebody who decides, and what the tools have really done."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.written: dict[str, list[str]] = {}
        self.decided: dict[str, str] = {}
        self.looked = 0
        self.said: list[str] = []
        self.agent = self._agent()

    def _agent(self) -> Agent:
        @tool
        async def write(context: ToolContext, text: str) -> str:
            """Write."""
            assert self.decided.get(context.call_id) in ("approve", "edit"), f"{context.call_id} ran undecided"
            self.written.setdefault(context.call_id, []).append(text)
            await asyncio.sleep(0.2)
            return f"wrote {text}"

        @tool(read_only=True)
        async def look() -> str:
            """Look."""
            self.looked += 1
            await asyncio.sleep(0.2)
            return "seen"

        free = Budget(max_turns=UNLIMITED, max_tokens=UNLIMITED)
        return an_agent([*TURNS, *[answer("again")] * 60], write, look, ask_user, on_denied="tell", budget=free)

    async def live(self, acts: Sequence[tuple[str, str]]) -> None:
        left = list(acts)
        while left:
            async with self._opened() as runtime:
                run = await runtime.start(self.agent, "go", run_id="r-1")
                while left and (act := left.pop(0))[0] != "restart":
                    await self._act(run, *act)
        async with self._opened() as runtime:
            run = await runtime.start(self.agent, "go", run_id="r-1")
            await self._finish(run)
            await self._check(run, runtime)

    def _opened(self) -> Runtime:
        return self.store.runtime(self.agent, policy=lambda call, _: Allow() if call.read_only else Ask())

    async def _act(self, run: RunHandle, act: str, call_id: str) -> None:
        if act == "wait":
            await asyncio.sleep(0.3)
        elif call_id:
            await self._decide(run, act, call_id)
        else:
            with contextlib.suppress(EventRefused):
                match act:
                    case "send":
                        await run.send(f"word {len(self.said)}", by="ops")
                        self.said.append(f"word {len(self.said)}")
                    case "pause":
                        await run.pause(by="ops")
                    case _:
                        await run.resume(by="ops")

    async def _decide(self, run: RunHandle, act: str, call_id: str) -> None:
        """Decide about a call once; a second decision is refused, and so is one about a call that nobody asks about."""
        if call_id in self.decided:
            with pytest.raises(EventRefused):
                await self._say(run, act, call_id)
            return
        waits = await self._waits(run, call_id)
        self.decided[call_id] = act  # before it is stored: the tool may run before we are told
        try:
            await self._say(run, act, call_id)
        except EventRefused:
            assert not waits
            del self.decided[call_id]

    async def _say(self, run: RunHandle, act: str, call_id: str) -> None:
        if act == "deny":
            await run.deny(call_id, by="desk", reason="no")
        else:
            await run.approve(call_id, by="ops", arguments='{"text":"edited"}' if act == "edit" else None)

    async def _waits(self, run: RunHandle, call_id: str) -> bool:
        waiting = (await run.snapshot()).waiting
        return any(call.call_id == call_id and call.waits_for == "approval" for call in waiting)

    async def _finish(self, run: RunHandle) -> None:
        for _ in range(60):
            rest = await run.wait_at_rest()
            if rest.ended:
                return
            if "paused" in rest.holds:
                await run.resume(by="ops")
            for call in rest.waiting:
                if call.waits_for == "input":
                    await run.send("the red one", by="ops")
                else:
                    await self._decide(run, "approve", call.call_id)
        raise AssertionError(f"does not end: {await run.snapshot()}")

    async def _check(self, run: RunHandle, runtime: Runtime) -> None:
        results = await results_of(run, runtime)
        calls = ["t1.c1", "t1.c2", "t1.c3", "t1.c4", "t2.c1", "t2.c2", "t2.c3"]
        assert len(results) == len(calls)
        for call_id, (status, text) in zip(calls, results, strict=True):
            if call_id not in WRITES:
                assert status == "ok"
                continue
            decided = self.decided[call_id]
            wanted = {"deny": [], "edit": ["edited"]}.get(decided, [json.loads(_arguments(call_id))["text"]])
            assert self.written.get(call_id, []) == wanted, (call_id, decided)
            assert status == ("denied" if decided == "deny" else "ok")
            assert text == (f"wrote {wanted[0]}" if wanted else "[denied] no")
        names = [type(entry.event).__name__ for entry in await journal_of(run, runtime)]
        assert names.count("ApprovalDecided") == len(WRITES)
        assert (await runtime.replay(run.id)).difference is None
        messages = (await read_run(runtime._host.node.journal, run.id)).run.messages
        heard = [message.text for message in messages if message.role in ("user", "tool")]
        assert [text for text in heard if text.startswith("word ")] == self.said


def _arguments(call_id: str) -> str:
    turn, position = int(call_id[1]) - 1, int(call_id[-1]) - 1
    return str(TURNS[turn][position].arguments)


def lived(store: Store, acts: Sequence[tuple[str, str]]) -> None:
    name, options = virtual_time_backend()
    anyio.run(World(store).live, acts, backend=name, backend_options=options)


@settings(max_examples=60, deadline=None)
@given(acts=st.lists(ACTS, max_size=30))
def test_in_whatever_order_things_are_decided_and_said_each_write_is_done_as_decided(
    acts: list[tuple[str, str]],
) -> None:
    lived(Store(), acts)


@settings(max_examples=15, deadline=None)
@given(acts=st.lists(ACTS, max_size=20))
def test_it_is_so_in_a_file_that_is_opened_again_and_again(acts: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lived(Store(Path(folder) / "runs.db"), acts)
