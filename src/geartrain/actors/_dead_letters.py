"""Dead letters: messages that were accepted and that nobody will handle or answer for."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from geartrain.clock import Clock


class WhyDead(StrEnum):
    """Why a message was not handled."""

    DROPPED = "dropped"  # the mailbox was full and made room for a newer one
    EXPIRED = "expired"  # its time was over before its turn came
    FAILED = "failed"  # the actor failed with it in hand
    REFUSED = "refused"  # it came from another thread and found the mailbox full
    STOPPED = "stopped"  # the actor stopped before its turn came, or gave up on it


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that *actor* has not handled. `at` is in seconds since 1970."""

    actor: str
    message: Any
    why: WhyDead
    detail: str
    at: float


@dataclass(frozen=True, slots=True)
class DeadLetterStatistics:
    """The dead letters at one moment: how many there were in all, for which reasons, and how many are kept."""

    total: int
    by_reason: Mapping[WhyDead, int]
    kept: int
    capacity: int


class DeadLetters:
    """The latest dead letters of a group of actors, oldest first; iterate it. All are counted, so many are kept.

    A message becomes one if it was accepted and nobody can be told that it was not handled. So neither one that was
    refused (its sender got an error) nor one whose sender waits for the answer (and gets an error) is among them.

    Args:
        capacity: How many are kept.
        on_letter: Called on the event loop, soon after, with each. What it raises goes to the loop's exception
            handler and stops nothing.
        clock: What time it is.
    """

    __slots__ = ("_clock", "_counts", "_letters", "_on_letter", "_total")

    def __init__(self, *, capacity: int, on_letter: Callable[[DeadLetter], None] | None, clock: Clock) -> None:
        self._letters: deque[DeadLetter] = deque(maxlen=capacity)
        self._on_letter = on_letter
        self._clock = clock
        self._counts: Counter[WhyDead] = Counter()
        self._total = 0

    def __iter__(self) -> Iterator[DeadLetter]:
        return iter(tuple(self._letters))

    def __len__(self) -> int:
        return len(self._letters)

    def add(self, actor: str, message: Any, why: WhyDead, detail: str = "") -> None:
        """Keep and count a message that *actor* has not handled."""
        letter = DeadLetter(actor, message, why, detail, self._clock.now())
        self._letters.append(letter)
        self._counts[why] += 1
        self._total += 1
        if self._on_letter is not None:
            # Soon, not now: it may send, and what it sends may become a dead letter within this very call.
            asyncio.get_running_loop().call_soon(self._on_letter, letter, context=Context())

    def statistics(self) -> DeadLetterStatistics:
        """Return how many there were, and why."""
        capacity = self._letters.maxlen
        assert capacity is not None
        return DeadLetterStatistics(self._total, dict(self._counts), len(self._letters), capacity)
