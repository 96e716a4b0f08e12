"""Threads for what blocks: started on demand, used again, and given up when nobody waits for them any more.

A thread cannot be stopped. So one whose waiter has gone works on, its result is dropped, and it keeps its place until
it ends: that bounds how many there can be. All threads are daemons: a job that never ends does not keep the process
from exiting, which the standard library's executor, joined at exit, would do.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from geartrain.clock import thread_job
from geartrain.errors import InvalidValue
from geartrain.tools._errors import ThreadsUnavailable

T = TypeVar("T")


class ThreadStatistics(msgspec.Struct, frozen=True):
    """A snapshot of a `ThreadPool`.

    `busy` threads work for somebody, `abandoned` ones for nobody any more; both count against `capacity`.
    `waiting` jobs have no thread yet. `busy_peak` is the most that were busy and abandoned at once.
    """

    capacity: int
    threads: int
    busy: int
    abandoned: int
    waiting: int
    busy_peak: int


class _Job:
    """One function, where its answer goes, and whether it is still wanted."""

    __slots__ = ("abandoned", "began", "context", "ended", "function", "future", "held", "over")

    def __init__(self, function: Callable[[], Any], context: contextvars.Context, future: asyncio.Future[Any]) -> None:
        self.function = function
        self.context = context
        self.future = future
        self.began: Callable[[], None] | None = None
        self.over: Callable[[], None] | None = None
        self.held = ExitStack()
        self.abandoned = False
        self.ended = False


class ThreadPool:
    """At most *capacity* daemon threads of one event loop. Not for use from other threads."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise InvalidValue("capacity", "at least 1", capacity)
        self._capacity = capacity
        self._idle: list[_Worker] = []
        self._threads = 0
        self._waiting: OrderedDict[_Job, None] = OrderedDict()
        self._running: set[_Job] = set()
        self._abandoned = 0
        self._peak = 0
        self._closed = False

    def submit(
        self,
        function: Callable[[], T],
        *,
        context: contextvars.Context | None = None,
        began: Callable[[], None] | None = None,
        over: Callable[[], None] | None = None,
    ) -> asyncio.Future[T]:
        """Run *function* on a thread, as soon as there is one, and return the future of its result.

        Jobs start in the order in which they were given. Cancelling the future before the start withdraws the job;
        later it gives the thread up: the function runs to its end and what comes of it is dropped.

        Args:
            function: What it raises is raised by the future; what is not an `Exception` inside a `RuntimeError`.
            context: The context that it runs in; a copy of the caller's if not given.
            began: Called on the event loop when the function is handed to a thread.
            over: Called on the event loop when a function that was handed to a thread has ended, given up or not;
                not at all if the loop is closed by then.

        Raises:
            ThreadsUnavailable: By the future: the pool is closed, or the system gives no thread.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._closed:
            future.set_exception(ThreadsUnavailable("the pool is closed"))
            return future
        job = _Job(function, contextvars.copy_context() if context is None else context, future)
        job.began, job.over = began, over
        job.held.enter_context(thread_job())
        future.add_done_callback(lambda _: self._answered(job))
        self._waiting[job] = None
        self._start_waiting()
        return future

    def close(self) -> None:
        """Let idle threads end, and busy ones when they are done. Jobs that wait for a thread are refused."""
        self._closed = True
        while self._waiting:
            job, _ = self._waiting.popitem(last=False)
            if not job.future.done():
                job.future.set_exception(ThreadsUnavailable("the pool is closed"))
        while self._idle:
            self._end(self._idle.pop())

    def statistics(self) -> ThreadStatistics:
        """Return how many threads there are and what they do."""
        return ThreadStatistics(
            capacity=self._capacity,
            threads=self._threads,
            busy=len(self._running) - self._abandoned,
            abandoned=self._abandoned,
            waiting=sum(not job.future.done() for job in self._waiting),
            busy_peak=self._peak,
        )

    def _start_waiting(self) -> None:
        while self._waiting and (self._idle or self._threads < self._capacity):
            job, _ = self._waiting.popitem(last=False)
            if job.future.done():
                continue
            try:
                worker = self._idle.pop() if self._idle else self._new_worker(job.future.get_loop())
            except RuntimeError as error:  # the system's limit of threads
                job.future.set_exception(ThreadsUnavailable(str(error)))
                continue
            self._running.add(job)
            self._peak = max(self._peak, len(self._running))
            if job.began is not None:
                job.began()
            worker.jobs.put(job)

    def _new_worker(self, loop: asyncio.AbstractEventLoop) -> _Worker:
        worker = _Worker(loop, self._ended)
        worker.start()
        self._threads += 1
        return worker

    def _answered(self, job: _Job) -> None:
        job.held.close()
        self._waiting.pop(job, None)
        if job in self._running and not job.ended:
            job.abandoned = True
            self._abandoned += 1

    def _ended(self, worker: _Worker, job: _Job, result: Any, error: Exception | None) -> None:
        job.ended = True
        self._running.discard(job)
        self._abandoned -= job.abandoned
        if not job.future.done():
            if error is not None:
                job.future.set_exception(error)
            else:
                job.future.set_result(result)
        if job.over is not None:
            job.over()
        if self._closed:
            self._end(worker)
        else:
            self._idle.append(worker)
            self._start_waiting()

    def _end(self, worker: _Worker) -> None:
        self._threads -= 1
        worker.jobs.put(None)


class _Worker:
    """One thread and the queue by which jobs reach it."""

    __slots__ = ("_ended", "_loop", "jobs")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ended: Callable[[_Worker, _Job, Any, Exception | None], None],
    ) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._loop = loop
        self._ended = ended

    def start(self) -> None:
        threading.Thread(target=self._work, name="geartrain-tool", daemon=True).start()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            result, error = _run(job)
            try:
                self._loop.call_soon_threadsafe(self._ended, self, job, result, error)
            except RuntimeError:  # the loop is closed: nobody is left to tell
                return
            del job, result, error  # an idle thread keeps no result alive


def _run(job: _Job) -> tuple[Any, Exception | None]:
    try:
        return job.context.run(job.function), None
    except StopIteration as error:  # which no future takes
        return None, _wrapped(error)
    except Exception as error:  # noqa: BLE001 - a stranger's function; its error goes to whoever waits
        return None, error
    except BaseException as error:  # noqa: BLE001 - SystemExit would end the event loop that it is handed to
        return None, _wrapped(error)


def _wrapped(error: BaseException) -> RuntimeError:
    wrapped = RuntimeError(f"{type(error).__name__} left a thread job")
    wrapped.__cause__ = error
    return wrapped
