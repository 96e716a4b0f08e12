"""Patience: how a task that must end is made to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final

# How often a task that should stop is cancelled again, in seconds: some swallow a cancellation.
NUDGE_SECONDS: Final = 0.25


class Patience:
    """Lets a task finish until a moment, cancels it again and again for a while, then gives it up.

    No task is given up that was not cancelled first, and given that while, even if the loop was held up meanwhile.

    Args:
        task: The one that must end.
        finish_at: When it is first cancelled, by the loop's clock.
        unwind_seconds: How long it has from then on, until nobody waits for it any longer.
        on_given_up: Called then with the task, unless it is done.
    """

    __slots__ = ("_give_up_at", "_on_given_up", "_task", "_timer", "_unwind_seconds")

    def __init__(
        self,
        task: asyncio.Task[Any],
        *,
        finish_at: float,
        unwind_seconds: float,
        on_given_up: Callable[[asyncio.Task[Any]], None],
    ) -> None:
        self._task = task
        self._unwind_seconds = unwind_seconds
        self._give_up_at: float | None = None
        self._on_given_up = on_given_up
        self._timer: asyncio.TimerHandle | None = None
        if finish_at < math.inf:  # not every loop takes a timer that never comes
            self._timer = task.get_loop().call_at(finish_at, self._nudge, context=Context())
        task.add_done_callback(self._over, context=Context())

    def _nudge(self) -> None:
        loop = self._task.get_loop()
        if self._task.done():
            return
        now = loop.time()
        if self._give_up_at is None:
            self._give_up_at = now + self._unwind_seconds
        elif now >= self._give_up_at:
            self._on_given_up(self._task)
            return
        self._task.cancel()
        at = min(self._give_up_at, now + NUDGE_SECONDS)
        self._timer = loop.call_at(at, self._nudge, context=Context())

    def _over(self, _task: asyncio.Task[Any]) -> None:
        if self._timer is not None:
            self._timer.cancel()
