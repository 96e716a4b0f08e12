"""What the counters of many runs come to together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Totals:
    """Adds up the counters of these names: their numbers in `sums`, how often each of their texts in `tallies`."""

    __slots__ = ("sums", "tallies")

    def __init__(self, sums: Sequence[str], tallies: Sequence[str]) -> None:
        self.sums: dict[str, int | float] = dict.fromkeys(sums, 0)
        self.tallies: dict[str, dict[str, int]] = {name: {} for name in tallies}

    def add(self, counters: Mapping[str, Any]) -> None:
        """Take the counters of one more run."""
        for name in self.sums:
            value = counters.get(name)
            if isinstance(value, int | float):
                self.sums[name] += value
        for name, tally in self.tallies.items():
            value = counters.get(name)
            if isinstance(value, str):
                tally[value] = tally.get(value, 0) + 1
