"""How long a run that only waits for its sub-agents stays in memory: some seconds since it last heard of one.

It is likely to hear of the next one soon, and to read it again would cost more than to keep it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

LINGER_SECONDS: Final = 5.0


class Linger:
    """One run's stay. One timer at a time is set, however often it is renewed."""

    __slots__ = ("_then", "_timer", "_until")

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0

    @property
    def over(self) -> bool:
        """Whether it has stayed long enough."""
        return asyncio.get_running_loop().time() >= self._until

    def renew(self) -> None:
        """Let it stay from now on; *then* is called when that is over."""
        self._until = asyncio.get_running_loop().time() + LINGER_SECONDS
        if self._timer is None:
            self._set()

    def _set(self) -> None:
        self._timer = asyncio.get_running_loop().call_at(self._until, self._look)

    def _look(self) -> None:
        self._timer = None
        if self.over:
            self._then()
        else:
            self._set()
