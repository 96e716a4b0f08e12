"""What a user's actor is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from geartrain.actors._errors import described
from geartrain.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from geartrain.actors._ref import ActorRef


class Actor:
    """State of your own that one message at a time may touch.

    Write a subclass with a `receive`:

    ```python
    class Counter(Actor):
        def __init__(self) -> None:
            self.count = 0

        def receive(self, message: int) -> int:
            self.count += message
            return self.count
    ```

    and give an instance to `ActorGroup.spawn` or `Runtime.spawn`, which return the `ActorRef` that others send to.
    Whatever the senders do, messages are handled one after another, each to its end before the next is begun; so
    nothing in an actor needs a lock. An instance lives once.

    An actor that fails (its `receive` or `started` raises) is stopped. What a method raises, `SystemExit` included,
    reaches neither senders nor other actors; whoever asked gets `ActorFailed`.
    """

    _ref: ActorRef | None = None
    # Called at once when the instance is to end, while its message in hand may still be at work: for supervisors.
    _when_ending: Callable[[], None] | None = None

    @property
    def ref(self) -> ActorRef:
        """The actor's own reference: to give to others, to send to itself, to stop."""
        if self._ref is None:
            raise NotSpawned(type(self).__name__)
        return self._ref

    def receive(self, message: Any) -> Any:
        """Handle *message*; what it returns answers whoever asked. Write it as `def` or as `async def`.

        Called on the event loop in an empty context, once for each message, in the order of sending. A `def` must not
        block: use an `async def` for what waits. One that happens not to wait costs no task. While one waits, all
        others wait in the mailbox. If it raises, the actor has failed.
        """
        raise NotImplementedError

    def started(self) -> Any:
        """Get ready; called once, before the first message. `def` or `async def`.

        If it raises, the actor has failed: `ActorRef.wait_started` and whoever asked are told so.
        """

    def stopping(self) -> Any:
        """Clean up; called once at the end of an actor that had started, also of one that failed. `def` or `async def`.

        Nothing is handled any more, so it cannot ask itself; it may send to others. It has what is left of the grace,
        at least a quarter of it. If it raises, the actor is stopped all the same, and the error is reported.
        """


class Overflow(StrEnum):
    """What happens to a message for a full mailbox."""

    WAIT = "wait"  # `send` and `ask` wait for room; `send_nowait` raises MailboxFull
    REFUSE = "refuse"  # all raise MailboxFull at once
    DROP_OLDEST = "drop_oldest"  # the message that has waited longest makes room, and becomes a dead letter


class ActorState(StrEnum):
    """Where an actor is in its life."""

    STARTING = "starting"  # `started` is not done; messages gather
    RUNNING = "running"
    FAILED = "failed"  # it raised; its owner decides; messages gather
    HALTING = "halting"  # the instance is to end, for its supervisor to decide what follows; messages gather
    HALTED = "halted"  # the instance has ended; its supervisor decides; messages gather
    STOPPING = "stopping"  # takes nothing more; the message in hand and `stopping` may finish
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ActorFailure:
    """What went wrong in an actor: in which method, with which message in hand, if any.

    `stopping_error` is what `stopping` raised when it cleaned up after that failure.
    """

    actor: str
    during: Literal["started", "receive", "stopping"]
    error: BaseException
    message: Any = None
    stopping_error: BaseException | None = None

    @property
    def reason(self) -> str:
        """What the error says of itself, in at most a thousand characters."""
        return described(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorStatistics:
    """An actor at one moment. Counts are since it was spawned.

    `reason` says why it stops or has stopped; `failure` is the latest one. `in_hand_seconds` is how long the message
    in hand has been at work, None if there is none that waits.
    """

    name: str
    state: ActorState
    reason: str
    failure: ActorFailure | None
    handled: int
    failures: int
    restarts: int
    dropped: int
    expired: int
    refused: int
    waiting: int
    waiting_peak: int
    senders_waiting: int
    capacity: int
    asks_open: int
    in_hand_seconds: float | None


@dataclass(eq=False)
class NotSpawned(UsageError):
    """An actor has no reference before it is spawned."""

    actor: str

    def __str__(self) -> str:
        return f"{self.actor}: has no ref before it is spawned; use it in started() or later"


def check_actor(actor: Actor) -> None:
    """Refuse what cannot live.

    Raises:
        InvalidValue: It is no actor, has no `receive`, has one that yields, or was spawned before.
    """
    if not isinstance(actor, Actor):
        raise InvalidValue("actor", "an instance of a subclass of Actor", actor)
    kind = type(actor)
    if kind.receive is Actor.receive:
        raise InvalidValue("actor", "of a class with a receive of its own", actor)
    if any(_yields(method) for method in (kind.receive, kind.started, kind.stopping)):
        raise InvalidValue("actor", "of a class whose methods return, not yield", actor)
    if actor._ref is not None:  # noqa: SLF001 - set where it is spawned
        raise InvalidValue("actor", "an instance that was not spawned before", actor)


@lru_cache(maxsize=1_000)  # it took half of the time of a spawn
def _yields(method: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method)
