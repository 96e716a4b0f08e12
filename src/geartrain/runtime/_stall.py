"""Noticing, from a thread of its own, that the event loop stands still, and saying where while it does.

Everything here shares one loop: a call on it that blocks holds up every run. The thread asks the loop a few times a
second for a sign of life. If none comes it looks where the loop's thread is, and tells the log and the observers, who
have threads of their own as well.

Rule 1: only time counts in which the loop could have answered. A process that is stopped (SIGSTOP, a debugger, a frozen
container), or that gets no processor because others have it, is not stalled.
Rule 2: a loop whose time is virtual is not watched.
Rule 3: it cannot hurt: what the watching raises is logged and ends the watching alone.
"""

from __future__ import annotations

import asyncio
import math
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from geartrain.errors import plain_traceback
from geartrain.runtime._log import log

# Signs of life asked for within the limit.
_SIGNS: Final = 4
_STACK: Final = 8
_ASYNCIO: Final = str(Path(asyncio.__file__).parent)
_LIBRARY: Final = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_INSTALLED: Final = ("site-packages", "dist-packages")
# The last words of a thread that nobody waits for any more.
_JOIN_SECONDS: Final = 0.2


class LoopStall(msgspec.Struct, frozen=True, kw_only=True):
    """The event loop stands still, or stood still, for `seconds`.

    `place` is where: file, line and function of the innermost frame that belongs neither to Python's library nor to an
    installed package; `stack` holds the innermost frames outside asyncio, the innermost first. `task` is the loop's
    task at that moment; `run_id` and `key` name its effect, if it is one of a run. `busy` when the loop went from one
    callback to the next all the time: then it has too much to do, and the place is only one of many.
    """

    seconds: float
    place: str
    stack: tuple[str, ...] = ()
    task: str = ""
    run_id: str = ""
    key: str = ""
    busy: bool = False


class LoopStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How the loop is doing: stalls so far, how long all of them took that are over, and the newest."""

    watched: bool = False
    stalls: int = 0
    stalled_seconds: float = 0.0
    last: LoopStall | None = None


def lateness(elapsed: float, tick: float, *, used: float, queued: float) -> float:
    """Return how much of the *elapsed* seconds since the last look counts as standing still.

    *tick* is how long it should have been, *used* the processor seconds that the loop's thread has used in it, *queued*
    the seconds in which that thread was ready and got no processor. Whoever looks late was stopped or starved as the
    loop was; unless the loop's thread was at work all the while, and let nobody else run Python.
    """
    looked = min(max(0.0, elapsed - queued), 2 * tick)
    return min(elapsed, max(looked, used))


class StallDetector:
    """Watches the running loop from `open` to `close`.

    *told* is called on the watching thread with (event, stall): `loop_stalled` once when the limit is reached, while
    the loop still stands, and `loop_went_on` once when it moves again, with how long it took.
    """

    def __init__(self, seconds: float, told: Callable[[str, LoopStall], None]) -> None:
        self._seconds = seconds
        self._tick = seconds / _SIGNS
        self._told = told
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._answered = True
        self._stalls = 0
        self._stalled_seconds = 0.0
        self._last: LoopStall | None = None

    def open(self) -> None:
        """Watch the running loop, unless its time is virtual, or there is no limit."""
        loop = asyncio.get_running_loop()
        if hasattr(loop, "thread_job_started") or self._seconds == math.inf:
            return
        thread = threading.Thread(
            target=self._watch, args=(loop, _Subject(threading.current_thread())), name="geartrain-stall", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system's limit of threads
            log.warning("loop_not_watched", error=str(error))
        else:
            self._thread = thread

    def close(self) -> None:
        """Watch no more; the thread is gone when this returns, or soon after if it is just telling somebody."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
            self._thread = None

    def statistics(self) -> LoopStatistics:
        """Return how the loop is doing."""
        return LoopStatistics(
            watched=self._thread is not None,
            stalls=self._stalls,
            stalled_seconds=round(self._stalled_seconds, 3),
            last=self._last,
        )

    def _watch(self, loop: asyncio.AbstractEventLoop, subject: _Subject) -> None:
        try:
            self._look_until_closed(loop, subject)
        except Exception as error:  # noqa: BLE001 - whatever it is, only the watching ends
            log.warning("loop_not_watched", error=type(error).__name__, traceback=plain_traceback(error))

    def _look_until_closed(self, loop: asyncio.AbstractEventLoop, subject: _Subject) -> None:
        late, busy, stall = 0.0, False, None
        subject.begin()
        while not self._closing.wait(self._tick):
            # Before anything else: a loop that has let nobody run until now is about to go on.
            frame = subject.frame()  # let go of each time: it holds every value that its functions have
            more = subject.lateness(self._tick)
            if self._answered and more < self._seconds:
                frame = None
                if stall is not None:
                    self._went_on(stall, late)
                late, busy, stall = 0.0, False, None
                self._answered = False
                try:
                    loop.call_soon_threadsafe(self._answer)
                except RuntimeError:  # the loop is closed, and whoever closed it has forgotten us
                    return
                subject.begin()
                continue
            late += more
            busy = subject.moved_on(frame) or busy
            if stall is None and late >= self._seconds:
                stall = self._stalled(loop, frame, late, busy=busy)
            frame = None

    def _answer(self) -> None:
        self._answered = True

    def _stalled(
        self, loop: asyncio.AbstractEventLoop, frame: FrameType | None, late: float, *, busy: bool
    ) -> LoopStall:
        task = asyncio.current_task(loop)
        run_id, key = _effect_of(task)
        stack = tuple(_stack(frame))
        stall = LoopStall(
            seconds=round(late, 3),
            place=_place(frame),
            stack=stack,
            task=task.get_name() if task is not None else "",
            run_id=run_id,
            key=key,
            busy=busy,
        )
        self._stalls += 1
        self._last = stall
        self._told("loop_stalled", stall)
        about = msgspec.structs.asdict(stall)
        log.error("loop_stalled", frames=about.pop("stack"), **about)  # structlog prints a `stack` as its own
        return stall

    def _went_on(self, stall: LoopStall, late: float) -> None:
        over = msgspec.structs.replace(stall, seconds=round(max(late, stall.seconds), 3))
        self._stalled_seconds += over.seconds
        self._last = over
        self._told("loop_went_on", over)
        log.warning("loop_went_on", seconds=over.seconds, place=over.place)


class _Subject:
    """The thread that the loop runs in, as it is seen from another one."""

    def __init__(self, thread: threading.Thread) -> None:
        self._ident = thread.ident or 0
        self._schedule = f"/proc/self/task/{thread.native_id}/schedstat"
        self._at = (0.0, 0.0, 0.0)
        self._callback: FrameType | None = None

    def frame(self) -> FrameType | None:
        """Return the innermost frame that the thread is in."""
        return sys._current_frames().get(self._ident)  # noqa: SLF001 - the documented way to see another thread's stack

    def begin(self) -> None:
        """Measure from now on, and forget what was seen before."""
        self._at = (time.monotonic(), self._used(), self._queued())
        self._callback = None

    def lateness(self, tick: float) -> float:
        """Return how much of the time since the last look counts, and look on from now."""
        before, self._at = self._at, (time.monotonic(), self._used(), self._queued())
        elapsed, used, queued = (now - then for now, then in zip(self._at, before, strict=True))
        return lateness(elapsed, tick, used=used, queued=queued)

    def _used(self) -> float:
        try:
            return time.clock_gettime(time.pthread_getcpuclockid(self._ident))
        except (AttributeError, OSError):
            return 0.0

    def _queued(self) -> float:
        """Return the seconds in which the thread was ready and waited for a processor, where the system tells."""
        try:
            with open(self._schedule, "rb") as file:
                return int(file.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def moved_on(self, frame: FrameType | None) -> bool:
        """Say whether the loop is in another callback than at the last look."""
        callback = None
        while frame is not None:
            if frame.f_code.co_name == "_run" and frame.f_code.co_filename.startswith(_ASYNCIO):
                callback = frame
            frame = frame.f_back
        moved = self._callback is not None and callback is not self._callback
        self._callback = callback
        return moved


def _effect_of(task: asyncio.Task[object] | None) -> tuple[str, str]:
    """Return the run and the key of the effect that *task* belongs to, or two empty texts."""
    if task is None:
        return "", ""
    from geartrain.runtime._effects._effect import current_key, current_run  # noqa: PLC0415 - it imports the log too

    get_context = getattr(task, "get_context", None)  # Python 3.12: also finds tasks that a tool has started
    if get_context is not None:
        context = get_context()
        return context.get(current_run) or "", context.get(current_key) or ""
    run_id, _, key = task.get_name().rpartition("/")
    return (run_id, key) if run_id else ("", "")


def _outside_asyncio(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_ASYNCIO):
            yield frame
        frame = frame.f_back


def _stack(frame: FrameType | None) -> Iterator[str]:
    for number, found in enumerate(_outside_asyncio(frame)):
        if number >= _STACK:
            return
        yield _name(found)


def _place(frame: FrameType | None) -> str:
    frames = list(_outside_asyncio(frame))
    own = (found for found in frames if not _is_library(found.f_code.co_filename))
    found = next(own, frames[0] if frames else None)
    return _name(found) if found is not None else "unknown"


def _is_library(path: str) -> bool:
    return path.startswith((*_LIBRARY, "<frozen")) or any(part in path for part in _INSTALLED)


def _name(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    with suppress(AttributeError):
        return f"{name}:{frame.f_lineno}, {frame.f_code.co_qualname}"
    return f"{name}:{frame.f_lineno}, {frame.f_code.co_name}"
