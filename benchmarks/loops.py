"""Agent loops per second on SQLite, beside a hand-written minimum in the same run.

One loop is: question → the model asks for three parallel reads → their results → an answer. Model and tools take no
time, so that only the runtime's own is seen. The minimum is what one would write by hand for this loop alone: a task
per run, six rows a run (question, three calls, their results in three rows, answer → 6), one connection on a thread
of its own, rows that wait together committed together, WAL with synchronous=FULL. No states, no approvals, no budgets,
no recovery.

    python benchmarks/loops.py [--runs N] [--repeats N]

Both are measured alternately, each on a fresh file in the same folder; what counts is the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import queue
import sqlite3
import statistics
import tempfile
import threading
import time
from pathlib import Path

from geartrain import Agent, Runtime, tool
from geartrain.machine import RequestedCall, Usage
from geartrain.models import ModelReply, ModelRequest

ASKED = ModelReply(
    calls=tuple(RequestedCall(tool="look", arguments=f'{{"x": {x}}}', provider_id=f"p{x}") for x in range(3)),
    usage=Usage(input_tokens=20, output_tokens=10),
)
ANSWER = ModelReply(text="42", usage=Usage(input_tokens=40, output_tokens=1))


class TwoTurns:
    """Asks for three reads, then answers."""

    name = "two-turns"

    async def reply(self, request: ModelRequest, _emit: object) -> ModelReply:
        return ASKED if request.turn == 1 else ANSWER


@tool(read_only=True)
async def look(x: int) -> int:
    """Return x doubled."""
    return x * 2


AGENT = Agent("loop", model=TwoTurns(), tools=[look])


async def geartrain_loops(path: Path, runs: int, at_once: int) -> float:
    """Return loops per second."""
    async with Runtime.open(path, agents=[AGENT]) as runtime:
        remaining = iter(range(runs))

        async def worker() -> None:
            for _ in remaining:
                run = await runtime.start(AGENT, "What is it?")
                ended = await run.wait_ended()
                assert ended.answer == "42"

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(at_once)))
        return runs / (time.perf_counter() - began)


class HandWritten:
    """The minimum: a table, a thread, a queue; rows that wait together are committed together."""

    def __init__(self, path: Path) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue: queue.SimpleQueue[tuple[tuple[str, int, bytes], asyncio.Future[None]] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.work, args=(path,))
        self.thread.start()

    def work(self, path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        columns = "run TEXT, seq INTEGER, body BLOB, PRIMARY KEY (run, seq)"
        connection.execute(f"CREATE TABLE messages ({columns}) WITHOUT ROWID")
        while (first := self.queue.get()) is not None:
            batch = [first]
            while len(batch) < 512 and not self.queue.empty():
                item = self.queue.get()
                if item is None:
                    self.queue.put(None)
                    break
                batch.append(item)
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO messages VALUES (?, ?, ?)", [row for row, _ in batch])
            connection.execute("COMMIT")
            self.loop.call_soon_threadsafe(self.done, [future for _, future in batch])
        connection.close()

    @staticmethod
    def done(futures: list[asyncio.Future[None]]) -> None:
        for future in futures:
            future.set_result(None)

    async def append(self, run: str, seq: int, message: dict[str, object]) -> None:
        future = self.loop.create_future()
        self.queue.put(((run, seq, json.dumps(message).encode()), future))
        await future

    async def model(self, turn: int) -> dict[str, object]:
        await asyncio.sleep(0)
        if turn == 1:
            return {"role": "assistant", "calls": [{"tool": "look", "x": x} for x in range(3)]}
        return {"role": "assistant", "text": "42"}

    async def look(self, x: int) -> int:
        return x * 2

    async def run(self, run: str) -> str:
        await self.append(run, 1, {"role": "user", "text": "What is it?"})
        asked = await self.model(1)
        await self.append(run, 2, asked)
        results = await asyncio.gather(*(asyncio.create_task(self.look(call["x"])) for call in asked["calls"]))  # type: ignore[attr-defined]
        await asyncio.gather(
            *(self.append(run, 3 + n, {"role": "tool", "text": str(result)}) for n, result in enumerate(results))
        )
        answer = await self.model(2)
        await self.append(run, 6, answer)
        return str(answer["text"])


async def hand_written_loops(path: Path, runs: int, at_once: int) -> float:
    """Return loops per second."""
    hand = HandWritten(path)
    remaining = iter(range(runs))

    async def worker() -> None:
        for number in remaining:
            assert await hand.run(f"r{number}") == "42"

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    elapsed = time.perf_counter() - began
    hand.queue.put(None)
    hand.thread.join()
    return runs / elapsed


def measured(at_once: int, runs: int, repeats: int) -> tuple[float, float, float]:
    """Return the medians of ours, of the minimum, and of the ratio of each pair."""
    ours, theirs, ratios = [], [], []
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            gc.collect()
            theirs.append(asyncio.run(hand_written_loops(Path(folder, f"hand{repeat}.db"), runs * 2, at_once)))
            gc.collect()
            ours.append(asyncio.run(geartrain_loops(Path(folder, f"gear{repeat}.db"), runs, at_once)))
        ratios.append(ours[-1] / theirs[-1])
    return statistics.median(ours), statistics.median(theirs), statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4_000, help="loops per measurement at 1,000 at once")
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each; medians are printed")
    options = parser.parse_args()
    print(f"{'agent loops on SQLite':<28}{'geartrain':>12}{'minimum':>12}{'ratio':>8}")
    for at_once, runs in ((1, max(50, options.runs // 10)), (1_000, options.runs)):
        ours, theirs, ratio = measured(at_once, runs, options.repeats)
        print(f"{f'{at_once:,} at once':<28}{ours:>10,.0f}/s{theirs:>10,.0f}/s{ratio:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
