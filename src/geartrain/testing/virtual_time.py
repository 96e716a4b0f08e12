"""An event loop whose clock jumps, so that a test about seven days takes a millisecond.

Rule 1: time stands still while anything is ready to run.
Rule 2: time stands still while a thread owes an answer, or every time-out would fire before the reply that
takes a tenth of a real second. Jobs of `run_in_executor` and `asyncio.to_thread` are counted; code that hands
work to threads of its own says so with `geartrain.clock.thread_job`.
Rule 3: otherwise it jumps to the next timer. Sockets and pipes do not hold it up: a server listens for ever.
Rule 4: if there is no timer either, nothing can ever happen; that is an error after a few real seconds, not a
test that hangs.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from geartrain.errors import InternalError, UsageError

DEADLOCK_SECONDS: Final = 5.0
THREAD_JOB_SECONDS_MAX: Final = 30.0

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


@dataclass(eq=False)
class VirtualDeadlock(UsageError):
    """Nothing that the loop knows of can ever wake it again."""

    at_seconds: float
    reason: str
    waiting: tuple[str, ...]

    def __str__(self) -> str:
        tasks = ", ".join(self.waiting) or "no task"
        return f"virtual time stands still at {self.at_seconds:g} s: {self.reason}; waiting: {tasks}"


@dataclass(eq=False)
class ThreadJobMiscounted(InternalError):
    """A thread job ended that had not started."""

    def __str__(self) -> str:
        return "thread_job_ended() was called more often than thread_job_started()"


@dataclass(eq=False)
class NotVirtual(UsageError):
    """Something that needs virtual time was called on another loop."""

    loop: str

    def __str__(self) -> str:
        return f"settle: needs a VirtualLoop, this loop is a {self.loop}; run on virtual_time_backend()"


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop with a clock of its own, which starts at 0 and jumps to the next timer.

    Args:
        deadlock_seconds: Real seconds to wait for a wake-up from outside when no timer is set.
        thread_job_seconds_max: Real seconds that one wait for a thread may last.
    """

    def __init__(
        self,
        *,
        deadlock_seconds: float = DEADLOCK_SECONDS,
        thread_job_seconds_max: float = THREAD_JOB_SECONDS_MAX,
    ) -> None:
        self._now = 0.0
        self._thread_jobs = 0
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._deadlock_seconds = deadlock_seconds
        self._thread_job_seconds_max = thread_job_seconds_max
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        # Patched rather than subclassed: which selector is the default depends on the system.
        self._select_really: Callable[[float | None], list[Any]] = selector.select
        self._watched = selector.get_map()
        self._watched_by_the_loop = len(self._watched)
        selector.select = self._select  # type: ignore[method-assign]

    def time(self) -> float:
        """Return the virtual time in seconds; 0 is when the loop was made."""
        return self._now

    def thread_job_started(self) -> None:
        """Hold time until `thread_job_ended`: a thread owes an answer."""
        self._thread_jobs += 1

    def thread_job_ended(self) -> None:
        """Take one `thread_job_started` back."""
        if self._thread_jobs < 1:
            raise ThreadJobMiscounted
        self._thread_jobs -= 1

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Arguments]], Answer], *args: *Arguments
    ) -> asyncio.Future[Answer]:
        """Run *func* in a thread and hold time until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self.thread_job_started()
        future.add_done_callback(lambda _: self.thread_job_ended())
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """Wait for the executor's threads; the limit that asyncio puts on that is in virtual time."""
        self.thread_job_started()
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self.thread_job_ended()

    async def wait_idle(self) -> None:
        """Wait until nothing is ready to run and no thread owes an answer; time does not move."""
        idle = self.create_future()
        self._idle_waiters.append(idle)
        await idle

    def _select(self, timeout: float | None = None) -> list[Any]:
        # asyncio asks with a time-out of 0 as long as anything is ready to run.
        events = self._select_really(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._thread_jobs:
            return self._select_within(
                self._thread_job_seconds_max,
                f"{self._thread_jobs} thread job(s) gave no answer for {self._thread_job_seconds_max:g} real"
                " seconds (a thread that waits for a timer of this loop never will); use the real clock",
            )
        if self._idle_waiters:
            self._wake_idle_waiters()
            return events
        if timeout is not None:
            self._now += timeout
            return events
        if len(self._watched) > self._watched_by_the_loop:  # a process or a peer may still speak
            return self._select_really(None)
        return self._select_within(
            self._deadlock_seconds, "nothing is ready, no timer is set and no thread job is in flight"
        )

    def _select_within(self, real_seconds: float, reason: str) -> list[Any]:
        events = self._select_really(real_seconds)
        if not events:
            names = sorted(map(_described, asyncio.all_tasks(self)))
            raise VirtualDeadlock(self._now, reason, tuple(names))
        return events

    def _wake_idle_waiters(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def virtual_time_backend() -> tuple[str, dict[str, Any]]:
    """Return what an `anyio_backend` fixture, or `anyio.run`, needs to run on virtual time."""
    return "asyncio", {"loop_factory": VirtualLoop}


async def settle() -> None:
    """Wait until everything that can happen at this moment of virtual time has happened.

    Afterwards each other task waits for a timer, for an outside event or for the caller.

    Raises:
        NotVirtual: The running loop is not a `VirtualLoop`; the real clock has no such moment.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise NotVirtual(type(loop).__name__)
    await loop.wait_idle()


def _described(task: asyncio.Task[Any]) -> str:
    return f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')})"
