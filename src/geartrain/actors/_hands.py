"""Hands: they do a handler's work, at once and without a task of its own as long as it does not wait.

Code in an `async def` may ask for the current task (time-outs and task groups do), so there must be one from the first
line on; and a task takes ten times as long to make as a short message to handle. So the first stretch, up to the first
wait, is stepped right here, in the name of a task that stands ready. Work that ends without waiting leaves that task
as it was, for the next one. Work that waits takes it over, and from then on is a task like any other.

Python 3.12 has eager tasks, which save the loop's turn but not the task. The calls that switch the current task are
those that asyncio documents for implementers of tasks of their own ("Extending", in its reference).
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Coroutine, Generator
from contextvars import Context
from sys import getrefcount
from typing import Any, NoReturn

Work = Coroutine[Any, Any, None]


class _HandTask(asyncio.Task[None]):
    """A task that knows whether anybody has ever cancelled it, or listens for its end."""

    touched = False

    def cancel(self, msg: Any | None = None) -> bool:
        self.touched = True
        return super().cancel(msg)

    def add_done_callback(self, *arguments: Any, **named: Any) -> None:
        self.touched = True
        super().add_done_callback(*arguments, **named)


class _Hand(Coroutine[Any, Any, None]):
    """What such a task runs: nothing, until work is left to it that has waited for the first time."""

    __slots__ = ("_dismissed", "_first", "_parked", "_work", "context", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._dismissed = False
        self._work: Work | None = None
        self._first: Any = None
        self._parked: asyncio.Future[None] | None = None
        self.context = Context()
        self.task = _HandTask(self, loop=loop, context=self.context, name="geartrain-spare-hand")

    @property
    def unspoilt(self) -> bool:
        """Whether nothing that its last work did can be seen by the next."""
        return not self.task.touched and not len(self.context)

    def take_over(self, work: Work, first: Any, name: str) -> None:
        """Go on with *work*, which waits for *first*."""
        self._work, self._first = work, first
        self.task.set_name(name)
        self._wake()

    def dismiss(self) -> None:
        """Let the task end."""
        self._dismissed = True
        self._wake()

    def _wake(self) -> None:
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)

    # What the task calls

    def send(self, value: Any, /) -> Any:
        """Park until there is work; then wait for what it waits for, and step it."""
        if self._dismissed:
            raise StopIteration
        if self._work is None:
            self._parked = self.task.get_loop().create_future()
            self._parked._asyncio_future_blocking = True  # noqa: SLF001 - so does a future that is awaited
            return self._parked
        first, self._first = self._first, None
        return first if first is not None else self._work.send(value)

    def throw(self, kind: Any, value: Any = None, _trace: Any = None, /) -> Any:
        """Throw into the work; a cancellation before it went on reaches what it waits for first, as in any task."""
        error = kind if value is None else value
        first, self._first = self._first, None
        if self._work is None:
            raise error
        if first is not None and isinstance(error, asyncio.CancelledError) and first.cancel():
            return first
        return self._work.throw(error)

    def close(self) -> None:
        """Close the work."""
        if self._work is not None:
            self._work.close()

    def __await__(self) -> Generator[Any, Any, NoReturn]:
        raise TypeError("only its task runs a hand")

    # What those who look at a task want to know of its coroutine

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cr_") or name in {"__name__", "__qualname__"}:
            return getattr(self._work, name)
        raise AttributeError(name)


class Hands:
    """Does the work of one group's handlers. For one event loop."""

    __slots__ = ("_closed", "_loop", "_spare")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._spare: _Hand | None = None
        self._closed = False

    def start(self, work: Work, name: str) -> asyncio.Task[None] | None:
        """Do *work* up to its first wait; return None if that was all of it, else the task that goes on, named *name*.

        Called outside of any task. What the work raises before its first wait is raised here.
        """
        hand, self._spare = self._spare, None
        if hand is None or not hand.unspoilt or hand.task.done():
            hand = _Hand(self._loop)
        _enter_task(self._loop, hand.task)
        holders = getrefcount(hand.task)
        try:
            first = hand.context.run(work.send, None)
        except BaseException as error:
            # What has kept the task (it may cancel it later) must not meet the work of another in it.
            self._put_back(hand, kept=getrefcount(hand.task) > holders)
            if isinstance(error, StopIteration):
                return None
            raise
        finally:
            _leave_task(self._loop, hand.task)
        hand.take_over(work, first, name)
        return hand.task

    def close(self) -> None:
        """Keep no task ready any more."""
        self._closed = True
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.dismiss()

    def _put_back(self, hand: _Hand, *, kept: bool) -> None:
        if hand.unspoilt and not kept and not self._closed:
            self._spare = hand
        else:
            hand.dismiss()
