"""Which lines of a text are examples between fences, as far as the lines around them are known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_FENCE: Final = re.compile(r"^\s*(```+|~~~+)\s*([\w{].*)?$")


def fenced(lines: Mapping[int, str]) -> frozenset[int]:
    """Return the numbers of the lines that stand between fences, and of the fences."""
    within: set[int] = set()
    inside, before = False, 0
    for number in sorted(lines):
        if number != before + 1:
            # After a gap only a fence itself can tell on which side of it the lines are.
            inside = _closes_next(lines, number)
        fence = _FENCE.match(lines[number])
        if fence or inside:
            within.add(number)
        if fence:
            inside = bool(fence.group(2)) or not inside
        before = number
    return frozenset(within)


def _closes_next(lines: Mapping[int, str], start: int) -> bool:
    """Whether the first fence from *start* on, without a gap, closes one: it names no language, nothing follows."""
    number = start
    while number in lines:
        fence = _FENCE.match(lines[number])
        if fence:
            return not fence.group(2) and not lines.get(number + 1, "").strip()
        number += 1
    return False
