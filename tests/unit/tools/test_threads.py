"""Threads that are used again, and given up when nobody waits for them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator

import pytest

from geartrain.errors import InvalidValue
from geartrain.tools import ThreadPool, ThreadsUnavailable


@pytest.fixture
async def pool() -> AsyncIterator[ThreadPool]:
    pool = ThreadPool(2)
    yield pool
    pool.close()


async def test_a_job_gives_its_result_and_its_error(pool: ThreadPool) -> None:
    def fails() -> None:
        raise ValueError("v")

    assert await pool.submit(lambda: 7) == 7
    with pytest.raises(ValueError, match="v"):
        await pool.submit(fails)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, StopIteration, asyncio.CancelledError])
async def test_an_error_that_would_end_the_loop_comes_wrapped(kind: type[BaseException], pool: ThreadPool) -> None:
    def fails() -> None:
        raise kind

    with pytest.raises(RuntimeError, match=f"{kind.__name__} left a thread job") as raised:
        await pool.submit(fails)

    assert isinstance(raised.value.__cause__, kind)


async def test_a_thread_is_started_on_demand_and_used_again(pool: ThreadPool) -> None:
    assert pool.statistics().threads == 0

    first = await pool.submit(threading.get_ident)
    second = await pool.submit(threading.get_ident)

    assert first == second
    assert pool.statistics().threads == 1


async def test_no_more_jobs_run_at_once_than_the_capacity(pool: ThreadPool) -> None:
    go_on = threading.Semaphore(0)
    futures = [pool.submit(lambda: go_on.acquire(timeout=20)) for _ in range(5)]

    statistics = pool.statistics()
    go_on.release(5)

    assert await asyncio.gather(*futures) == [True] * 5
    assert (statistics.busy, statistics.waiting, statistics.threads) == (2, 3, 2)
    assert pool.statistics().busy_peak == 2


async def test_jobs_start_in_the_order_in_which_they_were_given() -> None:
    pool = ThreadPool(1)
    started: list[int] = []

    await asyncio.gather(*(pool.submit(lambda number=number: started.append(number)) for number in range(100)))
    pool.close()

    assert started == list(range(100))


async def test_a_cancelled_waiter_gives_the_thread_up_and_its_place_is_free_when_it_ends(pool: ThreadPool) -> None:
    go_on = threading.Event()
    stuck = [pool.submit(lambda: go_on.wait(20)) for _ in range(2)]
    for future in stuck:
        future.cancel()
    await asyncio.sleep(0)

    waiting = pool.submit(lambda: "done")
    while_stuck = pool.statistics()
    go_on.set()

    assert await waiting == "done"
    assert (while_stuck.busy, while_stuck.abandoned, while_stuck.waiting) == (0, 2, 1)
    assert pool.statistics().busy_peak == 2


async def test_a_job_cancelled_before_it_has_a_thread_never_runs(pool: ThreadPool) -> None:
    go_on = threading.Event()
    ran: list[str] = []
    stuck = [pool.submit(lambda: go_on.wait(20)) for _ in range(2)]

    pool.submit(lambda: ran.append("cancelled")).cancel()
    last = pool.submit(lambda: ran.append("wanted"))
    go_on.set()
    await asyncio.gather(*stuck, last)

    assert ran == ["wanted"]
    assert pool.statistics().waiting == 0


async def test_time_stands_still_for_a_thread_that_somebody_waits_for(pool: ThreadPool) -> None:
    go_on = threading.Event()
    threading.Timer(0.05, go_on.set).start()

    async with asyncio.timeout(0.001):  # of virtual time
        await pool.submit(lambda: go_on.wait(20))


async def test_time_goes_on_when_a_thread_is_given_up(pool: ThreadPool) -> None:
    go_on = threading.Event()
    future = pool.submit(lambda: go_on.wait(20))
    future.cancel()

    await asyncio.sleep(1_000)  # of virtual time; would wait for the thread if that were still owed

    assert pool.statistics().abandoned == 1
    go_on.set()


async def test_a_job_runs_in_the_context_that_it_is_given(pool: ThreadPool) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="default")
    given = contextvars.Context()
    given.run(variable.set, "given")
    variable.set("the caller's")

    assert await pool.submit(variable.get) == "the caller's"
    assert await pool.submit(variable.get, context=given) == "given"
    assert await pool.submit(variable.get, context=contextvars.Context()) == "default"


async def test_an_idle_thread_keeps_no_result_alive(pool: ThreadPool) -> None:
    class Result:
        pass

    reference = weakref.ref(await pool.submit(Result))
    await pool.submit(lambda: None)
    gc.collect()

    assert reference() is None


async def test_a_closed_pool_refuses_what_waits_and_what_comes_and_ends_its_threads() -> None:
    pool = ThreadPool(1)
    go_on = threading.Event()
    running = pool.submit(lambda: go_on.wait(20))
    waiting = pool.submit(lambda: None)

    pool.close()
    go_on.set()

    assert await running
    for refused in (waiting, pool.submit(lambda: None)):
        with pytest.raises(ThreadsUnavailable, match="closed"):
            await refused
    assert pool.statistics().threads == 0


async def test_a_system_without_threads_refuses_the_job(pool: ThreadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)

    with pytest.raises(ThreadsUnavailable, match="can't start new thread"):
        await pool.submit(lambda: None)

    monkeypatch.undo()
    assert await pool.submit(lambda: 1) == 1


def test_a_capacity_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidValue, match="capacity must be at least 1, got 0"):
        ThreadPool(0)


def test_a_thread_that_ends_after_its_loop_tells_nobody() -> None:
    go_on, ended = threading.Event(), threading.Event()

    async def main() -> threading.Thread:
        before = set(threading.enumerate())
        ThreadPool(1).submit(lambda: (go_on.wait(20), ended.set())).cancel()
        return (set(threading.enumerate()) - before).pop()

    thread = asyncio.run(main())
    go_on.set()
    thread.join(20)

    assert ended.is_set()
    assert not thread.is_alive()


BLOCKED = """
import asyncio, threading
from geartrain.tools import ThreadPool

async def main():
    ThreadPool(1).submit(threading.Event().wait)
    await asyncio.sleep(0.05)

asyncio.run(main())
"""


@pytest.mark.real_time
def test_a_thread_that_never_ends_does_not_keep_the_process_from_exiting() -> None:
    assert subprocess.run([sys.executable, "-c", BLOCKED], timeout=20, check=False).returncode == 0
