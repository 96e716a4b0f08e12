"""Entries, heads and events with harmless contents, for tests of journals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from geartrain.persistence import Entry, Head, Journal, Outgoing, StoredEvent

START: Final = 1_767_225_600.0


def an_event(seq: int, event_id: str = "", **fields: Any) -> StoredEvent:
    """Return an event with that number and, where *fields* do not say otherwise, harmless contents."""
    usual: dict[str, Any] = {
        "id": event_id or f"e{seq}",
        "type": "ModelReplied",
        "version": 1,
        "time": START + seq,
        "body": b'{"text":"\x00\xff"}',
        "digest": f"digest of {event_id or seq}",
        "path": "MODEL_THINKING>DECIDE_ACTION",
    }
    return StoredEvent(seq=seq, **{**usual, **fields})


def a_head(**fields: Any) -> Head:
    """Return the head of a live run, where *fields* do not say otherwise."""
    usual: dict[str, Any] = {
        "state": "MODEL_THINKING",
        "agent": "librarian",
        "live": True,
        "ended": False,
        "created_at": START,
        "updated_at": START,
    }
    return Head(**{**usual, **fields})


RESTING: Final = a_head(state="SUSPENDED", live=False)
ENDED: Final = a_head(state="FINISHED", live=False, ended=True)


def an_entry(run_id: str, epoch: int, expected: int = 0, **fields: Any) -> Entry:
    """Return an entry of one plain event after number *expected*, where *fields* do not say otherwise."""
    usual: dict[str, Any] = {"events": (an_event(expected + 1),), "head": a_head()}
    return Entry(run_id=run_id, epoch=epoch, expected=expected, **{**usual, **fields})


async def epoch_of(journal: Journal) -> int:
    """Claim *journal* and return the epoch."""
    return (await journal.claim("conformance", now=START, lease_seconds=30)).epoch


async def outcomes_of(futures: Sequence[asyncio.Future[int]]) -> list[int | str]:
    """Return what became of each append: the last number, or the name of the refusal."""
    found = await asyncio.gather(*futures, return_exceptions=True)
    return [outcome if isinstance(outcome, int) else type(outcome).__name__ for outcome in found]


def a_message(run_id: str, event_id: str = "m", **fields: Any) -> Outgoing:
    """Return an event for another run, where *fields* do not say otherwise of harmless contents."""
    usual: dict[str, Any] = {
        "type": "SubAgentEnded",
        "version": 1,
        "body": b"body of " + event_id.encode("utf-8", "replace"),
    }
    return Outgoing(run_id=run_id, id=event_id, **{**usual, **fields})
