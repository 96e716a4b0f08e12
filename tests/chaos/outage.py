"""A store whose files cannot be written for a while, under many live runs. `make chaos` runs it for 30 s.

The fault is real: the process's limit of file sizes is set to nothing, so every write to a file fails in the kernel, as
on a full disk. Reading goes on. What is asked of it: no run is quarantined, none is lost, all finish, and everything
goes on by itself within 10 s after the fault has ended. Exits with 1 if one of these does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from geartrain import Agent, Allow, Runtime, tool
from geartrain.machine import RequestedCall
from geartrain.models import ScriptedModel

GOES_ON_SECONDS = 10.0
_PAUSE = 0.25


@dataclass(frozen=True)
class Outage:
    """What came of it."""

    runs: int
    seconds: float
    states: Counter[str]
    quarantined: int
    lost: int
    written_twice: int
    failing_since: float | None
    went_on_after: float
    replays_differ: int
    active_seconds_most: float
    took_seconds: float

    @property
    def active_allowed(self) -> float:
        """How long a run may count as active: all the time that it took, without the outage."""
        return self.took_seconds - self.seconds + 2.0

    @property
    def wrong(self) -> list[str]:
        """What did not hold."""
        found = {
            f"{self.states} and not all finished": self.states != Counter(FINISHED=self.runs),
            f"{self.quarantined} quarantined": self.quarantined,
            f"{self.lost} starts lost": self.lost,
            f"{self.written_twice} writes done twice or never": self.written_twice,
            "the outage was never noticed": self.failing_since is None,
            f"it went on after {self.went_on_after:.1f} s": self.went_on_after > GOES_ON_SECONDS,
            f"{self.replays_differ} replays differ": self.replays_differ,
            f"{self.active_seconds_most:.1f} s counted as active": self.active_seconds_most > self.active_allowed,
        }
        return [what for what, is_so in found.items() if is_so]

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, files not writable for {self.seconds:g} s: {dict(self.states)}, "
            f"{self.quarantined} quarantined, {self.lost} lost, {self.written_twice} writes not done once, "
            f"went on {self.went_on_after:.2f} s after the fault, "
            f"at most {self.active_seconds_most:.1f} of {self.took_seconds:.1f} s active; "
            f"{'; '.join(self.wrong) or 'all well'}"
        )


async def play(folder: Path, *, runs: int, seconds: float) -> Outage:
    """Start *runs* runs, take the disk away for *seconds*, and see that all finish."""
    written: Counter[str] = Counter()

    @tool(read_only=True)
    async def look(number: int) -> str:
        """Look for a moment."""
        await asyncio.sleep(_PAUSE)
        return f"saw {number}"

    @tool(idempotent=False)
    async def write(number: int) -> str:
        """Write once."""
        written[f"{number}"] += 1
        await asyncio.sleep(_PAUSE)
        return f"wrote {number}"

    def agent_of(number: int) -> Agent:
        arguments = f'{{"number": {number}}}'
        calls = [[RequestedCall(tool=name, arguments=arguments)] for name in ("look", "write", "look", "look")]
        return Agent(f"a{number}", model=ScriptedModel([*calls, "done"]), tools=[look, write])

    agents = [agent_of(number) for number in range(runs)]
    async with Runtime.open(folder / "runs.db", agents=agents, policy=lambda *_: Allow()) as runtime:
        began = time.monotonic()
        handles = await asyncio.gather(*(runtime.start(agent, "go") for agent in agents))
        ended = [asyncio.ensure_future(handle.wait_ended()) for handle in handles]
        await asyncio.sleep(_PAUSE)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        try:
            await asyncio.sleep(seconds)
            failing_since = (await runtime.statistics()).store_failing_since
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        back = time.monotonic()
        appends = (await runtime.statistics()).store.appends
        while (await runtime.statistics()).store.appends == appends and time.monotonic() - back < 60:  # noqa: ASYNC110 - from outside
            await asyncio.sleep(0.02)
        went_on_after = time.monotonic() - back
        await asyncio.wait(ended, timeout=120)
        took = time.monotonic() - began
        snapshots = [await runtime.snapshot(handle.id) for handle in handles]
        replays = [await runtime.replay(handle.id) for handle in handles]
        stored = (await runtime.totals()).runs
    return Outage(
        runs=runs,
        seconds=seconds,
        states=Counter(snapshot.state for snapshot in snapshots),
        quarantined=sum(bool(snapshot.quarantine or snapshot.set_apart) for snapshot in snapshots),
        lost=runs - stored,
        written_twice=sum(written[f"{number}"] != 1 for number in range(runs)),
        failing_since=failing_since,
        went_on_after=went_on_after,
        replays_differ=sum(report.difference is not None for report in replays),
        active_seconds_most=max(snapshot.active_seconds for snapshot in snapshots),
        took_seconds=took,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=1_000, help="how many live runs")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the files cannot be written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outage = asyncio.run(play(Path(folder), runs=options.runs, seconds=options.seconds))
    print(outage)
    return 1 if outage.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
