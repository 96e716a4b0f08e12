"""Actors of a user's own, next to the runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from runtime_world import Store, an_agent, calling, journal_of, settle
from structlog.testing import capture_logs

from geartrain import Actor, ChildSpec, RestartLimit, Supervisor, tool
from geartrain.actors import ActorState, ActorStopped
from geartrain.errors import InvalidValue, MailboxFull, RuntimeClosed
from geartrain.limits import Limits
from geartrain.machine import InputReceived
from geartrain.models import Delay
from geartrain.supervisor import CrashReport
from geartrain.trace import TraceRecord


class Counter(Actor):
    def __init__(self) -> None:
        self.count = 0
        self.calls: list[str] = []

    def receive(self, message: Any) -> int:
        self.count += message
        return self.count

    async def stopping(self) -> None:
        self.calls.append("stopping")


class Slow(Actor):
    async def receive(self, message: Any) -> None:
        await asyncio.sleep(message)


async def test_tools_of_runs_ask_an_actor_and_it_is_stopped_with_the_runtime(memory: Store) -> None:
    counter = Counter()

    @tool(read_only=True)
    async def count() -> int:
        """Count."""
        answer: int = await counter.ref.ask(1, 5)
        return answer

    agent = an_agent([[calling("count"), calling("count")], "done"], count)
    async with memory.runtime(agent) as runtime:
        ref = runtime.spawn(counter, name="counter")
        runs = [await runtime.start("worker", "go") for _ in range(5)]
        for run in runs:
            assert (await run.wait_ended()).state == "FINISHED"

        assert counter.count == 10
        told = (await runtime.statistics()).actors
        assert (told.actors, told.spawned, told.failures) == (1, 1, 0)

    assert counter.calls == ["stopping"]
    assert ref.statistics().state is ActorState.STOPPED
    with pytest.raises(ActorStopped):
        ref.send_nowait(1)
    with pytest.raises(RuntimeClosed):
        runtime.spawn(Counter())


async def test_an_actor_can_still_be_asked_while_the_effects_of_runs_end(memory: Store) -> None:
    counter = Counter()

    @tool(idempotent=True)
    async def write() -> int:
        """Write."""
        await asyncio.sleep(2)
        answer: int = await counter.ref.ask(1, 5)
        return answer

    async with memory.runtime(an_agent([[calling("write")], "done"], write)) as runtime:
        runtime.spawn(counter)
        await runtime.start("worker", "go")
        await asyncio.sleep(1)

    assert counter.count == 1


@pytest.mark.real_time
async def test_observers_can_tell_an_actor_the_last_that_happened(memory: Store) -> None:
    counter = Counter()

    def observe(records: Sequence[TraceRecord]) -> None:
        time.sleep(0.05)  # behind by the time the runtime is left
        for record in records:
            if record.event == "run_finished":
                counter.ref.send_threadsafe(1)

    async with memory.runtime(an_agent(["done"]), observers=[observe]) as runtime:
        runtime.spawn(counter)
        await (await runtime.start("worker", "go")).wait_ended()

    assert counter.count == 1


async def test_an_actor_that_fails_stops_is_logged_and_no_run_notices(memory: Store) -> None:
    with capture_logs() as logs:
        async with memory.runtime(an_agent(["done"])) as runtime:
            ref = runtime.spawn(Counter(), name="counter")
            ref.send_nowait("not a number")
            await ref.wait_stopped()
            await settle()
            run = await runtime.start("worker", "go")

            assert (await run.wait_ended()).answer == "done"
            assert [letter.message for letter in runtime.actors.dead_letters] == ["not a number"]

    [entry] = [entry for entry in logs if entry["event"] == "actor_failed"]
    assert (entry["actor"], entry["during"], entry["log_level"]) == ("counter", "receive", "error")
    assert "TypeError" in entry["error"]
    assert "in receive" in entry["traceback"]


async def test_the_runtime_closes_within_the_grace_whatever_its_actors_do(memory: Store) -> None:
    class Stubborn(Actor):
        async def receive(self, message: Any) -> None:
            while True:
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    if asyncio.get_running_loop().time() > 100:
                        raise

    async with memory.runtime(limits=Limits(grace_seconds=5)) as runtime:
        for actor in (Stubborn(), Slow()):
            runtime.spawn(actor).send_nowait(1_000)
        await settle()
        begun = asyncio.get_running_loop().time()

    assert asyncio.get_running_loop().time() - begun <= 5
    assert runtime.actors.statistics().abandoned == ("Stubborn-1",)
    await asyncio.sleep(200)
    for task in asyncio.all_tasks():
        if task.get_name() == "Stubborn-1":
            task.cancel()


async def test_actors_of_a_runtime_have_its_limits(memory: Store) -> None:
    async with memory.runtime(limits=Limits(mailbox_capacity=2, actors=1)) as runtime:
        ref = runtime.spawn(Slow())
        ref.send_nowait(1)
        ref.send_nowait(1)
        with pytest.raises(MailboxFull):
            ref.send_nowait(1)
        with pytest.raises(InvalidValue):
            runtime.spawn("no actor")


async def test_nothing_is_spawned_before_the_runtime_is_open(memory: Store) -> None:
    runtime = memory.runtime()

    with pytest.raises(RuntimeClosed):
        runtime.spawn(Counter())


async def test_the_mailbox_of_a_run_neither_drops_nor_expires(memory: Store) -> None:
    """However long they wait and however many there are, inputs that were accepted are heard, in their order."""
    async with memory.runtime(an_agent([Delay(60, "done")]), limits=Limits(mailbox_capacity=3)) as runtime:
        run = await runtime.start("worker", "go")
        await run.pause()
        sends = [asyncio.create_task(run.send(f"input {number}")) for number in range(20)]
        await asyncio.sleep(7 * 86_400)

        await asyncio.gather(*sends)
        heard = [entry.event.text for entry in await journal_of(run, runtime) if isinstance(entry.event, InputReceived)]
        assert heard == [f"input {number}" for number in range(20)]


# Trees of them


async def test_a_tree_next_to_runs_is_restarted_logged_and_stopped_with_the_runtime(memory: Store) -> None:
    counters: list[Counter] = []
    told: list[CrashReport] = []

    def counter() -> Counter:
        counters.append(Counter())
        return counters[-1]

    @tool(read_only=True)
    async def count() -> int:
        """Count."""
        answer: int = await tree.child("counter").ask(1, 5)
        return answer

    agent = an_agent([[calling("count")], "done"], count)
    with capture_logs() as logs:
        async with memory.runtime(agent) as runtime:
            tree = runtime.supervise(Supervisor([ChildSpec("counter", counter)]), name="office", on_crash=told.append)
            await tree.wait_started()
            tree.child("counter").send_nowait("not a number")
            run = await runtime.start("worker", "go")

            assert (await run.wait_ended()).answer == "done"
            assert [(each.count, each.calls) for each in counters] == [(0, ["stopping"]), (1, [])]

    assert counters[1].calls == ["stopping"]
    [entry] = [entry for entry in logs if entry["event"] == "actor_crashed"]
    assert (entry["actor"], entry["supervisor"], entry["context"]) == ("office/counter", "office", "run")
    assert (entry["restart"], entry["restarts"], entry["log_level"]) == ("permanent", 0, "error")
    assert "in receive" in entry["traceback"]
    assert [report.offender.name for report in told] == ["office/counter"]
    with pytest.raises(RuntimeClosed):
        runtime.supervise(Supervisor())


async def test_a_tree_that_fails_as_a_whole_is_logged_and_no_run_notices(memory: Store) -> None:
    with capture_logs() as logs:
        async with memory.runtime(an_agent(["done"])) as runtime:
            limit = RestartLimit(0)
            tree = runtime.supervise(Supervisor([ChildSpec("counter", Counter)], limit=limit), name="office")
            await tree.wait_started()
            tree.child("counter").send_nowait("not a number")
            await tree.wait_stopped()
            run = await runtime.start("worker", "go")

            assert (await run.wait_ended()).answer == "done"

    events = [(entry["event"], entry["actor"]) for entry in logs if entry["event"].startswith("actor_")]
    assert events == [
        ("actor_crashed", "office/counter"),
        ("actor_crashed", "office/counter"),
        ("actor_failed", "office"),
    ]
