"""What tests of processes share: which there are below this one, waiting for what they do, and for how long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import psutil


def processes_below() -> set[int]:
    """The processes that this one has started, and theirs. Other tests may have left some that all of them share."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


async def until(condition: Callable[[], Any], seconds: float = 15.0) -> None:
    """Wait until *condition* holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.005)


_NAP_SECONDS: Final = 0.01


class Starvation:
    """How long this machine kept a sleeper waiting that wanted to go on, while other tests had its processors.

    Whoever asserts that something took at most so many seconds adds `allowance` to them: where nobody else is at work
    that is next to nothing, and the limit stays what was promised.
    """

    def __init__(self) -> None:
        self._late = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _measure(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            time.sleep(_NAP_SECONDS)
            self._late += max(0.0, time.monotonic() - began - 2 * _NAP_SECONDS)

    @property
    def allowance(self) -> float:
        """How many seconds more something may take: what is measured has several steps, each of which may wait."""
        return 3 * self._late
