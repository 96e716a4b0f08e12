"""Attempts of writes that are at work in this runtime, however long ago their effects gave them up.

Rule 1: a thread cannot be stopped and a task may ignore it, so what was given up may still do its write. Until it has
returned, its call is neither verified nor run again: what `verify` finds would not last, and two attempts would
overlap.
Rule 2: nobody waits for that without end. After the time that the waiter gave, it is told that the attempt still runs.
Rule 3: attempts outlive actors and effects, not the process: what runs in no process any more is no attempt here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context


class _AtWork:
    """The attempts of one call: how many run, and who waits for their end."""

    __slots__ = ("count", "waits")

    def __init__(self) -> None:
        self.count = 0
        self.waits: dict[Wait, None] = {}


class Wait:
    """A wait for the end of a call's attempts. Ends once: it is over, out of time, or cancelled."""

    __slots__ = ("_at_work", "_callback", "_handle", "_loop")

    def __init__(self, at_work: _AtWork, seconds: float, callback: Callable[[bool], None]) -> None:
        self._at_work = at_work
        self._callback = callback
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle = self._loop.call_later(seconds, self._tell, False, context=Context())
        at_work.waits[self] = None

    def cancel(self) -> None:
        """Wait no longer: nothing is called."""
        self._handle.cancel()
        self._at_work.waits.pop(self, None)

    def over(self) -> None:
        """Have it told, soon, that nothing runs any more."""
        self.cancel()
        if not self._loop.is_closed():  # a task left behind may be thrown away after its loop
            self._handle = self._loop.call_soon(self._tell, True, context=Context())

    def _tell(self, over: bool) -> None:
        self._at_work.waits.pop(self, None)
        self._callback(over)


class Attempts:
    """Which calls have attempts at work, by run and call. Nothing stays of a call whose last attempt has ended."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], _AtWork] = {}

    def __len__(self) -> int:
        """How many calls have attempts at work."""
        return len(self._calls)

    def begin(self, run_id: str, call_id: str) -> None:
        """Note that an attempt begins."""
        self._calls.setdefault((run_id, call_id), _AtWork()).count += 1

    def end(self, run_id: str, call_id: str) -> None:
        """Note that an attempt has really ended: once for each that began, on the event loop."""
        at_work = self._calls[run_id, call_id]
        at_work.count -= 1
        if not at_work.count:
            del self._calls[run_id, call_id]
            for wait in list(at_work.waits):
                wait.over()

    def when_over(self, run_id: str, call_id: str, seconds: float, callback: Callable[[bool], None]) -> Wait | None:
        """Have *callback* called once: with True when no attempt of the call runs any more, False after *seconds*.

        Returns:
            The wait, or None if no attempt runs: then nothing is called.
        """
        at_work = self._calls.get((run_id, call_id))
        return None if at_work is None else Wait(at_work, seconds, callback)
