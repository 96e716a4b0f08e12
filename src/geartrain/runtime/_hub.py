"""Who is told what happened: observers in threads of their own, watchers on the loop, followers of a journal.

Rule 1: nobody who listens can slow down, change or stop a run. Observers get copies, in batches, off the loop; a queue
that is full drops records and counts them.
Rule 2: what is told is stored already, save records that are live only (`seq` 0).
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

from geartrain.clock import Clock
from geartrain.errors import plain_traceback
from geartrain.machine import Run
from geartrain.runtime._entry import Moved
from geartrain.runtime._log import log
from geartrain.runtime._reading._projection import project
from geartrain.trace import Observer, TraceRecord

_BATCH: Final = 256
IsOver = Callable[[str], Awaitable[bool]]


def log_records(records: Sequence[TraceRecord]) -> None:
    """Write trace records to structlog: an observer, for `Runtime.open(observers=[log_records])`."""
    for record in records:
        log.info(record.event, run_id=record.run_id, seq=record.seq, turn=record.turn, **_prefixed(record.payload))


def _prefixed(payload: Mapping[str, Any]) -> dict[str, Any]:
    taken = ("event", "run_id", "seq", "turn", "level", "timestamp")
    return {f"{key}_" if key in taken else key: value for key, value in payload.items()}


@dataclass(frozen=True, slots=True)
class ObserverStatistics:
    """How one observer is doing. `dropped` records found its queue full; `failures` are batches that raised."""

    name: str
    delivered: int
    dropped: int
    failures: int
    waiting: int


class _ObserverThread:
    """One observer with its queue and its daemon thread, started with the first record."""

    def __init__(self, observer: Observer, capacity: int) -> None:
        self._observer = observer
        self._capacity = capacity
        self._records: deque[TraceRecord] = deque()
        self._ready = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._delivered = self._dropped = self._failures = 0

    def put(self, records: Sequence[TraceRecord]) -> None:
        with self._ready:
            room = self._capacity - len(self._records)
            self._records.extend(records[:room])
            self._dropped += max(0, len(records) - room)
            self._ready.notify()
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="geartrain-observer", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system's limit of threads: tried again with the next record
            log.warning("observer_not_started", observer=_name(self._observer), error=str(error))
        else:
            self._thread = thread

    def _work(self) -> None:
        while True:
            with self._ready:
                while not self._records and not self._closing:
                    self._ready.wait()
                if not self._records:
                    return
                batch = [self._records.popleft() for _ in range(min(_BATCH, len(self._records)))]
            try:
                self._observer([copy.deepcopy(record) for record in batch])
            except BaseException as error:  # noqa: BLE001 - a stranger's code: it must stop neither us nor others
                self._failures += 1
                if self._failures == 1:
                    log.warning("observer_failed", observer=_name(self._observer), error=repr(error))
            self._delivered += len(batch)

    def close(self) -> None:
        with self._ready:
            self._closing = True
            self._ready.notify()

    def join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    def statistics(self) -> ObserverStatistics:
        return ObserverStatistics(
            _name(self._observer), self._delivered, self._dropped, self._failures, len(self._records)
        )


def _name(observer: Observer) -> str:
    return getattr(observer, "__qualname__", type(observer).__qualname__)


class Watch:
    """A live, bounded, lossy stream of what happens to one run: trace records and pieces of replies.

    Iterate it (from one task), or `close` it; it ends with the run. `dropped` counts what a slow reader missed.
    Iterating raises `RunNotFound` or `RunSetApart` if no run will ever move under that id.
    """

    __slots__ = (
        "__weakref__",
        "_capacity",
        "_closed",
        "_hub",
        "_is_over",
        "_records",
        "_run_id",
        "_waiting",
        "dropped",
    )

    def __init__(self, hub: Hub, run_id: str, capacity: int, is_over: IsOver) -> None:
        self._hub = hub
        self._run_id = run_id
        self._capacity = capacity
        # Asked once, before the first wait: a run that is over already has nothing more to tell.
        self._is_over: IsOver | None = is_over
        self._records: deque[TraceRecord] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._closed = False
        self.dropped = 0

    def put(self, record: TraceRecord) -> None:
        """Add a record; the oldest goes if there is no room."""
        if len(self._records) >= self._capacity:
            self._records.popleft()
            self.dropped += 1
        self._records.append(record)
        if record.event == "run_finished":
            self.close()  # what is here can still be read
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        """End the stream."""
        if not self._closed:
            self._closed = True
            self._hub.unwatch(self._run_id, self)
            self._wake()

    def __aiter__(self) -> AsyncIterator[TraceRecord]:
        return self

    async def __anext__(self) -> TraceRecord:
        while not self._records:
            if self._closed:
                raise StopAsyncIteration
            if self._is_over is not None:
                is_over, self._is_over = self._is_over, None
                if await is_over(self._run_id):
                    self.close()
                continue
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._records.popleft()


def _projected(before: Run, moves: Sequence[Moved], *, checkpointed: bool) -> list[TraceRecord]:
    records: list[TraceRecord] = []
    for position, moved in enumerate(moves, start=1):
        last = position == len(moves)
        records += project(before, moved.event, moved.run, checkpointed=checkpointed and last, traced=False)
        before = moved.run
    return records


class Hub:
    """All who listen to one runtime."""

    def __init__(
        self, observers: Sequence[Observer], clock: Clock, *, observer_records: int, watch_records: int
    ) -> None:
        self._threads = [_ObserverThread(observer, observer_records) for observer in observers]
        self._clock = clock
        self._watch_records = watch_records
        # Weakly: a reader who went away without a word must not be kept with all that it has not read.
        self._watches: dict[str, WeakSet[Watch]] = {}
        self._followers: dict[str, list[asyncio.Future[None]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.active = bool(observers)

    def _set_active(self) -> None:
        self.active = bool(self._threads or self._watches or self._followers)

    def moved(self, before: Run, moves: Sequence[Moved], *, checkpointed: bool) -> None:
        """Tell of events that are now stored."""
        run_id = before.id
        watches = self._watches.get(run_id)
        if watches is not None and not watches:  # their readers are gone
            del self._watches[run_id]
        if self._threads or watches:
            try:
                self._tell(run_id, _projected(before, moves, checkpointed=checkpointed))
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the trace, the run goes on
                log.error("trace_failed", run_id=run_id, traceback=plain_traceback(error))
        self.look_again(run_id)

    def live(self, run_id: str, event: str, payload: dict[str, Any]) -> None:
        """Tell of something that is not stored."""
        if self._threads or run_id in self._watches:
            self._tell(run_id, [TraceRecord(run_id=run_id, event=event, ts=self._clock.now(), payload=payload)])

    def live_from_anywhere(self, run_id: str, event: str, payload: dict[str, Any]) -> None:
        """Tell of something that is not stored, perhaps from a tool's thread."""
        if not self.active:
            return
        try:
            running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not None and running is self._loop:  # a tool's thread may run a loop of its own
            self.live(run_id, event, payload)
        elif self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.live, run_id, event, payload)

    def tell_observers(self, record: TraceRecord) -> None:
        """Tell the observers alone, at once and from any thread: also while the loop stands still."""
        for thread in self._threads:
            thread.put([record])

    def _tell(self, run_id: str, records: list[TraceRecord]) -> None:
        for thread in self._threads:
            thread.put(records)
        for watch in list(self._watches.get(run_id, ())):
            for record in records:
                watch.put(copy.deepcopy(record))

    def watch(self, run_id: str, is_over: IsOver) -> Watch:
        """Return a stream of what happens to a run from now on; *is_over* says whether nothing more will."""
        watch = Watch(self, run_id, self._watch_records, is_over)
        self._watches.setdefault(run_id, WeakSet()).add(watch)
        self._set_active()
        return watch

    def unwatch(self, run_id: str, watch: Watch) -> None:
        """Take a stream away."""
        watches = self._watches.get(run_id)
        if watches is not None:
            watches.discard(watch)
            if not watches:
                del self._watches[run_id]
        self._set_active()

    def gone(self, run_id: str) -> None:
        """End the streams of a run that nothing more will be heard of, and let its followers look again."""
        for watch in list(self._watches.get(run_id, ())):
            watch.close()
        self.look_again(run_id)

    def look_again(self, run_id: str) -> None:
        """Let followers of a run read its journal again."""
        for follower in self._followers.pop(run_id, ()):
            if not follower.done():
                follower.set_result(None)
        self._set_active()

    def follow(self, run_id: str) -> asyncio.Future[None]:
        """Return a future that is done when a run has moved, or at close."""
        follower: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._followers.setdefault(run_id, []).append(follower)
        self._set_active()
        return follower

    def unfollow(self, run_id: str, follower: asyncio.Future[None]) -> None:
        """Take a follower away that waits no longer."""
        follower.cancel()
        followers = self._followers.get(run_id)
        if followers is not None and follower in followers:
            followers.remove(follower)
            if not followers:
                del self._followers[run_id]
        self._set_active()

    def open(self) -> None:
        """Bind the running loop, which records from threads come to."""
        self._loop = asyncio.get_running_loop()

    async def aclose(self, seconds: float) -> None:
        """End all streams, and give observers *seconds* for what waits."""
        for watches in list(self._watches.values()):
            for watch in list(watches):
                watch.close()
        for followers in self._followers.values():
            for follower in followers:
                if not follower.done():
                    follower.set_result(None)
        self._followers.clear()
        for thread in self._threads:
            thread.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        for thread in self._threads:
            await loop.run_in_executor(None, thread.join, max(0.0, until - loop.time()))

    def statistics(self) -> tuple[ObserverStatistics, ...]:
        """Return how the observers are doing."""
        return tuple(thread.statistics() for thread in self._threads)
