"""A write that was given up and still runs: neither verified nor run again before it has returned."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from runtime_world import Gated, Store, an_agent, calling, names_of, results_of, settle

from geartrain.limits import Limits
from geartrain.machine import ResultStatus, ToolStarted
from geartrain.persistence import CommitUnknown
from geartrain.runtime import Runtime
from geartrain.runtime._actor import RunActor
from geartrain.runtime._attempts import Attempts
from geartrain.tools import Done, NotDone, Tool, ToolContext, tool

QUICK = Limits(grace_seconds=1.0)


class World:
    """What a write that does not stop when told to has done, and what was at work at once."""

    def __init__(self) -> None:
        self.begun = 0
        self.done = 0
        self.asked = 0
        self.at_once = 0
        self.peak = 0
        self.began = threading.Event()
        self.release = threading.Event()

    def enter(self) -> None:
        self.begun += 1
        self.at_once += 1
        self.peak = max(self.peak, self.at_once)
        self.began.set()

    def leave(self, *, done: bool = True) -> None:
        self.done += done
        self.at_once -= 1

    def check(self, arguments: Any, context: ToolContext) -> Done | NotDone:
        self.asked += 1
        self.peak += self.at_once  # a verification beside a write counts as overlapping
        return Done("found") if self.done else NotDone()

    async def check_here(self, arguments: Any, context: ToolContext) -> Done | NotDone:
        return self.check(arguments, context)

    def deaf(self, seconds: float, **options: Any) -> Tool:
        """A write as a task that swallows every cancellation for *seconds*, and is done at their end."""

        async def write() -> str:
            """Write."""
            self.enter()
            loop = asyncio.get_running_loop()
            until = loop.time() + seconds
            while (left := until - loop.time()) > 0:
                try:
                    await asyncio.sleep(left)
                except asyncio.CancelledError:
                    continue
            self.leave()
            return "written"

        return tool(timeout_seconds=5, **options)(write)


@pytest.fixture
def world() -> World:
    return World()


def at_work(runtime: Runtime) -> int:
    return len(runtime._host.node.attempts)


@pytest.mark.real_time
async def test_a_write_on_a_thread_that_is_done_after_its_time_out_is_found_done(memory: Store, world: World) -> None:
    def write() -> str:
        """Write."""
        world.enter()
        time.sleep(0.3)
        world.leave()
        return "written"

    agent = an_agent([[calling("write")], "done"], tool(timeout_seconds=0.05, verify=world.check)(write))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        assert (await run.wait_ended()).answer == "done"
        assert await results_of(run, runtime) == [(ResultStatus.OK, "found")]
        assert (world.begun, world.done, world.asked, world.peak) == (1, 1, 1, 1)
        assert at_work(runtime) == 0


@pytest.mark.real_time
async def test_attempts_on_threads_never_overlap_when_the_first_fails_after_its_time_out(
    memory: Store, world: World
) -> None:
    def write() -> str:
        """Write."""
        world.enter()
        if world.begun == 1:
            time.sleep(0.3)
            world.leave(done=False)
            raise OSError("the line broke")
        world.leave()
        return "written"

    agent = an_agent([[calling("write")], "done"], tool(timeout_seconds=0.05, verify=world.check)(write))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        assert (await run.wait_ended()).answer == "done"
        assert await results_of(run, runtime) == [(ResultStatus.OK, "written")]
        assert (world.begun, world.done, world.asked, world.peak) == (2, 1, 1, 1)
        assert at_work(runtime) == 0


async def test_a_write_that_swallows_cancellation_is_verified_after_its_end(store: Store, world: World) -> None:
    agent = an_agent([[calling("write")], "done"], world.deaf(20.0, verify=world.check_here))
    async with store.runtime(agent, limits=QUICK) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(15)
        waiting = await runtime.statistics()
        assert (waiting.effects, len(waiting.effects_abandoned), at_work(runtime)) == (1, 1, 1)
        assert runtime._host.node.pool.statistics().task.in_use == 0
        end = await run.wait_ended()
        assert await results_of(run, runtime) == [(ResultStatus.OK, "found")]
        assert (end.answer, world.begun, world.done, world.peak) == ("done", 1, 1, 1)
        assert at_work(runtime) == 0


async def test_the_attempts_of_an_idempotent_write_never_overlap(store: Store, world: World) -> None:
    agent = an_agent([[calling("write")], "done"], world.deaf(7.0, idempotent=True))
    async with store.runtime(agent, limits=QUICK) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("in_doubt(t1.c1)",)  # each attempt outlasts its time
        assert (world.begun, world.peak) == (3, 1)
        await asyncio.sleep(10)
        assert at_work(runtime) == 0


async def test_a_write_that_does_not_end_is_not_verified_but_left_to_a_person(store: Store, world: World) -> None:
    limits = Limits(grace_seconds=1, dwell_seconds=30)
    agent = an_agent([[calling("write")], "done"], world.deaf(200.0, verify=world.check_here))
    async with store.runtime(agent, limits=limits) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("in_doubt(t1.c1)",)
        assert "an earlier attempt still runs" in rest.waiting[0].reason
        assert (world.begun, world.asked, at_work(runtime)) == (1, 0, 1)
        await run.settle("t1.c1", by="me", done=True)
        assert (await run.wait_ended()).answer == "done"
        await asyncio.sleep(200)
        assert at_work(runtime) == 0


@pytest.mark.parametrize("verified", [True, False])
async def test_what_a_person_has_run_again_waits_for_the_earlier_attempt_too(
    store: Store, world: World, *, verified: bool
) -> None:
    limits = Limits(grace_seconds=1, dwell_seconds=30)
    options = {"verify": world.check_here} if verified else {}
    agent = an_agent([[calling("write")], "done"], world.deaf(150.0, **options))
    async with store.runtime(agent, limits=limits) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await run.settle("t1.c1", by="me", not_done="run")
        await asyncio.sleep(1)
        rest = await run.wait_at_rest()
        assert rest.holds == ("in_doubt(t1.c1)",)
        assert "an earlier attempt still runs" in rest.waiting[0].reason
        assert (world.begun, world.asked, world.peak) == (1, 0, 1)
        await asyncio.sleep(150)
        await run.settle("t1.c1", by="me", not_done="run")
        await asyncio.sleep(1)
        assert (world.begun, world.peak) == (2, 1)
        assert (await runtime.replay(run.id)).difference is None


async def test_an_idempotent_write_that_does_not_end_comes_to_a_person_and_does_not_loop(
    store: Store, world: World
) -> None:
    limits = Limits(grace_seconds=1, dwell_seconds=30, write_attempts=3)
    agent = an_agent([[calling("write")], "done"], world.deaf(1_000.0, idempotent=True, verify=world.check_here))
    async with store.runtime(agent, limits=limits) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("in_doubt(t1.c1)",)
        assert (world.begun, world.asked) == (1, 0)
        assert (await names_of(run, runtime)).count("ToolStarted") == 3


@pytest.mark.real_time
async def test_a_run_read_again_while_its_write_is_on_a_thread_waits_for_the_thread(
    memory: Store, world: World
) -> None:
    def write() -> str:
        """Write."""
        world.enter()
        world.release.wait(5)
        world.leave()
        return "written"

    gated = Gated(memory.journal)
    agent = an_agent([[calling("write")], "done"], tool(timeout_seconds=5, verify=world.check)(write))
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.to_thread(world.began.wait, 5)
        gated.at_once = CommitUnknown("runs.db", "append", "I/O")
        with pytest.raises(CommitUnknown):
            await run.pause(by="me")
        gated.at_once = None
        await asyncio.sleep(0.1)
        assert (world.begun, world.asked) == (1, 0)
        world.release.set()
        assert (await run.wait_ended()).answer == "done"
        assert await results_of(run, runtime) == [(ResultStatus.OK, "found")]
        assert (world.begun, world.done, world.peak, at_work(runtime)) == (1, 1, 1, 0)


async def test_a_run_that_is_cancelled_while_it_waits_for_an_attempt_ends_in_doubt(memory: Store, world: World) -> None:
    agent = an_agent([[calling("write")], "done"], world.deaf(100.0, verify=world.check_here))
    async with memory.runtime(agent, limits=QUICK) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(10)
        await run.cancel(by="me")
        end = await run.wait_ended()
        assert (end.state, world.asked) == ("CANCELLED", 0)
        assert runtime._host.node.effects.count == 0
        await asyncio.sleep(100)
        assert (world.asked, at_work(runtime)) == (0, 0)


async def test_a_runtime_closes_while_an_effect_waits_for_an_attempt(memory: Store, world: World) -> None:
    agent = an_agent([[calling("write")], "done"], world.deaf(20.0, verify=world.check_here))
    async with memory.runtime(agent, limits=QUICK) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(10)
        attempts = runtime._host.node.attempts
    assert (len(attempts), world.asked) == (1, 0)
    await asyncio.sleep(20)
    assert (len(attempts), world.asked) == (0, 0)
    async with memory.runtime(agent) as runtime:
        assert (await (await runtime.get(run.id)).wait_ended()).answer == "done"
        assert (world.begun, world.asked) == (1, 1)


async def test_a_write_whose_start_cannot_be_put_to_its_run_gives_its_place_back(
    memory: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_result = RunActor.put_result

    def full(actor: RunActor, event: Any, *rest: Any, **options: Any) -> None:
        if type(event) is ToolStarted:
            raise ValueError("no room")
        put_result(actor, event, *rest, **options)

    monkeypatch.setattr(RunActor, "put_result", full)
    agent = an_agent([[calling("write")], "done"], world.deaf(1.0))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        await settle()
        assert (rest.holds, world.begun) == (("quarantined",), 0)
        assert runtime._host.node.effects.count == 0
        assert runtime._host.node.pool.statistics().task.in_use == 0


async def test_whoever_waits_for_several_attempts_is_told_once_after_the_last() -> None:
    told: list[tuple[str, bool]] = []
    attempts = Attempts()
    attempts.begin("r", "c")
    attempts.begin("r", "c")
    wait = attempts.when_over("r", "c", 10, lambda over: told.append(("waits", over)))
    given_up = attempts.when_over("r", "c", 10, lambda over: told.append(("given up", over)))
    late = attempts.when_over("r", "c", 1, lambda over: told.append(("late", over)))
    assert wait is not None
    assert given_up is not None
    assert late is not None
    given_up.cancel()

    await asyncio.sleep(2)
    attempts.end("r", "c")
    await settle()
    before_the_last = list(told)
    attempts.end("r", "c")
    await asyncio.sleep(20)

    assert before_the_last == [("late", False)]
    assert told == [("late", False), ("waits", True)]
    assert len(attempts) == 0
    assert attempts.when_over("r", "c", 1, told.append) is None  # type: ignore[arg-type]


async def test_a_wait_that_is_cancelled_after_the_end_calls_nobody() -> None:
    told: list[bool] = []
    attempts = Attempts()
    attempts.begin("r", "c")
    wait = attempts.when_over("r", "c", 10, told.append)
    assert wait is not None

    attempts.end("r", "c")
    wait.cancel()
    await asyncio.sleep(20)

    assert told == []


@pytest.mark.real_time
@pytest.mark.parametrize("isolation", ["task", "thread"])
@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_write_whose_result_takes_too_long_to_show_is_done_once(
    memory: Store, isolation: Any, idempotent: bool
) -> None:
    """IN-5: what is found after the tool has run never makes its effect happen again."""
    effects: list[str] = []

    def slow_to_show(_value: object) -> str:
        time.sleep(1.0)
        return "shown late"

    async def here(context: ToolContext) -> str:
        """Write."""
        effects.append(context.call_id)
        return "x"

    def there(context: ToolContext) -> str:
        """Write."""
        effects.append(context.call_id)
        return "x"

    function: Any = here if isolation == "task" else there
    write = tool(name="write", idempotent=idempotent, timeout_seconds=0.3, present=slow_to_show)(function)
    agent = an_agent([[calling("write")], "done"], write)
    async with memory.runtime(agent) as runtime:
        end = await (await runtime.start(agent, "go")).wait_at_rest()

    assert (end.state, end.answer) == ("FINISHED", "done")
    assert effects == ["t1.c1"]
