"""Runs that may kill the process that moves them: which go on alone, and who is counted; nobody else has to wait."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from runtime_world import Ledger, Store, an_agent, calling, journal_of, names_of

from geartrain.machine import Budget, RunQuarantined, RunRecovered
from geartrain.models import Delay
from geartrain.runtime import Agent, Runtime
from geartrain.runtime._suspects import HOLD_SECONDS
from geartrain.tools import Tool, ToolContext, tool

Isolation = Literal["task", "thread", "process"]


class World:
    """A service that is started again and again, and dies as soon as a tool that kills has begun."""

    def __init__(self) -> None:
        self.store = Store()
        self.begun: list[str] = []

    def killer(self, **options: Any) -> Tool:
        async def kill(context: ToolContext) -> str:
            """Kill the process."""
            self.begun.append(context.run_id)
            await asyncio.sleep(3_000)
            return "survived"

        return tool(read_only=True, timeout_seconds=4_000, **options)(kill)

    async def begins(self, *agents: Agent, **inputs: str) -> None:
        """Start runs, and die."""
        async with self.store.runtime(*agents) as runtime:
            for run_id, agent in inputs.items():
                await runtime.start(agent, "go", run_id=run_id)
            await self._dies()

    async def lives_and_dies(self, *agents: Agent, seconds: float = 0.2, **options: Any) -> list[str]:
        """Open the store, go on for a while and die; return what the killers of this life were begun for."""
        before = len(self.begun)
        async with self.store.runtime(*agents, **options):
            await self._dies(seconds)
        return self.begun[before:]

    async def dies_when_a_killer_begins(self, *agents: Agent, newcomer: str) -> tuple[dict[str, Any], bool]:
        """Open the store, start one more run, die if a killer begins; return how all stand, and whether it died."""
        before = len(self.begun)
        async with self.store.runtime(*agents) as runtime:
            if newcomer:
                await runtime.start("late", "go", run_id=newcomer)
            for _ in range(300):
                await asyncio.sleep(0.1)
                if len(self.begun) > before:
                    break
            rows = await runtime.list()
            stand = {row.id: (row.state, row.holds) for row in rows}
            await self._dies(0.0)
        return stand, len(self.begun) > before

    async def _dies(self, seconds: float = 0.2) -> None:
        await asyncio.sleep(seconds)
        left = Store()
        left.journal, left.ids = self.store.journal.as_killed(), self.store.ids
        self.store = left

    async def events(self, runtime: Runtime, run_id: str, kind: type[Any]) -> list[Any]:
        entries = await journal_of(await runtime.get(run_id), runtime)
        return [entry.event for entry in entries if isinstance(entry.event, kind)]


@pytest.fixture
def world() -> World:
    return World()


def killing(world: World, name: str = "worker", **options: Any) -> Agent:
    return an_agent([[calling("kill")], "done"], world.killer(**options), name=name)


async def test_only_the_run_that_was_alone_when_the_process_died_is_set_apart(world: World, ledger: Ledger) -> None:
    """CR-5: three suspects, one of them the killer: the others wait for their turn, and all but that one finish."""
    slow = an_agent([[calling("read")], "done"], ledger.read(5.0), name="slow")
    agents = (killing(world), slow)
    await world.begins(*agents, a="slow", b="worker", c="slow", d="slow")

    lives = [await world.lives_and_dies(*agents, seconds=6.0 if n else 0.2) for n in range(5)]

    # With all others, then twice alone: `a`, whose turn is first, has made progress by then.
    assert lives == [["b"], ["b"], ["b"], [], []]
    async with world.store.runtime(*agents) as runtime:
        for run_id in ("a", "c", "d"):
            assert (await (await runtime.get(run_id)).wait_ended()).answer == "done"
        rest = await (await runtime.get("b")).wait_at_rest()
        assert rest.holds == ("quarantined",)


async def test_a_killer_alone_is_counted_and_set_apart_with_its_call_named(world: World) -> None:
    agent = killing(world)
    await world.begins(agent, bad="worker")

    lives = [await world.lives_and_dies(agent) for _ in range(5)]

    # Once with all others, twice alone, never again.
    assert lives == [["bad"], ["bad"], ["bad"], [], []]
    async with world.store.runtime(agent) as runtime:
        rest = await (await runtime.get("bad")).wait_at_rest()
        assert rest.holds == ("quarantined",)
        (quarantine,) = await world.events(runtime, "bad", RunQuarantined)
        assert "call t1.c1 of 'kill' kills the process" in quarantine.reason
        recoveries = await world.events(runtime, "bad", RunRecovered)
        assert [event.alone for event in recoveries] == [False, True, True, False]
        assert {event.reason for event in recoveries} == {"crash"}


async def test_a_person_who_resumes_a_killer_lets_it_try_again(world: World) -> None:
    agent = killing(world)
    await world.begins(agent, bad="worker")
    for _ in range(4):
        await world.lives_and_dies(agent)
    async with world.store.runtime(agent) as runtime:
        await (await runtime.get("bad")).resume(by="ops")
        await world._dies()

    assert [await world.lives_and_dies(agent) for _ in range(4)] == [["bad"], ["bad"], ["bad"], []]


async def test_all_who_are_not_suspect_go_on_as_ever(world: World, ledger: Ledger) -> None:
    good = an_agent([Delay(0.05, [calling("read")]), Delay(0.05, "done")], ledger.read(0.05), name="good")
    agents = (killing(world), good)
    await world.begins(*agents, bad="worker")
    await world.lives_and_dies(*agents)
    await world.lives_and_dies(*agents)
    async with world.store.runtime(*agents) as runtime:
        run = await runtime.start("good", "go")

        assert (await run.wait_ended()).answer == "done"
        assert runtime._host.node.suspects.alone == "bad"


async def test_who_is_slow_is_not_blamed_for_what_newer_runs_do_beside_it(world: World, ledger: Ledger) -> None:
    """Each newcomer kills the process once before it is suspect itself, while the slow one is alone."""
    slow = an_agent([[calling("read")], "done"], ledger.read(5.0), name="slow")
    late = an_agent([Delay(0.1, [calling("kill")]), "done"], world.killer(), name="late")
    agents = (killing(world), slow, late)
    await world.begins(*agents, a="slow", b="worker")
    for number in range(24):
        newcomer = f"late-{number}" if number < 4 else ""
        snapshots, died = await world.dies_when_a_killer_begins(*agents, newcomer=newcomer)
        if not died:
            break

    assert snapshots == {
        "a": ("FINISHED", ()),
        "b": ("SUSPENDED", ("quarantined",)),
        **{f"late-{number}": ("SUSPENDED", ("quarantined",)) for number in range(4)},
    }


async def test_who_is_alone_for_long_lets_others_go_on(world: World, ledger: Ledger) -> None:
    """So nobody's budget is used up by waiting."""
    good = an_agent([[calling("read")], "done"], ledger.read(0.05), name="good")
    agents = (killing(world), good)
    await world.begins(*agents, bad="worker")
    await world.lives_and_dies(*agents)
    await world.lives_and_dies(*agents)
    async with world.store.runtime(*agents) as runtime:
        run = await runtime.start("good", "go")
        await asyncio.sleep(HOLD_SECONDS - 1.0)
        assert (await run.snapshot()).state == "EXECUTE_TOOL"
        assert not ledger.done

        await asyncio.sleep(2.0)
        assert (await run.snapshot()).answer == "done"


@pytest.mark.parametrize("isolation", ["task", "process"])
async def test_a_call_in_a_process_of_its_own_is_no_suspect(world: World, isolation: Isolation) -> None:
    """By today's code: it was moved into a worker process since, which is what the quarantine asks for."""
    await world.begins(killing(world), bad="worker")
    await world.lives_and_dies(killing(world))
    agent = an_agent([[calling("kill")], "done"], tool(read_only=True, isolation=isolation, name="kill")(_harmless))
    async with world.store.runtime(agent) as runtime:
        await runtime._host.residents.actor("bad")

        assert (runtime._host.node.suspects.alone == "bad") is (isolation == "task")


async def _harmless() -> str:
    """Do nothing."""
    return "nothing"


async def test_an_orderly_stop_makes_nobody_suspect(world: World) -> None:
    """CR-8: the reason that is stored is the shutdown."""
    agent = killing(world)
    async with world.store.runtime(agent) as runtime:
        await runtime.start("worker", "go", run_id="r")
        await asyncio.sleep(0.2)
    for _ in range(5):
        async with world.store.runtime(agent) as runtime:
            await asyncio.sleep(0.2)
            assert runtime._host.node.suspects.alone is None
    async with world.store.runtime(agent) as runtime:
        events = await world.events(runtime, "r", RunRecovered)
        assert {(event.reason, event.clean, event.alone) for event in events} == {("shutdown", True, False)}
        assert len(events) >= 5


async def test_an_orderly_process_in_between_neither_counts_nor_hides_a_death(world: World) -> None:
    """Somebody looks after another run with a command, between two deaths."""
    agent = killing(world)
    await world.begins(agent, bad="worker")
    lives = []
    for _ in range(5):
        lives.append(await world.lives_and_dies(agent))
        async with world.store.runtime(agent, recover="none") as runtime:
            other = await runtime.start("worker", "go")
            await other.cancel()

    assert [life.count("bad") for life in lives] == [1, 1, 1, 0, 0]


async def test_a_process_that_dies_before_it_has_recovered_anything_counts_nothing(world: World) -> None:
    agent = killing(world)
    await world.begins(agent, bad="worker")
    lives = []
    for _ in range(4):
        lives.append(await world.lives_and_dies(agent))
        async with world.store.runtime(agent, recover="none"):
            await world._dies()

    assert lives == [["bad"], ["bad"], ["bad"], []]


async def test_progress_ends_the_suspicion_and_the_next_one_has_its_turn(world: World, ledger: Ledger) -> None:
    """The queue moves on when a run has come further; nobody waits for its end."""
    slow = an_agent([[calling("read")], Delay(100, "done")], ledger.read(5.0), name="slow")
    await world.begins(slow, a="slow", b="slow", c="slow")
    await world.lives_and_dies(slow)
    async with world.store.runtime(slow) as runtime:
        suspects = runtime._host.node.suspects
        seen = []
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append((suspects.alone, suspects.waiting))
            await asyncio.sleep(4.2)
        assert seen == [("a", ("b", "c")), ("b", ("c",)), ("c", ())]
        assert (suspects.alone, suspects.waiting) == (None, ())
        assert ledger.peak == 3
        assert (await runtime.statistics()).suspects_waiting == ()


async def test_whoever_waits_for_its_turn_stays_out_of_memory_and_can_be_read(world: World, ledger: Ledger) -> None:
    slow = an_agent([[calling("read")], "done"], ledger.read(5.0), name="slow")
    await world.begins(slow, a="slow", b="slow")
    await world.lives_and_dies(slow)
    async with world.store.runtime(slow) as runtime:
        await asyncio.sleep(1)
        assert list(runtime._host.node.actors) == ["a"]
        assert (await runtime.statistics()).suspects_waiting == ("b",)
        assert (await runtime.snapshot("b")).state == "EXECUTE_TOOL"
        ended = await (await runtime.get("b")).wait_ended()

        assert ended.answer == "done"
        assert [e.alone for e in await world.events(runtime, "b", RunRecovered)] == [False, True]


async def test_whoever_waits_for_its_turn_is_charged_no_time_and_loses_no_call(world: World, ledger: Ledger) -> None:
    """However long the turn of the one before it lasts: nothing of it is in progress, so nothing can be overdue."""
    slow = an_agent([[calling("read")], "done", "done"], ledger.read(5.0), name="slow")
    long = an_agent([[calling("kill")], "done"], world.killer(), name="long", budget=Budget(max_seconds=3_100))
    await world.begins(long, slow, a="long", b="slow", c="slow")
    await world.lives_and_dies(long, slow)
    async with world.store.runtime(long, slow) as runtime:
        await asyncio.sleep(1)
        await (await runtime.get("c")).send("hear this")  # takes it into memory
        ended = [await (await runtime.get(run_id)).wait_ended() for run_id in ("b", "c")]

        for run_id, rest in zip("bc", ended, strict=True):
            assert rest.answer == "done", rest.error
            snapshot = await runtime.snapshot(run_id)
            assert snapshot.tool_failures == 0
            assert snapshot.active_seconds < 20
            assert (await runtime.replay(run_id)).difference is None


async def test_the_deadline_of_whoever_waits_for_its_turn_is_kept_all_the_same(world: World, ledger: Ledger) -> None:
    slow = an_agent([[calling("read")], "done"], ledger.read(5.0), name="slow")
    async with world.store.runtime(killing(world), slow) as runtime:
        clock = runtime._host.node.clock
        await runtime.start("worker", "go", run_id="a")
        deadline = clock.now() + 200
        await runtime.start("slow", "go", run_id="b", deadline=deadline)
        await world._dies()
    await world.lives_and_dies(killing(world), slow)
    async with world.store.runtime(killing(world), slow) as runtime:
        clock = runtime._host.node.clock
        ended = await (await runtime.get("b")).wait_ended()

        assert ended.error is not None
        assert ended.error["code"] == "deadline_exceeded"
        assert 0 <= clock.now() - deadline <= 1
        assert ledger.at_once <= 2  # in the two lives that died; not in this one


@pytest.mark.parametrize("act", ["cancel", "pause", "send"])
async def test_whoever_waits_for_its_turn_can_be_stopped_at_once_and_runs_nothing(
    world: World, ledger: Ledger, act: str
) -> None:
    slow = an_agent([[calling("read")], "done", "done"], ledger.read(5.0), name="slow")
    await world.begins(slow, a="slow", b="slow")
    await world.lives_and_dies(slow)
    async with world.store.runtime(slow) as runtime:
        await asyncio.sleep(1)
        handle = await runtime.get("b")
        before = ledger.at_once
        if act == "cancel":
            await handle.cancel()
            assert (await handle.wait_ended()).state == "CANCELLED"
        elif act == "pause":
            await handle.pause()
            assert (await handle.wait_at_rest()).holds == ("paused",)
        else:
            await handle.send("hear this")
            assert (await runtime.statistics()).suspects_waiting == ("b",)
        assert ledger.at_once == before
        if act == "pause":
            await handle.resume()
        if act != "cancel":
            assert (await handle.wait_ended()).answer == "done"
        assert (await runtime.replay("b")).difference is None


async def test_what_a_stranger_wrote_besides_tools_is_suspect_if_the_deaths_go_on(world: World) -> None:
    """A model that kills its process is set apart as well, only later."""
    agent = an_agent([Delay(3_000, "never")], name="worker", budget=None)
    await world.begins(agent, bad="worker")
    for _ in range(4):
        await world.lives_and_dies(agent)
        async with world.store.runtime(agent, recover="none") as runtime:
            assert "RunQuarantined" not in await names_of(await runtime.get("bad"), runtime)
    for _ in range(3):
        await world.lives_and_dies(agent)
    async with world.store.runtime(agent) as runtime:
        rest = await (await runtime.get("bad")).wait_at_rest()
        assert rest.holds == ("quarantined",)
        (quarantine,) = await world.events(runtime, "bad", RunQuarantined)
        assert "what it does in MODEL_THINKING kills the process" in quarantine.reason


async def test_a_command_that_drives_one_run_drives_it_alone(world: World, ledger: Ledger) -> None:
    slow = an_agent([[calling("read")], "done"], ledger.read(5.0), name="slow")
    await world.begins(slow, a="slow", b="slow")
    await world.lives_and_dies(slow)
    async with world.store.runtime(slow, recover="none") as runtime:
        assert (await (await runtime.get("b")).wait_ended()).answer == "done"
        assert [e.alone for e in await world.events(runtime, "b", RunRecovered)] == [False, True]


@pytest.mark.parametrize("act", ["cancel", "pause"])
async def test_a_command_stops_a_killer_without_letting_it_run(world: World, act: str) -> None:
    agent = killing(world)
    await world.begins(agent, bad="worker")
    await world.lives_and_dies(agent)
    before = len(world.begun)
    async with world.store.runtime(agent, recover="none") as runtime:
        handle = await runtime.get("bad")
        await (handle.cancel() if act == "cancel" else handle.pause())
        rest = await handle.wait_at_rest()

        assert (rest.state, rest.holds) in [("CANCELLED", ()), ("SUSPENDED", ("paused",))]
        assert len(world.begun) == before
        assert runtime._host.node.suspects.waiting == ()
        if act == "pause":
            await handle.resume()
            await asyncio.sleep(0.1)
            assert len(world.begun) == before + 1
