"""A step of a run as lines for people: pure. What a run's own texts say is made safe where it is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from geartrain.cli._text import counted, one_line, shown_arguments
from geartrain.cli._timeline import local_time
from geartrain.machine import Hold, Message, Run, shortening_of
from geartrain.runtime import Frame

_WIDE: Final = 160
_LABEL: Final = 10
# Fields of a run that are told in words of their own, or are the event's own.
_TOLD: Final = frozenset({"seq", "path", "updated_at", "messages", "calls", "messages_size"})


def headline(frame: Frame) -> str:
    """Return one line about an event: its number, type, id, and where it led."""
    event = frame.event
    path = " > ".join(frame.path) or ("refused" if frame.refusal is not None else frame.after.state)
    differs = "  DIFFERS" if frame.differs else ""
    return f"{frame.seq:>5}  {type(event).__name__:<20} {one_line(event.id, 40):<19} {path}{differs}"


def lines_of(frame: Frame, total: int | None, *, full: bool) -> Iterator[str]:
    """Yield all that there is to see of one event: state before, event, path, commands, state after, what was seen.

    *total* is how many events the run has; None says that this one is none of them.
    """
    event = frame.event
    moment = local_time(event.time)
    when = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
    which = f"event {frame.seq} of {total}" if total is not None else f"pushed as event {frame.seq}"
    yield f"{which}  {type(event).__name__}  {one_line(event.id, 60)}  {when}"
    before = ""
    for label, text in _rows(frame, full=full):
        yield f"  {label if label != before else '':<{_LABEL}}{text}"
        before = label


def _rows(frame: Frame, *, full: bool) -> Iterator[tuple[str, str]]:
    yield "before", state_of(frame.before)
    for name, value in _given(frame.event):
        yield "event", f"{name} = {_value(value, full=full)}"
    if frame.refusal is not None:
        yield "refused", frame.refusal.reason
        yield "possible", ", ".join(frame.refusal.possible) or "nothing"
        return
    yield "path", " > ".join(frame.path) or "stays where it is"
    if frame.differs:
        yield "recorded", " > ".join(frame.recorded or ()) or "stays where it is"
    for mark, command in _commands(frame):
        yield "commands", f"{mark} {_command(command)}"
    yield "after", state_of(frame.after)
    for line in _changes(frame.before, frame.after):
        yield "changed", line
    for line in _seen(frame.saw or (), full=full):
        yield "saw", line


def state_of(run: Run) -> str:
    """Return how a run stands, in one line."""
    if not run.seq:
        return "not started"
    parts = [
        str(run.state),
        *([f"waits for {', '.join(map(str, run.holds))}"] if run.holds else []),
        *([f"ending: {run.ending.error.code if run.ending.error else run.ending.state}"] if run.ending else []),
        counted(run.turn_count, "turn"),
        counted(len(run.messages), "message"),
        counted(run.token_count.total_tokens, "token"),
        *(f"{call.id} {call.tool} {call.status}" for call in run.calls),
    ]
    return ", ".join(parts)


def _given(event: Any) -> Iterator[tuple[str, Any]]:
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name == "anomaly_code" and not event.anomaly:
            continue
        if name not in ("id", "time") and value not in ("", None, (), {}):
            yield name, value


def _value(value: Any, *, full: bool) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text.replace("\n", f"\n{' ' * (_LABEL + 4)}") if full else one_line(text, _WIDE)


def _commands(frame: Frame) -> Iterator[tuple[str, Any]]:
    """Yield each command with a mark: + begins, = goes on, - is no longer wanted."""
    before = {command.key for command in frame.commands_before}
    after = {command.key for command in frame.commands}
    for command in frame.commands_before:
        if command.key not in after:
            yield "-", command
    for command in frame.commands:
        yield ("=" if command.key in before else "+"), command


def _command(command: Any) -> str:
    fields = []
    for name in command.__struct_fields__:
        value = getattr(command, name)
        if name != "key" and value not in ("", None, (), False):
            shown = f"({shown_arguments(value)})" if name == "arguments" else _value(value, full=False)
            fields.append(f"{name}={shown}")
    return one_line(f"{type(command).__name__} {command.key}  {', '.join(fields)}", _WIDE)


def _changes(before: Run, after: Run) -> Iterator[str]:
    for name in after.__struct_fields__:
        if name in _TOLD or (old := getattr(before, name)) == (new := getattr(after, name)):
            continue
        if isinstance(new, tuple):
            # One line each: both whole would be cut before they differ.
            yield from (one_line(f"{name} - {_short(each)}", _WIDE) for each in old if each not in new)
            yield from (one_line(f"{name} + {_short(each)}", _WIDE) for each in new if each not in old)
        else:
            yield one_line(f"{name}: {_short(old)} → {_short(new)}", _WIDE)
    known = {call.id: call for call in before.calls}
    for call in after.calls:
        earlier = known.get(call.id)
        if earlier is None:
            yield one_line(f"call {call.id}: {call.tool}({shown_arguments(call.arguments)}) {call.status}", _WIDE)
        elif earlier != call:
            result = f", result {call.result.status}: {call.result.text}" if call.result is not None else ""
            yield one_line(f"call {call.id}: {earlier.status} → {call.status}{result}", _WIDE)
    gone = [call.id for call in before.calls if after.call(call.id) is None]
    if gone:
        yield f"calls closed: {', '.join(gone)}"
    fresh = after.messages[_shared(before.messages, after.messages) :]
    if len(before.messages) - (len(after.messages) - len(fresh)) > 0:
        yield f"messages: {len(before.messages)} → {len(after.messages)}"
    for message in fresh:
        yield f"message + {_message(message)}"


def _shared(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Return how many messages both begin with."""
    return next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))


def _short(value: Any) -> str:
    if isinstance(value, str):
        return one_line(value, 60) or "nothing"
    if isinstance(value, Hold):
        return str(value)
    return one_line(msgspec.json.encode(value).decode(), 100)


def _message(message: Message) -> str:
    tool = f" {message.tool} {message.call_id}" if message.tool else ""
    calls = "".join(f" call {call.id} {call.tool}({shown_arguments(call.arguments)})" for call in message.calls)
    return one_line(f"[{message.role}{tool}] {message.text}{calls}", _WIDE)


def _seen(messages: Sequence[Message], *, full: bool) -> Iterator[str]:
    for message in messages:
        if not full:
            yield _message(message)
            continue
        tool = f" {message.tool} {message.call_id}" if message.tool else ""
        how = shortening_of(message)
        yield f"[{message.role}{tool}] {message.size():,} bytes{f', {how}' if how else ''}"
        yield from (f"| {line}" for line in message.text.split("\n"))
        yield from (f"call {call.id} {call.tool} {call.arguments}" for call in message.calls)
