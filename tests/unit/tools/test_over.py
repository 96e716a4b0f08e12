"""When nothing of a tool call runs any more: told once, also of a call that was given up long before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.tools import ThreadPool, ToolContext, invoke, tool

LIMITS = Limits()


@pytest.fixture
async def threads() -> AsyncIterator[ThreadPool]:
    pool = ThreadPool(4)
    yield pool
    pool.close()


async def test_a_task_that_swallows_its_cancellation_is_over_when_it_has_returned(threads: ThreadPool) -> None:
    over: list[float] = []
    now = asyncio.get_running_loop().time
    began_at = now()

    @tool
    async def deaf() -> None:
        while now() < began_at + 10:
            try:
                await asyncio.sleep(began_at + 10 - now())
            except asyncio.CancelledError:
                continue

    call = asyncio.create_task(
        invoke(deaf, {}, ToolContext(), limits=LIMITS, threads=threads, over=lambda: over.append(now()))
    )
    await asyncio.sleep(1)
    call.cancel()
    await asyncio.wait([call])

    assert over == [pytest.approx(began_at + 10)]


async def test_a_call_on_a_thread_is_over_when_its_function_has_ended_though_given_up_long_ago(
    threads: ThreadPool,
) -> None:
    go_on, told = threading.Event(), asyncio.Event()
    over: list[str] = []

    @tool
    def write() -> None:
        go_on.wait(20)
        over.append("function")

    def tell() -> None:
        over.append("over")
        told.set()

    call = asyncio.create_task(invoke(write, {}, ToolContext(), limits=LIMITS, threads=threads, over=tell))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait([call])
    before = list(over)
    go_on.set()
    await told.wait()

    assert before == []
    assert over == ["function", "over"]


async def test_a_call_is_over_once_however_often_it_was_tried(threads: ThreadPool) -> None:
    tries: list[int] = []
    over: list[int] = []

    @tool(read_only=True, retries=2)
    def fails() -> None:
        tries.append(1)
        raise ValueError("no")

    await invoke(fails, {}, ToolContext(), limits=LIMITS, threads=threads, over=lambda: over.append(len(tries)))

    assert over == [3]


async def test_a_call_that_never_began_is_never_over(threads: ThreadPool) -> None:
    over: list[str] = []
    threads.close()

    @tool
    def write() -> None:
        pass

    outcome = await invoke(write, {}, ToolContext(), limits=LIMITS, threads=threads, over=lambda: over.append("over"))

    assert outcome.status is ResultStatus.NOT_STARTED
    assert over == []
