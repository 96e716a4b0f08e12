"""Effect tasks: the one place that starts, owns, times out, cancels, abandons and awaits them.

There are tens of thousands of them, so they are bare asyncio tasks in no anyio scope: a tool that swallows
cancellation inside a scope would make the scope spin. A task that is told to stop is cancelled again and again until
its grace is over; then it is abandoned: its owner goes on without it, and what it brings later reaches nobody.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from weakref import ReferenceType, ref

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


OnEnd = Callable[[Ended], None]


class EffectTask:
    """One effect at work. `on_end` is called exactly once, on the loop, whatever the effect does."""

    __slots__ = (
        "__weakref__",
        "_nudges",
        "_on_end",
        "_owner",
        "_running",
        "_stopping",
        "_task",
        "_work",
        "name",
        "on_late_end",
    )

    def __init__(self, owner: EffectTasks, name: str, work: Coroutine[Any, Any, Any], on_end: OnEnd) -> None:
        self.name = name
        self._owner = owner
        self._work = work
        self._on_end: OnEnd | None = on_end
        self._running = False
        self._stopping: End | None = None
        self._nudges: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        # Called when it ends after it was abandoned.
        self.on_late_end: OnEnd | None = None

    @property
    def done(self) -> bool:
        """Whether its end was told."""
        return self._on_end is None

    def begin(self, context: Context) -> None:
        """Start the work in *context*."""
        self._task = asyncio.get_running_loop().create_task(self._guard(), name=self.name, context=context)

    async def _guard(self) -> None:
        """Do the work and tell its end, whatever it raises: a stranger's `SystemExit` must not end the loop."""
        self._running = True
        try:
            value = await self._work
        except BaseException as error:  # noqa: BLE001 - a stranger's code; our own cancellation ends here as well
            ended = Ended(self._stopping or End.RAISED, error=error)
        else:
            ended = Ended(End.RETURNED, value=value)
        self._owner.forget(self, self._task)
        self._tell(ended)

    def cancel(self) -> None:
        """Have the work stop within the grace."""
        self.stop(End.CANCELLED)

    def stop(self, why: End) -> None:
        """Have the work stop within the grace, for that reason; the first one counts."""
        if self._stopping is not None or self._on_end is None or self._task is None:
            return
        self._stopping = why
        if not self._running:  # cancelled before its first step, a task never runs
            self._task.cancel()
            self._work.close()
            self._owner.forget(self, self._task)
            self._tell(Ended(why))
            return
        self._nudge(self._owner.until())

    def _nudge(self, until: float) -> None:
        if self._on_end is None or self._task is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= until:
            assert self._stopping is not None
            self._owner.abandon(self._task)
            self._tell(Ended(self._stopping, abandoned=True))
            return
        self._task.cancel()
        self._nudges = loop.call_at(min(until, loop.time() + NUDGE_SECONDS), self._nudge, until, context=Context())

    def _tell(self, ended: Ended) -> None:
        if self._nudges is not None:
            self._nudges.cancel()
            self._nudges = None
        on_end, self._on_end = self._on_end or self.on_late_end, None
        if on_end is not None:
            on_end(ended)


class _Deadlines:
    """The time-outs of one length: they run out in the order in which they were set, so one timer serves them all.

    What has ended is not kept: the queue only refers to it.
    """

    __slots__ = ("_alive", "_queue", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._queue: deque[tuple[float, ReferenceType[EffectTask]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._alive = 0

    def add(self, effect: EffectTask) -> None:
        loop = asyncio.get_running_loop()
        queue = self._queue
        while queue and _over(queue[0][1]):
            queue.popleft()
        if len(queue) > 2 * self._alive + 1_000:  # what is done waits behind one that is not
            self._queue = queue = deque(entry for entry in queue if not _over(entry[1]))
            self._alive = len(queue)
        queue.append((loop.time() + self._seconds, ref(effect)))
        if self._timer is None:
            self._timer = loop.call_at(queue[0][0], self._ring, context=Context())

    def _ring(self) -> None:
        loop = asyncio.get_running_loop()
        queue = self._queue
        while queue and (_over(queue[0][1]) or queue[0][0] <= loop.time()):
            effect = queue.popleft()[1]()
            if effect is not None:
                effect.stop(End.TIMED_OUT)
        self._timer = loop.call_at(queue[0][0], self._ring, context=Context()) if queue else None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _over(effect: ReferenceType[EffectTask]) -> bool:
    alive = effect()
    return alive is None or alive.done


class EffectTasks:
    """All effect tasks of one runtime."""

    def __init__(self, grace_seconds: float) -> None:
        self.grace_seconds = grace_seconds
        self.abandoned_count = 0
        # On the loop's clock, when the last of those that are stopped from now on is abandoned.
        self.latest = math.inf
        self._alive: set[EffectTask] = set()
        self._abandoned: set[asyncio.Task[None]] = set()
        self._deadlines: dict[float, _Deadlines] = {}

    def start(
        self,
        name: str,
        work: Coroutine[Any, Any, Any],
        *,
        timeout_seconds: float,
        context: Context,
        on_end: OnEnd,
    ) -> EffectTask:
        """Start *work* in *context*, and tell *on_end* once how it ended.

        Cancelled or out of time it has the grace to stop; then it is abandoned.
        """
        effect = EffectTask(self, name, work, on_end)
        self._alive.add(effect)
        effect.begin(context)
        deadlines = self._deadlines.get(timeout_seconds)
        if deadlines is None:
            deadlines = self._deadlines[timeout_seconds] = _Deadlines(timeout_seconds)
        deadlines.add(effect)
        return effect

    def until(self) -> float:
        """Return when, on the loop's clock, one is abandoned that is stopped now."""
        now = asyncio.get_running_loop().time()
        at_least = now + min(self.grace_seconds, NUDGE_SECONDS)
        return max(at_least, min(now + self.grace_seconds, self.latest))

    def forget(self, effect: EffectTask, task: asyncio.Task[None] | None) -> None:
        """Let go of a task that is done."""
        self._alive.discard(effect)
        if task is not None:
            self._abandoned.discard(task)

    def abandon(self, task: asyncio.Task[None]) -> None:
        """Go on without a task that does not stop; it stays named until it ends."""
        self._abandoned.add(task)
        self.abandoned_count += 1

    def close(self) -> None:
        """Set no time-outs off any more."""
        for deadlines in self._deadlines.values():
            deadlines.close()

    @property
    def alive(self) -> int:
        """How many effect tasks are not done, abandoned ones included."""
        return len(self._alive)

    @property
    def abandoned(self) -> tuple[str, ...]:
        """The names of abandoned tasks that still run."""
        return tuple(task.get_name() for task in self._abandoned)


async def all_of(parts: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do the parts of one effect's work at once, and return when all are done.

    A cancellation reaches each of them, as often as it comes: a stranger's code may need several.
    """
    tasks = [asyncio.get_running_loop().create_task(part) for part in parts]
    left, cancelled = set(tasks), None
    while left:
        try:
            _, left = await asyncio.wait(left)
        except asyncio.CancelledError as error:
            cancelled = error
            for task in left:
                task.cancel()
    if cancelled is not None:
        raise cancelled
    for task in tasks:
        task.result()
