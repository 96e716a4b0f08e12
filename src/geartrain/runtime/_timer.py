"""The one timer of a store: it sleeps until the earliest time at which any run wants to be woken.

A hundred thousand runs that wait for an approval are rows with a time, not timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from geartrain.errors import GeartrainError
from geartrain.runtime._log import log
from geartrain.runtime._node import Node

# However late the next wake-up is, the store is asked again after this long: clocks are corrected, and a run that
# could not be woken is tried again.
PATROL_SECONDS: Final = 30.0
_PAGE: Final = 100


class Timer:
    """Wakes runs when their time has come."""

    __slots__ = ("_at", "_handle", "_node", "_ring", "_wake")

    def __init__(self, node: Node, wake: Callable[[str], Awaitable[None]]) -> None:
        self._node = node
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
            except GeartrainError as error:
                log.warning("timer_failed", error=str(error))
                self.note(self._node.clock.now() + 1.0)
            await self._ring.wait()
            self._ring.clear()

    async def _wake_due(self) -> None:
        node = self._node
        now = node.clock.now()
        seen: set[str] = set()
        while due := [run_id for run_id in await node.journal.due(now, limit=_PAGE) if run_id not in seen]:
            seen.update(due)
            for run_id in due:
                await self._wake(run_id)
            if len(seen) >= _PAGE * 10:  # the rest at the next turn: others want the loop too
                self.note(now)
                return
        following = await node.journal.next_wake(now)
        self.note(min(following if following is not None else now + PATROL_SECONDS, now + PATROL_SECONDS))

    def close(self) -> None:
        """Wake nobody any more."""
        if self._handle is not None:
            self._handle.cancel()
