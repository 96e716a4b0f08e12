"""What whoever describes or steers a tree of actors may be told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from geartrain.errors import ResourceError, UsageError


class WrongSpec(StrEnum):
    """What is wrong with a `ChildSpec` or a `Supervisor`; each wrong one has its own."""

    NAME = "the name must be 1 to 100 printable characters without '/'"
    START_INSTANCE = "an actor lives once: give its class, or a function that makes a new one each time"
    START_ASYNC = "start must not be async: make the actor at once, and wait in its started()"
    START_PARAMETERS = "start is called without arguments: bind them, with functools.partial or a lambda"
    START = "start must be a class or function that makes an actor, or a Supervisor"
    RESTART = "restart must be 'permanent', 'transient' or 'temporary'"
    START_SECONDS = "start_seconds must be a number of seconds above 0, or UNLIMITED"
    SHUTDOWN = "shutdown_seconds must be a number of seconds above 0, 'brutal', UNLIMITED, or None for the default"
    CAPACITY = "capacity must be a whole number, at least 1"
    OVERFLOW = "overflow must be 'wait', 'refuse' or 'drop_oldest'"
    SUPERVISOR_MAILBOX = "a Supervisor takes no messages: give it neither capacity nor overflow"
    CHILDREN = "children must be a sequence of ChildSpec"
    NAME_TAKEN = "two children of one supervisor must not have one name"
    STRATEGY = "strategy must be 'one_for_one', 'one_for_all' or 'rest_for_one'"
    LIMIT = "limit must be a RestartLimit"
    BACKOFF = "backoff must be a Backoff"
    DEPTH = "supervisors nest at most 16 deep"


@dataclass(eq=False)
class SpecRefused(UsageError):
    """A child or a supervisor cannot be as it was described; *why* says what is wrong. Nothing was started.

    `name` is the child's, or None where it is about the supervisor.
    """

    name: str | None
    why: WrongSpec
    found: Any

    def __str__(self) -> str:
        what = f"child {self.name!r}" if self.name is not None else "supervisor"
        return f"{what}: {self.why.value}; got {self.found!r}"


@dataclass(eq=False)
class RestartsExhausted(ResourceError):
    """A child failed more often than its supervisor may restart, so the supervisor has stopped all and failed."""

    supervisor: str
    child: str
    restarts: int
    within_seconds: float
    reason: str

    def __str__(self) -> str:
        return (
            f"supervisor {self.supervisor!r}: {self.child!r} would have to be restarted once more than "
            f"{self.restarts} times in {self.within_seconds:g} s: {self.reason}"
        )


@dataclass(eq=False)
class ChildNotStarted(ResourceError):
    """A child failed in its first start, so its supervisor has stopped the others and failed; `__cause__` is why."""

    supervisor: str
    child: str
    reason: str

    def __str__(self) -> str:
        return f"supervisor {self.supervisor!r}: {self.child!r} failed in its first start: {self.reason}"


@dataclass(eq=False)
class ChildNotFound(UsageError):
    """A supervisor has no child of that name that lives, or it is reached by another call; *why* says which."""

    supervisor: str
    child: str
    why: str

    def __str__(self) -> str:
        return f"supervisor {self.supervisor!r} has no such child {self.child!r}: {self.why}"


@dataclass(eq=False)
class ChildNotDown(UsageError):
    """Only a child that is down can be deleted. Nothing was changed."""

    child: str
    state: str

    def __str__(self) -> str:
        return f"child {self.child!r}: is {self.state}; stop it before it is deleted"
