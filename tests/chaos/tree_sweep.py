"""Random trees of runs in virtual time, very many of them; and one run with a thousand sub-agents.

`make tree-sweep` runs it. It prints each violation with its seed as it is found, and how many trees, runs, deaths and
acts there were; it exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "runtime"))

from kin_world import Seen, TreeWorld
from runtime_world import Ledger, Store, an_agent, calling

from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import Budget
from geartrain.testing.virtual_time import VirtualLoop

CHILDREN = 1_000
AT_ONCE = 50


def in_virtual_time(work: Any) -> Any:
    """Run a coroutine on a virtual loop of its own."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def played(seeds: range) -> list[tuple[int, Seen]]:
    """Play the trees of these seeds."""
    found = []
    for seed in seeds:
        try:
            seen = in_virtual_time(TreeWorld(seed).play())
        except Exception as error:  # noqa: BLE001 - whatever it was, it is a violation, and the others are played
            seen = Seen(violations=[f"raised {error!r}"])
        found.append((seed, seen))
    gc.collect()
    return found


async def wide() -> list[str]:
    """One run with a thousand sub-agents, fifty at a time, one of which hangs; return what is wrong."""
    ledger = Ledger()

    def one(request: Any) -> Any:
        seconds = 100_000.0 if request.messages[-1].text == str(CHILDREN // 2) else 1.0
        return [calling("read", json.dumps({"after": seconds}))]

    worker = an_agent(
        [one, "found"], ledger.read(timeout_seconds=1e6), name="worker", budget=Budget(max_seconds=60.0), stuck=None
    )
    calls = [calling("worker", json.dumps({"input": str(n)})) for n in range(CHILDREN)]
    budget = Budget(max_turns=UNLIMITED, max_tokens=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED)
    team = an_agent([calls, "done"], name="team", sub_agents=[worker], budget=budget)
    limits = Limits(calls_per_reply=CHILDREN, sub_agents_at_once=AT_ONCE)
    async with Store().runtime(team, limits=limits) as runtime:
        began = asyncio.get_running_loop().time()
        rest = await (await runtime.start(team, "go")).wait_at_rest()
        seconds = asyncio.get_running_loop().time() - began
        failed = await runtime.list(root=rest.id, states=["FAILED"])
        runs = len(await runtime.list(root=rest.id, limit=10 * CHILDREN))
    wrong = []
    if rest.answer != "done" or runs != CHILDREN + 1:
        wrong.append(f"{runs} runs, the answer is {rest.answer!r}")
    if ledger.peak != AT_ONCE:
        wrong.append(f"{ledger.peak} at once")
    if [each.error for each in failed] != ["timeout"]:
        wrong.append(f"failed: {failed}")
    if seconds > CHILDREN / 2 / AT_ONCE + 65.0:
        wrong.append(f"{seconds:.0f} s of virtual time")
    return wrong


def main() -> int:
    """Play trees, print what was seen, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=10_000, help="how many (default 10,000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes at once (default: one for each core)"
    )
    options = parser.parse_args()
    began, told = time.monotonic(), 0.0
    acts: Counter[str] = Counter()
    runs = deaths = trees = 0
    violations: list[str] = []
    end = options.seed + options.trees
    blocks = [range(at, min(at + 20, end)) for at in range(options.seed, end, 20)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(played, blocks):
            for seed, seen in found:
                trees += 1
                runs, deaths = runs + seen.runs, deaths + seen.deaths
                acts.update(seen.acts)
                for each in seen.violations:
                    violations.append(f"seed {seed}: {each}")
                    print(f"  {violations[-1]}", flush=True)
            if time.monotonic() - told > 5:
                told = time.monotonic()
                print(f"{trees:,} trees, {runs:,} runs, {deaths:,} deaths, {len(violations)} violations", flush=True)
    wrong = in_virtual_time(wide())
    violations += [f"{CHILDREN} sub-agents: {each}" for each in wrong]
    print(
        f"\n{trees:,} trees of {runs:,} runs, {deaths:,} deaths of their process, in {time.monotonic() - began:.0f} s"
    )
    for name, count in sorted(acts.items()):
        print(f"  {count:>8,}  {name}")
    how = "wrong" if wrong else "as it should be"
    print(f"{CHILDREN:,} sub-agents of one run, {AT_ONCE} at a time, one of which hangs: {how}")
    for each in wrong:
        print(f"  {each}")
    print(f"{len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
