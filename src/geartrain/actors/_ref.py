"""What everybody but its owner sees of an actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geartrain.actors._actor import ActorStatistics

if TYPE_CHECKING:
    from geartrain.actors._life import ActorLife


class ActorRef:
    """Where an actor is reached: hand it to whoever may send to the actor. Stays good after the actor has stopped.

    For the actor's event loop, save `send_threadsafe`. Messages of one sender are handled in the order of sending. A
    message is any object; it is not copied, so whoever sends one no longer changes it.
    """

    __slots__ = ("_life",)

    def __init__(self, life: ActorLife) -> None:
        self._life = life

    def __repr__(self) -> str:
        return f"<ActorRef {self.name!r} {self._life.state}>"

    @property
    def name(self) -> str:
        """The actor's name, the only one of it among the living of its group."""
        return self._life.name

    def send_nowait(self, message: Any, *, expires_seconds: float | None = None) -> None:
        """Put *message* into the mailbox; it is handled in a later turn of the loop.

        Args:
            message: What `receive` will be given.
            expires_seconds: After that time it is not handled any more; None lets it wait as long as it takes.

        Raises:
            MailboxFull: There is no room (and the actor does not drop its oldest message). Nothing was sent.
            ActorStopped: Nothing was sent.
        """
        self._life.send_nowait(message, expires_seconds)

    async def send(self, message: Any, *, expires_seconds: float | None = None) -> None:
        """Put *message* into the mailbox, after waiting for room if the actor's overflow is `wait`.

        If the call is cancelled, nothing was sent. An actor that sends to itself does not wait for room, for it would
        wait for itself.

        Raises:
            MailboxFull: There is no room, and the call must not wait for it. Nothing was sent.
            ActorStopped: Nothing was sent.
        """
        await self._life.send(message, expires_seconds)

    async def ask(self, message: Any, timeout_seconds: float, *, expires_seconds: float | None = None) -> Any:
        """Send *message*, and return what `receive` returns for it.

        If the call is cancelled or times out, the message may still be handled; its answer reaches nobody.

        Args:
            message: What `receive` will be given.
            timeout_seconds: For the wait for room and that for the answer together.
            expires_seconds: After that time it is not handled any more.

        Raises:
            TimedOut: No answer within *timeout_seconds*.
            ActorStopped: The actor has stopped, or stopped before it answered.
            ActorFailed: The actor failed with the message in hand; `__cause__` is what it raised.
            MessageNotHandled: The message was dropped or has expired.
            MailboxFull: There is no room, and the actor's overflow is `refuse`. Nothing was sent.
            AskedItself: The actor is its own asker.
        """
        return await self._life.ask(message, timeout_seconds, expires_seconds)

    def send_threadsafe(self, message: Any, *, expires_seconds: float | None = None) -> None:
        """Put *message* into the mailbox from any thread: a tool that is a `def`, an observer.

        It arrives soon after. If the actor then has no room, or has stopped, the message is a dead letter.

        Raises:
            MailboxFull: More messages from threads wait for the event loop than `limits.messages_from_threads`.
            ActorStopped: Nothing was sent.
        """
        self._life.send_threadsafe(message, expires_seconds)

    def stop(self) -> None:
        """Have the actor stop: no further message is taken or handled, those that wait become dead letters.

        The message in hand may finish within half of the grace, then it is cancelled; `stopping` has the rest. What
        does not end within the grace is abandoned. Senders and askers who wait get `ActorStopped`. Stopping twice
        changes nothing. To have handled first what waits, send a message last whose `receive` calls `self.ref.stop()`.

        A supervised actor may come back, with what waits in its mailbox: whether it does, the restart kind of its child
        spec says. To have it stay down, stop it through its supervisor.
        """
        self._life.leave()

    def watch(self, other: ActorRef) -> None:
        """Have this actor told when *other* has stopped: it is sent one `Stopped(other, reason, failure)`.

        Also if *other* has stopped already. The message comes before those that wait, and needs no room. A restart by a
        supervisor is no end. Watching twice tells once. The watch outlives a restart of this actor, and ends with it.
        Who is no actor waits with `wait_stopped`. (Erlang's monitors and Akka's death watch promise the same.)

        Raises:
            ActorStopped: This actor has stopped itself.
            InvalidValue: *other* is this actor.
        """
        self._life.watches().watch(other._life)

    def unwatch(self, other: ActorRef) -> None:
        """Watch *other* no longer: from now on no `Stopped` of it is handled, not even one that waits already."""
        self._life.watches().unwatch(other._life)

    async def wait_started(self) -> None:
        """Wait until the actor takes its first message.

        Raises:
            ActorFailed: Its `started` raised; `__cause__` is what.
            ActorStopped: It has stopped.
        """
        await self._life.wait_started()

    async def wait_stopped(self) -> None:
        """Wait until the actor has stopped, for whatever reason: `statistics` says which."""
        await self._life.wait_stopped()

    def statistics(self) -> ActorStatistics:
        """Return where the actor is and what it has done."""
        return self._life.statistics()
