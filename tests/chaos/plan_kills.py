"""The examples of plans, killed from outside at moments that nobody chose, and started again until they are through.

    python tests/chaos/plan_kills.py --kills 50 --seed 1

Each round kills the process of an example once, starts it again under the same run id and lets it finish: the answer
must be that of a run that nobody killed, every run of the tree ended, each with one result for each of its calls.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from geartrain.machine import ENDED, SubAgentEnded, ToolFinished
from geartrain.runtime import open_reader

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN_ID = "r-example"
# What a process does: go on with the run if there is one, wait for its end, and print the answer.
DRIVER = """
import asyncio, sys
sys.path.insert(0, {examples!r})
from {example} import app
from geartrain import Runtime

async def main():
    async with Runtime.open({store!r}, agents=[app]) as runtime:
        run = await runtime.start(app, {text!r}, run_id={run_id!r}, context={{"root": {root!r}}})
        print("started", flush=True)
        print((await run.wait_ended()).answer)

asyncio.run(main())
"""
TEXTS = {"pipeline": "How many turns may a run take?", "fan_out": "all of them"}


def make_files(root: Path) -> None:
    """Make what the examples read."""
    root.mkdir(parents=True)
    (root / "limits.md").write_text("Limits\n\nA run may take twenty turns, unless it is given more.\n", "utf-8")
    (root / "ends.md").write_text("Ends\n\nA run ends with an answer, or with the reason why there is none.\n", "utf-8")
    for number in range(1, 101):
        (root / f"{number}.txt").write_text("word\n" * number, "utf-8")


@dataclass
class Example:
    """One example over one folder; each round has a store of its own."""

    name: str
    folder: Path

    def process(self, store: Path) -> subprocess.Popen[str]:
        """Start, or go on."""
        code = DRIVER.format(
            examples=str(EXAMPLES),
            example=self.name,
            store=str(store),
            text=TEXTS[self.name],
            run_id=RUN_ID,
            root=str(self.folder / "root"),
        )
        words = [sys.executable, "-c", code]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, store: Path) -> tuple[str, float]:
        """Let a process finish; return the answer, and how long it took from the moment when its run was stored."""
        process = self.process(store)
        assert process.stdout is not None
        line = process.stdout.readline()
        begun = time.monotonic()
        said = process.stdout.read()  # not by `communicate`, which does not know of what `readline` has buffered
        _, problems = process.communicate(timeout=120)
        assert (line, process.returncode) == ("started\n", 0), problems
        return said, time.monotonic() - begun

    def kill(self, store: Path, seconds: float) -> bool:
        """Kill a process so long after its run was stored; return whether it was still at work."""
        process = self.process(store)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        return process.returncode == -signal.SIGKILL


async def problems_in(store: Path) -> list[str]:
    """Return what is wrong with the runs of a store whose tree is through."""
    found = []
    async with open_reader(store) as reader:
        for run in await reader.list(limit=1_000):
            if run.state not in ENDED:
                found.append(f"{run.id} is in {run.state}")
            events = [entry.event async for entry in reader.events(run.id)]
            results = [event.call_id for event in events if isinstance(event, ToolFinished | SubAgentEnded)]
            found += [
                f"{run.id}: {call} has {results.count(call)} results"
                for call in set(results)
                if results.count(call) > 1
            ]
            report = await reader.replay(run.id)
            if report.difference is not None:
                found.append(f"{run.id}: {report.difference}")
    return found


def rounds(name: str, folder: Path, kills: int, seed: int) -> list[str]:
    """Kill an example so often, each time at another moment, and return what went wrong."""
    example, rng = Example(name, folder), random.Random(seed)
    make_files(folder / "root")
    answer, seconds = example.finish(folder / "first.db")
    wrong = asyncio.run(problems_in(folder / "first.db"))
    at_work = 0
    for number in range(kills):
        store = folder / f"{number}.db"
        at_work += example.kill(store, rng.uniform(0, seconds))
        said, _ = example.finish(store)
        if said != answer:
            wrong.append(f"kill {number}: {said!r}, not {answer!r}")
        wrong += [f"kill {number}: {problem}" for problem in asyncio.run(problems_in(store))]
    if at_work < kills / 2:
        wrong.append(f"only {at_work} of {kills} kills found a process at work")
    return wrong


def main() -> int:
    """Run all rounds and print a line for each example."""
    import tempfile  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = 0
    for name in TEXTS:
        with tempfile.TemporaryDirectory() as folder:
            wrong = rounds(name, Path(folder), given.kills, given.seed)
        print(f"{name}: {given.kills} kills, {len(wrong)} wrong", *wrong, sep="\n  ", flush=True)
        failed += bool(wrong)
    return failed


if __name__ == "__main__":
    sys.exit(main())
