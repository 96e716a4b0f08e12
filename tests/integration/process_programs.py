"""Programs that have process tools, run by tests as processes of their own. The tools live in the program itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from geartrain import Agent, Allow, Limits, Runtime, ScriptedModel, tool
from geartrain.machine import RequestedCall
from geartrain.persistence import MemoryJournal


@tool(read_only=True, isolation="process")
def name_of_the_module() -> str:
    """Return how the module is called where the tool runs."""
    return __name__


@tool(isolation="process")
def hang(folder: str) -> None:
    """Say which process this is, start another one in a session of its own, and hang."""
    if os.fork() == 0:
        os.setsid()
    Path(folder, str(os.getpid())).touch()
    time.sleep(1000)


@tool(isolation="process")
def finish(folder: str) -> str:
    """Go on until told to finish."""
    Path(folder, "at-work").touch()
    while not Path(folder, "finish").exists():
        time.sleep(0.005)
    return "finished"


TOOLS = {made.name: made for made in (name_of_the_module, hang, finish)}


async def main(name: str, arguments: str) -> None:
    """Run a tool in a run, and print the answer; an interrupt lets the run end."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: print("interrupted", flush=True))
    call = RequestedCall(tool=name, arguments=arguments)
    agent = Agent("worker", model=ScriptedModel([(call,), "done"]), tools=[TOOLS[name]])
    limits = Limits(grace_seconds=1.0)
    async with Runtime.open(MemoryJournal(), agents=[agent], policy=lambda *_: Allow(), limits=limits) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_ended()
        async for entry in run.events():
            if type(entry.event).__name__ == "ToolFinished":
                print(entry.event.status, entry.event.text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
