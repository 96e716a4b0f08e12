"""How many calls of one model there may be at once."""

from __future__ import annotations

from collections.abc import Callable


class Gate:
    """At most *capacity* calls of one model at once; the rest wait in the order they came, and cost no task."""

    __slots__ = ("_busy", "_capacity", "_waiting")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._busy: set[object] = set()
        self._waiting: dict[object, Callable[[], None]] = {}

    def request(self, holder: object, grant: Callable[[], None]) -> None:
        """Call *grant* when there is room."""
        if len(self._busy) < self._capacity:
            self._busy.add(holder)
            grant()
        else:
            self._waiting[holder] = grant

    def release(self, holder: object) -> None:
        """Give the place back, or the place in the queue up."""
        self._waiting.pop(holder, None)
        if holder in self._busy:
            self._busy.discard(holder)
            if self._waiting:
                following = next(iter(self._waiting))
                grant = self._waiting.pop(following)
                self._busy.add(following)
                grant()
