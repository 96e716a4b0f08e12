"""Every limit at every moment of a run, under each `on_budget`: what becomes of the run, written out row by row.

A run comes to a moment that lasts, and there a person sets a budget of which one limit is reached already. So each
limit can be reached at each moment, also where a run would not reach it by itself.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import pytest
from msgspec.structs import replace
from runtime_world import Ledger, Store, allow_all, calling, results_of, settle

from geartrain.clock import LoopClock
from geartrain.errors import EventRefused
from geartrain.limits import UNLIMITED
from geartrain.machine import Budget, ContextRules, Price
from geartrain.models import ModelUnavailable
from geartrain.models._scripted import Delay, ScriptedModel
from geartrain.runtime import Agent, Allow, Ask, RunHandle, Runtime
from geartrain.tools import Tool, tool

OPEN: Final = Budget(max_turns=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED, max_tokens=UNLIMITED)
PRICE: Final = Price(per_call=1.0)
# A limit that is reached at each of the moments: its name, the value, the code, and what its error says of it.
LIMITS: Final = {
    "turns": ("max_turns", 1, "max_turns_exceeded", "turns used"),
    "seconds": ("max_seconds", 1.0, "timeout", "of 1.0 active seconds used"),
    "failures": ("max_tool_failures", 1, "too_many_tool_failures", "1 of 1 tool failures"),
    "tokens": ("max_tokens", 1, "token_budget_exceeded", "of 1 tokens used"),
    "cost": ("max_cost", 0.5, "cost_budget_exceeded", "of 0.5"),
    "calls": ("max_tool_calls", 1, "tool_call_budget_exceeded", "of 1 tool calls used"),
}
MODES: Final = ("fail", "wrap_up", "suspend")
# now: it fails within a second, and what was at work has stopped.
# then: it fails once what was at work is done, before its next model call (a write that has started may finish).
# answer: its last turn, taken without tools, answers with what there is.
# held: it waits for a higher budget, and finishes with it.
# done: it finishes as if nothing had been: an answer on its way counts.
TABLE: Final = """\
moment            limit     fail     wrap_up  suspend
paused            turns     now      now      held
paused            seconds   now      answer   held
paused            failures  now      answer   held
paused            tokens    now      answer   held
paused            cost      now      answer   held
paused            calls     now      answer   held
in a reply        turns     then     then     held
in a reply        seconds   now      answer   held
in a reply        failures  now      answer   held
in a reply        tokens    now      answer   held
in a reply        cost      now      answer   held
in a reply        calls     then     answer   held
in an answer      turns     done     done     done
in an answer      seconds   now      done     done
in an answer      failures  now      done     done
in an answer      tokens    now      done     done
in an answer      cost      now      done     done
in an answer      calls     done     done     done
in a read         turns     then     then     held
in a read         seconds   now      answer   held
in a read         failures  now      answer   held
in a read         tokens    now      answer   held
in a read         cost      now      answer   held
in a read         calls     then     answer   held
in a write        turns     then     then     held
in a write        seconds   then     answer   held
in a write        failures  then     answer   held
in a write        tokens    then     answer   held
in a write        cost      then     answer   held
in a write        calls     then     answer   held
in back-off       turns     then     then     held
in back-off       seconds   now      answer   held
in back-off       failures  now      answer   held
in back-off       tokens    now      answer   held
in back-off       cost      now      answer   held
in back-off       calls     then     answer   held
in a provider     turns     then     then     held
in a provider     seconds   now      answer   held
in a provider     failures  now      answer   held
in a provider     tokens    now      answer   held
in a provider     cost      now      answer   held
in a provider     calls     then     answer   held
in a summary      turns     then     then     held
in a summary      seconds   now      answer   held
in a summary      failures  now      answer   held
in a summary      tokens    now      answer   held
in a summary      cost      now      answer   held
in a summary      calls     then     answer   held
in a policy       turns     then     then     held
in a policy       seconds   now      answer   held
in a policy       failures  now      answer   held
in a policy       tokens    now      answer   held
in a policy       cost      now      answer   held
in a policy       calls     then     answer   held
asked             turns     then     then     held
asked             seconds   now      answer   held
asked             failures  now      answer   held
asked             tokens    now      answer   held
asked             cost      now      answer   held
asked             calls     now      answer   held
in the last turn  turns     done     answer   done
in the last turn  seconds   now      answer   done
in the last turn  failures  now      answer   done
in the last turn  tokens    now      answer   done
in the last turn  cost      now      answer   done
in the last turn  calls     done     answer   done
recovered         turns     then     then     held
recovered         seconds   now      answer   held
recovered         failures  now      answer   held
recovered         tokens    now      answer   held
recovered         cost      now      answer   held
recovered         calls     then     answer   held
"""


async def bad() -> str:
    """Fail after two seconds."""
    await asyncio.sleep(2.0)
    raise ValueError("bad")


async def provider(_view: Any) -> str:
    await asyncio.sleep(4.0)
    return "fact"


async def slow_policy(call: Any, _run: Any) -> Allow:
    await asyncio.sleep(4.0 if call.tool == "read" else 0.0)
    return Allow()


def ask_about_writes(call: Any, _run: Any) -> Allow | Ask:
    return Ask() if call.tool == "write" else Allow()


def next_turn(request: Any) -> Any:
    """Answer; with what there is if no tool may be called."""
    return "done" if request.tools else "so far"


class BusyOnce(ScriptedModel):
    """A model that cannot answer when its second turn is asked for first."""

    async def reply(self, request: Any, emit: Any, /) -> Any:
        if request.turn == 2 and not any(seen.turn == 2 for seen in self.requests):
            self._requests.append(request)
            raise ModelUnavailable("scripted", "busy", retry_after_seconds=4.0)
        return await super().reply(request, emit)


READ: Final = [calling("read")]
# The second turn of a run, and how its agent differs: each leads to a moment from 2 s after the start to 6 s after it.
MOMENTS: Final[dict[str, dict[str, Any]]] = {
    "paused": {"second": next_turn},
    "in a reply": {"second": Delay(4.0, READ)},
    "in an answer": {"second": Delay(4.0, "done")},
    "in a read": {"second": READ},
    "in a write": {"second": [calling("write")]},
    "in back-off": {"second": READ, "model": BusyOnce},
    "in a provider": {"second": [calling("hand_off_to_other")], "handoff": True},
    "in a summary": {"second": READ, "third": READ, "summary": Delay(4.0, "short")},
    "in a policy": {"second": READ, "policy": slow_policy},
    "asked": {"second": [calling("write")], "policy": ask_about_writes},
    "in the last turn": {"second": Delay(4.0, next_turn), "budget": replace(OPEN, max_turns=2)},
    "recovered": {"second": Delay(4.0, READ)},
}


def agent_at(moment: str, on_budget: Any) -> Agent:
    about = MOMENTS[moment]
    kind, summary = about.get("model", ScriptedModel), about.get("summary")
    turns = [[calling("bad")], about["second"], about.get("third", next_turn), *[next_turn] * 9]
    model = kind(turns, summary=summary)
    tools: list[Tool] = [tool(read_only=True)(bad), Ledger().read(0.0 if summary else 4.0), Ledger().write(4.0)]
    options: dict[str, Any] = {"model": model, "tools": tools, "on_budget": on_budget, "price": PRICE}
    if "handoff" in about:
        options["handoffs"] = [Agent("other", context=[provider], **options)]
    if summary is not None:
        options["window"] = ContextRules(summarise=True, summarise_turns=1)
    return Agent("worker", budget=about.get("budget", OPEN), **options)


async def come_to(moment: str, store: Store, agent: Agent, runtime: Runtime) -> RunHandle:
    """Start a run and come to the middle of its moment."""
    run = await runtime.start(agent, "go")
    await asyncio.sleep(1.0)
    if moment == "paused":
        await run.pause()
    await asyncio.sleep(2.0)
    if moment == "recovered":
        store.journal = store.journal.as_killed()
    return run


async def became(run: RunHandle, runtime: Runtime, moment: str, limit: str) -> str:
    """Let the limit be reached now, and return what becomes of the run."""
    name, value, code, said = LIMITS[limit]
    at = LoopClock().now()
    await run.raise_budget(replace(OPEN, **{name: value}))
    if moment == "paused" and not (await run.snapshot()).ended:
        await run.resume()
    if moment == "asked" and not (await run.snapshot()).ended:
        await run.approve("t2.c1", by="ops")
    rest = await run.wait_at_rest()
    if rest.state == "SUSPENDED":
        assert rest.holds == ("budget",)
        await run.raise_budget(OPEN)
        assert (await run.wait_ended()).answer == "done"
        return "held"
    if rest.state == "FINISHED":
        return {"so far": "answer", "done": "done"}[str(rest.answer)]
    assert rest.error is not None
    assert rest.error["code"] == code
    assert rest.error["kind"] == "budget"
    assert said in rest.error["message"] or "the last turn" in rest.error["message"]
    assert "; in " in rest.error["message"]
    assert "; used: " in rest.error["message"]
    await settle()
    assert (await runtime.statistics()).effects == 0
    return "now" if rest.updated_at - at <= 1.0 else "then"


async def row(memory: Store, moment: str, limit: str, mode: str) -> str:
    agent, policy = agent_at(moment, mode), MOMENTS[moment].get("policy", allow_all)
    async with memory.runtime(agent, policy=policy) as runtime:
        run = await come_to(moment, memory, agent, runtime)
        if moment != "recovered":
            return await became(run, runtime, moment, limit)
    async with memory.runtime(agent, policy=policy, recover="none") as runtime:
        return await became(await runtime.get(run.id), runtime, moment, limit)


def rows() -> Iterator[tuple[str, str, str, str]]:
    head, *lines = [re.split(r"  +", line) for line in TABLE.splitlines()]
    for line in lines:
        moment, limit, *outcomes = line
        yield from ((moment, limit, mode, outcome) for mode, outcome in zip(head[2:], outcomes, strict=True))


@pytest.mark.parametrize(("moment", "limit", "mode", "outcome"), list(rows()))
async def test_what_becomes_of_a_run_whose_limit_is_reached(
    memory: Store, moment: str, limit: str, mode: str, outcome: str
) -> None:
    assert await row(memory, moment, limit, mode) == outcome


def test_the_table_has_every_limit_at_every_moment_under_every_mode() -> None:
    assert [row[:3] for row in rows()] == list(product(MOMENTS, LIMITS, MODES))
    assert {f"max_{name}" for name in ("turns", "seconds", "tool_failures", "tokens", "cost", "tool_calls")} == set(
        Budget.__struct_fields__
    )


# -- BU-2: five calls, room for three


@pytest.mark.parametrize(
    ("mode", "state", "answer"),
    [("fail", "FAILED", None), ("wrap_up", "FINISHED", "so far"), ("suspend", "SUSPENDED", None)],
)
async def test_of_five_calls_with_room_for_three_three_run_and_all_five_have_results(
    store: Store, ledger: Ledger, mode: Any, state: str, answer: str | None
) -> None:
    """BU-2."""
    model = ScriptedModel([[calling("read")] * 5, next_turn])
    budget = Budget(max_tool_calls=3)
    agent = Agent("worker", model=model, tools=[ledger.read(1.0)], budget=budget, on_budget=mode)

    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        rest = await run.wait_at_rest()

        assert (rest.state, rest.answer, rest.tool_calls) == (state, answer, 3)
        assert sorted(ledger.done) == [f"{run.id}/t1.c{n}" for n in (1, 2, 3)]
        results = await results_of(run, runtime)
        assert [str(status) for status, _ in results] == ["ok"] * 3 + ["refused"] * 2
        assert all("tool_call_budget_exceeded: 3 tool calls are used up" in text for _, text in results[3:])
        if mode == "fail":
            assert rest.error is not None
            assert rest.error["message"].startswith("3 of 3 tool calls used; in ")
        if mode == "suspend":
            await run.raise_budget(Budget(max_tool_calls=4))
            assert (await run.wait_ended()).answer == "done"


# -- CN-7: time that is used up in the middle of something


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_that_takes_ten_minutes_does_not_outlast_the_seconds_of_its_run(
    store: Store, ledger: Ledger, mode: Any
) -> None:
    """CN-7: the finished sibling is kept; the error says which limit, where, and how much was used."""
    slow = ledger.read(600.0, name="slow", timeout_seconds=900.0)
    model = ScriptedModel([[calling("read"), calling("slow")], next_turn])
    agent = Agent("worker", model=model, tools=[ledger.read(1.0), slow], budget=Budget(max_seconds=60), on_budget=mode)

    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        rest = await run.wait_at_rest()

        passed = rest.updated_at - rest.created_at
        results = await results_of(run, runtime)
        assert results[0][1].startswith("read")
        if mode == "suspend":  # what runs may finish; nothing new starts
            assert (rest.state, rest.holds, passed) == ("SUSPENDED", ("budget",), pytest.approx(600, abs=1))
            return
        assert passed == pytest.approx(60, abs=1)
        assert [str(status) for status, _ in results] == ["ok", "cancelled"]
        if mode == "wrap_up":
            assert (rest.state, rest.answer) == ("FINISHED", "so far")
            return
        assert rest.error is not None
        assert rest.error["message"] == (
            "60.0 of 60 active seconds used; in EXECUTE_TOOL, turn 1, t1.c2 of 'slow' at work for 60.0 s; "
            f"used: 1 turn, 60.0 s active, {rest.usage.total_tokens} tokens, 2 tool calls, 0 failed"
        )


# -- the last moment


async def test_a_budget_raised_at_the_last_moment_counts_and_one_raised_after_it_comes_too_late(
    memory: Store, ledger: Ledger
) -> None:
    agent = Agent(
        "worker",
        model=ScriptedModel([[calling("read")], "done"]),
        tools=[ledger.read(25.0)],
        budget=Budget(max_seconds=10.0),
    )

    async with memory.runtime(agent) as runtime:
        early, late = [await runtime.start(agent, "go") for _ in range(2)]
        await asyncio.sleep(9.99)
        await early.raise_budget(Budget(max_seconds=100.0))
        await asyncio.sleep(0.02)

        with pytest.raises(EventRefused, match=r"the run ended|is ending"):
            await late.raise_budget(Budget(max_seconds=100.0))
        assert (await early.wait_ended()).answer == "done"
        end = await late.wait_ended()
        assert end.error is not None
        assert end.error["code"] == "timeout"
