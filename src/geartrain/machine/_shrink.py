"""Old results shrink to a line each, so that a long run's requests stay small: pure.

Rule 1: a result is shrunk once and then stays as it is. The line names the call, by which the journal has the rest.
Rule 2: results shrink in batches: not at each turn, so that most requests begin with the very same messages as the
one before, and a provider's cache of them is of use.
Rule 3: what the newest turns brought stays whole, and so do pinned results, what a user said, and reasons given.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from geartrain.machine._draft import Draft
from geartrain.machine._shorten import SHORTENED
from geartrain.machine._spec import ContextRules
from geartrain.machine._states import ResultStatus
from geartrain.machine._units import READ_ARTIFACT, groups
from geartrain.machine._values import Message

# A reason that somebody gave is not in the journal as a result.
_KEPT: Final = frozenset({ResultStatus.DENIED, ResultStatus.REFUSED})


def shrink_results(draft: Draft) -> None:
    """Shrink the large results of old turns, once there is a batch of them or the context fills up with them.

    A batch is as many turns as stay whole (`shrink_turns`).
    """
    run, rules = draft.run, draft.spec.context
    if not rules.shrink:
        return
    room = rules.shrink_bytes
    # Looked at before each request, and seldom is there anything: a batch has at least one large result a turn.
    large = sum(1 for message in run.messages if len(message.text) > room and _large(message, room))
    if not large or (large < rules.shrink_turns and run.messages_size <= rules.bytes // 2):
        return
    turns = [unit for unit in groups(run.messages) if unit[0].calls]
    old = [unit for unit in turns[: -rules.shrink_turns] if any(_large(message, room) for message in unit)]
    if len(old) < rules.shrink_turns and not _presses(run.messages_size, old, rules):
        return
    sizes = {artifact.digest: artifact.size for artifact in run.context_artifacts}
    readable = draft.spec.tool(READ_ARTIFACT) is not None
    asking = {tool.name for tool in draft.spec.tools if tool.kind == "ask_user"}
    lines: dict[int, Message] = {}
    for message in (message for unit in old for message in unit):
        if _large(message, room) and message.tool not in asking:
            line = _line(message, sizes.get(message.artifact, len(message.text)), readable=readable)
            if len(line) < len(message.text):
                lines[id(message)] = replace(message, text=line, shrunk=True)
    if not lines:
        return
    messages = tuple([lines.get(id(message), message) for message in run.messages])
    size = sum(message.size() for message in messages)
    calls = tuple(message.call_id for message in lines.values())
    draft.shorten("shrink", len(lines), run.messages_size - size, calls)
    draft.set(messages=messages, messages_size=size)


def _presses(size: int, old: list[list[Message]], rules: ContextRules) -> bool:
    """Whether the context is half full, and old results take a good part of it."""
    large = sum(len(message.text) for unit in old for message in unit if _large(message, rules.shrink_bytes))
    return size > rules.bytes // 2 and large > rules.bytes // 8


def shortening_of(message: Message) -> str:
    """Return how a message was shortened: shrunk to a line, trimmed as a result, cut to fit; nothing if it is whole."""
    if message.shrunk:
        return "shrunk"
    if message.artifact:
        return "trimmed"
    return "cut" if message.text.endswith(SHORTENED) else ""


def _large(message: Message, room: int) -> bool:
    return (
        message.role == "tool"
        and len(message.text) > room
        and not (message.pinned or message.shrunk or message.status in _KEPT)
    )


def _line(message: Message, size: int, *, readable: bool) -> str:
    how = f'; {READ_ARTIFACT} with call="{message.call_id}" shows it' if readable else ""
    return f"[{message.status}: {size:,} bytes of {message.tool}, call {message.call_id}, not shown any more{how}]"
