"""An answer that somebody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

R = TypeVar("R")


class Reply(Generic[R]):
    """A place for one answer: it travels in a message, and whoever handles that message answers here.

    The first answer counts; later ones, and those that nobody waits for any longer, are told so.
    """

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    @property
    def open(self) -> bool:
        """Whether an answer would still reach somebody."""
        return not self._future.done()

    def answer(self, value: R) -> bool:
        """Answer with *value*; return whether it was the first answer and somebody waits for it."""
        if self._future.done():
            return False
        self._future.set_result(value)
        return True

    def fail(self, error: Exception) -> bool:
        """Answer with *error*, which is raised where the answer is awaited; return as `answer` does."""
        if self._future.done():
            return False
        self._future.set_exception(error)
        return True

    def when_answered(self, callback: Callable[[asyncio.Future[R]], None]) -> None:
        """Have *callback* called with the answered future, soon after there is an answer; for those without a task."""
        self._future.add_done_callback(callback)

    @property
    def abandoned(self) -> bool:
        """Whether whoever waited had gone before there was an answer."""
        return self._future.cancelled()

    def abandon(self) -> None:
        """Say that nobody waits any longer."""
        if not self._future.cancel() and not self._future.cancelled():
            self._future.exception()  # read: an error that came too late is nobody's

    async def wait_answered(self) -> R:
        """Wait for the answer and return or raise it; if the wait is cancelled, the reply is abandoned."""
        return await self._future
