"""What a model call sees, and what it does not see any more: for the trace, and pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from geartrain.machine import ContextCompacted, ContextPrepared, Event, Message, Run, estimate_tokens, shortening_of

Payload = dict[str, Any]
# How much of a summary a record shows; the journal has all of it.
_SHOWN: Final = 2_000


def shortenings(event: Event, after: Run) -> Iterator[tuple[str, Payload]]:
    """Yield a record for each way in which a step has shortened the context, and one for a summary that was no use."""
    text = event.summary if isinstance(event, ContextCompacted) else ""
    summary: Payload = {"summary": text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"}
    for shortening in after.shortened:
        dropped = shortening.how in ("window", "summary")
        payload: Payload = {
            "how": shortening.how,
            "messages_dropped" if dropped else "messages_shortened": shortening.messages,
            "bytes_saved": shortening.bytes,
            "messages": len(after.messages),
        }
        if shortening.calls:
            payload["calls"] = list(shortening.calls)
        yield "context_compacted", payload | (summary if shortening.how == "summary" else {})
    if isinstance(event, ContextCompacted) and all(each.how != "summary" for each in after.shortened):
        yield "context_compacted", {"how": "summary refused", "messages": len(after.messages), **summary}


def prepared(event: ContextPrepared, _before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    """Yield what the context providers have told."""
    notes = event.messages
    payload: Payload = {
        "providers": list(dict.fromkeys(note.provider for note in notes)),
        "notes": len(notes),
        "pinned": sum(note.pinned for note in notes),
        "size": sum(len(note.text) for note in notes),
    }
    yield "context_prepared", payload


def model_asked(run: Run) -> Payload:
    """Return what is said of a model call: how much it sees, and how much of that is not whole or not there."""
    return {
        "turn": run.turn_count + 1,
        "attempt": run.model_attempt,
        "messages": len(run.messages),
        "shortened": sum(bool(shortening_of(message)) for message in run.messages),
        "dropped": run.messages_dropped,
        "input_tokens_estimated": estimate_tokens(run.messages_size),
        "tools": not run.wrapping_up,
    }


def seen(messages: tuple[Message, ...]) -> list[Payload]:
    """Return the messages that a model call saw, each with its size and how it was shortened."""
    return [
        {**msgspec.to_builtins(message), "size": message.size(), "shortened": shortening_of(message)}
        for message in messages
    ]
