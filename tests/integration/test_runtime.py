"""The runtime over a real SQLite file, with real threads, in real time."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest

from geartrain.errors import GeartrainError
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import Budget, RequestedCall, ResultStatus
from geartrain.models import ScriptedModel
from geartrain.persistence import StoreBusy, StoreFailed
from geartrain.persistence.sqlite import _file
from geartrain.runtime import Agent, Allow, Ask, RunHandle, Runtime, open_reader
from geartrain.runtime._reading._runs import read_run
from geartrain.runtime._tasks import EffectTasks, Ended
from geartrain.tools import ToolContext, tool

pytestmark = pytest.mark.real_time


def allow_all(_call: Any, _run: Any) -> Allow:
    return Allow()


def calls(*names: str) -> tuple[RequestedCall, ...]:
    return tuple(RequestedCall(tool=name) for name in names)


async def results_of(runtime: Runtime, run: RunHandle) -> list[ResultStatus]:
    revived = await read_run(runtime._host.node.journal, run.id)
    return [message.status for message in revived.run.messages if message.role == "tool"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def test_many_runs_with_threads_and_tasks_end_and_are_read_by_another_handle(path: Path) -> None:
    done: list[str] = []

    def slow(context: ToolContext) -> str:
        """Work on a thread."""
        time.sleep(0.002)
        done.append(context.idempotency_key)
        return "slow"

    async def quick(context: ToolContext) -> str:
        """Work as a task."""
        await asyncio.sleep(0)
        done.append(context.idempotency_key)
        return "quick"

    agent = Agent("worker", model=ScriptedModel([calls("slow", "quick"), "done"]), tools=[tool(slow), tool(quick)])
    async with Runtime.open(path, agents=[agent], policy=allow_all) as runtime:
        runs = await asyncio.gather(*(runtime.start("worker", str(n)) for n in range(100)))
        ends = await asyncio.gather(*(run.wait_ended() for run in runs))
        assert {end.answer for end in ends} == {"done"}
        assert len(done) == len(set(done)) == 200
        async with open_reader(path) as reader:
            assert len(await reader.list(limit=1_000, states=["FINISHED"])) == 100
            assert (await reader.replay(runs[0].id)).difference is None
        await asyncio.sleep(0.05)
        assert (await runtime.statistics()).runs_loaded == 0


async def test_a_run_approved_after_a_restart_goes_on(path: Path) -> None:
    async def write() -> str:
        """Write."""
        return "written"

    agent = Agent("worker", model=ScriptedModel([calls("write"), "done"]), tools=[tool(write)])
    async with Runtime.open(path, agents=[agent], policy=lambda *_: Ask()) as runtime:
        run = await runtime.start("worker", "go")
        assert (await run.wait_at_rest()).holds == ("approval(t1.c1)",)
        with pytest.raises(StoreBusy):
            async with Runtime.open(path, agents=[agent]):
                pass
    async with Runtime.open(path, agents=[agent], policy=lambda *_: Ask()) as runtime:
        run = await runtime.get(run.id)
        await run.approve("t1.c1", by="me")
        assert (await asyncio.wait_for(run.wait_ended(), 2)).answer == "done"


async def test_a_write_that_gets_no_thread_in_time_has_not_begun_and_is_not_in_doubt(path: Path) -> None:
    """Threads that are given up keep their places; who never got one is known to have done nothing."""
    release, written = threading.Event(), []

    def block() -> str:
        """Block."""
        release.wait(5)
        return "late"

    def write() -> str:
        """Write."""
        written.append("x")
        return "written"

    tools = [tool(read_only=True, timeout_seconds=0.1)(block), tool(timeout_seconds=0.1)(write)]
    agent = Agent("worker", model=ScriptedModel([calls("block", "write"), "done"]), tools=tools)
    limits = Limits(thread_calls_at_once=1, grace_seconds=0.1)
    async with Runtime.open(path, agents=[agent], policy=allow_all, limits=limits) as runtime:
        run = await runtime.start("worker", "go")
        end = await asyncio.wait_for(run.wait_ended(), 5)
        assert await results_of(runtime, run) == [ResultStatus.TIMED_OUT, ResultStatus.NOT_STARTED]
        release.set()
    assert (end.answer, written) == ("done", [])


async def test_a_write_that_hangs_on_its_thread_is_in_doubt_after_its_time(path: Path) -> None:
    release = threading.Event()

    def write() -> str:
        """Write."""
        release.wait(5)
        return "late"

    agent = Agent("worker", model=ScriptedModel([calls("write"), "done"]), tools=[tool(timeout_seconds=0.1)(write)])
    async with Runtime.open(path, agents=[agent], policy=allow_all, limits=Limits(grace_seconds=0.1)) as runtime:
        run = await runtime.start("worker", "go")
        rest = await asyncio.wait_for(run.wait_at_rest(), 5)
        assert rest.holds == ("in_doubt(t1.c1)",)
        release.set()
        await asyncio.sleep(0.1)
        assert (await run.snapshot()).seq == rest.seq


class SmallFile(sqlite3.Connection):
    """A connection whose file may not grow as long as there is a limit."""

    pages = 0

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if sql.startswith("BEGIN"):
            super().execute(f"PRAGMA max_page_count = {SmallFile.pages or 1_000_000}")
        return super().execute(sql, *arguments)


async def test_a_full_disk_is_told_to_callers_and_runs_go_on_when_there_is_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **{**options, "factory": SmallFile})

    written: list[str] = []

    async def write(context: ToolContext) -> str:
        """Write."""
        written.append(context.idempotency_key)
        return "x" * 8_000

    monkeypatch.setattr(_file.sqlite3, "connect", connected)
    model = ScriptedModel([calls("write")] * 10 + ["done"])
    agent = Agent("worker", model=model, tools=[tool(write)], budget=Budget(max_tokens=UNLIMITED))
    async with Runtime.open(path, agents=[agent], policy=allow_all) as runtime:
        acknowledged = []
        SmallFile.pages = 40
        try:
            for n in range(200):
                try:
                    await runtime.start("worker", "x" * 20_000, run_id=f"r-{n}")
                except StoreFailed:
                    break
                acknowledged.append(f"r-{n}")
            else:
                pytest.fail("the file never filled up")
            await asyncio.sleep(0.2)
        finally:
            SmallFile.pages = 0
        ends = [await asyncio.wait_for((await runtime.get(each)).wait_ended(), 10) for each in acknowledged]
        assert {end.answer for end in ends} == {"done"}
        assert len(written) == len(set(written)) == 10 * len(acknowledged)
        assert not (await runtime.statistics()).store_failing


async def test_a_process_whose_runtime_was_closed_has_no_thread_left(path: Path) -> None:
    gc.collect()
    before = set(threading.enumerate())
    seen: list[Any] = []

    def read() -> str:
        """Read."""
        return "read"

    agent = Agent("worker", model=ScriptedModel([calls("read"), "done"]), tools=[tool(read_only=True)(read)])
    for _ in range(3):
        async with Runtime.open(path, agents=[agent], observers=[seen.extend]) as runtime:
            await (await runtime.start("worker", "go")).wait_ended()
    left = [each for each in set(threading.enumerate()) - before if each.name.startswith("geartrain")]
    for thread in left:
        await asyncio.to_thread(thread.join, 2)
    assert not any(thread.is_alive() for thread in left)
    assert sum(record.event == "run_finished" for record in seen) == 3


async def test_a_huge_result_does_not_hold_the_loop_up(path: Path) -> None:
    """IN-6."""

    async def read() -> str:
        """Read."""
        return "x" * 50_000_000

    agent = Agent("worker", model=ScriptedModel([calls("read"), "done"]), tools=[tool(read_only=True)(read)])
    async with Runtime.open(path, agents=[agent]) as runtime:
        lags: list[float] = []

        async def tick() -> None:
            while True:
                began = time.perf_counter()
                await asyncio.sleep(0.005)
                lags.append(time.perf_counter() - began)

        ticking = asyncio.ensure_future(tick())
        run = await runtime.start("worker", "go")
        assert (await run.wait_ended()).answer == "done"
        ticking.cancel()
        assert max(lags) < 0.5


async def test_two_processes_worth_of_decisions_at_once_are_made_once(path: Path) -> None:
    """AP-9, from many threads that each post through the loop."""
    done: list[str] = []

    async def write(context: ToolContext) -> str:
        """Write."""
        done.append(context.call_id)
        return "written"

    agent = Agent("worker", model=ScriptedModel([calls("write"), "done"]), tools=[tool(write)])
    async with Runtime.open(path, agents=[agent], policy=lambda *_: Ask()) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        loop = asyncio.get_running_loop()
        got: list[Any] = []

        def post(n: int) -> None:
            future = asyncio.run_coroutine_threadsafe(run.approve("t1.c1", by=f"p{n}"), loop)
            try:
                got.append(future.result(5))
            except GeartrainError as error:
                got.append(error)

        await asyncio.gather(*(asyncio.to_thread(post, n) for n in range(20)))
        assert sum(isinstance(each, int) for each in got) == 1
        assert (await run.wait_ended()).answer == "done"
        assert done == ["t1.c1"]


def test_a_call_back_that_takes_its_time_keeps_no_loop_of_another_thread_from_its_own() -> None:
    """Two runtimes in two threads: what is abandoned in one is told while the other one is telling."""
    telling, told, heard = threading.Event(), threading.Event(), list[bool]()

    async def abandon(on_end: Callable[[Ended], None]) -> None:
        async def stubborn() -> None:
            while not told.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.05)

        tasks = EffectTasks(grace_seconds=0.01)
        effect = tasks.start("stubborn", stubborn(), timeout_seconds=60, context=Context(), on_end=on_end)
        await asyncio.sleep(0)
        effect.cancel()
        while not told.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.01)

    def slowly(_ended: Ended) -> None:
        telling.set()
        heard.append(told.wait(20))

    slow = threading.Thread(target=lambda: asyncio.run(abandon(slowly)))
    slow.start()
    assert telling.wait(20)
    quick = threading.Thread(target=lambda: asyncio.run(abandon(lambda _ended: told.set())))
    quick.start()
    slow.join(30)
    told.set()  # if it was not told, so that the threads end
    quick.join(30)

    assert heard == [True]
