"""What has ended does not begin once more while its result is on its way to the run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runtime_world import Gated, Ledger, Store, an_agent, calling, names_of, settle

from geartrain.models import ModelReply, ModelRequest, answer
from geartrain.persistence import Entry
from geartrain.runtime import Agent


class Slow(Gated):
    """A journal that takes a second for each append."""

    def append(self, entry: Entry) -> asyncio.Future[int]:
        stored, slow = super().append(entry), asyncio.get_running_loop().create_future()

        def later() -> None:
            if not slow.done():
                slow.set_result(stored.result())

        asyncio.get_running_loop().call_later(1.0, later)
        return slow


class Counting:
    """A model that takes some time for a reply, and counts what it is asked."""

    name = "counting"

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)
        self.asked: list[int] = []

    async def reply(self, request: ModelRequest, _emit: Any) -> ModelReply:
        self.asked.append(request.turn)
        await asyncio.sleep(self.seconds[request.turn - 1])
        return ModelReply(text=f"answer {request.turn}")


@pytest.mark.parametrize("count", [9, 20, 64])
async def test_each_of_many_reads_runs_once(memory: Store, ledger: Ledger, count: int) -> None:
    agent = an_agent([[calling("read") for _ in range(count)], answer("done")], ledger.read())
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_ended()).answer == "done"
        assert (len(ledger.done), set(ledger.done.values())) == (count, {1})


async def test_a_model_whose_reply_meets_an_append_is_asked_once_a_turn(memory: Store) -> None:
    model = Counting(2.5, 1.0)
    agent = Agent("worker", model=model)
    async with memory.runtime(agent, target=Slow(memory.target)) as runtime:
        run = await runtime.start(agent, "go")  # stored after a second, and the model asked
        await asyncio.sleep(2.0)
        await run.send("and this")  # being stored while the reply comes

        assert (await run.wait_ended()).answer == "answer 2"
        assert model.asked == [1, 2]


async def test_what_was_refused_is_no_longer_on_its_way(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], answer("done")], ledger.read(2.5))
    async with memory.runtime(agent, target=Slow(memory.target)) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(3.0)
        await run.answer_call("t1.c1", "here it is", by="ops")  # being stored while the result comes
        await settle()
        actor = runtime._host.node.actors[run.id]

        assert "t1.c1.a1" not in actor.arriving
        assert (await run.wait_ended()).answer == "done"
        assert (await names_of(run, runtime)).count("CallAnswered") == 1
