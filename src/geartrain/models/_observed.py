"""What a conversation holds: its questions, the calls made for the newest, and what their results say.

Results are read tolerantly, because they may be trimmed, failed or denied; but a line enters `Seen.lines` only with
the path and number that a result gave it, and exactly as it stood there. What is cited comes from nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from geartrain.machine import Message, ResultStatus, ToolCall
from geartrain.models._summary import is_summary
from geartrain.models._toolbox import Role, Toolbox, argument

LINES_MAX: Final = 20_000
LINE_CHARS_MAX: Final = 2_000

_HIT: Final = re.compile(r"^(?:\./)?([^\s:*`][^:\n`]{0,300}?):(\d{1,7}): ?(.*)$")
_NUMBERED: Final = re.compile(r"^ *(\d{1,7})(?:: |:$|\t| \| )(.*)$")
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
    """What the results say. `lines` maps a path to its known lines by number, `read` to those that were read whole."""

    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    read: dict[str, set[int]] = field(default_factory=dict)
    files: dict[str, None] = field(default_factory=dict)
    folders: dict[str, None] = field(default_factory=dict)
    failed: list[Made] = field(default_factory=list)
    count: int = 0

    def add(self, path: str, number: int, text: str) -> None:
        """Remember a line, up to a limit."""
        known = self.lines.setdefault(path, {})
        if number in known or self.count < LINES_MAX:
            self.count += number not in known
            known[number] = text[:LINE_CHARS_MAX]
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
        followed = any(later.role == "user" and not is_summary(later.text) for later in messages[index + 1 :])
        if message.role == "assistant" and not message.calls and message.text and followed:
            begin = index + 1
    for message in messages[:begin]:
        if message.role == "user" and not is_summary(message.text):
            earlier = message.text
    results = {message.call_id: message for message in messages[begin:] if message.role == "tool"}
    asked: list[Asked] = []
    made: list[Made] = []
    rounds = 0
    for message in messages[begin:]:
        if message.role == "user" and not is_summary(message.text) and message.text.strip():
            asked.append(Asked(message.text, rounds))
        elif message.role == "assistant" and message.calls:
            made.extend(Made(call, rounds, results.get(call.id)) for call in message.calls)
            rounds += 1
    summary = next((message.text for message in reversed(messages) if is_summary(message.text)), "")
    return Exchange(tuple(asked), tuple(made), rounds, earlier, summary)


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
            case Role.READ if isinstance(path, str):
                _read_text(lines, made.arguments, path, seen)
            case Role.LIST:
                _read_entries(lines, path if isinstance(path, str) else "", seen)
            case _:
                pass
    return seen


def _whole_lines(result: Message) -> list[str]:
    """Return the lines of a result without one that was cut: a cut line must not be cited as if it were whole."""
    lines = result.text.split("\n")
    if not result.artifact:
        return lines
    kept = []
    for index, line in enumerate(lines):
        neighbours = (lines[index + 1] if index + 1 < len(lines) else "", lines[index - 1] if index else "")
        cut = any(_is_note(near) for near in neighbours) or index == len(lines) - 1
        if not cut:
            kept.append(line)
    return kept


def _is_note(line: str) -> bool:
    return line.lstrip().startswith(("[", "…", "...", "(")) and re.match(r"^\s*\d+:|^[^:]+:\d+:", line) is None


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
        return
    start = argument(arguments, "start")
    first = start if isinstance(start, int) and start > 0 else 1
    for number, line in enumerate(lines, first):
        seen.add(path, number, line)
        read.add(number)


def _read_entries(lines: Iterable[str], folder: str, seen: Seen) -> None:
    base = "" if folder in {"", ".", "./", "/"} else folder.removeprefix("./").rstrip("/") + "/"
    for line in lines:
        match = _ENTRY.match(line)
        if not match or _is_note(line) or line.rstrip().endswith(":"):
            continue
        name = match.group(1).strip().removeprefix("./")
        path = name if base and name.startswith(base) else base + name
        if name.endswith("/"):
            seen.folders.setdefault(path.rstrip("/"))
        elif "/" not in name.strip("/") or name.startswith(base):
            seen.files.setdefault(path)
