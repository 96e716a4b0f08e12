"""What a sender or an owner of an actor may be told."""

from __future__ import annotations

from dataclasses import dataclass

from geartrain.errors import ResourceError, UsageError


@dataclass(eq=False)
class ActorStopped(UsageError):
    """The actor has stopped. A message that was not refused may or may not have been handled."""

    name: str

    def __str__(self) -> str:
        return f"actor {self.name!r} has stopped and handles no more messages"


@dataclass(eq=False)
class ActorFailed(ResourceError):
    """The actor failed while it owed an answer; the message may or may not have been handled."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"actor {self.name!r} failed before it answered: {self.reason}"


@dataclass(eq=False)
class ActorNotBroken(UsageError):
    """Only a broken actor can be given a new behaviour. Nothing was changed."""

    name: str
    state: str

    def __str__(self) -> str:
        return f"actor {self.name!r}: restart needs a broken actor, this one is {self.state}"
