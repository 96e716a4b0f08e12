"""What one run that misbehaves costs 99 others, for each way to misbehave. `make beside` runs it.

Batches of 99 healthy runs alone and beside a bad one take turns in one process, so that whatever else the machine does
hits both alike; the ratio of their medians is what the bad one costs. What an observer costs by being there at all is
not its misbehaviour: batches beside a bad one are held against batches beside one that only listens. Exits with 1 if
that is more than 20 % for one that does not block the event loop, run with the isolation that it needs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from geartrain import Agent, Allow, Limits, Runtime, ScriptedModel, tool
from geartrain.models import Delay, answer, call
from geartrain.persistence import MemoryJournal
from geartrain.testing.misbehaviour import BAD_OBSERVERS, BAD_TOOLS
from geartrain.trace import Observer, TraceRecord

OTHERS = 99
COST_MAX = 0.20
LIMITS = Limits(grace_seconds=1.0, process_memory_bytes=200 << 20, process_cpu_seconds=1.0, process_children=20)


@tool(read_only=True)
async def quick(n: int) -> int:
    """Work as a task."""
    await asyncio.sleep(0.005)
    return n


@tool(read_only=True)
def slow(n: int) -> int:
    """Work on a thread."""
    time.sleep(0.002)
    return n


REPLIES = [Delay(0.01, [call("quick", n=n), call("slow", n=n)]) for n in range(3)]
HEALTHY = Agent("healthy", model=ScriptedModel([*REPLIES, answer("well")]), tools=[quick, slow])


def listen(_records: Sequence[TraceRecord]) -> None:
    """Observe, and do no harm."""


async def batch(bad: Agent | None, observer: Observer | None = None) -> float:
    """Return how long 99 healthy runs take, beside a bad one that has begun before them."""
    agents = [HEALTHY] if bad is None else [HEALTHY, bad]
    observers = [] if observer is None else [observer]
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with Runtime.open(
        MemoryJournal(), agents=agents, policy=lambda *_: Allow(), limits=LIMITS, observers=observers
    ) as runtime:
        worse = None if bad is None else await runtime.start(bad, "go")
        if worse is not None:
            await asyncio.sleep(0.3)  # a worker process is up by then
        begun = time.perf_counter()
        runs = [await runtime.start(HEALTHY, "go") for _ in range(OTHERS)]
        ends = [await run.wait_ended() for run in runs]
        took = time.perf_counter() - begun
        assert all(end.answer == "well" for end in ends)
        if worse is not None:
            with suppress(Exception):  # it may have ended
                await worse.cancel("that was enough")
    return took


def measured(make: Callable[[], tuple[Agent | None, Observer | None]], rounds: int) -> tuple[float, float]:
    """Return the medians alone and beside."""
    alone, beside = [], []
    for _ in range(rounds):
        bad, observer = make()
        alone.append(run(None, None if observer is None else listen))
        beside.append(run(bad, observer))
    return statistics.median(alone), statistics.median(beside)


def run(bad: Agent | None, observer: Observer | None) -> float:
    """Return how long a batch takes; whatever a tool has left on the loop goes with it."""
    runner = asyncio.Runner()
    loop = runner.get_loop()
    took = runner.run(batch(bad, observer))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()  # not the runner: it would wait for tasks that swallow their cancellation
    return took


def main() -> int:
    """Measure, print a table, and return 1 if anything costs the others too much."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="batches of each kind, of which the median counts")
    names = sorted([*BAD_TOOLS, *BAD_OBSERVERS])
    parser.add_argument("--only", action="append", choices=names, help="a tool or an observer; all if left out")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    cases: dict[str, Callable[[], tuple[Agent | None, Observer | None]]] = {
        **{name: lambda bad=bad: (bad.agent(timeout_seconds=20), None) for name, bad in BAD_TOOLS.items()},
        **{name: lambda bad=bad: (None, bad.observer) for name, bad in BAD_OBSERVERS.items()},
    }
    kinds = {**{name: bad.isolation for name, bad in BAD_TOOLS.items()}, **dict.fromkeys(BAD_OBSERVERS, "observer")}
    print(f"{'beside':28}{'runs as':10}{'alone ms':>9}{'beside ms':>10}{'cost':>7}", flush=True)
    dear = 0
    for name, make in cases.items():
        if options.only and name not in options.only:
            continue
        alone, beside = measured(make, options.rounds)
        cost = beside / alone - 1
        dear += cost > COST_MAX
        mark = "  more than 20 %" if cost > COST_MAX else ""
        print(f"{name:28}{kinds[name]:10}{1000 * alone:9.0f}{1000 * beside:10.0f}{cost:7.0%}{mark}", flush=True)
    return min(dear, 1)


if __name__ == "__main__":
    sys.exit(main())
