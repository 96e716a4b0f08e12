"""Effect tasks: the one place that starts, owns, times out, cancels, abandons and awaits them.

There are tens of thousands of them, so they are bare asyncio tasks in no anyio scope: a tool that swallows
cancellation inside a scope would make the scope spin. A task that is told to stop is cancelled again and again until
its grace is over; then it is abandoned: its owner goes on without it, and what it brings later reaches nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

# How often a task that should stop is cancelled again, in seconds.
NUDGE_SECONDS: Final = 0.25


class End(StrEnum):
    """How an effect task ended, as its owner sees it."""

    RETURNED = "returned"
    RAISED = "raised"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an effect task. `abandoned` when it still runs and nobody waits for it any more."""

    end: End
    value: Any = None
    error: BaseException | None = None
    abandoned: bool = False


class EffectTask:
    """One effect at work. `on_end` is called exactly once, on the loop, whatever the effect does."""

    __slots__ = ("_grace_seconds", "_on_end", "_owner", "_stopping", "_task", "_timer", "name")

    def __init__(self, owner: EffectTasks, name: str, on_end: Callable[[Ended], None], grace_seconds: float) -> None:
        self.name = name
        self._owner = owner
        self._on_end: Callable[[Ended], None] | None = on_end
        self._grace_seconds = grace_seconds
        self._stopping: End | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None

    @property
    def done(self) -> bool:
        """Whether its end was told."""
        return self._on_end is None

    def begin(self, work: Coroutine[Any, Any, Any], timeout_seconds: float, context: Context) -> None:
        """Start the work; it has *timeout_seconds*."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(work, name=self.name, context=context)
        self._task.add_done_callback(self._task_done, context=_EMPTY)
        self._timer = loop.call_later(timeout_seconds, self._stop, End.TIMED_OUT, context=_EMPTY)

    def cancel(self) -> None:
        """Have the work stop within the grace."""
        self._stop(End.CANCELLED)

    def _stop(self, why: End) -> None:
        if self._stopping is not None or self._on_end is None:
            return
        self._stopping = why
        loop = asyncio.get_running_loop()
        self._nudge(loop.time() + self._grace_seconds)

    def _nudge(self, until: float) -> None:
        if self._on_end is None or self._task is None:
            return
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        if loop.time() >= until:
            assert self._stopping is not None
            self._owner.abandon(self._task)
            self._tell(Ended(self._stopping, abandoned=True))
            return
        self._task.cancel()
        self._timer = loop.call_at(min(until, loop.time() + NUDGE_SECONDS), self._nudge, until, context=_EMPTY)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._owner.forget(self, task)
        if self._on_end is None:
            if not task.cancelled():
                task.exception()  # looked at: nobody is left to raise it to
            return
        if task.cancelled():
            error: BaseException | None = asyncio.CancelledError()
        else:
            error = task.exception()
        if error is None:
            self._tell(Ended(End.RETURNED, value=task.result()))
        elif self._stopping is not None:
            self._tell(Ended(self._stopping, error=error))
        else:
            self._tell(Ended(End.RAISED, error=error))

    def _tell(self, ended: Ended) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(ended)


_EMPTY: Final = Context()


class EffectTasks:
    """All effect tasks of one runtime."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._alive: set[EffectTask] = set()
        self._abandoned: set[asyncio.Task[Any]] = set()
        self.abandoned_count = 0

    def start(
        self,
        name: str,
        work: Coroutine[Any, Any, Any],
        *,
        timeout_seconds: float,
        context: Context,
        on_end: Callable[[Ended], None],
    ) -> EffectTask:
        """Start *work* in *context*, and tell *on_end* once how it ended.

        Cancelled or out of time it has the grace to stop; then it is abandoned.
        """
        effect = EffectTask(self, name, on_end, self._grace_seconds)
        self._alive.add(effect)
        effect.begin(work, timeout_seconds, context)
        return effect

    def forget(self, effect: EffectTask, task: asyncio.Task[Any]) -> None:
        """Let go of a task that is done."""
        self._alive.discard(effect)
        self._abandoned.discard(task)

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Go on without a task that does not stop; it stays named until it ends."""
        self._abandoned.add(task)
        self.abandoned_count += 1

    @property
    def alive(self) -> int:
        """How many effect tasks are not done, abandoned ones included."""
        return len(self._alive)

    @property
    def abandoned(self) -> tuple[str, ...]:
        """The names of abandoned tasks that still run."""
        return tuple(task.get_name() for task in self._abandoned)
