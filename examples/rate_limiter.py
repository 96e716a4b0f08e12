"""Tools of many runs share one rate: an actor hands out the turns, so the runs never call faster than allowed together.

Run it: `python examples/rate_limiter.py`
"""

import asyncio
import time

from geartrain import Actor, Agent, Runtime, ScriptedModel, tool
from geartrain.machine import RequestedCall
from geartrain.persistence import MemoryJournal


class RateLimiter(Actor):
    """Asked for a number of turns, answers when the first has come; who asks waits, first come, first served."""

    def __init__(self, per_second: float) -> None:
        self.seconds_between = 1 / per_second
        self.next_turn = 0.0

    async def receive(self, message: int) -> float:
        now = time.monotonic()
        await asyncio.sleep(max(0.0, self.next_turn - now))
        self.next_turn = max(now, self.next_turn) + message * self.seconds_between
        return time.monotonic()


limiter = RateLimiter(per_second=20)
called_at: list[float] = []


@tool(read_only=True)
async def look_up(word: str) -> str:
    """Look a word up where only so many calls a second are allowed."""
    called_at.append(await limiter.ref.ask(1, timeout_seconds=10))
    return f"{word}: known"


async def main() -> None:
    calls = [RequestedCall(tool="look_up", arguments=f'{{"word": "{word}"}}') for word in ("gear", "train", "cog")]
    agent = Agent("reader", model=ScriptedModel([calls, "All three are known."]), tools=[look_up])
    async with Runtime.open(MemoryJournal(), agents=[agent]) as runtime:
        runtime.spawn(limiter, name="rate limiter")
        runs = [await runtime.start(agent, "Look three words up.") for _ in range(4)]
        for run in runs:
            print((await run.wait_ended()).answer)
    print(f"{len(called_at)} calls of {len(runs)} runs in {called_at[-1] - called_at[0]:.2f} s")


if __name__ == "__main__":
    asyncio.run(main())
