"""One long run: what its second half costs and stores beside its first, and what its recovery reads.

python benchmarks/long_run.py [--turns 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

from geartrain import UNLIMITED, Agent, Budget, Runtime, ScriptedModel, tool
from geartrain.machine import Usage
from geartrain.models import ModelReply, ModelRequest, call
from geartrain.persistence.sqlite import SqliteJournal


@tool(read_only=True)
async def look(number: int) -> str:
    """Look at something about as long as a page."""
    return f"{number}: " + "what was found there, line after line. " * 40


def agent_of(turns: int) -> Agent:
    def reply(request: ModelRequest) -> ModelReply:
        usage = Usage(input_tokens=1, output_tokens=1)
        if request.turn > turns:
            return ModelReply(text="done", usage=usage)
        return ModelReply(calls=(call("look", number=request.turn),), usage=usage)

    budget = Budget(max_turns=UNLIMITED, max_seconds=UNLIMITED, max_tokens=UNLIMITED)
    return Agent("walker", model=ScriptedModel([reply], repeat=True), tools=[look], budget=budget)


def stored_bytes(path: Path, first: int, last: int) -> int:
    """Return the bytes of the events numbered first..last."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        query = "SELECT sum(length(body)), count(*) FROM events WHERE seq BETWEEN ? AND ?"
        size, _count = connection.execute(query, (first, last)).fetchone()
        return int(size)


async def run(turns: int, folder: Path) -> None:
    path = folder / "long.db"
    agent = agent_of(turns)
    async with Runtime.open(path, agents=[agent]) as runtime:
        began_cpu, began = time.process_time(), time.perf_counter()
        handle = await runtime.start(agent, "Walk.")
        half: tuple[float, float, int] | None = None
        async for entry in handle.events():
            if half is None and getattr(entry.event, "turn", 0) == turns // 2 + 1:
                half = (time.process_time(), time.perf_counter(), entry.seq)
        ended = await handle.wait_ended()
        end = (time.process_time(), time.perf_counter(), ended.seq)
    assert half is not None
    assert ended.state == "FINISHED", ended
    first_cpu, second_cpu = half[0] - began_cpu, end[0] - half[0]
    first_bytes, second_bytes = stored_bytes(path, 1, half[2]), stored_bytes(path, half[2] + 1, end[2])
    print(f"{turns:,} turns, {ended.seq:,} events, {path.stat().st_size / 2**20:.1f} MiB file")
    print(f"  CPU     first half {first_cpu:.2f} s, second {second_cpu:.2f} s: ratio {second_cpu / first_cpu:.2f}")
    print(f"  wall    first half {half[1] - began:.2f} s, second {end[1] - half[1]:.2f} s")
    ratio = second_bytes / first_bytes
    print(f"  events  first half {first_bytes:,} bytes, second {second_bytes:,}: ratio {ratio:.2f}")
    await recovery(path, handle.id)


async def recovery(path: Path, run_id: str) -> None:
    """Print what a load of the run reads."""
    journal = await SqliteJournal.open(path, read_only=True)
    try:
        began = time.perf_counter()
        loaded = await journal.load(run_id)
        seconds = time.perf_counter() - began
        assert loaded is not None
        tail = sum(len(event.body) for event in loaded.events)
        print(
            f"  load    one checkpoint of {len(loaded.checkpoint or b''):,} bytes at event {loaded.checkpoint_seq:,}, "
            f"{len(loaded.events)} events ({tail:,} bytes) after it, {seconds * 1_000:.1f} ms"
        )
    finally:
        await journal.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(options.turns, Path(folder)))


if __name__ == "__main__":
    main()
