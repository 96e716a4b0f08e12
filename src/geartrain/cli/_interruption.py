"""Ctrl-C and SIGTERM: the first one closes the store in order, a second one ends the process at once.

The handler is Python's own, not the event loop's, and a thread waits beside it: a tool that blocks the loop keeps
neither the second signal from ending the process nor the first one, once the grace is over.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Any, Final, Self

import anyio

from geartrain.limits import Limits

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# How long closing in order may take: the grace, and what is left to do after it.
CLOSING_SECONDS: Final = Limits().grace_seconds + 0.9
_LEFT: Final = 0


class Interruption:
    """Cancels a scope at the first signal. A signal that was ignored when the process began stays ignored.

    `signal` is the number that came, or None. *on_first* is called on the event loop when a signal comes, to say so;
    *on_second* on a thread, when the process ends without having closed in order.
    """

    __slots__ = ("_came", "_handled", "_loop", "_on_first", "_on_second", "_scope", "signal")

    def __init__(self, on_first: Callable[[], None], on_second: Callable[[], None]) -> None:
        self._on_first = on_first
        self._on_second = on_second
        self.signal: int | None = None
        self._scope: anyio.CancelScope | None = None
        self._handled: dict[signal.Signals, Any] = {}
        # What a signal handler may do: it never waits, and may come in between its own work on another thread.
        self._came: SimpleQueue[int] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._wait_for_signals, name="geartrain-signals", daemon=True).start()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handled[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.signal is not None:
            return  # the process is about to end, and what is said here about that holds until it has
        for number, before in self._handled.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        self._came.put(_LEFT)

    def guard(self, scope: anyio.CancelScope) -> None:
        """Make *scope* what a signal cancels; at once if one has come already."""
        self._scope = scope
        if self.signal is not None:
            scope.cancel()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._came.put(number)

    def _wait_for_signals(self) -> None:
        number = self._came.get()
        if number == _LEFT:
            return
        self.signal = number
        with suppress(RuntimeError):  # the loop is closed: all is over
            assert self._loop is not None, "set before this thread was started"
            self._loop.call_soon_threadsafe(self._begin)
        with suppress(Empty):
            number = self._came.get(timeout=CLOSING_SECONDS)
        if number != _LEFT:
            with suppress(Exception):  # whatever is wrong with the terminal
                self._on_second()
            os._exit(128 + number)

    def _begin(self) -> None:
        self._on_first()
        if self._scope is not None:
            self._scope.cancel()
