"""The whole runtime in many random worlds: decisions, inputs, pauses, full disks, restarts and kills in any order."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest
from runtime_world import Gated, Ledger, Store, allow_all, an_agent, calling, journal_of

from geartrain.errors import GeartrainError
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import ENDED, Budget
from geartrain.models import Delay
from geartrain.persistence import StoreFailed
from geartrain.runtime import Agent, Allow, Ask, Change, Deny, RunHandle, Runtime

RUNS = 3


class World:
    """One store, some runs, and somebody who does things to them at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = Store()
        self.ledger = Ledger()
        self.acknowledged: set[tuple[str, str]] = set()
        self.sent = 0
        self.kind = False
        self.agent = self._agent()

    def _agent(self) -> Agent:
        rng = self.rng
        names = ["read", "write", "sure", "gone"]
        replies: list[Any] = []
        for _ in range(rng.randint(1, 4)):
            calls = [calling(rng.choice(names)) for _ in range(rng.randint(1, 4))]
            replies.append(Delay(rng.random() * 3, calls) if rng.random() < 0.5 else calls)
        replies += ["done"] * 20
        tools = [
            self.ledger.read(rng.random()),
            self.ledger.write(rng.random() * 4, timeout_seconds=3),
            self.ledger.write(rng.random() * 2, name="sure", idempotent=rng.random() < 0.5),
        ]
        budget = Budget(max_tool_failures=UNLIMITED, max_tokens=UNLIMITED)
        guards: dict[str, Any] = {
            name: [self.guard] * rng.randint(1, 2)
            for name in ("tool_guardrails", "input_guardrails", "output_guardrails")
            if rng.random() < 0.4
        }
        return an_agent(replies, *tools, budget=budget, on_denied=rng.choice(["fail", "tell"]), **guards)

    def guard(self, about: Any, _run: Any) -> Any:
        """A guardrail of calls and of texts, which is asked more kindly at the end."""
        if self.kind:
            return Allow()
        text = isinstance(about, str)
        change = Change(f"{about[:20]}.") if text else Change({**about.arguments, "text": "changed"})
        answer = self.rng.choice(
            [Allow(), Allow(), Allow(), change, Ask(), Deny() if self.rng.random() < 0.3 else Ask()]
        )
        if self.rng.random() < 0.7:
            return answer

        async def later() -> Any:
            await asyncio.sleep(self.rng.random())
            return answer

        return later()

    def policy(self, call: Any, _run: Any) -> Any:
        if call.tool == "read":
            return Allow()
        answer = self.rng.choice([Allow(), Ask(), Ask(), Deny()])
        if self.rng.random() < 0.7:
            return answer

        async def later() -> Any:
            await asyncio.sleep(self.rng.random())
            return answer

        return later()

    async def live(self) -> None:
        for round_ in range(self.rng.randint(1, 4)):
            gated = Gated(self.store.journal.opened())
            left = None
            async with self.store.runtime(
                self.agent, policy=self.policy, target=gated, limits=Limits(grace_seconds=2, checkpoint_bytes=500)
            ) as runtime:
                for n in range(RUNS):
                    await runtime.start("worker", "go", run_id=f"r-{n}")
                for _ in range(self.rng.randint(1, 25)):
                    await self._act(runtime, gated)
                gated.error = None
                if self.rng.random() < 0.5:  # killed: what the old process does from here on, nobody sees
                    left = self.store.journal.as_killed()
                    self.ledger.alive = False
            self.ledger.alive = True
            if left is not None:
                left._claimed = False
                self.store.journal = left
            del round_
        await self._finish()

    async def _act(self, runtime: Runtime, gated: Gated) -> None:
        rng = self.rng
        run = await runtime.get(f"r-{rng.randrange(RUNS)}")
        if rng.random() < 0.5:
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(rng.random() * 3)
        if rng.random() < 0.05:
            gated.error = StoreFailed("memory", "append", "full")
        elif rng.random() < 0.3:
            gated.error = None
        self.sent += 1
        event_id = f"e{self.sent}"
        with contextlib.suppress(GeartrainError):
            match rng.randrange(9):
                case 0:
                    await run.send("more", event_id=event_id)
                case 1:
                    await run.pause(event_id=event_id)
                case 2 | 3:
                    await run.resume(event_id=event_id)
                case 4 | 5 | 6:
                    await self._decide(run, event_id)
                case 7 if rng.random() < 0.1:
                    await run.cancel(event_id=event_id)
                case _:
                    return
            self.acknowledged.add((run.id, event_id))

    async def _decide(self, run: RunHandle, event_id: str) -> None:
        waiting = (await run.snapshot()).waiting
        call = self.rng.choice(waiting) if waiting else None
        if call is None:
            await run.approve("t1.c1", by="me", event_id=event_id)
        elif call.waits_for == "approval":
            decide = run.approve if self.rng.random() < 0.8 else run.deny
            await decide(call.call_id, by="me", event_id=event_id)
        else:
            await run.settle(call.call_id, by="me", done=True, event_id=event_id)

    async def _finish(self) -> None:
        self.kind = True
        async with self.store.runtime(self.agent, policy=allow_all) as runtime:
            for n in range(RUNS):
                run = await runtime.get(f"r-{n}")
                for _ in range(200):
                    rest = await run.wait_at_rest()
                    if rest.ended:
                        break
                    with contextlib.suppress(GeartrainError):
                        await run.resume()
                    for call in (await run.snapshot()).waiting:
                        with contextlib.suppress(GeartrainError):
                            await (
                                run.approve(call.call_id, by="me")
                                if call.waits_for == "approval"
                                else run.settle(call.call_id, by="me", done=True)
                            )
                await self._check(runtime, run)

    async def _check(self, runtime: Runtime, run: RunHandle) -> None:
        entries = await journal_of(run, runtime)
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        ends = [entry.seq for entry in entries if entry.path and entry.path[-1] in ENDED]
        assert ends == [len(entries)]
        assert (await runtime.replay(run.id)).difference is None
        stored = {entry.event.id for entry in entries}
        assert {event_id for run_id, event_id in self.acknowledged if run_id == run.id} <= stored
        timeline = [record async for record in runtime.timeline(run.id)]
        assert timeline[-1].event == "run_finished"


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_happens_each_run_ends_once_and_each_write_is_done_at_most_once(seed: int) -> None:
    world = World(seed)
    await world.live()
    sure = world.agent.tools["sure"].idempotent
    entries = {f"r-{n}": world.store.journal._runs[f"r-{n}"] for n in range(RUNS)}
    writes = _writes_of(entries, "write") | (set() if sure else _writes_of(entries, "sure"))
    assert {key: count for key, count in world.ledger.done.items() if key in writes and count > 1} == {}


def _writes_of(runs: dict[str, Any], name: str) -> set[str]:
    """The keys of the calls of that tool, read from the journal itself."""
    from geartrain.runtime._reading._runs import journal_entry  # noqa: PLC0415

    keys = set()
    for run_id, kept in runs.items():
        for row in kept.events:
            event = journal_entry(row).event
            for position, call in enumerate(getattr(event, "calls", ()), start=1):
                if call.tool == name:
                    keys.add(f"{run_id}/t{event.turn}.c{position}")  # type: ignore[union-attr]
    return keys
