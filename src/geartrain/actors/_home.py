"""What the actors of one group share."""

from __future__ import annotations

import asyncio
import threading
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from geartrain.actors._dead_letters import DeadLetters
from geartrain.actors._errors import ActorElsewhere, ActorStopped
from geartrain.actors._hands import Hands
from geartrain.errors import MailboxFull
from geartrain.limits import Limits

if TYPE_CHECKING:
    from geartrain.actors._intake import Intake
    from geartrain.actors._life import ActorLife


class Crossing:
    """Where messages from other threads wait for the event loop. Any thread may `put`."""

    __slots__ = ("_capacity", "_lock", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, capacity: int) -> None:
        self._loop = loop
        self._capacity = capacity
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Intake, Any, float | None]] = deque()

    def put(self, intake: Intake, message: Any, expires_at: float | None) -> None:
        """Have *message* arrive on the loop soon, after those that were put before."""
        with self._lock:
            if len(self._waiting) >= self._capacity:
                raise MailboxFull(intake.name, self._capacity)
            if not self._waiting:
                try:
                    self._loop.call_soon_threadsafe(self._cross, context=Context())
                except RuntimeError:  # the loop is closed
                    raise ActorStopped(intake.name, "its event loop is closed") from None
            self._waiting.append((intake, message, expires_at))

    def _cross(self) -> None:
        with self._lock:
            arrived, self._waiting = self._waiting, deque()
        for intake, message, expires_at in arrived:
            intake.arrive(message, expires_at)


@dataclass(slots=True, eq=False)
class Home:
    """What the actors of one group share: the loop, the hands, the dead letters, the bounds."""

    loop: asyncio.AbstractEventLoop
    hands: Hands
    dead_letters: DeadLetters
    limits: Limits
    crossing: Crossing
    # Called by a life when it is over.
    forget: Callable[[ActorLife], None]
    # Work that has not ended within the grace: held here until it does.
    abandoned: set[asyncio.Task[Any]] = field(default_factory=set)
    failures: int = 0

    def check_loop(self, name: str) -> None:
        """Refuse a call to the actor *name* from anywhere but within the loop."""
        # None without a running loop: a message that wakes an actor would raise half-way, and the actor never wake.
        if _get_running_loop() is not self.loop:
            raise ActorElsewhere(name)
