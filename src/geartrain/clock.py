"""Time as a port: everything that needs to know the time is given a `Clock`.

Wall time orders nothing (numbers do); it dates events and sets absolute deadlines. So the clock never runs
backwards within a process: it is the wall time read at the start plus monotonic time, and follows the wall
only when that is re-read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

# Together with the timer's patrol (`runtime._timer`): however the wall clock is set, a deadline is at most 30 s late.
REREAD_SECONDS: Final = 15.0


class Clock(Protocol):
    """What time it is."""

    def now(self) -> float:
        """Return seconds since 1970 (UTC); never less than at the call before."""
        ...


class SystemClock:
    """Wall time at the start plus monotonic time, corrected from the wall every 15 s.

    A wall clock set back is followed by standing still until it has caught up, never by going back.
    """

    __slots__ = ("_at_monotonic", "_at_wall", "_latest")

    def __init__(self) -> None:
        self._at_wall = time.time()
        self._at_monotonic = time.monotonic()
        self._latest = self._at_wall

    def now(self) -> float:
        """Return seconds since 1970 (UTC); never less than at the call before."""
        monotonic = time.monotonic()
        if monotonic - self._at_monotonic >= REREAD_SECONDS:
            self._at_wall, self._at_monotonic = time.time(), monotonic
        now = self._at_wall + (monotonic - self._at_monotonic)
        self._latest = max(now, self._latest)
        return self._latest


class LoopClock:
    """The running event loop's own time, counted from *epoch*; follows a loop with virtual time."""

    __slots__ = ("_epoch",)

    def __init__(self, epoch: float = 1_767_225_600.0) -> None:
        self._epoch = epoch

    def now(self) -> float:
        """Return *epoch* plus the running loop's time, in seconds."""
        return self._epoch + asyncio.get_running_loop().time()


@contextmanager
def thread_job() -> Iterator[None]:
    """Tell the running loop that a thread owes it an answer.

    A loop with virtual time must not jump to its next timer while a thread is still working, or every
    time-out fires at once. Such a loop has `thread_job_started` and `thread_job_ended`; others are left alone.
    """
    loop = asyncio.get_running_loop()
    started = getattr(loop, "thread_job_started", None)
    if started is None:
        yield
        return
    started()
    try:
        yield
    finally:
        loop.thread_job_ended()  # type: ignore[attr-defined]
