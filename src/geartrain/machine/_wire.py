"""The stored form of events, runs and specs: JSON with a version, readable for ever.

An event's row holds its type, the version of that type and its body. A body of an older version goes through its
upcasters, one version at a time, before it is decoded. A type or version that is not in `EVENT_VERSIONS` is newer
than this code: it is refused with both versions named, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, get_args

import msgspec

from geartrain.errors import FormatUnknown, InvalidValue
from geartrain.ids import digest
from geartrain.machine._events import Event, EventBase
from geartrain.machine._run import Run

# The newest version of each event type. Adding an optional field keeps the version; anything else raises it and
# adds an upcaster from the version before.
EVENT_VERSIONS: Final[Mapping[str, int]] = MappingProxyType({kind.__name__: 1 for kind in get_args(Event)})

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
# (type, version) → what turns a body of that version into one of the next.
UPCASTERS: Final[Mapping[tuple[str, int], Upcaster]] = MappingProxyType({})

RUN_VERSION: Final = 1
RUN_UPCASTERS: Final[Mapping[int, Upcaster]] = MappingProxyType({})

_NEWEST: Final = f"the newest of version {max(EVENT_VERSIONS.values())}"
# What reading may raise: JSON that is none or does not fit, nesting without end, a version without upcaster, and a
# value that this code refuses.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError, KeyError, InvalidValue)

_encoder: Final = msgspec.json.Encoder()
_event_decoder: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)
_run_decoder: Final = msgspec.json.Decoder(Run)


def encode_event(event: EventBase) -> bytes:
    """Return the JSON form of an event, its type included."""
    return _encoder.encode(event)


def decode_event(
    kind: str, version: int, body: bytes, upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS
) -> Event:
    """Return the event stored as *body* under that type and version.

    Raises:
        FormatUnknown: The type is unknown, the version newer, or the body does not fit it.
    """
    newest = EVENT_VERSIONS.get(kind)
    if newest is None:
        raise FormatUnknown("event type", f"{kind!r} (version {version})", f"{len(EVENT_VERSIONS)} types, {_NEWEST}")
    if version > newest:
        raise FormatUnknown(f"event {kind}", f"version {version}", f"up to version {newest}")
    try:
        if version == newest:
            event = _event_decoder.decode(body)
        else:
            data = msgspec.json.decode(body, type=dict[str, Any])
            for step in range(version, newest):
                data = upcasters[kind, step](data)
            event = msgspec.convert(data, Event)
    except _UNREADABLE as problem:
        raise FormatUnknown(
            f"event {kind}", f"a body that does not fit version {version} ({problem})", "valid bodies"
        ) from problem
    if type(event).__name__ != kind:
        raise FormatUnknown(f"event {kind}", f"a body of {type(event).__name__}", f"bodies of {kind}")
    return event


def event_from_json(body: bytes | str) -> Event:
    """Return the event that a caller wrote as JSON, with its `type`.

    Raises:
        FormatUnknown: It is no event of this version.
        InvalidValue: It names a limit that is none.
    """
    try:
        return _event_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise FormatUnknown("event", f"what is none ({problem})", "the event types of this version") from problem


def event_digest(event: EventBase) -> str:
    """Return the digest of an event without its time, by which a repeated delivery is known."""
    return digest(_encoder.encode(msgspec.structs.replace(event, time=0.0)))


def encode_run(run: Run) -> bytes:
    """Return the JSON form of a run, as a checkpoint holds it."""
    return _encoder.encode(run)


def decode_run(version: int, body: bytes, upcasters: Mapping[int, Upcaster] = RUN_UPCASTERS) -> Run:
    """Return the run that a checkpoint of that version holds.

    Raises:
        FormatUnknown: The version is newer, or the body does not fit it.
    """
    if version > RUN_VERSION:
        raise FormatUnknown("checkpoint", f"version {version}", f"up to version {RUN_VERSION}")
    try:
        if version == RUN_VERSION:
            return _run_decoder.decode(body)
        data = msgspec.json.decode(body, type=dict[str, Any])
        for step in range(version, RUN_VERSION):
            data = upcasters[step](data)
        return msgspec.convert(data, Run)
    except _UNREADABLE as problem:
        raise FormatUnknown(
            "checkpoint", f"a body that does not fit version {version} ({problem})", "valid bodies"
        ) from problem
