"""A conversation: each line read is a run of its own that continues the one before; so it survives its process.

    $ printf 'My name is Ada.\nWhat is my name?\n' | python conversation.py
    …
    You said: My name is Ada.
"""

import asyncio
import sys
from pathlib import Path

from geartrain import Agent, Runtime
from geartrain.models import Emit, ModelReply, ModelRequest

LAST = Path("conversation.last")


class Memory:
    """A model that answers a question with the first thing it was told; put yours in its place."""

    name = "memory"

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        said = [message.text for message in request.messages if message.role == "user"]
        return ModelReply(text=f"You said: {said[0]}" if said[-1].endswith("?") else "I see.")


friend = Agent("friend", instructions="Remember what you are told.", model=Memory())


async def main() -> None:
    last = LAST.read_text() if LAST.exists() else None
    async with Runtime.open("conversation.db", agents=[friend]) as runtime:
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            run = await runtime.start(friend, line, continues=last)
            rest = await run.wait_ended()
            print(rest.answer if rest.error is None else f"({rest.error['message']})", flush=True)
            last = run.id
            LAST.write_text(last)


if __name__ == "__main__":
    asyncio.run(main())
