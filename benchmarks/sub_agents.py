"""A thousand sub-agents under one orchestrator, beside as many plain runs in the same program.

The same agent, which answers at once, is started 50 at a time: by hand, as the inputs of a `FanOut`, and by a model
that calls all of them in one reply. What counts is the ratio of the processor's time; all three take turns, each on a
fresh file in the same folder.

    python benchmarks/sub_agents.py [--count N] [--repeats N]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from geartrain import Agent, Budget, FanOut, Limits, Runtime
from geartrain.limits import UNLIMITED
from geartrain.machine import RequestedCall, Usage
from geartrain.models import ModelReply, ModelRequest

AT_ONCE = 50
Work = Callable[[Runtime], Coroutine[Any, Any, None]]


class Answers:
    """Answers at once."""

    name = "answers"

    async def reply(self, _request: ModelRequest, _emit: object) -> ModelReply:
        return ModelReply(text="42", usage=Usage(input_tokens=40, output_tokens=1))


class Calls:
    """Calls *count* sub-agents in one reply, and says how many results it was shown."""

    name = "calls"

    def __init__(self, count: int) -> None:
        call = RequestedCall(tool="child", arguments='{"input": "What is it?"}')
        self._asked = ModelReply(calls=(call,) * count, usage=Usage(input_tokens=20))

    async def reply(self, request: ModelRequest, _emit: object) -> ModelReply:
        if request.turn == 1:
            return self._asked
        return ModelReply(text=str(sum(message.role == "tool" for message in request.messages)))


CHILD = Agent("child", model=Answers())


async def plain(runtime: Runtime, count: int) -> None:
    """Start as many runs by hand."""
    remaining = iter(range(count))

    async def worker() -> None:
        for _ in remaining:
            ended = await (await runtime.start(CHILD, "What is it?")).wait_ended()
            assert ended.answer == "42"

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


async def delegated(runtime: Runtime, agent: Agent) -> None:
    """Have an orchestrator start them."""
    ended = await (await runtime.start(agent, "go")).wait_ended()
    assert ended.state == "FINISHED", ended.error


async def measured(work: Work, agents: list[Agent], limits: Limits) -> tuple[float, float, int]:
    """Return the seconds of the processor and of the wall, and the bytes stored."""
    with tempfile.TemporaryDirectory() as folder:
        gc.collect()
        async with Runtime.open(Path(folder, "runs.db"), agents=agents, limits=limits) as runtime:
            wall, cpu = time.perf_counter(), time.process_time()
            await work(runtime)
            took = time.process_time() - cpu, time.perf_counter() - wall
        return *took, size_of(folder)


def size_of(folder: str) -> int:
    """Return the bytes of all files there."""
    return sum(file.stat().st_size for file in Path(folder).iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000, help="sub-agents under one orchestrator")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each; medians are printed")
    options = parser.parse_args()
    count = options.count
    team = Budget(max_turns=50 * count, max_seconds=500.0 * count, max_tool_failures=50 * count, max_tokens=UNLIMITED)
    led = Agent("led", model=Calls(count), sub_agents=[CHILD], budget=team)
    planned = Agent("planned", plan=FanOut(CHILD, ["What is it?"] * count, at_once=AT_ONCE))
    limits = Limits(calls_per_reply=count, sub_agent_width=max(1_000, count), sub_agents_at_once=AT_ONCE)
    kinds: dict[str, Work] = {
        "plain runs": lambda runtime: plain(runtime, count),
        "by a plan": lambda runtime: delegated(runtime, planned),
        "by a model": lambda runtime: delegated(runtime, led),
    }
    found: dict[str, list[tuple[float, float, int]]] = {kind: [] for kind in kinds}
    for _ in range(options.repeats):
        for kind, work in kinds.items():
            found[kind].append(asyncio.run(measured(work, [CHILD, led, planned], limits)))
    print(f"{f'{count:,} runs, {AT_ONCE} at once':<28}{'cpu s':>8}{'wall s':>8}{'ratio of cpu':>14}{'bytes a run':>13}")
    for kind, rows in found.items():
        cpu, wall, size = (statistics.median(column) for column in zip(*rows, strict=True))
        ratio = statistics.median(row[0] / base[0] for row, base in zip(rows, found["plain runs"], strict=True))
        print(f"{kind:<28}{cpu:>8.2f}{wall:>8.2f}{ratio:>14.2f}{size / count:>13,.0f}")


if __name__ == "__main__":
    main()
