"""Tell a person what runs do: an observer passes it on, an actor delivers it, and neither holds a run up.

The channel is slow. So of too many news the oldest are dropped, and old news are not delivered at all.

Run it: `python examples/notifier.py`
"""

import asyncio
from collections.abc import Sequence

from geartrain import Actor, Agent, Runtime, ScriptedModel
from geartrain.persistence import MemoryJournal
from geartrain.trace import TraceRecord


class Notifier(Actor):
    """Delivers one text after another."""

    async def receive(self, message: str) -> None:
        await asyncio.sleep(0.01)  # a mail, a chat message
        print("told:", message)

    def stopping(self) -> None:
        print("the notifier leaves")


notifier = Notifier()


def observe(records: Sequence[TraceRecord]) -> None:
    """Runs in a thread of its own, hence `send_threadsafe`."""
    for record in records:
        if record.event in ("run_started", "run_finished"):
            notifier.ref.send_threadsafe(f"{record.run_id} {record.event}", expires_seconds=60)


async def main() -> None:
    agent = Agent("greeter", model=ScriptedModel(["Hello."]))
    async with Runtime.open(MemoryJournal(), agents=[agent], observers=[observe]) as runtime:
        runtime.spawn(notifier, name="notifier", capacity=100, overflow="drop_oldest")
        for number in range(3):
            run = await runtime.start(agent, "Greet.", run_id=f"run-{number}")
            await run.wait_ended()
        await asyncio.sleep(0.5)  # observers are told in their own time
        print(f"not told: {len(runtime.actors.dead_letters)}")


if __name__ == "__main__":
    asyncio.run(main())
