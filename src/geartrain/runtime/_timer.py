"""The one timer of a store: it sleeps until the earliest time at which any run wants to be woken.

A hundred thousand runs that wait for an approval are rows with a time, not timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from geartrain.machine import wake_at
from geartrain.runtime._log import log, plain_traceback
from geartrain.runtime._node import Node

# However late the next wake-up is, the store is asked again after this long: clocks are corrected, and a run that
# could not be woken is tried again.
PATROL_SECONDS: Final = 30.0
_PAGE: Final = 100


class Timer:
    """Wakes runs when their time has come: all of the store, or *only_loaded* ones."""

    __slots__ = ("_at", "_handle", "_node", "_only_loaded", "_ring", "_wake")

    def __init__(self, node: Node, wake: Callable[[str], Awaitable[None]], *, only_loaded: bool) -> None:
        self._node = node
        self._only_loaded = only_loaded
        self._wake = wake
        self._at: float | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._ring = asyncio.Event()

    def note(self, time: float) -> None:
        """Take note that a run wants to be woken at *time* (seconds since 1970)."""
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
                self.note(self._node.clock.now() + 1.0)
            await self._ring.wait()
            self._ring.clear()

    async def _wake_due(self) -> None:
        node = self._node
        now = node.clock.now()
        if self._only_loaded:
            following = await self._wake_loaded()
        else:
            await self._wake_stored(now)
            following = await node.journal.next_wake(now)
        self.note(min(following if following is not None else now + PATROL_SECONDS, now + PATROL_SECONDS))

    async def _wake_loaded(self) -> float | None:
        """Look at the runs in memory alone; return when the next of them wants to be woken."""
        for run_id in list(self._node.actors):
            await self._wake(run_id)
        runs = [(actor.run, actor.specs.get(actor.run.spec)) for actor in self._node.actors.values()]
        times = [wake_at(run, spec) for run, spec in runs if spec is not None]
        now = self._node.clock.now()
        return min((time for time in times if time is not None and time > now), default=None)

    async def _wake_stored(self, now: float) -> None:
        """Wake every run of the store that is due, those that cannot be woken once."""
        tried: set[str] = set()
        while True:
            due = await self._node.journal.due(now, limit=_PAGE + len(tried))
            fresh = [run_id for run_id in due if run_id not in tried]
            if not fresh:
                return
            for run_id in fresh:
                await self._wake(run_id)
            tried.intersection_update(due)
            tried.update(fresh)

    def close(self) -> None:
        """Wake nobody any more."""
        if self._handle is not None:
            self._handle.cancel()
