"""A thousand sub-agents under one orchestrator, one of which hangs: it ends by its own limit, the others on time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from geartrain import Agent, Budget, FanOut, Limits, Runtime, StuckRules
from geartrain.clock import LoopClock
from geartrain.limits import UNLIMITED
from geartrain.machine import ENDED, RequestedCall, ResultStatus
from geartrain.models import ModelReply, ModelRequest
from geartrain.persistence import MemoryJournal
from geartrain.runtime import RunSummary

COUNT = 1_000
HANGS = 17
HUNG_SECONDS = 15.0


class Reader:
    """Says its input; the one that hangs says nothing, ever."""

    name = "reader"

    async def reply(self, request: ModelRequest, _emit: object) -> ModelReply:
        text = request.messages[-1].text
        await asyncio.sleep(0.01 if text != str(HANGS) else 1_000)
        return ModelReply(text=text)


class Lead:
    """Calls all readers in one reply, and then tells what it was shown that is no result."""

    name = "lead"

    async def reply(self, request: ModelRequest, _emit: object) -> ModelReply:
        if request.turn == 1:
            arguments = [json.dumps({"input": str(n)}) for n in range(COUNT)]
            return ModelReply(calls=tuple(RequestedCall(tool="reader", arguments=each) for each in arguments))
        results = [message for message in request.messages if message.role == "tool"]
        assert [int(message.text) for message in results if message.status is ResultStatus.OK] == [
            n for n in range(COUNT) if n != HANGS
        ]
        return ModelReply(text=results[HANGS].text)


def readers(seconds: float) -> Agent:
    return Agent(
        "reader",
        model=Reader(),
        budget=Budget(max_seconds=seconds),
        stuck=StuckRules(dwell={"MODEL_THINKING": 2.0}, on_dwell="report"),
    )


def planned(seconds: float) -> Agent:
    inputs = [str(n) for n in range(COUNT)]
    return Agent(
        "team",
        plan=FanOut(
            readers(seconds),
            inputs,
            at_once=50,
            need=COUNT - 1,
            gather=lambda steps: "".join(step.shown for step in steps if not step.ok),
        ),
    )


def led(seconds: float) -> Agent:
    budget = Budget(max_turns=10_000, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED, max_tokens=UNLIMITED)
    return Agent("team", model=Lead(), sub_agents=[readers(seconds)], budget=budget)


async def all_below(runtime: Runtime, root: str) -> list[RunSummary]:
    return [each for each in await runtime.list(root=root, limit=2 * COUNT) if each.id != root]


@pytest.mark.real_time
async def test_a_plan_ends_with_the_thousand_though_one_of_them_hangs_until_its_own_limit(tmp_path: Path) -> None:
    agent, path = planned(HUNG_SECONDS), tmp_path / "runs.db"
    async with Runtime.open(path, agents=[agent]) as runtime:
        run = await runtime.start(agent, "go")
        ended = asyncio.ensure_future(run.wait_ended())
        stuck: list[Any] = []
        while not ended.done() and not stuck:
            await asyncio.sleep(0.5)
            stuck = [each async for each in runtime.stuck()]
        end = await ended
        everyone = await all_below(runtime, run.id)

    (hung,) = [each for each in everyone if each.state == "FAILED"]
    others = [each for each in everyone if each is not hung]
    assert [each.run_id for each in stuck] == [hung.id]
    assert len(others) == COUNT - 1
    assert all(each.state == "FINISHED" for each in others)
    assert max(each.updated_at for each in others) < hung.updated_at
    assert hung.updated_at - hung.created_at == pytest.approx(HUNG_SECONDS, abs=2)
    assert end.state == "FINISHED"
    assert (end.answer or "").startswith("[error] budget: timeout: 15.0 of 15.0 active seconds used")


async def test_a_model_that_calls_a_thousand_in_one_reply_is_shown_each_result_and_the_one_that_hung() -> None:
    """In virtual time; so many calls in one reply are allowed by a limit of the runtime."""
    agent = led(60.0)
    limits = Limits(calls_per_reply=COUNT)
    async with Runtime.open(MemoryJournal(), agents=[agent], limits=limits, clock=LoopClock()) as runtime:
        run = await runtime.start(agent, "go")
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(30)
        tree = await run.tree()
        end = await run.wait_ended()
        took = asyncio.get_running_loop().time() - began

    (left,) = [each for each in tree.children if each.state not in ENDED]
    assert left.call_id == f"t1.c{HANGS + 1}"
    assert took == pytest.approx(60.0, abs=1.0)
    assert (end.answer or "").startswith("[error] budget: timeout: 60.0 of 60.0 active seconds used")
