"""One child of a living supervisor.

| state    | means                                                              |
|----------|--------------------------------------------------------------------|
| WAITING  | will start: when its back-off is over, and those before it are up |
| STARTING | its `started` is at work                                           |
| UP       | it runs                                                            |
| STOPPING | its supervisor has asked it to end                                 |
| DOWN     | it stays down until somebody starts it                             |
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from geartrain.actors import ActorFailed, ActorFailure, ActorLife, ActorRef, ActorStopped
from geartrain.limits import UNLIMITED
from geartrain.supervisor._report import Offender, traceback_of
from geartrain.supervisor._spec import ChildSpec, Shutdown, Supervisor
from geartrain.supervisor._strategy import Member, Restart


class ChildState(StrEnum):
    """Where a child is, as its supervisor sees it; the table above says what each means."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStatistics:
    """A child at one moment. `ref` is None for a supervisor, and for what is down; `failure` is the latest one."""

    name: str
    state: ChildState
    restart: Restart
    restarts: int
    is_supervisor: bool
    ref: ActorRef | None
    failure: ActorFailure | None


class Child:
    """What a supervisor knows of one child."""

    __slots__ = (
        "_waiters",
        "attempt",
        "begun",
        "comes_back",
        "dynamic",
        "failure",
        "failures",
        "is_late",
        "last_words",
        "life",
        "must_stop",
        "not_before",
        "path",
        "position",
        "restarts",
        "spec",
        "state",
        "timer",
        "up_since",
        "was_up",
    )

    def __init__(self, spec: ChildSpec, path: str, *, dynamic: bool = False) -> None:
        self.spec = spec
        self.path = path
        self.position = 0
        # Added while the supervisor ran: a restart of the supervisor forgets it.
        self.dynamic = dynamic
        self.life: ActorLife | None = None
        self.state = ChildState.WAITING
        # Whether it is to be stopped next, and whether it then starts again.
        self.must_stop = self.comes_back = False
        self.begun = self.was_up = False
        # Whether it was too slow to start; and what went wrong while it was ending.
        self.is_late = False
        self.last_words: ActorFailure | None = None
        self.restarts = self.failures = self.attempt = 0
        self.failure: ActorFailure | None = None
        self.up_since = self.not_before = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def name(self) -> str:
        """Its name among its supervisor's children."""
        return self.spec.name

    @property
    def is_supervisor(self) -> bool:
        """Whether it has children itself."""
        return isinstance(self.spec.start, Supervisor)

    @property
    def restart(self) -> Restart:
        """After which ends it comes back."""
        return Restart(self.spec.restart)

    def member(self) -> Member:
        """Return it as a plan sees it."""
        ending = self.must_stop or self.state is ChildState.STOPPING
        up = self.state is not ChildState.DOWN and (self.comes_back or not ending)
        return Member(self.name, self.restart, up)

    def shutdown_seconds(self, default: float) -> float:
        """Return how long it has to end when it is asked to."""
        seconds = self.spec.shutdown_seconds
        if seconds == Shutdown.BRUTAL:
            return 0.0
        if seconds == UNLIMITED or (seconds is None and self.is_supervisor):
            return math.inf
        return default if seconds is None else float(seconds)

    @property
    def own_grace_seconds(self) -> float | None:
        """What it has to clean up when nobody has asked it to end: "brutal" and UNLIMITED are about stops."""
        seconds = self.spec.shutdown_seconds
        return float(seconds) if isinstance(seconds, int | float) else None

    def offender(self, error: BaseException | None) -> Offender:
        """Return it as a report names it."""
        return Offender(name=self.path, restart=self.restart, restarts=self.restarts, traceback=traceback_of(error))

    def statistics(self) -> ChildStatistics:
        """Return where it is."""
        ref = None if self.life is None or self.is_supervisor else self.life.ref
        return ChildStatistics(
            name=self.name,
            state=self.state,
            restart=self.restart,
            restarts=self.restarts,
            is_supervisor=self.is_supervisor,
            ref=ref,
            failure=self.failure,
        )

    def move(self, state: ChildState) -> None:
        """Be in *state* from now on, without the timer of the last one."""
        self.state = state
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._wake()

    def note_failure(self, failure: ActorFailure) -> None:
        """Remember what went wrong, and tell those who wait for it to be up."""
        self.failure = failure
        self.failures += 1
        self._wake()

    async def wait_up(self, seen: int = 0) -> None:
        """Wait until it is up; raises `ActorFailed` once it has more than *seen* failures, `ActorStopped` once down."""
        await self._wait_until(lambda: self.state in (ChildState.UP, ChildState.DOWN) or self.failures > seen)
        if self.failures > seen and self.failure is not None:
            failed = ActorFailed(self.path, self.failure.reason)
            raise failed from self.failure.error
        if self.state is ChildState.DOWN:
            raise ActorStopped(self.path, "its supervisor has stopped it")

    async def wait_ended(self) -> None:
        """Wait until it is not up any more."""
        await self._wait_until(lambda: self.state is not ChildState.UP)

    async def wait_down(self) -> None:
        """Wait until it is down, or somebody has started it again meanwhile."""
        seen = self.restarts
        await self._wait_until(lambda: self.state is ChildState.DOWN or self.restarts > seen)

    async def _wait_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters = [*(self._waiters or ()), waiter]
            try:
                await waiter
            finally:
                if self._waiters and waiter in self._waiters:
                    self._waiters.remove(waiter)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
