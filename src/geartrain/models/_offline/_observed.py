"""What a conversation holds: its questions, the calls made for the newest, and what their results say.

Results are read tolerantly, because they may be trimmed, failed or denied; but a line enters `Seen.lines` only with
the path and number that a result gave it, and exactly as it stood there. What is cited comes from nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

from geartrain.machine import Message, ResultStatus, ToolCall
from geartrain.models._offline._summary import is_summary
from geartrain.models._offline._toolbox import Role, Toolbox, argument

LINES_MAX: Final = 20_000
LINE_CHARS_MAX: Final = 2_000
# An ellipsis at the end of a line this long is a tool's, of a shorter one its author's.
_SHORTENED_FROM: Final = 200

_HIT: Final = re.compile(r"^(?:\./)?([^\s:*`][^:\n`]{0,300}?):(\d{1,7}): ?(.*)$")
_NUMBERED: Final = re.compile(r"^ *(\d{1,7})(?:: |:$|\t| \| )(.*)$")
# How a note begins that stands where something was left out.
_LEFT_OUT: Final = "[… "
_SIZED: Final = re.compile(r"^(.+) \(([\d,]+) bytes\)$")
_ENTRY: Final = re.compile(
    r"^\s*(?:[-*•]\s+|(?:dir|file|d|f)\s*[:\s]\s*)?(\S.*?)(?:\s{2,}.*|\t.*|\s+\([^()]*\)|\s+[\d,.]+ ?\w*)?\s*$"
)


@dataclass(frozen=True, slots=True)
class Made:
    """A call that was made, with its result (None while there is none). `round` counts replies with calls from 0."""

    call: ToolCall
    round: int
    result: Message | None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments, empty if they are no JSON object."""
        return arguments_of(self.call.arguments)

    @property
    def ok(self) -> bool:
        """Whether the call did what it should."""
        return self.result is not None and self.result.status is ResultStatus.OK


@dataclass(frozen=True, slots=True)
class Asked:
    """A text of the user, and how many replies with calls had been given before it."""

    text: str
    round: int


@dataclass(frozen=True, slots=True)
class Exchange:
    """The newest question with what belongs to it. `earlier` is the question before, if there was one."""

    asked: tuple[Asked, ...]
    made: tuple[Made, ...]
    rounds: int
    earlier: str = ""
    summary: str = ""


@dataclass(slots=True)
class Seen:
    """What the results say. `lines` maps a path to its known lines by number, `read` to those that were read whole.

    `sizes` are in bytes, as they were listed; `lengths` in lines, of the files that were read to their end.
    """

    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    read: dict[str, set[int]] = field(default_factory=dict)
    files: dict[str, None] = field(default_factory=dict)
    folders: dict[str, None] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    failed: list[Made] = field(default_factory=list)
    count: int = 0

    def add(self, path: str, number: int, text: str) -> None:
        """Remember a line, up to a limit."""
        known = self.lines.setdefault(path, {})
        text = _without_note(text)[:LINE_CHARS_MAX]
        # A search may have shown the line shortened, or read_file whole.
        if number in known:
            known[number] = max(known[number], text, key=len)
        elif self.count < LINES_MAX:
            self.count += 1
            known[number] = text
            self.files.setdefault(path)


def arguments_of(text: str) -> dict[str, Any]:
    """Return the JSON object in *text*; empty if there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def newest_exchange(messages: Sequence[Message]) -> Exchange:
    """Return what has been said and done since the last answer."""
    begin, earlier = 0, ""
    for index, message in enumerate(messages[:-1]):
        if message.role == "assistant" and not message.calls and message.text:
            asked_next = next((later for later in messages[index + 1 :] if _asks(later)), None)
            # A run's own input is of turn 0. What was said in its course belongs to it, even after a first answer.
            begin = index + 1 if asked_next is not None and asked_next.turn == 0 else begin
    for message in messages[:begin]:
        if _asks(message):
            earlier = message.text
    asked: list[Asked] = []
    made: list[Made] = []
    rounds = 0
    for index, message in enumerate(messages[begin:], begin + 1):
        if _asks(message):
            asked.append(Asked(message.text, rounds))
        elif message.role == "assistant" and message.calls:
            answers = takewhile(lambda later: later.role == "tool", messages[index:])
            results = {answer.call_id: answer for answer in answers}
            made.extend(Made(call, rounds, results.get(call.id)) for call in message.calls)
            rounds += 1
    summary = next((m.text for m in reversed(messages) if is_summary(m)), "")
    return Exchange(tuple(asked), tuple(made), rounds, earlier, summary)


def _without_note(text: str) -> str:
    """Return a line without what a tool adds to one that it shortened."""
    text = re.sub(r" \[… the line has [\d,]+ bytes\]$", "", text)
    return text.removesuffix("…") if len(text) > _SHORTENED_FROM else text


def _asks(message: Message) -> bool:
    """Whether a message is a question of the user: neither a note of the machine nor what a provider pinned."""
    return message.role == "user" and not message.pinned and not message.note and bool(message.text.strip())


def observe(exchange: Exchange, box: Toolbox) -> Seen:
    """Return what the results of *exchange* say, oldest first."""
    seen = Seen()
    _read_hits(exchange.summary.split("\n"), seen)
    for made in exchange.made:
        if made.result is None or made.result.status is not ResultStatus.OK:
            seen.failed.append(made)
            continue
        lines = _whole_lines(made.result)
        path = argument(made.arguments, "path")
        match box.role_of(made.call.tool):
            case Role.SEARCH:
                _read_hits(lines, seen)
            case Role.READ if isinstance(path, str) and lines and not lines[0].startswith("(empty"):
                _read_text(lines, made.arguments, path, seen)
            case Role.LIST:
                _read_entries(lines, path if isinstance(path, str) else "", seen)
            case _:
                pass
    return seen


def _whole_lines(result: Message) -> list[str]:
    """Return the lines of a result without one that was cut: a cut line must not be cited as if it were whole."""
    lines = result.text.split("\n")
    notes = {index for index, line in enumerate(lines) if line.startswith(_LEFT_OUT)}
    if result.artifact and not notes:
        notes.add(len(lines))
    cut = notes | {index - 1 for index in notes} | {index + 1 for index in notes}
    return [line for index, line in enumerate(lines) if index not in cut]


def _read_hits(lines: Iterable[str], seen: Seen) -> None:
    for line in lines:
        hit = _HIT.match(line)
        if hit:
            seen.add(hit.group(1), int(hit.group(2)), hit.group(3))


def _read_text(lines: Sequence[str], arguments: Mapping[str, Any], path: str, seen: Seen) -> None:
    path = path.removeprefix("./")
    matches = [_NUMBERED.match(line) for line in lines]
    numbered = sum(match is not None for match in matches)
    read = seen.read.setdefault(path, set())
    if numbered * 2 >= len(lines):
        for match in matches:
            if match:
                seen.add(path, int(match.group(1)), match.group(2))
                read.add(int(match.group(1)))
        asked = argument(arguments, "count")
        last = matches[-1] if matches else None
        if last and isinstance(asked, int) and numbered < asked:
            seen.lengths[path] = int(last.group(1))
        return
    start = argument(arguments, "start")
    first = start if isinstance(start, int) and start > 0 else 1
    for number, line in enumerate(lines, first):
        seen.add(path, number, line)
        read.add(number)


def _read_entries(lines: Iterable[str], folder: str, seen: Seen) -> None:
    base = "" if folder in {"", ".", "./", "/"} else folder.removeprefix("./").rstrip("/") + "/"
    for line in lines:
        match = _SIZED.match(line) or _ENTRY.match(line)
        if not match or line.startswith(("[", "(")) or line.endswith((":", "not followed)", "not a regular file)")):
            continue
        name = match.group(1).strip().removeprefix("./")
        path = name if base and name.startswith(base) else base + name
        if name.endswith("/"):
            seen.folders.setdefault(path.rstrip("/"))
        elif "/" not in name.strip("/") or name.startswith(base):
            seen.files.setdefault(path)
            sized = _SIZED.match(line)
            if sized:
                seen.sizes[path] = sized.group(2)
