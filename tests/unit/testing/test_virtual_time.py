from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from geartrain.clock import LoopClock, thread_job
from geartrain.testing import VirtualDeadlock, VirtualLoop, settle
from geartrain.testing.virtual_time import NotVirtual, ThreadJobMiscounted

T = TypeVar("T")


def run(main: Callable[[], Coroutine[Any, Any, T]], loop: VirtualLoop) -> T:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main())


async def test_a_day_passes_in_no_time() -> None:
    really = time.monotonic()
    before = asyncio.get_running_loop().time()

    await anyio.sleep(86_400)

    assert asyncio.get_running_loop().time() - before == pytest.approx(86_400)
    assert time.monotonic() - really < 5


async def test_timers_fire_in_order_at_exactly_their_time() -> None:
    fired: list[tuple[str, float]] = []
    loop = asyncio.get_running_loop()
    start = loop.time()

    for name, seconds in (("c", 3e6), ("a", 0.5), ("b", 0.75)):
        loop.call_later(seconds, lambda name=name: fired.append((name, loop.time() - start)))
    await asyncio.sleep(4e6)

    assert fired == [("a", 0.5), ("b", 0.75), ("c", pytest.approx(3e6))]


async def test_time_does_not_move_while_something_is_ready() -> None:
    loop = asyncio.get_running_loop()
    before = loop.time()
    loop.call_later(1, lambda: None)

    for _ in range(1_000):
        await asyncio.sleep(0)

    assert loop.time() == before


@pytest.mark.parametrize("how", ["executor", "to_thread", "counted"])
async def test_a_thread_of_a_tenth_of_a_second_beats_a_timer_of_ten(how: str) -> None:
    order: list[str] = []

    async def wait_for_the_thread() -> None:
        if how == "executor":
            await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.1)
        elif how == "to_thread":
            await asyncio.to_thread(time.sleep, 0.1)
        else:
            with thread_job():
                await anyio.to_thread.run_sync(time.sleep, 0.1)
        order.append("thread")

    async def wait_for_the_timer() -> None:
        await anyio.sleep(10)
        order.append("timer")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_the_timer)
        tasks.start_soon(wait_for_the_thread)

    assert order == ["thread", "timer"]


async def test_a_thread_job_that_fails_no_longer_holds_time() -> None:
    def fail() -> None:
        raise OSError

    with pytest.raises(OSError):
        await asyncio.to_thread(fail)

    await anyio.sleep(60)


async def test_the_loop_clock_follows_virtual_time() -> None:
    clock = LoopClock()
    before = clock.now()

    await anyio.sleep(7 * 86_400)

    assert clock.now() - before == pytest.approx(7 * 86_400)


async def test_settle_returns_when_every_other_task_waits() -> None:
    reached: list[int] = []
    loop = asyncio.get_running_loop()
    before = loop.time()

    async def walk() -> None:
        for step in range(50):
            await asyncio.sleep(0)
            reached.append(step)
        await asyncio.sleep(1)
        reached.append(-1)

    task = asyncio.create_task(walk())
    await settle()

    assert reached == list(range(50))
    assert loop.time() == before
    await task


async def test_settle_waits_for_thread_jobs() -> None:
    answers: list[str] = []

    async def ask_a_thread() -> None:
        answers.append(await asyncio.to_thread(lambda: time.sleep(0.02) or "answer"))

    task = asyncio.create_task(ask_a_thread())
    await settle()

    assert answers == ["answer"]
    await task


async def test_a_cancelled_settle_harms_nobody() -> None:
    first = asyncio.create_task(settle())
    await asyncio.sleep(0)
    first.cancel()

    await settle()

    assert first.cancelled()


@pytest.mark.real_time
async def test_settle_is_refused_on_the_real_clock() -> None:
    with pytest.raises(NotVirtual, match="needs a VirtualLoop"):
        await settle()


def test_a_wait_that_nothing_can_end_is_an_error_that_names_the_task() -> None:
    async def wait_for_ever() -> None:
        await anyio.sleep(2)
        await anyio.Event().wait()

    with pytest.raises(VirtualDeadlock, match=r"at 2 s: nothing is ready.*wait_for_ever") as caught:
        run(wait_for_ever, VirtualLoop(deadlock_seconds=0.01))

    assert caught.value.at_seconds == 2


def test_a_thread_that_waits_for_the_loop_s_timer_is_an_error() -> None:
    async def wait_for_a_thread_that_waits_for_us() -> None:
        done = threading.Event()
        asyncio.get_running_loop().call_later(10, done.set)
        try:
            await asyncio.to_thread(done.wait)
        finally:
            done.set()

    with pytest.raises(VirtualDeadlock, match=r"1 thread job\(s\) gave no answer for 0.02 real seconds"):
        run(wait_for_a_thread_that_waits_for_us, VirtualLoop(thread_job_seconds_max=0.02))


def test_a_thread_that_was_not_counted_can_still_wake_an_idle_loop() -> None:
    async def wait_for_an_uncounted_thread() -> str:
        await anyio.to_thread.run_sync(time.sleep, 0.02)
        return "woken"

    assert anyio.run(wait_for_an_uncounted_thread, backend_options={"loop_factory": VirtualLoop}) == "woken"


def test_a_process_may_take_longer_than_the_deadlock_limit() -> None:
    async def wait_for_a_process() -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "import time; time.sleep(0.1); print('done')", stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
        return output

    assert run(wait_for_a_process, VirtualLoop(deadlock_seconds=0.01)).split() == [b"done"]


async def test_a_pipe_is_read_before_time_jumps() -> None:
    receiver, sender = os.pipe()
    arrived = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(receiver, arrived.set)
    os.write(sender, b"x")

    try:
        async with asyncio.timeout(1):
            await arrived.wait()
    finally:
        loop.remove_reader(receiver)
        os.close(receiver)
        os.close(sender)


def test_ending_a_thread_job_that_never_started_is_our_fault() -> None:
    loop = VirtualLoop()

    with pytest.raises(ThreadJobMiscounted):
        loop.thread_job_ended()

    loop.close()
