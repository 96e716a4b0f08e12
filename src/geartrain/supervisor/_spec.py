"""A tree of actors, described as data and checked when it is described."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, NoReturn, TypeVar

from geartrain.actors import Actor, Overflow
from geartrain.limits import UNLIMITED, Unlimited
from geartrain.supervisor._backoff import Backoff
from geartrain.supervisor._errors import SpecRefused, WrongSpec
from geartrain.supervisor._restart_limit import RestartLimit
from geartrain.supervisor._strategy import Restart, Strategy

_NAME_LENGTH_MAX: Final = 100
_DEPTH_MAX: Final = 16
_SUPERVISOR: Final = None  # where a child's name would stand

Choice = TypeVar("Choice", bound=StrEnum)


class Shutdown(StrEnum):
    """The type of "brutal": the child is killed without being asked."""

    BRUTAL = "brutal"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One child of a supervisor. Reusable: nothing lives in it.

    Args:
        name: What the others of the supervisor's children are not called.
        start: Called without arguments for each new instance: a class, or a function that returns a new `Actor`. Or a
            `Supervisor`, whose children are then a subtree. If it raises, the child has failed to start.
        restart: After which ends the child comes back: `permanent` after each, `transient` only if it failed,
            `temporary` never.
        start_seconds: How long its `started` may take; it has then failed. A supervisor has as long as its children.
        shutdown_seconds: How long it has to end when it is stopped, until it is killed: its task is cancelled, and
            abandoned if that does not help. "brutal" kills it without asking. None means the group's `grace_seconds`
            for an actor, and for a supervisor as long as its children have; UNLIMITED waits as long as it takes.
        capacity: How many messages may wait; None means `limits.mailbox_capacity`.
        overflow: What happens to one more: see `Overflow`.

    Raises:
        SpecRefused: Something of it is wrong; its `why` says what.
    """

    name: str
    start: Callable[[], Actor] | Supervisor
    restart: Restart | Literal["permanent", "transient", "temporary"] = Restart.PERMANENT
    start_seconds: float | Unlimited = 30.0
    shutdown_seconds: float | Shutdown | Literal["brutal"] | Unlimited | None = None
    capacity: int | None = None
    overflow: Overflow | Literal["wait", "refuse", "drop_oldest"] = Overflow.WAIT

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_LENGTH_MAX or not name.isprintable() or "/" in name:
            raise SpecRefused(str(name), WrongSpec.NAME, name)
        self._check_start()
        set_field = object.__setattr__
        set_field(self, "restart", _one_of(Restart, self.restart, WrongSpec.RESTART, name))
        set_field(self, "overflow", _one_of(Overflow, self.overflow, WrongSpec.OVERFLOW, name))
        if self.start_seconds != UNLIMITED and not _is_duration(self.start_seconds):
            self._refuse(WrongSpec.START_SECONDS, self.start_seconds)
        set_field(self, "shutdown_seconds", self._checked_shutdown())
        if self.capacity is not None and (not _is_int(self.capacity) or self.capacity < 1):
            self._refuse(WrongSpec.CAPACITY, self.capacity)
        if isinstance(self.start, Supervisor) and (self.capacity is not None or self.overflow is not Overflow.WAIT):
            self._refuse(WrongSpec.SUPERVISOR_MAILBOX, self.capacity or str(self.overflow))

    def _check_start(self) -> None:
        start = self.start
        if isinstance(start, Supervisor):
            return
        if isinstance(start, Actor):
            self._refuse(WrongSpec.START_INSTANCE, start)
        if not callable(start) or (isinstance(start, type) and not issubclass(start, Actor)):
            self._refuse(WrongSpec.START, start)
        if inspect.iscoroutinefunction(start):
            self._refuse(WrongSpec.START_ASYNC, start)
        try:
            inspect.signature(start).bind()
        except TypeError:
            self._refuse(WrongSpec.START_PARAMETERS, start)
        except ValueError:  # of some callables written in C nobody knows what they take
            return

    def _checked_shutdown(self) -> float | Shutdown | Unlimited | None:
        seconds = self.shutdown_seconds
        if seconds is None or seconds == UNLIMITED:
            return None if seconds is None else UNLIMITED
        if seconds == Shutdown.BRUTAL:
            return Shutdown.BRUTAL
        if not _is_duration(seconds):
            self._refuse(WrongSpec.SHUTDOWN, seconds)
        return float(seconds)

    def _refuse(self, why: WrongSpec, found: Any) -> NoReturn:
        raise SpecRefused(self.name, why, found)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """A supervisor, described: its children, in the order in which they start, and what it does when one has ended.

    Args:
        children: What it starts, left to right, each once the one before is up. It stops them right to left.
        strategy: Who else is restarted with a child: `one_for_one` nobody, `one_for_all` all, `rest_for_one` those that
            were started after it.
        limit: How many restarts are allowed; past it the supervisor stops its children and fails itself, which its own
            supervisor hears of.
        backoff: How long it waits before a restart.

    Raises:
        SpecRefused: Something of it is wrong; its `why` says what.
    """

    children: Sequence[ChildSpec] = ()
    strategy: Strategy | Literal["one_for_one", "one_for_all", "rest_for_one"] = Strategy.ONE_FOR_ONE
    limit: RestartLimit = field(default_factory=RestartLimit)
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        children = self.children
        if not isinstance(children, Sequence) or not all(isinstance(child, ChildSpec) for child in children):
            raise SpecRefused(_SUPERVISOR, WrongSpec.CHILDREN, children)
        object.__setattr__(self, "children", tuple(children))
        names: set[str] = set()
        for child in children:
            if child.name in names:
                raise SpecRefused(child.name, WrongSpec.NAME_TAKEN, child.name)
            names.add(child.name)
        object.__setattr__(self, "strategy", _one_of(Strategy, self.strategy, WrongSpec.STRATEGY, _SUPERVISOR))
        if not isinstance(self.limit, RestartLimit):
            raise SpecRefused(_SUPERVISOR, WrongSpec.LIMIT, self.limit)
        if not isinstance(self.backoff, Backoff):
            raise SpecRefused(_SUPERVISOR, WrongSpec.BACKOFF, self.backoff)
        if self.depth > _DEPTH_MAX:
            raise SpecRefused(_SUPERVISOR, WrongSpec.DEPTH, self.depth)

    @property
    def depth(self) -> int:
        """How many supervisors lie within one another here, this one included."""
        below = (child.start.depth for child in self.children if isinstance(child.start, Supervisor))
        return 1 + max(below, default=0)


def _one_of(kind: type[Choice], value: Any, why: WrongSpec, name: str | None) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise SpecRefused(name, why, value) from None


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
