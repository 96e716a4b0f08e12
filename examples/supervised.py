"""A desk of actors next to runs: kill one, and see who is restarted with it.

The tree, left to right: a `desk` whose quotes need its rates (so the strategy is rest_for_one), then a `bell`.
Run it: `python examples/supervised.py`, or with the paths of those to kill; the same three times is too often for the
desk, which is then restarted itself: `python examples/supervised.py desk/quotes desk/quotes desk/quotes`
"""

import asyncio
import logging
import sys
from collections.abc import Sequence

import structlog

from geartrain import Actor, Agent, Backoff, ChildSpec, RestartLimit, Runtime, ScriptedModel, Supervisor, tool
from geartrain.models import call
from geartrain.persistence import MemoryJournal
from geartrain.supervisor import CrashReport, SupervisorRef


class Member(Actor):
    """Says when it comes and goes, and answers."""

    def started(self) -> None:
        print(f"    {self.ref.name} is up")

    def receive(self, message: str) -> str:
        if message == "die":
            raise RuntimeError("killed")
        return f"{self.ref.name} says {message}"

    def stopping(self) -> None:
        print(f"    {self.ref.name} goes")


SOON = Backoff(initial_seconds=0.05, max_seconds=1)
TWICE = RestartLimit(2, within_seconds=60)
DESK = Supervisor([ChildSpec("rates", Member), ChildSpec("quotes", Member)], "rest_for_one", TWICE, SOON)
OFFICE = Supervisor([ChildSpec("desk", DESK), ChildSpec("bell", Member, restart="transient")], backoff=SOON)


def told(report: CrashReport) -> None:
    print(f"    crash of {report.offender.name}, {report.context}: {report.reason}")


async def kill(tree: SupervisorRef, path: str) -> None:
    print(f"{path} is killed, while a question waits behind that")
    ref = tree.child(path)
    ref.send_nowait("die")
    print("   ", await ref.ask("hello", timeout_seconds=5))  # the same ref; the new instance answers


async def main(paths: Sequence[str]) -> None:
    @tool(read_only=True)
    async def ask_rates(question: str) -> str:
        """Ask the desk's rates, whichever instance is up by then."""
        await asyncio.sleep(0.2)
        return str(await tree.child("desk/rates").ask(question, timeout_seconds=5))

    model = ScriptedModel([[call("ask_rates", question="3 %?")], "3 %."])
    clerk = Agent("clerk", model=model, tools=[ask_rates])
    async with Runtime.open(MemoryJournal(), agents=[clerk]) as runtime:
        tree = runtime.supervise(OFFICE, name="office", on_crash=told)
        await tree.wait_started()
        run = await runtime.start(clerk, "What is the rate?")
        for path in paths:
            await kill(tree, path)
        print("the run:", (await run.wait_ended()).answer)
        for child in (*tree.children(), *tree.subtree("desk").children()):
            print(f"{child.name}: {child.state}, restarts: {child.restarts}")


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )  # we print them ourselves
    asyncio.run(main(sys.argv[1:] or ["desk/rates", "desk/quotes", "bell"]))
