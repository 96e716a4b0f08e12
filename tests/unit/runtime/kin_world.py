"""Random trees of runs in virtual time, and what must hold of each of them whatever happens to it.

Everything follows from the seed: which agents call which or hand over to which, how long everything takes, who is
asked, when the process dies, when somebody pauses, cancels or raises. A model's reply follows from the run and the turn
alone, so that a run which goes on in another process goes on in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime_world import LastingJournal, Store

from geartrain.clock import LoopClock
from geartrain.errors import GeartrainError
from geartrain.ids import sub_agent_run_id
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import (
    ENDED,
    Budget,
    CallModel,
    Event,
    ModelReplied,
    RequestedCall,
    Run,
    RunCall,
    RunStarted,
    Step,
    Usage,
    decode_event,
    outstanding,
    step,
)
from geartrain.models import ModelReply, ModelRequest
from geartrain.models._scripted import Delay, ScriptedModel
from geartrain.runtime import Agent, Allow, Ask, Runtime
from geartrain.runtime._entry import revive
from geartrain.runtime._reading._runs import OpenCall, stored_events
from geartrain.runtime._reading._tree import QUEUED, RunTree
from geartrain.tools import Tool, ToolContext, ask_user, tool

DEPTH = 4
ROOT = "r-root"
PATIENCE_SECONDS = 2_000.0


@tool(external=True, read_only=True)
def fetch() -> str:
    """Fetch something; somebody outside does."""
    raise AssertionError("nobody here fetches")


@dataclass
class Seen:
    """What happened, as the outside world saw it."""

    writes: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    runs: int = 0
    deaths: int = 0
    acts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


@dataclass
class Told:
    """What the journal of one run tells: what it began with, which replies it heard, what it gave its sub-agents."""

    run: Run = field(default_factory=lambda: Run(id=""))
    budget: Budget | None = None
    heard: list[str] = field(default_factory=list)
    shares: dict[str, Budget | None] = field(default_factory=dict)

    def note(self, event: Event, run_id: str) -> None:
        if isinstance(event, RunStarted):
            self.budget = event.budget
        elif isinstance(event, ModelReplied):
            self.heard.append(f"{run_id}/{event.turn}/{event.attempt}")


class TreeWorld:
    """One tree from its start to its end, over any number of processes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.store = Store()
        self.seen = Seen()
        self.at_once = rng.choice((1, 2, 8))
        self.limits = Limits(
            sub_agents_at_once=self.at_once,
            sub_agents_at_once_per_tree=rng.choice((1, 3, 200)),
            sub_agents_at_once_per_node=rng.choice((1, 4, 1_000)),
            grace_seconds=2.0,
        )
        self.asks = rng.random() < 0.4
        self.kind = False
        self.budget = rng.choice(
            (
                Budget(max_turns=rng.randint(2, 40), max_tokens=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=50),
                Budget(max_turns=500, max_tokens=rng.choice((300, 3_000)), max_seconds=UNLIMITED),
                Budget(max_turns=500, max_tokens=UNLIMITED, max_seconds=rng.choice((20.0, 400.0))),
                Budget(max_turns=500, max_tokens=UNLIMITED, max_seconds=UNLIMITED, max_tool_calls=rng.randint(3, 30)),
            )
        )
        self.deadline = rng.choice((None, None, None, rng.uniform(1.0, 60.0)))
        self.cancel_at = rng.choice((None, None, None, rng.uniform(0.0, 40.0)))
        self.kill_after = [rng.randint(1, 60) for _ in range(rng.choice((0, 0, 1, 3)))]

    # What the agents do

    def agents(self, life: int) -> list[Agent]:
        """The agents of one process; what those of a dead one still do does not count."""
        found: list[Agent] = []
        below: list[Agent] = []
        for depth in range(DEPTH, -1, -1):
            rng = random.Random(f"{self.seed}/{depth}")
            other = self._agent(f"h{depth}", depth, life, rng, sub_agents=below)
            agent = self._agent(f"d{depth}", depth, life, rng, sub_agents=below, handoffs=[other])
            below = [agent]
            found.append(agent)
        return found

    def _agent(self, name: str, depth: int, life: int, rng: random.Random, **options: Any) -> Agent:
        return Agent(
            name,
            model=ScriptedModel([lambda request: self._reply(request, depth, life)] * 12),
            tools=[self._write(life), self._read(), fetch, *([ask_user] if self.asks else [])],
            shares=rng.choice(("equal", "on_demand")),
            on_denied="tell",
            on_budget=rng.choice(("fail", "fail", "wrap_up", "suspend")),
            budget=Budget(max_turns=rng.choice((3, 12)), max_tokens=2_000, max_seconds=500.0, max_tool_failures=5),
            **options,
        )

    def _reply(self, request: ModelRequest, depth: int, life: int) -> Any:
        rng = random.Random(f"{self.seed}/{request.run_id}/{request.turn}")
        delay = rng.choice((0.0, 0.5, 3.0))
        usage = Usage(input_tokens=rng.choice((5, 40)), output_tokens=rng.choice((1, 10)))
        wanted = rng.randint(0, 8 if depth < 2 else 2) if request.tools and request.turn < 4 else 0
        names = ["write", "read", *([f"d{depth + 1}"] * (3 if depth < 2 else 1) if depth < DEPTH else [])]
        calls = [self._call(rng, rng.choice(names)) for _ in range(wanted)]
        rare = [f"hand_off_to_h{depth}", "fetch", "ask_user"]
        calls += [self._call(rng, rng.choice(rare))] if calls and rng.random() < 0.15 else []
        if life == self.seen.lives:
            self.seen.tokens[f"{request.run_id}/{request.turn}/{request.attempt}"] = usage.total_tokens
        text = "" if calls else f"answer of depth {depth}"
        return Delay(delay, ModelReply(text=text, calls=tuple(calls), usage=usage))

    def _call(self, rng: random.Random, name: str) -> RequestedCall:
        arguments: dict[str, Any] = {"seconds": rng.choice((0.0, 1.0, 5.0))}
        if name.startswith("d"):
            arguments = {"input": "go"}
        elif name == "ask_user":
            arguments = {"question": "which one?"}
        elif name == "fetch" or name.startswith("hand"):
            arguments = {}
        return RequestedCall(tool=name, arguments=json.dumps(arguments))

    def _write(self, life: int) -> Tool:
        @tool
        async def write(context: ToolContext, seconds: float) -> str:
            """Write."""
            await asyncio.sleep(seconds)
            if life == self.seen.lives:
                self.seen.writes[context.idempotency_key] += 1
            return "written"

        return write

    def _read(self) -> Tool:
        @tool(read_only=True)
        async def read(seconds: float) -> str:
            """Read."""
            await asyncio.sleep(seconds)
            return "read"

        return read

    def policy(self, call: Any, _run: Any) -> Any:
        """Ask about some writes."""
        return Ask("sure?") if self.asks and call.tool == "write" and not self.kind else Allow()

    # What happens to the tree

    async def play(self) -> Seen:
        """Have the tree live until its root has ended, and look at all of it."""
        loop = asyncio.get_running_loop()
        over = loop.time() + PATIENCE_SECONDS
        while True:
            self.seen.lives += 1
            dead: asyncio.Future[LastingJournal] = loop.create_future()
            if self.kill_after:
                self._die_after(self.kill_after.pop(0), dead)
            if await self._live(dead, over):
                break
            self.store.journal = dead.result()
            self.seen.deaths += 1
        return self.seen

    def _die_after(self, appends: int, dead: asyncio.Future[LastingJournal]) -> None:
        journal, count = self.store.journal, 0
        write = journal._write

        def counted(entry: Any) -> None:
            nonlocal count
            write(entry)
            count += 1
            if count == appends and not dead.done():
                dead.set_result(journal.as_killed())
                self.seen.lives += 1  # what this life still does, nobody sees

        journal._write = counted  # type: ignore[method-assign]

    async def _live(self, dead: asyncio.Future[LastingJournal], over: float) -> bool:
        """Move the tree until its root has ended, or the process dies; return whether it has ended."""
        agents = self.agents(self.seen.lives)
        async with self.store.runtime(
            *agents, policy=self.policy, limits=self.limits, clock=LoopClock(), seed=self.seed
        ) as runtime:
            run = await self._begin(runtime)
            ended = asyncio.ensure_future(run.wait_ended())
            acting = asyncio.ensure_future(self._act(runtime, over))
            try:
                await asyncio.wait([ended, dead], return_when=asyncio.FIRST_COMPLETED)
            finally:
                acting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await acting
                if not ended.done():
                    ended.cancel()
            if dead.done() or not ended.done():
                return False
            await asyncio.sleep(5.0)
            if dead.done():
                return False
            await self._look(runtime)
            return True

    async def _begin(self, runtime: Runtime) -> Any:
        if await runtime._host.node.journal.head(ROOT) is not None:
            return await runtime.get(ROOT)
        deadline = None if self.deadline is None else LoopClock().now() + self.deadline
        return await runtime.start("d0", "go", run_id=ROOT, budget=self.budget, deadline=deadline)

    async def _act(self, runtime: Runtime, over: float) -> None:
        loop, run = asyncio.get_running_loop(), await runtime.get(ROOT)
        while True:
            await asyncio.sleep(self.rng.choice((0.5, 2.0, 7.0)))
            if loop.time() > over:
                self.kind = True
            with contextlib.suppress(GeartrainError):
                if self.cancel_at is not None and loop.time() > self.cancel_at:
                    self.cancel_at = None
                    self.seen.acts["cancel"] += 1
                    await run.cancel("enough", by="ops")
                elif loop.time() > over + 500:
                    self.seen.acts["cancel, as nothing moved"] += 1
                    await run.cancel("it takes too long", by="ops")
                found = await run.tree()
                await self._answer(run, found.open_calls)
                await self._steer(runtime, [each for each in found.walk() if not each.ended and each.state != QUEUED])

    async def _answer(self, run: Any, open_calls: Sequence[OpenCall]) -> None:
        for call in open_calls:
            if call.waits_for == "input":
                self.seen.acts["tell"] += 1
                await run.send("this one", by="ops", to=call.run_id)
            elif call.waits_for == "answer":
                self.seen.acts["answer"] += 1
                await run.answer_call(call.id, "fetched", by="ops")
            elif call.waits_for == "approval" and (self.kind or self.rng.random() < 0.7):
                approved = self.kind or self.rng.random() < 0.7
                self.seen.acts["approve" if approved else "deny"] += 1
                await (run.approve if approved else run.deny)(call.id, by="ops")
            elif call.waits_for == "in_doubt":
                run_id, _, call_id = call.id.partition("/")
                done = bool(self.seen.writes[f"{run_id}/{call_id}"] or self.seen.writes[call.id])
                self.seen.acts["settle"] += 1
                await run.settle(call.id, by="ops", done=done, not_done="" if done else "run")

    async def _steer(self, runtime: Runtime, nodes: Sequence[RunTree]) -> None:
        if not nodes:
            return
        node = self.rng.choice(nodes)
        handle = await runtime.get(node.id)
        roll = 1.0 if self.kind else self.rng.random()
        if roll < 0.08:
            self.seen.acts["pause"] += 1
            await handle.pause(by="ops")
        elif roll < 0.1:
            self.seen.acts["cancel a sub-agent"] += 1
            await handle.cancel(by="ops")
        elif roll < 0.13:
            self.seen.acts["raise"] += 1
            await self._raise(runtime, node)
        for each in nodes:
            held = {hold.partition("(")[0] for hold in each.holds}
            if "paused" in held and (self.kind or self.rng.random() < 0.5):
                await (await runtime.get(each.id)).resume(by="ops")
            if "budget" in held:
                self.seen.acts["raise or cancel"] += 1
                if self.kind or self.rng.random() < 0.3:
                    await (await runtime.get(each.id)).cancel(by="ops")
                else:
                    await self._raise(runtime, each)

    async def _raise(self, runtime: Runtime, node: Any) -> None:
        more = {
            name: value if value is UNLIMITED else value + 20
            for name in Budget.__struct_fields__
            for value in [getattr(node.budget, name)]
        }
        await (await runtime.get(node.id)).raise_budget(Budget(**more), by="ops")

    # What must hold

    async def _look(self, runtime: Runtime) -> None:
        node, seen = runtime._host.node, self.seen
        rows = await runtime.list(limit=100_000)
        seen.runs = len(rows)
        alive = [row.id for row in rows if row.state not in ENDED]
        self._need(not alive, f"alive after the root's end: {alive}")
        self._need(not await node.journal.runnable(), "something waits for a run that has ended")
        self._need(not node.effects.count, "effects at work after the root's end")
        self._need(not node.actors, f"runs in memory after the root's end: {list(node.actors)}")
        self._need(all(count == 1 for count in seen.writes.values()), f"writes done twice: {seen.writes}")
        own: Counter[str] = Counter()
        told = [await self._look_at(runtime, row.id, own) for row in rows]
        shares = {run_id: share for each in told for run_id, share in each.shares.items()}
        by_id = {each.run.id: each.run for each in told}
        for each in told:
            self._look_at_kin(each, shares, by_id)
        whole = by_id[ROOT].whole
        found = Counter(
            turns=whole.turn_count,
            tokens=whole.token_count.total_tokens,
            calls=whole.tool_calls,
            failures=whole.tool_failures,
        )
        self._need(found == own, f"the root counts {found}, all runs together {own}")
        if not seen.deaths:
            ended = sum(seen.tokens[key] for each in told for key in each.heard)
            self._need(own["tokens"] == ended, f"{own['tokens']} tokens charged, the provider counted {ended}")

    async def _look_at(self, runtime: Runtime, run_id: str, own: Counter[str]) -> Told:
        """Fold one run again, looking at every step of it."""
        node = runtime._host.node
        loaded = await node.journal.load(run_id)
        assert loaded is not None
        run, specs, told = Run(id=run_id), revive(loaded).specs, Told()
        async for row in stored_events(node.journal, run_id):
            event = decode_event(row.type, row.version, row.body)
            result = step(run, event, specs)
            assert isinstance(result, Step), result
            self._need(">".join(result.path) == row.path, f"{run_id}: event {row.seq} leads another way")
            told.note(event, run_id)
            before, run = run, result.run
            self._look_at_step(before, result, told)
        told.run = run
        self._need(run.parent is not None or run.id == ROOT, f"{run_id} has no parent")
        order = [message.call_id for message in run.messages if message.role == "tool"]
        self._need(order == sorted(order, key=_in_order), f"{run_id}: results in the order {order}")
        self._need(all(call.result is not None for call in run.calls), f"{run_id}: a call without a result")
        own.update(
            turns=run.turn_count, tokens=run.token_count.total_tokens, calls=run.tool_calls, failures=run.tool_failures
        )
        return told

    def _look_at_step(self, before: Run, result: Step, told: Told) -> None:
        """Nothing starts that the budget has no room for, be it a model call, a tool or a sub-agent."""
        run = result.run
        at_work = {call.id: call for call in run.calls if call.sub_agent and call.status == "running"}
        self._need(len(at_work) <= self.at_once, f"{run.id}: {len(at_work)} sub-agents at work")
        running = {call.id for call in before.calls if call.status == "running"}
        begun = [call for call in at_work.values() if call.id not in running]
        told.shares.update((sub_agent_run_id(run.id, call.id), call.share) for call in begun)
        known = {command.key for command in outstanding(before)}
        new = [each for each in result.commands if each.key not in known]
        asks = any(isinstance(each, CallModel) for each in new)
        runs = any(isinstance(each, RunCall) for each in new) and not run.wrapping_up
        reserved = run.reserved()
        for unit, limit, used in _limited(run):
            more = {"max_turns": asks, "max_tool_calls": False}.get(unit, (asks and not run.wrapping_up) or runs)
            self._need(not more or used < limit, f"{run.id}: begins with {used} of {limit} {unit} used")
            if unit in ("max_turns", "max_tool_calls") or begun:
                beyond = used + reserved[unit] > limit + 1e-6
                self._need(not beyond, f"{run.id}: {used} of {limit} {unit} used, {reserved[unit]} reserved")

    def _look_at_kin(self, told: Told, shares: dict[str, Budget | None], by_id: dict[str, Run]) -> None:
        """What a run has from the one above it, and how it ends before that."""
        run = told.run
        if run.ending is not None and not self.seen.deaths:
            late = run.updated_at - run.ending.time - self.limits.grace_seconds
            self._need(late < 0.5, f"{run.id}: ended {late} s after its grace")
        if run.parent is None:
            return
        above = by_id[run.parent.run_id]
        self._need(run.updated_at <= above.updated_at, f"{run.id}: ended after {above.id}, for which it worked")
        self._need(told.budget == shares[run.id], f"{run.id}: began with {told.budget}, its share is {shares[run.id]}")
        self._need(run.deadline == above.deadline, f"{run.id}: its deadline is not that of {above.id}")
        self._need(run.depth == above.depth + 1, f"{run.id}: its depth is {run.depth}")

    def _need(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.seen.violations.append(otherwise)


def _limited(run: Run) -> Iterator[tuple[str, float, float]]:
    """Yield each limit of a run's budget, and what it and all below it have used of that."""
    whole = run.whole
    used = {
        "max_turns": whole.turn_count,
        "max_seconds": whole.active_seconds,
        "max_tool_failures": whole.tool_failures,
        "max_tokens": whole.token_count.total_tokens,
        "max_tool_calls": whole.tool_calls,
    }
    for unit, amount in used.items():
        limit = getattr(run.budget, unit)
        if limit is not UNLIMITED:
            yield unit, limit, amount


def _in_order(call_id: str) -> tuple[int, int]:
    turn, _, position = call_id[1:].partition(".c")
    return int(turn), int(position)


__all__ = ["Seen", "TreeWorld"]
