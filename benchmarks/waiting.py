"""Many runs that wait for an approval: what they cost at rest, and how soon any of them can go on.

    python benchmarks/waiting.py [--runs 100000] [--store PATH]

Makes a store with that many suspended runs (and an empty one), then starts a fresh process on each and prints: start
of the process to ready, resident memory, tasks, and the time to approve one run picked at random to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ready import AGENT

from geartrain import Runtime


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


def in_fresh_process(path: Path, seed: int) -> dict[str, float]:
    began = time.time()
    command = [sys.executable, str(Path(__file__).with_name("ready.py")), str(path), str(seed)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = json.loads(output)
    result["ready"] -= began
    return dict(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
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
