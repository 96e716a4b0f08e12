"""The intake of an actor: what senders and askers meet.

Rule: every message that was accepted is handled, or its sender is told, or it is a dead letter. A message that was not
accepted is its sender's still, who has got an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from geartrain.actors._actor import ActorState, Overflow
from geartrain.actors._cell import Behaviour
from geartrain.actors._dead_letters import WhyDead
from geartrain.actors._envelope import Envelope, Signal
from geartrain.actors._errors import ActorStopped, AskedItself, MessageNotHandled
from geartrain.actors._home import Home
from geartrain.actors._reply import Reply
from geartrain.actors._single import OnFailure, SingleCell
from geartrain.errors import InvalidValue, MailboxFull


class Intake:
    """The half of an actor's life that takes messages in; `ActorLife` is the whole."""

    __slots__ = (
        "_cell",
        "_dropped",
        "_entered",
        "_expired",
        "_home",
        "_overflow",
        "_reason",
        "_state",
        "_task",
        "_waiters",
        "name",
    )

    def __init__(
        self,
        name: str,
        home: Home,
        *,
        behaviour: Behaviour[Envelope],
        on_failure: OnFailure[Envelope],
        capacity: int,
        overflow: Overflow,
    ) -> None:
        self.name = name
        self._home = home
        self._overflow = overflow
        self._cell: SingleCell[Envelope] = SingleCell(
            name,
            behaviour,
            on_failure=on_failure,
            capacity=capacity,
            messages_per_turn=home.limits.messages_per_turn,
        )
        self._state = ActorState.STARTING
        self._waiters: list[asyncio.Future[None]] | None = None
        self._reason = ""
        self._dropped = self._expired = 0
        # Whether code of the actor is on the stack; and its task, once it has waited.
        self._entered = False
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> ActorState:
        """Where the actor is in its life."""
        return self._state

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return self._cell.waiting

    def send_nowait(self, message: Any, expires_seconds: float | None) -> None:
        """See `ActorRef.send_nowait`."""
        self._home.check_loop(self.name)
        self._put(Envelope(message, None, None if expires_seconds is None else self._expiry(expires_seconds)))

    async def send(self, message: Any, expires_seconds: float | None) -> None:
        """See `ActorRef.send`."""
        self._home.check_loop(self.name)
        if self._overflow is not Overflow.WAIT or self._cell.has_room() or self._is_own_task():
            self.send_nowait(message, expires_seconds)
            return
        expires_at = None if expires_seconds is None else self._expiry(expires_seconds)
        try:
            await self._cell.send(Envelope(message, None, expires_at))
        except ActorStopped:
            raise ActorStopped(self.name, self._reason) from None

    async def ask(self, message: Any, timeout_seconds: float, expires_seconds: float | None) -> Any:
        """See `ActorRef.ask`."""
        self._home.check_loop(self.name)
        if self._is_own_task():
            raise AskedItself(self.name)
        expires_at = None if expires_seconds is None else self._expiry(expires_seconds)

        def make_message(reply: Reply[Any]) -> Envelope:
            if self._overflow is Overflow.DROP_OLDEST:  # here, where nothing can refuse the ask any more
                self._make_room()
            return Envelope(message, reply, expires_at)

        try:
            return await self._cell.ask(
                make_message, timeout_seconds=timeout_seconds, wait_for_room=self._overflow is Overflow.WAIT
            )
        except ActorStopped:
            raise ActorStopped(self.name, self._reason) from None

    def send_threadsafe(self, message: Any, expires_seconds: float | None) -> None:
        """See `ActorRef.send_threadsafe`."""
        if self._state in (ActorState.STOPPING, ActorState.STOPPED):
            raise ActorStopped(self.name, self._reason)
        self._home.crossing.put(self, message, None if expires_seconds is None else self._expiry(expires_seconds))

    def arrive(self, message: Any, expires_at: float | None) -> None:
        """Take a message that came from another thread; nobody can be told what became of it."""
        try:
            self._put(Envelope(message, None, expires_at))
        except MailboxFull as error:
            self._home.dead_letters.add(self.name, message, WhyDead.REFUSED, str(error))
        except ActorStopped as error:
            self._home.dead_letters.add(self.name, message, WhyDead.STOPPED, str(error))

    def _move(self, state: ActorState) -> None:
        self._state = state
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    async def _wait_until(self, reached: Callable[[ActorState], bool]) -> None:
        self._home.check_loop(self.name)
        while not reached(self._state):
            waiter = self._home.loop.create_future()
            self._waiters = self._waiters or []
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if self._waiters and waiter in self._waiters:
                    self._waiters.remove(waiter)

    def _put(self, envelope: Envelope) -> None:
        if self._overflow is Overflow.DROP_OLDEST:
            self._make_room()
        try:
            self._cell.send_nowait(envelope)
        except ActorStopped:
            raise ActorStopped(self.name, self._reason) from None

    def _lose(self, envelope: Envelope, why: WhyDead, error: Exception) -> None:
        """Tell whoever waits for the answer; if nobody does, the message is a dead letter."""
        reply = envelope.reply
        if isinstance(envelope.message, Signal):
            return
        if reply is not None:
            reply.fail(error)
            if not reply.abandoned:
                return
        self._home.dead_letters.add(self.name, envelope.message, why, str(error))

    def _make_room(self) -> None:
        if not self._cell.has_room() and (oldest := self._cell.drop_oldest()) is not None:
            self._dropped += 1
            why = "dropped for a newer one, since the mailbox was full"
            self._lose(oldest, WhyDead.DROPPED, MessageNotHandled(self.name, why))

    def _expiry(self, expires_seconds: float) -> float:
        if not expires_seconds > 0:
            raise InvalidValue("expires_seconds", "more than 0", expires_seconds)
        return self._home.loop.time() + expires_seconds

    def _is_own_task(self) -> bool:
        return self._entered or (self._task is not None and asyncio.current_task() is self._task)
