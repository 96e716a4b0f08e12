"""Many report, one sums up: no locks, and whoever asks sees all that was sent before.

Run it: `python examples/aggregator.py`
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from geartrain import Actor, ActorGroup, ActorRef


@dataclass(frozen=True)
class Measured:
    """Something took so long."""

    what: str
    seconds: float


@dataclass(frozen=True)
class Summary:
    """The question: what was measured so far?"""


class Aggregator(Actor):
    """Keeps the count and the sum of what is measured."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)

    def receive(self, message: Measured | Summary) -> dict[str, tuple[int, float]] | None:
        if isinstance(message, Measured):
            self.seconds[message.what].append(message.seconds)
            return None
        return {what: (len(all_), sum(all_)) for what, all_ in sorted(self.seconds.items())}


async def worker(aggregator: ActorRef, number: int) -> None:
    for what in ("fetch", "parse", "store"):
        await asyncio.sleep(0)
        await aggregator.send(Measured(what, seconds=number / 10))  # waits if the aggregator is far behind


async def main() -> None:
    async with ActorGroup() as actors:
        aggregator = actors.spawn(Aggregator(), capacity=10)
        async with asyncio.TaskGroup() as workers:
            for number in range(100):
                workers.create_task(worker(aggregator, number))
        for what, (count, seconds) in (await aggregator.ask(Summary(), timeout_seconds=5)).items():
            print(f"{what}: {count} times, {seconds:.1f} s in all")


if __name__ == "__main__":
    asyncio.run(main())
