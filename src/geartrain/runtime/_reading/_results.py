"""The whole result of a call, found in the journal: for whoever was shown only a part of it."""

from __future__ import annotations

from typing import Final

from geartrain.machine import (
    CallAnswered,
    CallSettled,
    Event,
    EventHeard,
    RunStarted,
    SubAgentEnded,
    ToolFinished,
    decode_event,
)
from geartrain.persistence import Journal, StoredEvent
from geartrain.runtime._reading._runs import stored_events
from geartrain.tools import ResultUnavailable

# Events that give a call its result.
_KINDS: Final = (ToolFinished, CallAnswered, CallSettled, SubAgentEnded, EventHeard)
_RESULTS: Final = frozenset(kind.__name__ for kind in _KINDS)
# How many conversations back a result is looked for.
_CONVERSATIONS_MAX: Final = 16


async def whole_result(journal: Journal, run_id: str, call_id: str) -> str:
    """Return the whole text of a call's result, as far as it is stored; of a run that goes on from another, also there.

    A call named `RUN/CALL` is one of that run, and only if this one goes on from it.

    Raises:
        ResultUnavailable: No such call has a result with text.
    """
    owner, _, bare = call_id.rpartition("/")
    seen, wanted = "", f'"{bare}"'.encode()
    for _ in range(_CONVERSATIONS_MAX):
        found: StoredEvent | None = None
        started: StoredEvent | None = None
        async for row in stored_events(journal, run_id):
            if owner in ("", run_id) and row.type in _RESULTS and wanted in row.body:
                found = row if _gives(decode_event(row.type, row.version, row.body), bare) else found
            started = started or row
        if found is not None:
            return await _text(journal, decode_event(found.type, found.version, found.body), call_id)
        before = _continued(started)
        if before in ("", run_id, seen):
            break
        seen, run_id = run_id, before
    raise ResultUnavailable(call_id, "no call of that name has a result")


def _gives(event: Event, call_id: str) -> bool:
    """Whether *event* gives the call its result: that a write was not done, and is to be run again, does not."""
    match event:
        case ToolFinished():
            return event.call_id == call_id and event.verdict != "not_done"
        case CallSettled():
            return event.call_id == call_id and event.not_done != "run"
        case CallAnswered() | SubAgentEnded() | EventHeard():
            return event.call_id == call_id
        case _:
            return False


async def _text(journal: Journal, event: Event, call_id: str) -> str:
    assert isinstance(event, _KINDS), event
    if not isinstance(event, ToolFinished) or event.artifact is None:
        return event.text
    kind = event.artifact.media_type
    if not (kind.startswith("text/") or kind == "application/json"):
        raise ResultUnavailable(call_id, f"its result is no text but {kind}, {event.artifact.size:,} bytes")
    data = await journal.artifact(event.artifact.digest)
    if data is None:
        raise ResultUnavailable(call_id, "its result is not stored any more, or is damaged")
    return data.decode(errors="backslashreplace")


def _continued(row: StoredEvent | None) -> str:
    """Return the run that a run goes on from, or nothing."""
    started = decode_event(row.type, row.version, row.body) if row is not None else None
    return started.continues if isinstance(started, RunStarted) else ""
