"""What comes in from outside is checked or cleaned here, once, so that nothing in the middle can trip over it.

Text with lone surrogates cannot be stored as UTF-8, and NaN is no JSON: text is kept with such characters escaped,
numbers are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.machine import Event, ModelReplied, RequestedCall, Usage
from geartrain.models import ModelReply

T = TypeVar("T")

ID_CHARACTERS: Final = 200
PAYLOAD_BYTES: Final = 64 * 1024
# More than fit into an event; a reply whose calls never end is cut off here.
_CALLS_LOOKED_AT: Final = 20_000
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: Any) -> str:
    """Return *text* with NUL and lone surrogates written as escapes.

    Raises:
        InvalidValue: It is no text.
    """
    if type(text) is not str:
        if not isinstance(text, str):
            raise InvalidValue("a text", "text", type(text).__name__)
        text = str.__str__(text)  # a class of its own could not be stored
    found: str = text
    if found.isascii():
        return found.replace("\x00", "\\x00") if "\x00" in found else found
    return _UNSTORABLE.sub(lambda odd: odd.group().encode("unicode_escape").decode("ascii"), found)


def checked_input(text: Any, limits: Limits) -> str:
    """Return what is said to a run, cleaned.

    Raises:
        InvalidValue: It is no text, or too large for an event.
    """
    if not isinstance(text, str):
        raise InvalidValue("input", "text", type(text).__name__)
    if len(text) > limits.event_bytes // 4:
        raise InvalidValue("the length of the input", f"at most {limits.event_bytes // 4} characters", len(text))
    return clean_text(text)


def checked_id(name: str, value: Any) -> str:
    """Return an id that every store can hold.

    Raises:
        InvalidValue: It is not one.
    """
    if not isinstance(value, str) or not 0 < len(value) <= ID_CHARACTERS or not value.isprintable():
        raise InvalidValue(name, f"1 to {ID_CHARACTERS} printable characters", value)
    return str.__str__(value)


def checked_event(event: Event, limits: Limits) -> Event:
    """Return an event from outside as it will be read back: a value of the wrong type would spoil the journal.

    Raises:
        InvalidValue: It holds a value that is not of its field's type, no JSON, or too large.
    """
    try:
        # Bytes are no text: by default they would become some, in base 64.
        data = msgspec.to_builtins(event, builtin_types=(bytes, bytearray))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidValue(f"a {type(event).__name__}", "made of JSON data", str(problem)) from None
    checked_id("an event's id", data["id"])
    return checked_as(type(event).__name__, checked_data(type(event).__name__, data, limits), type(event))


def checked_as(name: str, data: Any, kind: type[T]) -> T:
    """Return *data* as a value of *kind*, each field of its type.

    Raises:
        InvalidValue: It does not fit.
    """
    try:
        return msgspec.convert(data if isinstance(data, dict) else msgspec.to_builtins(data), kind)
    except (msgspec.ValidationError, TypeError, ValueError) as problem:
        raise InvalidValue(name, f"a valid {kind.__name__}", str(problem)) from None


def checked_data(name: str, value: Any, limits: Limits) -> Any:
    """Return JSON data as it will be stored.

    Raises:
        InvalidValue: It is no JSON (NaN and infinities are none), or too large.
    """
    found = _checked(name, value, depth=0)
    size = len(msgspec.json.encode(found))
    if size > limits.event_bytes // 4:
        raise InvalidValue(f"the size of {name}", f"at most {limits.event_bytes // 4} bytes", size)
    return found


def _checked(name: str, value: Any, *, depth: int) -> Any:
    if depth > 100:
        raise InvalidValue(name, "nested at most 100 deep", "deeper data")
    match value:
        case str():
            return clean_text(value)
        case bool() | None:
            return value
        case int() if -(2**63) <= value < 2**64:
            return value
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_checked(name, item, depth=depth + 1) for item in value]
        case dict() if all(isinstance(key, str) for key in value):
            return {clean_text(key): _checked(name, item, depth=depth + 1) for key, item in value.items()}
        case _:
            raise InvalidValue(name, "JSON data (text, finite numbers, lists, objects with text keys)", value)


def plain_payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of what a tool wants traced, as JSON data: an observer cannot hold, share or change the tool's own.

    What is no data, or too large, says so in its place.
    """
    try:
        text = msgspec.json.encode(payload, enc_hook=lambda value: f"({type(value).__name__})")
        if len(text) <= PAYLOAD_BYTES:
            return msgspec.json.decode(text, type=dict[str, Any])
        problem = f"{len(text)} bytes, at most {PAYLOAD_BYTES} are traced"
    except BaseException as error:  # noqa: BLE001 - a stranger's objects, text that is none, data without end
        problem = f"no JSON data ({type(error).__name__})"
    return {"not_traced": problem, "call_id": payload.get("call_id", "")}


def replied(
    reply: Any, *, event_id: str, time: float, turn: int, attempt: int, model: str, limits: Limits
) -> ModelReplied:
    """Return the event that a model's reply is, with everything in it that cannot be stored put right.

    What is no reply at all, or too large for an event, becomes an anomaly that the model is told of.
    """
    event = ModelReplied(id=event_id, time=time, source="model", turn=turn, attempt=attempt, model=model)
    try:
        return _read(reply, event, limits)
    except BaseException as error:  # noqa: BLE001 - a stranger's objects: anything may happen when they are looked at
        return msgspec.structs.replace(event, anomaly=f"the reply could not be read ({type(error).__name__})")


def _read(reply: Any, event: ModelReplied, limits: Limits) -> ModelReplied:
    if not isinstance(reply, ModelReply) or not isinstance(reply.text, str):
        problem = f"the model client gave {type(reply).__name__}, not a ModelReply"
        return msgspec.structs.replace(event, anomaly=problem)
    text, anomaly = clean_text(reply.text), ""
    room = limits.event_bytes // 4
    if len(text) > room:
        text, anomaly = text[:1_000], f"the reply was too large: {len(text)} characters, at most {room}"
    try:
        calls = _requested(reply.calls, room * 2, limits)
    except BaseException as error:  # noqa: BLE001 - a stranger's objects: anything may happen when they are looked at
        calls, anomaly = (), f"the calls of the reply could not be read ({type(error).__name__})"
    if sum(len(call.tool) + len(call.provider_id) + 64 for call in calls) > room * 3:
        anomaly = f"the reply asked for {len(calls)} calls, more than can be kept"
    return msgspec.structs.replace(
        event,
        text=text,
        calls=() if anomaly else calls,
        usage=usable_usage(reply.usage),
        finish_reason=_word(reply.finish_reason),
        anomaly=anomaly,
    )


def _word(value: Any) -> str:
    """Return a name that a model client gave; what is no text says so in its place."""
    return clean_text(value[:200]) if isinstance(value, str) else f"({type(value).__name__})"[:200]


def _requested(calls: Any, room: int, limits: Limits) -> tuple[RequestedCall, ...]:
    """Return the calls of a reply, arguments that are too large left out and beyond the limit of calls all."""
    kept: list[RequestedCall] = []
    for position, call in enumerate(islice(calls, _CALLS_LOOKED_AT), start=1):
        arguments = call.arguments if isinstance(call.arguments, str) else f"({type(call.arguments).__name__})"
        size = len(arguments)
        fits = size <= min(limits.argument_bytes, room) and position <= limits.calls_per_reply
        room -= size if fits else 0
        kept.append(
            RequestedCall(
                tool=_word(call.tool),
                arguments=clean_text(arguments) if fits else "",
                provider_id=_word(call.provider_id),
                oversized=0 if fits or position > limits.calls_per_reply else size,
            )
        )
    return tuple(kept)


def usable_usage(usage: Any) -> Usage | None:
    """Return a usage figure if it is one: whole numbers that are not negative; otherwise None, to be estimated."""
    if not isinstance(usage, Usage):
        return None
    counts = (usage.input_tokens, usage.output_tokens)
    if not all(isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**53 for count in counts):
        return None
    cost = usage.cost
    known = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < math.inf
    return Usage(
        input_tokens=int(usage.input_tokens),
        output_tokens=int(usage.output_tokens),
        cost=float(cost) if known else 0.0,
        estimated=usage.estimated is True,
    )
