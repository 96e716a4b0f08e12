"""Approvals as they open and close: who follows them, and the hook that is told of each.

Rule 1: nobody who listens can slow down or stop a run: what is told are copies, off the run's way.
Rule 2: an approval is told of again as long as it may not have been heard of: after a failure, and after a restart.
Rule 3: one that is decided meanwhile is not told of any more.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context
from typing import Any, Final

from geartrain.errors import FormatUnknown, RunNotFound, RuntimeClosed, plain_traceback
from geartrain.limits import Limits
from geartrain.machine import Call, CallStatus, HoldKind, Run
from geartrain.persistence import Journal, RunCorrupt, StoreFailed
from geartrain.runtime._log import log
from geartrain.runtime._reading._runs import OpenCall, open_calls, read_run
from geartrain.runtime._tasks import EffectTask, EffectTasks, End, Ended
from geartrain.tools import ThreadPool, inside_a_tool

ApprovalHook = Callable[[OpenCall], Any]

HOOK_TRIES: Final = 3
HOOKS_AT_ONCE: Final = 8
HOOKS_WAITING: Final = 1_000
_PAGE: Final = 100
_BACKOFF_SECONDS: Final = 1.0


def _asked(run: Run) -> dict[str, Call]:
    return {call.id: call for call in run.calls if call.status is CallStatus.ASKED}


def _opened(before: Run | None, after: Run) -> list[OpenCall]:
    """Return the approvals that are open after a step and were not before it."""
    known = _asked(before) if before is not None else {}
    fresh = {call_id for call_id, call in _asked(after).items() if known.get(call_id) is not call}
    return [call for call in open_calls(after) if call.call_id in fresh and call.waits_for == HoldKind.APPROVAL]


def _answered(call: Call, still: dict[str, Call]) -> bool:
    """Whether an approval is decided; one asked for anew after that, for changed arguments, is another."""
    now = still.get(call.id)
    return now is None or (now.since, now.arguments_digest) != (call.since, call.arguments_digest)


class Follower:
    """One who follows the approvals of a runtime: what opened and is not told yet, and which open ones are.

    `decided` is kept only while the store is listed: what was read of it may be decided before it is told.
    """

    __slots__ = ("_moved", "decided", "fresh", "told")

    def __init__(self) -> None:
        self.fresh: dict[str, OpenCall] = {}
        self.told: set[str] = set()
        self.decided: set[str] | None = set()
        self._moved: asyncio.Future[None] | None = None

    def opened(self, call: OpenCall) -> None:
        """Take an approval that is open."""
        if call.id not in self.told:
            self.fresh[call.id] = call
            self.wake()

    def closed(self, open_id: str) -> None:
        """Take note that an approval is decided."""
        self.fresh.pop(open_id, None)
        self.told.discard(open_id)
        if self.decided is not None:
            self.decided.add(open_id)

    def wake(self) -> None:
        """Let the follower look again."""
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)

    async def wait_moved(self) -> None:
        """Wait until something has opened, or the runtime closes."""
        self._moved = asyncio.get_running_loop().create_future()
        await self._moved


class Approvals:
    """The open approvals of one runtime, as its runs move."""

    def __init__(self, hook: HookCaller | None) -> None:
        self.hook = hook
        self._followers: set[Follower] = set()
        self._closed = False
        self.active = hook is not None

    def moved(self, before: Run | None, after: Run) -> None:
        """Tell what a stored step has opened and closed; *before* None for a run that was just loaded."""
        if not (after.calls or (before is not None and before.calls)):
            return
        opened, still = _opened(before, after), _asked(after)
        closed = (
            [f"{after.id}/{call.id}" for call in _asked(before).values() if _answered(call, still)] if before else []
        )
        for follower in self._followers:
            for open_id in closed:
                follower.closed(open_id)
            for call in opened if before is not None else ():
                follower.opened(call)
        if self.hook is not None:
            for open_id in closed:
                self.hook.closed(open_id)
            for call in opened:
                self.hook.opened(call)

    async def follow(self, journal: Journal) -> AsyncIterator[OpenCall]:
        """Yield every open approval of the store, then each that opens; none that is decided."""
        follower = Follower()
        self._followers.add(follower)
        self.active = True
        try:
            async for call in open_approvals(journal):
                known = follower.decided is not None and call.id in follower.decided
                if not known and call.id not in follower.fresh:
                    follower.told.add(call.id)
                    yield call
            follower.decided = None
            while not self._closed:
                while follower.fresh:
                    open_id = next(iter(follower.fresh))
                    follower.told.add(open_id)
                    yield follower.fresh.pop(open_id)
                if not self._closed:
                    await follower.wait_moved()
            raise RuntimeClosed("following approvals")
        finally:
            self._followers.discard(follower)
            self.active = self.hook is not None or bool(self._followers)

    def stop(self) -> None:
        """Let followers go, and stop what the hook does."""
        self._closed = True
        for follower in self._followers:
            follower.wake()
        if self.hook is not None:
            self.hook.stop()

    async def wait_stopped(self) -> None:
        """Wait until the hook has stopped, or was abandoned."""
        if self.hook is not None:
            await self.hook.wait_stopped()


async def open_approvals(journal: Journal) -> AsyncIterator[OpenCall]:
    """Yield every stored call that waits for a decision, those of the newest runs first, a page at a time."""
    after: tuple[float, str] | None = None
    while rows := await journal.list(after=after, limit=_PAGE, held=(HoldKind.APPROVAL,)):
        for row in rows:
            await asyncio.sleep(0)  # a store in memory never waits, and the runs must have their turn
            try:
                run = (await read_run(journal, row.run_id)).run
            except (RunCorrupt, FormatUnknown, RunNotFound):  # one that cannot be read hides no other
                continue
            except StoreFailed:
                raise
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one run, the others are told of
                log.error("approvals_of_run_not_read", run_id=row.run_id, traceback=plain_traceback(error))
                continue
            for call in open_calls(run):
                if call.waits_for == HoldKind.APPROVAL:
                    yield call
        after = (rows[-1].head.created_at, rows[-1].run_id)


class HookCaller:
    """Calls a user's hook once for each open approval, or more often if it fails; never the run's own way.

    Each call has `Limits.hook_seconds`; plain functions run on threads of their own kind, so that one that blocks keeps
    neither the loop nor a tool waiting.
    """

    def __init__(self, hook: ApprovalHook, tasks: EffectTasks, limits: Limits) -> None:
        self._hook = hook
        self._tasks = tasks
        self._seconds = limits.hook_seconds
        self._threads = ThreadPool(HOOKS_AT_ONCE)
        # What is open and known here; None once the hook has heard of it, or will not.
        self._open: dict[str, OpenCall | None] = {}
        self._waiting: deque[tuple[str, int]] = deque()
        self._at_work: dict[str, EffectTask] = {}
        self._pauses: set[asyncio.TimerHandle] = set()
        self._closed = False
        self._idle: asyncio.Future[None] | None = None
        # Set while there is room for more to wait, and when some found none and are to be looked for in the store.
        self._room, self._missed = asyncio.Event(), asyncio.Event()
        # The approval that the store is asked about just now, if it is not decided meanwhile.
        self._looked_at = ""
        self._room.set()

    def opened(self, call: OpenCall) -> None:
        """Have the hook told of an open approval; one that it was told of is not told again."""
        if call.id in self._open or self._closed:
            return
        if len(self._waiting) >= HOOKS_WAITING:
            self._missed.set()
            return
        self._open[call.id] = call
        self._waiting.append((call.id, 1))
        self._go_on()

    def closed(self, open_id: str) -> None:
        """Take note that an approval is decided."""
        self._open.pop(open_id, None)
        if self._looked_at == open_id:
            self._looked_at = ""

    async def serve(self, journal: Journal, at_once: bool) -> None:
        """Look in the store for what is open: *at_once* for what was open before, later for what found no room."""
        while at_once or await self._missed.wait():
            at_once = False
            self._missed.clear()
            await self._scan(journal)

    async def _scan(self, journal: Journal) -> None:
        delay = 0.1
        while not self._closed:
            try:
                async for call in open_approvals(journal):
                    await self._room.wait()
                    self._looked_at = call.id
                    row = await journal.head(call.run_id)
                    held = row is not None and f"{HoldKind.APPROVAL}({call.call_id})" in row.head.holds
                    if held and self._looked_at == call.id:
                        self.opened(call)
            except Exception as error:  # noqa: BLE001 - whatever it was this time, the runtime lives and looks again
                log.warning("approvals_not_read", error=repr(error))
                await asyncio.sleep(delay)
                delay = min(delay * 2, 5.0)
            else:
                return

    def _go_on(self) -> None:
        while self._waiting and len(self._at_work) < HOOKS_AT_ONCE and not self._closed:
            open_id, attempt = self._waiting.popleft()
            call = self._open.get(open_id)
            if call is not None and open_id not in self._at_work:
                self._start(call, attempt)
        if len(self._waiting) < HOOKS_WAITING // 2:
            self._room.set()
        elif len(self._waiting) >= HOOKS_WAITING:
            self._room.clear()

    def _start(self, call: OpenCall, attempt: int) -> None:
        def ended(ended: Ended) -> None:
            self._ended(call, attempt, ended)

        name = f"on_approval {call.id}"
        self._at_work[call.id] = self._tasks.start(
            name, self._told(copy.deepcopy(call)), timeout_seconds=self._seconds, context=Context(), on_end=ended
        )

    async def _told(self, call: OpenCall) -> None:
        with inside_a_tool():  # a stranger's code as much as a tool is
            if inspect.iscoroutinefunction(self._hook):
                await self._hook(call)
            else:
                answer = await self._threads.submit(lambda: self._hook(call))
                if isinstance(answer, Awaitable):
                    await answer

    def _ended(self, call: OpenCall, attempt: int, ended: Ended) -> None:
        self._at_work.pop(call.id, None)
        now = self._open.get(call.id)
        if now is not None and now is not call:  # decided meanwhile and asked for anew: that is another
            self._waiting.append((call.id, 1))
        elif ended.end is not End.RETURNED and not self._closed:
            self._failed(call, attempt, ended)
        elif call.id in self._open:
            self._open[call.id] = None
        if self._idle is not None and not self._at_work and not self._idle.done():
            self._idle.set_result(None)
        self._go_on()

    def _failed(self, call: OpenCall, attempt: int, ended: Ended) -> None:
        what = f"{ended.end}: {type(ended.error).__name__}" if ended.error is not None else str(ended.end)
        log.warning(
            "on_approval_failed", call=call.id, attempt=attempt, error=what, traceback=plain_traceback(ended.error)
        )
        if attempt >= HOOK_TRIES:
            if call.id in self._open:
                self._open[call.id] = None
        else:
            loop = asyncio.get_running_loop()
            handle: asyncio.TimerHandle

            def again() -> None:
                self._pauses.discard(handle)
                self._waiting.append((call.id, attempt + 1))
                self._go_on()

            handle = loop.call_later(_BACKOFF_SECONDS * 2 ** (attempt - 1), again)
            self._pauses.add(handle)

    def stop(self) -> None:
        """Stop; what a hook still does in a thread ends by itself."""
        self._closed = True
        self._waiting.clear()
        for pause in self._pauses:
            pause.cancel()
        for task in list(self._at_work.values()):
            task.cancel()
        self._threads.close()

    async def wait_stopped(self) -> None:
        """Wait until no call of the hook is at work: those that ignore being cancelled are abandoned by then."""
        if self._at_work:
            self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle], timeout=self._tasks.grace_seconds + 1.0)
