"""Watching: an actor is told, once, that another has stopped.

Rule 1: a watch is told of the end of the actor, not of an instance: one that its supervisor restarts has not stopped.
Rule 2: a notice needs no room in the mailbox. Of one end at most one waits, so they are bounded by what is watched.
Rule 3: nobody is kept in memory by having watched, or been watched by, somebody who has stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from geartrain.actors._actor import ActorFailure, ActorState
from geartrain.actors._errors import ActorStopped
from geartrain.errors import InvalidValue

if TYPE_CHECKING:
    from geartrain.actors._life import ActorLife
    from geartrain.actors._ref import ActorRef

_ENDING: Final = (ActorState.STOPPING, ActorState.STOPPED)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A message: an actor that was watched has stopped, for that reason, its latest failure being that (if any)."""

    ref: ActorRef
    reason: str
    failure: ActorFailure | None = None


class Watches:
    """Whom one actor watches, who watches it, and which ends it is still to be told of."""

    __slots__ = ("life", "notices", "turn_asked", "watched", "watchers")

    def __init__(self, life: ActorLife) -> None:
        self.life = life
        # In the order in which they began, so dictionaries.
        self.watchers: dict[ActorLife, None] = {}
        self.watched: dict[ActorLife, None] = {}
        self.notices: dict[ActorRef, Stopped] = {}
        self.turn_asked = False

    def watch(self, other: ActorLife) -> None:
        """See `ActorRef.watch`."""
        self.life.check_loop()
        other.check_loop()
        if other is self.life:
            raise InvalidValue("other", "another actor than the one that watches", other.ref)
        if self.life.state in _ENDING:
            raise ActorStopped(self.life.name, "asked to stop")
        if (end := other.end) is not None:
            self.notify(end)
        else:
            self.watched[other] = None
            other.watches().watchers[self.life] = None

    def unwatch(self, other: ActorLife) -> None:
        """See `ActorRef.unwatch`."""
        self.life.check_loop()
        if other in self.watched:
            del self.watched[other]
            other.watches().watchers.pop(self.life, None)
        self.notices.pop(other.ref, None)

    def notify(self, end: Stopped) -> None:
        """Have *end* handled; if the actor stops before that, never."""
        if self.life.state in _ENDING:
            return
        self.notices[end.ref] = end
        self._ask_for_turn()

    def take_notice(self) -> Stopped | None:
        """Return the oldest notice, in the turn that was asked for; None if it was taken back."""
        self.turn_asked = False
        notice = self.notices.pop(next(iter(self.notices))) if self.notices else None
        if self.notices:
            self._ask_for_turn()
        return notice

    def over(self) -> None:
        """Tell those who watch it, now that the actor has stopped, and watch nobody."""
        end = self.life.end
        assert end is not None
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watches = watcher.watches()
            watches.watched.pop(self.life, None)
            watches.notify(end)
        watched, self.watched = self.watched, {}
        for other in watched:
            other.watches().watchers.pop(self.life, None)
        self.notices.clear()

    def _ask_for_turn(self) -> None:
        if not self.turn_asked:
            self.turn_asked = True
            self.life.ask_for_notice()
