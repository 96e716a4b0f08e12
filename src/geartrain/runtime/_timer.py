"""The one timer of a store: it sleeps until the earliest time at which any run wants to be woken.

A hundred thousand runs that wait for an approval are rows with a time, not timers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from geartrain.errors import plain_traceback
from geartrain.runtime._log import log
from geartrain.runtime._node import Node

# However late the next wake-up is, the store is asked again after this long: clocks are corrected (a clock that reads
# the wall every 15 s makes it 30 s until a deadline that a jump has brought near is kept), and a run that could not be
# woken is tried again.
PATROL_SECONDS: Final = 15.0
_PAGE: Final = 100


class Timer:
    """Wakes runs when their time has come: all of the store, or *only_used* ones.

    Used is what was moved or waited for in this process, in memory or not: a run that rests has its deadline too.
    *wake* returns when a run wants to be woken next: one that is due and does not move stays due in the store.
    """

    __slots__ = ("_at", "_handle", "_node", "_only_used", "_ring", "_used", "_wake")

    def __init__(self, node: Node, wake: Callable[[str], Awaitable[float | None]], *, only_used: bool) -> None:
        self._node = node
        self._only_used = only_used
        # When those want to be woken that are used; kept only if there are others.
        self._used: dict[str, float] = {}
        self._wake = wake
        self._at: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._ring = asyncio.Event()

    def note(self, time: float | None, run_id: str) -> None:
        """Take note that a run wants to be woken at *time* (seconds since 1970), or at none."""
        if self._only_used:
            self._used.pop(run_id, None)
            if time is not None:
                self._used[run_id] = time
        if time is not None:
            self._ring_at(time)

    def _ring_at(self, time: float) -> None:
        if self._at is None or time < self._at:
            self._set(time)

    def _set(self, time: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at = time
        delay = max(0.0, time - self._node.clock.now())
        self._handle = asyncio.get_running_loop().call_later(delay, self._ring.set)

    async def serve(self) -> None:
        """Wake runs until cancelled."""
        while True:
            self._at = None
            try:
                await self._wake_due()
            except Exception as error:  # noqa: BLE001 - whatever it was this time, runs are woken the next time
                log.warning("timer_failed", error=type(error).__name__, traceback=plain_traceback(error))
                self._ring_at(self._node.clock.now() + 1.0)
            await self._ring.wait()
            self._ring.clear()

    async def _wake_due(self) -> None:
        node = self._node
        now = node.clock.now()
        if self._only_used:
            following = await self._wake_used()
        else:
            await self._wake_stored(now)
            following = await node.journal.next_wake(now)
        self._ring_at(min(following if following is not None else now + PATROL_SECONDS, now + PATROL_SECONDS))

    async def _wake_used(self) -> float | None:
        """Wake those that are used and due; return when the next of them wants to be woken."""
        now = self._node.clock.now()
        for run_id in [run_id for run_id, time in self._used.items() if time <= now]:
            await self._wake_one(run_id)
            if self._used.get(run_id, math.inf) <= now and run_id not in self._node.actors:
                del self._used[run_id]  # it cannot be woken, or has ended
        return min((time for time in self._used.values() if time > now), default=None)

    async def _wake_stored(self, now: float) -> None:
        """Wake every run of the store that is due, those that cannot be woken once."""
        tried: set[str] = set()
        while True:
            # Those that stay due are read again each time: so the pages grow with them, and there are few.
            due = await self._node.journal.due(now, limit=_PAGE + 2 * len(tried))
            fresh = [run_id for run_id in due if run_id not in tried]
            if not fresh:
                return
            for run_id in fresh:
                await self._wake_one(run_id)
            tried.intersection_update(due)
            tried.update(fresh)

    async def _wake_one(self, run_id: str) -> None:
        following = await self._wake(run_id)
        if following is not None:
            self._ring_at(following)

    def close(self) -> None:
        """Wake nobody any more."""
        if self._handle is not None:
            self._handle.cancel()
