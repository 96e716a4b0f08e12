"""What happened, told in the same words to logs, observers and timelines.

A record is a projection of a journal entry: the journal is the truth, the trace its reading. Records of
attempts and deltas are live only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened in a run: `event` names it, `payload` says what a reader needs to know.

    `ts` is in seconds since 1970, `seq` the number of the journal entry it was read from (0: live only).
    """

    run_id: str
    event: str
    ts: float
    seq: int = 0
    turn: int = 0
    payload: dict[str, Any] = {}


class Observer(Protocol):
    """Whoever is told what happened. Called with batches, in order, off the event loop.

    What it raises is counted and goes no further; what it changes in a record changes nothing.
    """

    def __call__(self, records: Sequence[TraceRecord], /) -> None:
        """Take one batch."""
        ...
