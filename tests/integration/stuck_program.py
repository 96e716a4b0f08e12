"""A service whose runs do not get on: one tool never answers, one agent repeats itself, one model drips.

    python stuck_program.py STORE

It starts them beside a healthy one, prints their ids, and stays until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from geartrain import UNLIMITED, Agent, Budget, Runtime, StuckRules, tool
from geartrain.machine import RequestedCall
from geartrain.models import ModelReply, ScriptedModel

FREE = Budget(max_turns=UNLIMITED, max_seconds=UNLIMITED, max_tokens=UNLIMITED)
SOON = StuckRules(
    dwell={"EXECUTE_TOOL": 0.5, "MODEL_THINKING": 0.5}, on_dwell="report", repeats=4, on_no_progress="report"
)


@tool(read_only=True)
async def never_answers() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


@tool(read_only=True)
async def look() -> str:
    """Look, and find the same each time."""
    await asyncio.sleep(0.02)
    return "the same"


class Dripping:
    """A model whose reply comes by one token a minute."""

    name = "dripping"

    async def reply(self, _request: Any, emit: Any, /) -> ModelReply:
        for _ in range(1_000):
            emit("drip ")
            await asyncio.sleep(60)
        return ModelReply(text="at last")


def calling(name: str) -> ScriptedModel:
    return ScriptedModel([(RequestedCall(tool=name),)] * 10_000)


AGENTS = [
    Agent("waiter", model=calling("never_answers"), tools=[never_answers], stuck=SOON, budget=FREE),
    Agent("repeater", model=calling("look"), tools=[look], stuck=SOON, budget=FREE),
    Agent("listener", model=Dripping(), stuck=SOON, budget=FREE),
    Agent("healthy", model=ScriptedModel(["done"]), stuck=SOON),
]


async def main(store: str) -> None:
    async with Runtime.open(store, agents=AGENTS) as runtime:
        runs = {agent.name: (await runtime.start(agent, "go")).id for agent in AGENTS}
        print(json.dumps(runs), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
