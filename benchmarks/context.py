"""A history of many turns: what each request has of it, whole and shortened, and what is left of what was pinned.

python benchmarks/context.py [--turns 200] [--kilobytes 64]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from geartrain import UNLIMITED, Agent, Budget, Note, Runtime, ScriptedModel, tool
from geartrain.machine import ContextRules, estimate_tokens
from geartrain.models import ModelRequest, call

PINNED = "The key is 42."


@tool(read_only=True)
async def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}\n" + "what it says, at some length\n" * 100


async def memory(_view: Any) -> Note:
    """Tell what is never to be forgotten."""
    return Note(PINNED, pinned=True)


def summary(request: ModelRequest) -> str:
    return f"{len(request.messages)} messages about pages that were read."


async def lived(folder: Path, name: str, turns: int, window: ContextRules) -> tuple[list[ModelRequest], Counter[str]]:
    """Return the requests of a run, and how often its context was shortened in which way."""
    replies = [[call("look", page=turn)] for turn in range(1, turns)]
    model = ScriptedModel([*replies, "done"], summary=summary)
    budget = Budget(max_turns=UNLIMITED, max_tokens=UNLIMITED, max_seconds=UNLIMITED)
    agent = Agent("reader", model=model, tools=[look], context=[memory], budget=budget, window=window)
    async with Runtime.open(folder / f"{name}.db", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Read all pages.")
        ended = await run.wait_ended()
        assert ended.state == "FINISHED", ended
        records = [record async for record in runtime.timeline(run.id)]
    ways = Counter(record.payload["how"] for record in records if record.event == "context_compacted")
    return [request for request in model.requests if request.purpose == "reply"], ways


def shown(name: str, requests: list[ModelRequest], seconds: float, ways: Counter[str]) -> int:
    """Print a line of figures; return the tokens of all requests together."""
    sizes = [sum(message.size() for message in request.messages) for request in requests]
    tokens = sum(map(estimate_tokens, sizes))
    there = sum(any(message.text == PINNED for message in request.messages) for request in requests)
    same = sum(after.messages[: len(before.messages)] == before.messages for before, after in pairwise(requests))
    print(
        f"{name:<10} {tokens:>12,} tokens  largest request {max(sizes):>10,} bytes  pinned in {there}/{len(requests)}  "
        f"begins as the one before {same / (len(requests) - 1):>4.0%}  {seconds:.1f} s  "
        + (", ".join(f"{count} × {how}" for how, count in ways.items()) or "never shortened")
    )
    return tokens


async def main(turns: int, kilobytes: int) -> None:
    whole = ContextRules(messages=2 * turns + 10, bytes=1024 * 1024 * 1024)
    rules = {
        "whole": whole,
        "window": ContextRules(bytes=kilobytes * 1024),
        "shrunk": ContextRules(bytes=kilobytes * 1024, shrink=True, window_slack=0.25),
        "summed up": ContextRules(
            bytes=kilobytes * 1024, shrink=True, window_slack=0.25, summarise=True, summary_pause_turns=5
        ),
    }
    tokens: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, window in rules.items():
            began = time.perf_counter()
            requests, ways = await lived(Path(folder), name, turns, window)
            tokens[name] = shown(name, requests, time.perf_counter() - began, ways)
    for name, count in tokens.items():
        if name != "whole":
            print(f"{name}: {1 - count / tokens['whole']:.0%} fewer tokens than whole")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--kilobytes", type=int, default=64)
    given = parser.parse_args()
    asyncio.run(main(given.turns, given.kilobytes))
