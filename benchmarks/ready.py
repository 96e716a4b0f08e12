"""One fresh process on a store of waiting runs, as lean as a service that embeds the runtime; `waiting.py` starts it.

python benchmarks/ready.py STORE SEED
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import time

import msgspec

from geartrain import Agent, Runtime, ScriptedModel, tool
from geartrain.models import answer, call


@tool
async def publish(text: str) -> str:
    """Publish a text."""
    return f"published {text}"


AGENT = Agent("writer", model=ScriptedModel([[call("publish", text="x")], answer("done")]), tools=[publish])


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(path: str, seed: int) -> dict[str, float]:
    """Open the store as a fresh process does, and approve one run."""
    async with Runtime.open(path, agents=[AGENT]) as runtime:
        ready = time.time()
        await asyncio.sleep(0.5)  # whatever recovery and the timer do at the start is done
        gc.collect()
        resident = resident_bytes()
        tasks = len(asyncio.all_tasks())
        statistics = await runtime.statistics()
        result = {"ready": ready, "resident": resident, "tasks": tasks, "loaded": statistics.runs_loaded}
        waiting = await runtime.list(states=["SUSPENDED"], limit=1_000)
        if waiting:
            picked = random.Random(seed).choice(waiting)
            began = time.perf_counter()
            run = await runtime.get(picked.id)
            await run.approve("t1.c1", by="benchmark")
            ended = await run.wait_ended()
            assert ended.state == "FINISHED", ended
            result["approve_ms"] = (time.perf_counter() - began) * 1_000
        return result


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(measure(sys.argv[1], int(sys.argv[2])))))
