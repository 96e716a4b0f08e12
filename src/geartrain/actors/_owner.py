"""Whoever answers for actors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from geartrain.actors._actor import ActorFailure
    from geartrain.actors._life import ActorLife


class ActorOwner(Protocol):
    """Whoever answers for actors: a group, which lets those that fail stop, or a supervisor."""

    def failed(self, life: ActorLife, failure: ActorFailure, /) -> None:
        """Hear of a failure; called on the loop, once for each.

        If `life.state` is FAILED, call `life.restart` or `life.stop`, now or later: until then the actor's messages
        wait, and so do those who ask. In any other state the actor stops anyway.
        """
        ...

    def stopped(self, life: ActorLife, /) -> None:
        """Hear that the actor has stopped, for whatever reason; called once, on the loop, soon after. Its name is free.

        What any of these methods raises goes to the loop's exception handler.
        """
        ...


class ActorSupervisor(ActorOwner, Protocol):
    """An owner whose actors may come back. Both methods are called on the loop, soon after; look at `life.state`."""

    def started(self, life: ActorLife, /) -> None:
        """Hear that the actor is up."""
        ...

    def halted(self, life: ActorLife, /) -> None:
        """Hear that the instance has ended, asked by whomever; call `life.restart` or `life.stop`, now or later."""
        ...
