"""Texts kept in a run are bounded: what is too long is cut, and says so."""

from __future__ import annotations

from typing import Final

SHORTENED: Final = "\n[… shortened to fit the context]"
# Characters kept of a reason, wherever one is given.
REASON_KEPT: Final = 1_000


def shortened(text: str, room: int) -> str:
    """Return *text* in at most *room* characters; a cut one ends with a mark, where the mark has room."""
    if len(text) <= room:
        return text
    if room <= len(SHORTENED):
        return text[:room]
    return text[: room - len(SHORTENED)] + SHORTENED


def brief(reason: str) -> str:
    """Return a reason in bounded length."""
    return reason if len(reason) <= REASON_KEPT else reason[: REASON_KEPT - 1] + "…"
