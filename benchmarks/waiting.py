"""Many runs that wait for an approval: what they cost at rest, and how soon any of them can go on.

    python benchmarks/waiting.py [--runs 100000] [--store PATH]

Makes a store with that many suspended runs (and an empty one), then starts a fresh process on each and prints: start
of the process to ready, resident memory, tasks, and the time to approve one run picked at random to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


async def fill(path: Path, runs: int) -> None:
    """Suspend *runs* runs."""
    async with Runtime.open(path, agents=[AGENT]) as runtime:
        remaining = iter(range(runs))
        done = 0

        async def worker() -> None:
            nonlocal done
            for _ in remaining:
                run = await runtime.start(AGENT, "Publish it.")
                rest = await run.wait_at_rest()
                assert rest.state == "SUSPENDED"
                done += 1
                if done % 10_000 == 0:
                    print(f"  {done:,} of {runs:,} runs wait", file=sys.stderr, flush=True)

        await asyncio.gather(*(worker() for _ in range(500)))


async def measure(path: Path, seed: int) -> dict[str, float]:
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


def in_fresh_process(path: Path, seed: int) -> dict[str, float]:
    began = time.time()
    command = [sys.executable, __file__, "--measure", str(path), "--seed", str(seed)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(output)
    result["ready"] -= began
    return dict(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(asyncio.run(measure(options.measure, options.seed))))
        return
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder, "empty.db"), Path(folder, "full.db")
        asyncio.run(fill(empty, 0))
        began = time.perf_counter()
        asyncio.run(fill(full, options.runs))
        seconds = time.perf_counter() - began
        size = full.stat().st_size / options.runs
        print(f"{options.runs:,} runs suspended in {seconds:.1f} s, {size:,.0f} bytes each")
        for seed in range(options.seed, options.seed + 3):
            a, b = in_fresh_process(empty, seed), in_fresh_process(full, seed)
            growth = (b["resident"] - a["resident"]) / 2**20
            print(
                f"start to ready {b['ready']:.2f} s (empty store {a['ready']:.2f} s); resident {growth:+.2f} MiB over "
                f"the empty store; {b['tasks']:.0f} tasks ({a['tasks']:.0f}), {b['loaded']:.0f} runs loaded; "
                f"approve to end {b['approve_ms']:.1f} ms"
            )


if __name__ == "__main__":
    main()
