from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Coroutine
from contextvars import Context, ContextVar
from typing import Any

import anyio
import pytest

from geartrain.actors._hands import Hands
from geartrain.testing import settle

USER: ContextVar[str] = ContextVar("user")


@pytest.fixture
async def hands() -> AsyncIterator[Hands]:
    hands = Hands(asyncio.get_running_loop())
    yield hands
    hands.close()
    await settle()


async def begin(hands: Hands, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Start *work* as a cell does: in a callback, outside of any task. What it raises is raised here."""
    started: asyncio.Future[list[asyncio.Task[None] | None]] = asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            started.set_result([hands.start(work, "work")])
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            started.set_exception(error)

    asyncio.get_running_loop().call_soon(call, context=Context())
    [task] = await started
    return task


async def test_work_that_does_not_wait_is_done_at_once_and_leaves_no_task(hands: Hands) -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        done.append(number)

    assert await begin(hands, work(0)) is None
    before = asyncio.all_tasks()
    for number in range(1, 100):
        assert await begin(hands, work(number)) is None

    assert done == list(range(100))
    assert asyncio.all_tasks() == before


async def test_what_work_raises_before_it_waits_is_raised_at_once(hands: Hands) -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await begin(hands, work())


async def test_work_that_waits_goes_on_as_one_task_with_its_name(hands: Hands) -> None:
    seen: list[asyncio.Task[Any] | None] = []

    async def work() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(1)
        seen.append(asyncio.current_task())
        await asyncio.sleep(1)
        seen.append(asyncio.current_task())

    task = await begin(hands, work())
    assert task is not None
    await task

    assert seen == [task, task, task]
    assert task.get_name() == "work"


async def test_the_task_that_works_is_the_current_one_only_while_it_works(hands: Hands) -> None:
    outside: list[asyncio.Task[Any] | None] = []
    gate = asyncio.Event()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(lambda: outside.append(asyncio.current_task()))
        await gate.wait()

    task = await begin(hands, work())
    await settle()
    gate.set()

    assert task is not None
    await task
    assert outside == [None]


async def test_time_limits_and_task_groups_work_from_the_first_line(hands: Hands) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(5)
        except TimeoutError:
            ended.append("timeout")
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(1))
        ended.append("group")
        with anyio.move_on_after(1):
            await asyncio.sleep(5)
        ended.append("anyio")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 1)
            tasks.cancel_scope.cancel()
        ended.append("scope")

    for _ in range(3):
        ended.clear()
        task = await begin(hands, work())
        assert task is not None
        await task
        assert ended == ["timeout", "group", "anyio", "scope"]


async def test_what_work_binds_is_there_after_its_wait_and_not_for_the_next(hands: Hands) -> None:
    seen: list[str] = []

    async def bind(waits: bool) -> None:
        token = USER.set("alice")
        if waits:
            await asyncio.sleep(1)
            seen.append(USER.get())
            USER.reset(token)

    async def look() -> None:
        seen.append(USER.get("nobody"))

    task = await begin(hands, bind(waits=True))
    assert task is not None
    await task
    await begin(hands, bind(waits=False))
    await begin(hands, look())

    assert seen == ["alice", "nobody"]


@pytest.mark.parametrize("ticks", range(6))
@pytest.mark.parametrize("spare", [True, False])
async def test_work_can_be_cancelled_at_every_tick(hands: Hands, ticks: int, spare: bool) -> None:
    inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ended: list[str] = []

    async def nothing() -> None:
        pass

    async def work() -> None:
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await inner
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    if spare:
        await begin(hands, nothing())
        await settle()
    task = await begin(hands, work())
    assert task is not None
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    await settle()

    assert ended == ["cancelled"]
    assert task.cancelled()


async def test_a_cancel_right_after_the_start_reaches_what_the_work_waits_for(hands: Hands) -> None:
    inner: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        await inner

    task = await begin(hands, work())
    assert task is not None
    task.cancel()
    await settle()

    assert inner.cancelled()
    assert task.cancelled()


async def test_work_may_swallow_its_cancellation(hands: Hands) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        ended.append("in its own time")

    task = await begin(hands, work())
    assert task is not None
    task.cancel()
    await task

    assert ended == ["in its own time"]


async def test_work_that_cancels_itself_and_ends_does_not_harm_the_next(hands: Hands) -> None:
    done: list[str] = []

    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        task.uncancel()

    async def waits() -> None:
        await asyncio.sleep(1)
        done.append("waited")

    await begin(hands, cancels())
    task = await begin(hands, waits())
    assert task is not None
    await task

    assert done == ["waited"]


@pytest.mark.parametrize("ends", ["returns", "raises"])
async def test_a_task_that_work_has_kept_is_its_own_and_not_that_of_the_next(hands: Hands, ends: str) -> None:
    kept: list[asyncio.Task[Any]] = []
    done: list[str] = []

    async def keep() -> None:
        task = asyncio.current_task()
        assert task is not None
        kept.append(task)
        if ends == "raises":
            raise ValueError("own")

    async def wait() -> None:
        await asyncio.sleep(1)
        done.append("waited")

    with contextlib.suppress(ValueError):
        await begin(hands, keep())
    task = await begin(hands, wait())
    kept[0].cancel()
    assert task is not None
    await task

    assert done == ["waited"]
    assert kept[0].done()


async def test_who_listens_for_the_end_of_work_hears_it_although_the_work_never_waited(hands: Hands) -> None:
    heard: list[Any] = []

    async def listened_to() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: heard.append("ended"))

    assert await begin(hands, listened_to()) is None
    await settle()

    assert heard == ["ended"]


async def test_a_spare_task_that_somebody_cancelled_is_not_used(hands: Hands) -> None:
    async def nothing() -> None:
        pass

    async def waits() -> None:
        await asyncio.sleep(1)

    await begin(hands, nothing())
    [spare] = [task for task in asyncio.all_tasks() if task.get_name() == "geartrain-spare-hand"]
    spare.cancel()  # as asyncio.run does at its end
    working = await begin(hands, waits())
    assert working is not None
    await working


async def test_waiting_work_is_kept_from_the_garbage_collector_by_what_it_waits_for(hands: Hands) -> None:
    done: list[str] = []

    async def work() -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            gc.collect()
        done.append("done")

    await begin(hands, work())
    await settle()

    assert done == ["done"]


async def test_closed_hands_keep_no_task(hands: Hands) -> None:
    async def nothing() -> None:
        pass

    before = asyncio.all_tasks()
    await begin(hands, nothing())
    await settle()
    assert len(asyncio.all_tasks()) == len(before) + 1
    hands.close()
    await settle()
    assert asyncio.all_tasks() == before

    await begin(hands, nothing())
    await settle()
    assert asyncio.all_tasks() == before


async def test_a_working_task_can_be_looked_at(hands: Hands) -> None:
    async def work() -> None:
        await asyncio.sleep(1)

    task = await begin(hands, work())
    assert task is not None

    assert "work() running at" in repr(task)
    assert [frame.f_code.co_name for frame in task.get_stack()] == ["work"]
    await task


def test_hands_left_open_at_the_end_of_a_loop_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def nothing() -> None:
        pass

    async def main() -> None:
        await begin(Hands(asyncio.get_running_loop()), nothing())

    asyncio.run(main(), debug=True)
    gc.collect()

    assert caplog.records == []
