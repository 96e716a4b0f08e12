r"""A conversation: each line read is a run of its own that continues the one before; so it survives its process.

$ printf 'I like blue.\nWhat do I like?\n' | python conversation.py
…
You said: I like blue.
"""

import asyncio
import sys

from geartrain import Agent, Runtime
from geartrain.models import Emit, ModelReply, ModelRequest


class Memory:
    """A model that answers a question with the first thing it was told; put yours in its place."""

    name = "memory"

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        said = [message.text for message in request.messages if message.role == "user"]
        return ModelReply(text=f"You said: {said[0]}" if said[-1].endswith("?") else "I see.")


friend = Agent("friend", instructions="Remember what you are told.", model=Memory())


async def main() -> None:
    async with Runtime.open("conversation.db", agents=[friend]) as runtime:
        newest = await runtime.list(limit=1)
        last = newest[0].id if newest else None
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            run = await runtime.start(friend, line, continues=last)
            rest = await run.wait_ended()
            print(rest.answer if rest.error is None else f"({rest.error['message']})", flush=True)
            last = run.id


if __name__ == "__main__":
    asyncio.run(main())
