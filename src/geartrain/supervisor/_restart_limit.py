"""How often something may be restarted: a rule about past restarts, which takes the time instead of reading it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from geartrain.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class RestartLimit:
    """At most *restarts* within any *within_seconds*; one more is one too many.

    The rule of OTP's supervisor (`intensity` and `period`): the window ends now, a restart exactly as old as it is long
    still counts, and *restarts* of 0 allow none. OTP's defaults, 1 in 5 s, are strict for work that waits on networks.

    Args:
        restarts: How many, 0 or more.
        within_seconds: The length of the window; `math.inf` counts for ever.

    Raises:
        InvalidValue: One of them is out of range.
    """

    restarts: int = 3
    within_seconds: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.restarts, bool) or not isinstance(self.restarts, int) or self.restarts < 0:
            raise InvalidValue("restarts", "a whole number, 0 or more", self.restarts)
        if not _is_number(self.within_seconds) or not self.within_seconds > 0:
            raise InvalidValue("within_seconds", "more than 0", self.within_seconds)

    def restarted(self, history: Iterable[float], now: float) -> tuple[tuple[float, ...], bool]:
        """Return the history with a restart at *now* in it, and whether it is allowed; one that is not is not in it.

        The history is what the last call returned, () at the beginning: the times that still count, oldest first, never
        more than `restarts` of them. A time after *now* (the clock was set back) counts as *now*.
        """
        recent = sorted(min(at, now) for at in history if at >= now - self.within_seconds)
        if len(recent) >= self.restarts:
            return tuple(recent[len(recent) - self.restarts :]), False
        return (*recent, now), True


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
