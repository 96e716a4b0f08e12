"""What a sender or an owner of an actor may be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from geartrain.errors import GeartrainError, ResourceError, UsageError

_TEXT_LENGTH_MAX: Final = 1_000


def described(error: BaseException) -> str:
    """Return what *error*, a stranger's, says of itself, in bounds; its name if it cannot even do that."""
    try:
        text = f"{type(error).__name__}: {error}" if isinstance(error, GeartrainError) else repr(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a stranger's code, and nobody above it catches a SystemExit
        return f"{type(error).__name__} (which cannot be shown)"
    return text if len(text) <= _TEXT_LENGTH_MAX else f"{text[:_TEXT_LENGTH_MAX]}…"


@dataclass(eq=False)
class ActorStopped(UsageError):
    """The actor has stopped. A message that was not refused may or may not have been handled."""

    name: str
    reason: str = ""

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return f"actor {self.name!r} has stopped{why} and handles no more messages"


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


@dataclass(eq=False)
class MessageNotHandled(ResourceError):
    """A message whose answer was awaited was dropped from a full mailbox, or waited there until it had expired."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"actor {self.name!r} has not handled the message: it was {self.why}"


@dataclass(eq=False)
class ActorExited(ResourceError):
    """An actor's code called for the end of the process; that is taken as a failure of the actor."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"actor {self.name!r} raised {self.reason}; an actor ends by self.ref.stop()"


@dataclass(eq=False)
class ActorElsewhere(UsageError):
    """An actor was used from outside its event loop: another thread, another loop, or none. Nothing was done."""

    name: str

    def __str__(self) -> str:
        return f"actor {self.name!r}: used from outside its event loop, where only send_threadsafe may be called"


@dataclass(eq=False)
class AskedItself(UsageError):
    """An actor asked itself: the answer would have to wait for the message in hand, which waits for the answer."""

    name: str

    def __str__(self) -> str:
        return f"actor {self.name!r} asked itself, and would wait for ever; call a method of its own instead"


@dataclass(eq=False)
class GroupClosed(UsageError):
    """The group of actors is closed or closing and takes no more in."""

    actor: str

    def __str__(self) -> str:
        return f"actor {self.actor!r}: not spawned, its group is closed"


@dataclass(eq=False)
class TooManyActors(ResourceError):
    """A group has as many actors as it may have."""

    limit: int

    def __str__(self) -> str:
        return f"group of actors is full ({self.limit} actors); stop some, or raise limits.actors"
