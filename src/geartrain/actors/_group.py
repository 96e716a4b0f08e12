"""A group of actors: who owns them when no supervisor does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal

from geartrain.actors._actor import Actor, ActorFailure, ActorState, Overflow, check_actor
from geartrain.actors._dead_letters import DeadLetter, DeadLetters, DeadLetterStatistics
from geartrain.actors._errors import GroupClosed, TooManyActors
from geartrain.actors._hands import Hands
from geartrain.actors._home import Crossing, Home
from geartrain.actors._life import ActorLife
from geartrain.actors._owner import ActorOwner, ActorSupervisor
from geartrain.actors._ref import ActorRef
from geartrain.clock import Clock, SystemClock
from geartrain.errors import InvalidValue, UsageError
from geartrain.limits import Limits

_NAME_LENGTH_MAX: Final = 200
_PATH_LENGTH_MAX: Final = 2_000  # of a child in the deepest of trees
_CLOSED: Final = "its group was closed"
OnFailure = Callable[[ActorFailure], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorGroupStatistics:
    """A group at one moment. `abandoned` names work that has not ended within a grace and still runs."""

    actors: int
    waiting: int
    spawned: int
    failures: int
    dead_letters: DeadLetterStatistics
    abandoned: tuple[str, ...]


class ActorGroup(AbstractAsyncContextManager["ActorGroup"]):
    """Owns actors: spawns them, and stops them all when it is left. Use it as an async context manager.

    ```python
    async with ActorGroup() as actors:
        counter = actors.spawn(Counter())
        counter.send_nowait(2)
        print(await counter.ask(3, timeout_seconds=1))  # 5
    ```

    An actor that fails stops, and the others go on; the failure is told to *on_failure*, or else to the event loop's
    exception handler, which logs it. For one event loop and its thread.

    Args:
        limits: Its `grace_seconds`, `mailbox_capacity`, `messages_per_turn`, `actors`, `dead_letters` and
            `messages_from_threads` count here.
        on_failure: Told each failure of an actor, on the event loop. What it raises goes to the loop's exception
            handler.
        on_dead_letter: Told each dead letter, on the event loop, soon after. What it raises goes there too.
        clock: What time it is, for dead letters.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        on_failure: OnFailure | None = None,
        on_dead_letter: Callable[[DeadLetter], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("a group of actors lives in a running asyncio event loop; make it there") from None
        limits = limits or Limits()
        self._limits = limits
        self._lives: dict[str, ActorLife] = {}
        self._numbers = itertools.count(1)
        self._spawned = 0
        self._supervised = 0
        self._closed = False
        self._emptied = asyncio.Event()
        self._owner = _Stopping(on_failure)
        self._home = Home(
            loop=loop,
            hands=Hands(loop),
            dead_letters=DeadLetters(
                capacity=limits.dead_letters, on_letter=on_dead_letter, clock=clock or SystemClock()
            ),
            limits=limits,
            crossing=Crossing(loop, limits.messages_from_threads),
            forget=self._forget,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def limits(self) -> Limits:
        """What the group was given."""
        return self._limits

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages that were accepted and not handled."""
        return self._home.dead_letters

    def spawn(
        self,
        actor: Actor,
        *,
        name: str | None = None,
        capacity: int | None = None,
        overflow: Overflow | Literal["wait", "refuse", "drop_oldest"] = Overflow.WAIT,
    ) -> ActorRef:
        """Give *actor* a mailbox and return its reference. Its `started` is called soon, before its first message.

        Args:
            actor: A new instance of a subclass of `Actor`.
            name: No living actor of the group may have it; None makes one of the class's name and a number.
            capacity: How many messages may wait; None means `limits.mailbox_capacity`.
            overflow: What happens to one more: see `Overflow`.

        Raises:
            ActorElsewhere: Called from outside the group's event loop; nothing was spawned.
            GroupClosed: Nothing was spawned.
            TooManyActors: Nothing was spawned.
            InvalidValue: Something given cannot be used; nothing was spawned.
        """
        return self.begin(actor, name=name, capacity=capacity, overflow=overflow).ref

    def begin(
        self,
        actor: Actor,
        *,
        owner: ActorOwner | None = None,
        supervisor: ActorSupervisor | None = None,
        name: str | None = None,
        capacity: int | None = None,
        overflow: Overflow | Literal["wait", "refuse", "drop_oldest"] = Overflow.WAIT,
        grace_seconds: float | None = None,
    ) -> ActorLife:
        """Spawn *actor* for an owner of its own, who decides what happens when it fails; raises as `spawn` does.

        Args:
            actor: As for `spawn`.
            owner: Told of its failures and its end; None means the group, which stops what fails.
            supervisor: In place of an owner: the actor may come back, and the supervisor stops it, also when the group
                is closed.
            name: As for `spawn`.
            capacity: As for `spawn`.
            overflow: As for `spawn`.
            grace_seconds: In place of `limits.grace_seconds`, but when the group is closed.
        """
        check_actor(actor)
        name = self._new_name(actor) if name is None else name
        self._home.check_loop(name)
        if self._closed:
            raise GroupClosed(name)
        length_max = _NAME_LENGTH_MAX if supervisor is None else _PATH_LENGTH_MAX
        if not isinstance(name, str) or not name or len(name) > length_max or not name.isprintable():
            raise InvalidValue("name", f"1 to {length_max} printable characters", name)
        if name in self._lives:
            raise InvalidValue("name", "one that no living actor of the group has", name)
        if len(self._lives) >= self._limits.actors:
            raise TooManyActors(self._limits.actors)
        try:
            overflow = Overflow(overflow)
        except ValueError:
            raise InvalidValue("overflow", f"one of {', '.join(Overflow)}", overflow) from None
        life = ActorLife(
            name,
            actor,
            self._home,
            owner=supervisor or owner or self._owner,
            supervisor=supervisor,
            grace_seconds=self._limits.grace_seconds if grace_seconds is None else grace_seconds,
            capacity=self._limits.mailbox_capacity if capacity is None else capacity,
            overflow=overflow,
        )
        self._lives[name] = life
        self._spawned += 1
        self._supervised += life.supervised
        return life

    async def aclose(self) -> None:
        """Stop all actors at once and wait until they have stopped, which is within the grace.

        Supervised ones are stopped by their supervisors, in their order; what is left when the grace ends is killed.
        If the call is cancelled, closing goes on. Closing twice changes nothing.
        """
        self._closed = True
        orphaned = len(self._lives) == self._supervised
        for life in reversed(list(self._lives.values())):
            if orphaned or not life.supervised:
                life.stop(_CLOSED, self._limits.grace_seconds)
        if self._lives:
            await self._emptied.wait()
        self._home.hands.close()
        await asyncio.sleep(0)  # the owners of those that stopped at once are told in this turn

    def statistics(self) -> ActorGroupStatistics:
        """Return how the group is doing."""
        return ActorGroupStatistics(
            actors=len(self._lives),
            waiting=sum(life.waiting for life in self._lives.values()),
            spawned=self._spawned,
            failures=self._home.failures,
            dead_letters=self._home.dead_letters.statistics(),
            abandoned=tuple(sorted(task.get_name() for task in self._home.abandoned)),
        )

    def _new_name(self, actor: Actor) -> str:
        kind = type(actor).__name__
        return next(name for number in self._numbers if (name := f"{kind}-{number}") not in self._lives)

    def _forget(self, life: ActorLife) -> None:
        self._lives.pop(life.name, None)
        self._supervised -= life.supervised
        if not self._closed:
            return
        if not self._lives:
            self._home.hands.close()  # also if nobody waits for the end of the closing any more
            self._emptied.set()
        elif len(self._lives) == self._supervised:
            self._home.loop.call_soon(self._stop_orphans, context=Context())

    def _stop_orphans(self) -> None:
        """Stop those that no supervisor will stop any more; one that was given up itself leaves some."""
        for life in list(self._lives.values()):
            life.stop(_CLOSED, 0)


class _Stopping:
    """The owner of actors that no supervisor has: those that fail stop, and the failure is told."""

    __slots__ = ("_on_failure",)

    def __init__(self, on_failure: OnFailure | None) -> None:
        self._on_failure = _report if on_failure is None else on_failure

    def failed(self, life: ActorLife, failure: ActorFailure) -> None:
        # Soon, not now: it is a stranger's, and what it raises must not come between an actor and its end.
        asyncio.get_running_loop().call_soon(self._on_failure, failure, context=Context())
        if life.state is ActorState.FAILED:
            life.stop(f"failed: {failure.reason}")

    def stopped(self, life: ActorLife) -> None:
        """Nothing is left to be done."""


def _report(failure: ActorFailure) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {
            "message": f"actor {failure.actor!r} failed in {failure.during}() and was stopped",
            "exception": failure.error,
        }
    )
