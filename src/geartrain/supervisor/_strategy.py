"""Who is restarted when one child has exited: two tables, and a plan made of them.

| restart     | the child ended of itself | it failed |
|-------------|---------------------------|-----------|
| `permanent` | comes back                | comes back |
| `transient` | stays down                | comes back |
| `temporary` | stays down                | stays down |

| strategy       | when a child comes back, these are stopped first, and come back with it |
|----------------|--------------------------------------------------------------------------|
| `one_for_one`  | nobody else                                                               |
| `one_for_all`  | all others                                                                |
| `rest_for_one` | those that were started after it                                          |

Both tables are those of OTP's supervisor, and so are these rules:

Rule 1: children stop right to left and start left to right: none lives without those that were started before it.
Rule 2: a temporary child that is stopped with the others does not come back with them.
Rule 3 is ours: what was down before (a child that had done its work, or was stopped on purpose) stays down. OTP starts
such children again with the others, which surprises whoever stopped one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Restart(StrEnum):
    """After which ends a child comes back."""

    PERMANENT = "permanent"
    TRANSIENT = "transient"
    TEMPORARY = "temporary"


class Strategy(StrEnum):
    """Who else is restarted with a child."""

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"


# Restart: whether a child comes back that (ended of itself, failed).
_COMES_BACK: Final = MappingProxyType(
    {
        Restart.PERMANENT: (True, True),
        Restart.TRANSIENT: (False, True),
        Restart.TEMPORARY: (False, False),
    }
)


@dataclass(frozen=True, slots=True)
class Member:
    """A child as a plan sees it: its name, after which ends it comes back, and whether it is up or on its way up."""

    name: str
    restart: Restart = Restart.PERMANENT
    up: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """Which children stop, in this order, and which start after that, in this order. Both empty: nothing is done."""

    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


def comes_back(restart: Restart, *, failed: bool) -> bool:
    """Return whether a child that has ended comes back, by the first table."""
    return _COMES_BACK[restart][failed]


def plan_restart(strategy: Strategy, members: Sequence[Member], exited: str, *, failed: bool) -> Plan:
    """Return what is to be done now that the child *exited* has ended; it is down already.

    Args:
        strategy: Who else is restarted with it.
        members: All children in the order in which they were started.
        exited: The name of one of them.
        failed: Whether it failed, or ended of itself.
    """
    position = next(number for number, member in enumerate(members) if member.name == exited)
    if not comes_back(members[position].restart, failed=failed):
        return Plan()
    first = {Strategy.ONE_FOR_ONE: len(members), Strategy.ONE_FOR_ALL: 0, Strategy.REST_FOR_ONE: position}[strategy]
    concerned = [member for member in members[first:] if member.up and member.name != exited]
    back = {exited, *(member.name for member in concerned if member.restart is not Restart.TEMPORARY)}
    return Plan(
        stop=tuple(member.name for member in reversed(concerned)),
        start=tuple(member.name for member in members if member.name in back),
    )
