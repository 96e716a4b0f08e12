"""What can go wrong, in three families.

The family says what the caller does next: a `UsageError` fails again however often it is tried, a
`ResourceError` may pass later, an `InternalError` means that geartrain broke a promise of its own.
No code reads a message text: what an error knows are its attributes, and the message is built from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_TRACEBACK_CHARACTERS: Final = 4_000


class GeartrainError(Exception):
    """The root of every error that geartrain raises on purpose; survives pickling."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (type(self), dict(self.__dict__)))


def _rebuilt(kind: type[GeartrainError], fields: dict[str, Any]) -> GeartrainError:
    error = kind.__new__(kind)
    error.__dict__.update(fields)
    return error


class UsageError(GeartrainError):
    """The caller's fault: the same call will fail again."""


class ResourceError(GeartrainError):
    """The world's fault: a later try may succeed."""


class InternalError(GeartrainError):
    """Our fault: a promise of geartrain's own was broken; please report it."""


@dataclass(eq=False)
class InvalidValue(UsageError):
    """A value given by the caller is outside what is allowed."""

    name: str
    expected: str
    found: Any

    def __str__(self) -> str:
        return f"{self.name} must be {self.expected}, got {self.found!r}"


@dataclass(eq=False)
class RunNotFound(UsageError):
    """No run of that id is in the store."""

    run_id: str

    def __str__(self) -> str:
        return f"run {self.run_id!r}: not found in this store; `geartrain list` shows what is there"


@dataclass(eq=False)
class RunNotBegun(RunNotFound):
    """A sub-agent's run has yet to begin: it waits for a place to work in, or its tree is paused."""

    def __str__(self) -> str:
        return f"run {self.run_id!r}: has yet to begin, for it waits for a place to work in, or its tree is paused"


@dataclass(eq=False)
class RunExists(UsageError):
    """A run of that id (or idempotency key) was started with another request. Nothing was changed."""

    run_id: str

    def __str__(self) -> str:
        return f"run {self.run_id!r}: was started with another request; use a new id or idempotency key"


@dataclass(eq=False)
class RunStillGoing(UsageError):
    """A run cannot be continued by another one before it has ended. Nothing was started."""

    run_id: str
    state: str

    def __str__(self) -> str:
        return f"continue run {self.run_id!r}: it is in {self.state}; send it your words, or wait for its end"


@dataclass(eq=False)
class EventRefused(UsageError):
    """An event cannot move the run in its present state. Nothing was stored.

    `possible` are the types that can; if this one is among them, `reason` says what is wrong with this very event.
    """

    run_id: str
    event_type: str
    state: str
    reason: str
    possible: tuple[str, ...] = ()
    last_seq: int = 0

    def __str__(self) -> str:
        if self.event_type in self.possible:
            return f"run {self.run_id!r}: {self.event_type} is refused in {self.state}: {self.reason}"
        text = f"run {self.run_id!r}: {self.event_type} is not possible in {self.state}: {self.reason}"
        return f"{text}; possible: {', '.join(self.possible)}" if self.possible else text


@dataclass(eq=False)
class EventConflict(UsageError):
    """An event id that is already stored came again with another body. Nothing was stored."""

    run_id: str
    event_id: str

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r}: event id {self.event_id!r} is already stored with another body; "
            "give a new event its own id"
        )


@dataclass(eq=False)
class AgentNotFound(UsageError):
    """No agent of that name is registered here."""

    name: str
    registered: tuple[str, ...]

    def __str__(self) -> str:
        known = ", ".join(map(repr, self.registered)) or "none"
        return f"agent {self.name!r}: not registered with this runtime (registered: {known}); pass it in agents=[…]"


@dataclass(eq=False)
class RuntimeClosed(UsageError):
    """The runtime is closed or closing, or was not entered yet, and takes nothing in."""

    attempted: str

    def __str__(self) -> str:
        return f"{self.attempted}: this runtime is closed, or was not entered: `async with Runtime.open(…) as runtime`"


@dataclass(eq=False)
class RunSetApart(ResourceError):
    """A run cannot be moved by this node; its journal is untouched and other runs go on."""

    run_id: str
    reason: str

    def __str__(self) -> str:
        return f"run {self.run_id!r}: set apart: {self.reason}"


@dataclass(eq=False)
class FormatUnknown(UsageError):
    """Stored data is newer than this version of geartrain, or of an unknown kind. Nothing was written."""

    what: str
    found: str
    readable: str

    def __str__(self) -> str:
        return f"{self.what}: found {self.found}, this version reads {self.readable}; use a newer geartrain"


@dataclass(eq=False)
class MailboxFull(ResourceError):
    """A mailbox has no room for a message that must not wait."""

    owner: str
    capacity: int

    def __str__(self) -> str:
        return (
            f"mailbox of {self.owner!r} is full ({self.capacity} messages); "
            "await send() to wait for room, or raise mailbox_capacity"
        )


@dataclass(eq=False)
class TimedOut(ResourceError):
    """Something did not happen within the time its caller gave it."""

    what: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.what}: not done within {self.seconds:g} s"


def plain_traceback(error: BaseException | None) -> str:
    """Return where *error* was raised, as text: the end of it, and no values of variables.

    Given to a log or report in the place of the exception: what renders exceptions may show every local variable,
    secrets included, takes long to do so, and runs a stranger's `__repr__` on our loop.
    """
    if error is None:
        return ""
    import traceback  # noqa: PLC0415 - slow to load, and needed only when something has failed

    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{frames[-_TRACEBACK_CHARACTERS:]}{type(error).__name__}"
