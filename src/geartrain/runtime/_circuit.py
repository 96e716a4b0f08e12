"""The circuit of one store: closed while it can write, open from the first write that failed to the first that did not.

Rule 1: a store that cannot write counts against itself, never against a run. What effects brought waits in its run,
which tries again by itself; what comes from outside is told.
Rule 2: nothing new starts while it is open. Who was about to start waits here; if nothing else tries to write, a probe
does, so it is closed within `PROBE_SECONDS_MAX` and a write after the fault has ended.
Rule 3: time in which it was open is no active time of any run. The step is told so by the event that follows.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Final, TypeVar

from geartrain.clock import Clock
from geartrain.errors import GeartrainError
from geartrain.persistence import StoreFailed
from geartrain.runtime._log import log
from geartrain.supervisor import Backoff
from geartrain.tools import error_text

_T = TypeVar("_T")
PROBE_SECONDS_MAX: Final = 5.0
_PROBES: Final = Backoff(initial_seconds=0.2, factor=2.0, max_seconds=PROBE_SECONDS_MAX, jitter=0.0)
# Outages whose time is still told from active time.
_OUTAGES_KEPT: Final = 16
# In place of a path, where it is not the store that says that it failed.
_ITS_CODE: Final = "(its code)"
# So many go on in one turn of the loop once the store is back.
_AT_ONCE: Final = 64


class StoreCircuit:
    """Whether the store can write, since when not, and who waits for it."""

    __slots__ = ("_clock", "_outages", "_parked", "_probes", "_timer", "failing_since", "probe", "writes")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.failing_since: float | None = None
        # How many appends were written.
        self.writes = 0
        # Has something written for a run; told the run's id. Its append is told to this circuit like any other.
        self.probe: Callable[[str], None] = lambda _run_id: None
        self._outages: deque[tuple[float, float]] = deque(maxlen=_OUTAGES_KEPT)
        self._parked: dict[Callable[[], None], str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._probes = 0

    @property
    def open(self) -> bool:
        """Whether the store cannot write."""
        return self.failing_since is not None

    @property
    def has_failed(self) -> bool:
        """Whether there is an outage to be told from active time."""
        return bool(self._outages) or self.failing_since is not None

    def fails(self, error: Exception) -> None:
        """Note that the store could not write."""
        if self.failing_since is None:
            self.failing_since = self._clock.now()
            log.error("store_failed", error=str(error))

    def answers(self) -> None:
        """Note that the store has written; let go on who waited for that."""
        self.writes += 1
        since = self.failing_since
        if since is None:
            return
        now = self._clock.now()
        self.failing_since = None
        self._outages.append((since, now))
        self._probes = 0
        log.info("store_recovered", failed_seconds=round(now - since, 3), waiting=len(self._parked))
        self._let_go()

    def idle_seconds(self, since: float, until: float) -> float:
        """Return for how much of the time from *since* to *until* the store could not write."""
        idle = sum(max(0.0, min(until, end) - max(since, begin)) for begin, end in self._outages)
        if self.failing_since is not None:
            idle += max(0.0, until - max(since, self.failing_since))
        return idle

    def when_closed(self, run_id: str, go_on: Callable[[], None]) -> None:
        """Have *go_on* called soon after the store has written again, for a run whose store it is."""
        self._parked[go_on] = run_id
        if self._timer is None:
            self._try_again()

    def forget(self, go_on: Callable[[], None]) -> None:
        """Call *go_on* no more."""
        self._parked.pop(go_on, None)

    def close(self) -> None:
        """Call nobody any more."""
        self._parked.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _try_again(self) -> None:
        self._probes += 1
        delay = _PROBES.wait_seconds(self._probes, 0.0)
        self._timer = asyncio.get_running_loop().call_later(delay, self._probe, context=Context())

    def _probe(self) -> None:
        self._timer = None
        if not self.open or not self._parked:
            return
        try:
            self.probe(next(iter(self._parked.values())))
        except GeartrainError as error:
            log.debug("store_probe_failed", error=str(error))
        self._try_again()

    def _let_go(self) -> None:
        """Let some of those go on that wait, and the others a turn later: a thousand at once would hold the loop up."""
        for go_on in list(self._parked)[:_AT_ONCE]:
            if self.open:  # it has failed again meanwhile
                break
            if self._parked.pop(go_on, None) is not None:
                go_on()
        if not self._parked:
            return
        if self.open:
            if self._timer is None:
                self._try_again()
        else:
            asyncio.get_running_loop().call_soon(self._let_go, context=Context())


async def outlast(work: Callable[[], Awaitable[_T]]) -> _T:
    """Return what *work* returns; as long as the store fails it, wait, longer each time, and do it again.

    Cancelling the call ends the waiting.
    """
    for attempt in itertools.count(1):
        try:
            return await work()
        except StoreFailed as error:
            log.warning("store_waited_for", error=str(error))
            await asyncio.sleep(_PROBES.wait_seconds(attempt, 0.0))
    raise AssertionError("unreachable")


def store_raised(run_id: str, error: BaseException) -> StoreFailed:
    """Return what it means that the store's code raised what it should not, while it was to append to a run.

    It counts against the store, as long as that writes for nobody.
    """
    return StoreFailed(_ITS_CODE, f"append to run {run_id!r}", error_text(error))


def is_raised(error: StoreFailed) -> bool:
    """Whether *error* is one of `store_raised`."""
    return error.path == _ITS_CODE
