"""Actors of runs that crash with what is no `Exception`: one more crash, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runtime_world import Gated, Store, an_agent


class Odd(Gated):
    """A store whose code raises, so many times, when the reply of a model is to be stored for one run."""

    def __init__(self, journal: Any, error: type[BaseException], times: int) -> None:
        super().__init__(journal)
        self.error_raised = error
        self.times = times

    def append(self, entry: Any) -> Any:
        if self.times and entry.run_id == "r" and any(event.type == "ModelReplied" for event in entry.events):
            self.times -= 1
            raise self.error_raised
        return super().append(entry)


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, StopIteration])
@pytest.mark.parametrize(
    ("times", "state", "holds"), [(1, "FINISHED", ()), (3, "FINISHED", ()), (100, "SUSPENDED", ("quarantined",))]
)
async def test_an_actor_restarts_whatever_its_crash_was(
    memory: Store, error: type[BaseException], times: int, state: str, holds: tuple[str, ...]
) -> None:
    agent = an_agent(["done"])
    async with memory.runtime(agent, target=Odd(memory.target, error, times)) as runtime:
        run, other = await runtime.start(agent, "go", run_id="r"), await runtime.start(agent, "go")

        rest = await asyncio.wait_for(run.wait_at_rest(), 1_000)

        assert (rest.state, rest.holds) == (state, holds)
        assert (await other.wait_ended()).answer == "done"
        assert (await (await runtime.start(agent, "go")).wait_ended()).answer == "done"
