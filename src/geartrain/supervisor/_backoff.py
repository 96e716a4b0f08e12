"""How long to wait before a restart: a rule that takes the time and the chance instead of asking for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from geartrain.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow from one restart to the next, and start anew after a calm time.

    The wait before restart number *n* in a row is `min(max_seconds, initial_seconds * factor ** (n - 1))`, of which
    chance takes away up to the share *jitter*: so those that failed together do not return together, and *max_seconds*
    is never exceeded. (Pekko's `BackoffSupervisor` adds its chance on top of the maximum.)

    Args:
        initial_seconds: The first wait; 0 means none at all, ever.
        factor: By how much each wait is longer than the one before; 1 keeps them equal.
        max_seconds: The longest wait.
        jitter: From 0, always the whole wait, to 1, anything down to none.
        reset_seconds: What has run for so long without a failure has recovered: its next wait is the first again.

    Raises:
        InvalidValue: One of them is out of range.
    """

    initial_seconds: float = 0.1
    factor: float = 2.0
    max_seconds: float = 30.0
    jitter: float = 0.2
    reset_seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, low, high, expected in (
            ("initial_seconds", 0.0, math.inf, "a number of seconds, 0 or more"),
            ("factor", 1.0, math.inf, "a number, 1 or more"),
            (
                "max_seconds",
                self.initial_seconds,
                math.inf,
                f"a number of seconds, not less than initial_seconds ({self.initial_seconds})",
            ),
            ("jitter", 0.0, 1.0, "a number from 0 to 1"),
            ("reset_seconds", 0.0, math.inf, "a number of seconds, 0 or more"),
        ):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not low <= value <= high or value == math.inf:
                raise InvalidValue(name, expected, value)

    def wait_seconds(self, attempt: int, chance: float) -> float:
        """Return how long to wait before restart number *attempt* in a row (1 is the first).

        Args:
            attempt: What `next_attempt` returned.
            chance: A random number from 0 to 1, drawn by the caller: 0 takes nothing away, 1 the whole share.
        """
        return self._whole_wait(attempt) * (1.0 - self.jitter * min(max(chance, 0.0), 1.0))

    def next_attempt(self, attempt: int, calm_seconds: float) -> int:
        """Return the number of a restart after restart number *attempt* (0: there was none) was calm for so long."""
        return 1 if calm_seconds >= self.reset_seconds else max(attempt, 0) + 1

    def _whole_wait(self, attempt: int) -> float:
        try:
            return min(self.max_seconds, self.initial_seconds * self.factor ** (max(attempt, 1) - 1))
        except OverflowError:  # a power beyond all floats, of which no maximum is left but ours
            return self.max_seconds if self.initial_seconds else 0.0


NO_BACKOFF = Backoff(initial_seconds=0.0, max_seconds=0.0)
