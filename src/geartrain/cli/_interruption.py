"""Ctrl-C and SIGTERM: the first one closes the store in order, a second one ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import anyio

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Cancels a scope at the first signal. A signal that was ignored when the process began stays ignored.

    `signal` is the number that came, or None. *on_first* and *on_second* are called when a signal comes, to say so.
    """

    __slots__ = ("_handled", "_on_first", "_on_second", "_scope", "signal")

    def __init__(self, on_first: Callable[[], None], on_second: Callable[[], None]) -> None:
        self._on_first = on_first
        self._on_second = on_second
        self.signal: int | None = None
        self._scope: anyio.CancelScope | None = None
        self._handled: list[signal.Signals] = []

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._came, number)
                self._handled.append(number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in self._handled:
            loop.remove_signal_handler(number)

    def guard(self, scope: anyio.CancelScope) -> None:
        """Make *scope* what a signal cancels; at once if one has come already."""
        self._scope = scope
        if self.signal is not None:
            scope.cancel()

    def _came(self, number: int) -> None:
        if self.signal is not None:
            self._on_second()
            os._exit(128 + number)
        self.signal = number
        self._on_first()
        if self._scope is not None:
            self._scope.cancel()
