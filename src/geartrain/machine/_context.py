"""What the next model call sees: assembling, merging results, and keeping the window.

Rule 1: results enter in call order, together with the message that asked for them; the two are never parted.
Rule 2: the system prompt, pinned messages and the newest input are never dropped.
Rule 3: what is dropped is counted, never silently lost: the journal has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from geartrain.machine._charging import estimate_tokens
from geartrain.machine._draft import Draft
from geartrain.machine._run import Call
from geartrain.machine._shorten import shortened
from geartrain.machine._spec import ContextRules
from geartrain.machine._states import ResultStatus
from geartrain.machine._units import READ_ARTIFACT, groups
from geartrain.machine._values import Artifact, CallResult, Message, ToolCall

ARTIFACTS_KEPT: Final = 64
# What is shown of a result that went well and is empty.
NO_OUTPUT: Final = "(no output)"


def say(draft: Draft, *messages: Message) -> None:
    """Append messages to the context."""
    draft.set(
        messages=(*draft.run.messages, *messages),
        messages_size=draft.run.messages_size + sum(message.size() for message in messages),
    )


def assemble(draft: Draft, provided: tuple[Message, ...], history: tuple[Message, ...]) -> None:
    """Put the opening context together: instructions, history, what the providers gave, the input.

    After a handoff the context so far is kept and only the instructions change. What a provider told before gives way
    to what it tells now.
    """
    run = draft.run
    system = Message(role="system", text=draft.spec.instructions)
    if run.messages:
        again = {message.provider for message in provided if message.provider}
        kept = tuple(m for m in run.messages if m.role != "system" and m.provider not in again)
        newest = 1 if kept and kept[-1].role == "user" else 0
        before = len(kept) - newest
        opening: tuple[Message, ...] = (system, *kept[:before], *provided, *kept[before:])
    else:
        heard = () if run.unheard else (Message(role="user", text=run.user_input),)
        opening = (system, *history, *provided, *heard)
    draft.set(messages=opening, messages_size=sum(message.size() for message in opening))


def queue_input(draft: Draft, text: str, *, pinned: bool) -> None:
    """Have the model hear *text* when it is asked next."""
    queued = draft.run.queued_input
    if pinned:
        draft.set(queued_pinned=(*draft.run.queued_pinned, len(queued)))
    draft.set(queued_input=(*queued, text))


def take_input(draft: Draft) -> None:
    """Let the model hear what was said meanwhile."""
    if draft.run.queued_input:
        turn, pinned = draft.run.turn_count, draft.run.queued_pinned
        heard = enumerate(draft.run.queued_input)
        say(draft, *(Message(role="user", text=text, turn=turn, pinned=i in pinned) for i, text in heard))
        draft.set(queued_input=(), queued_pinned=())


def result_text(result: CallResult) -> str:
    """Return what the model reads of a result: an ok as it is, anything else with its status named."""
    if result.status is ResultStatus.OK:
        return result.text or NO_OUTPUT
    return f"[{result.status}] {result.text}".rstrip()


def merge_results(draft: Draft) -> None:
    """Move the open turn into the context: one message that asks, then one result per call, in call order."""
    run = draft.run
    turn = run.turn_count
    asked = tuple(
        ToolCall(id=call.id, tool=call.tool, arguments=call.arguments, provider_id=call.provider_id)
        for call in run.calls
    )
    readable = draft.spec.tool(READ_ARTIFACT) is not None
    results = tuple(_result_message(call, turn, readable=readable) for call in run.calls)
    say(draft, Message(role="assistant", text=run.commentary, calls=asked, turn=turn), *results)
    artifacts = [call.result.artifact for call in run.calls if call.result and call.result.artifact]
    if artifacts:
        known: tuple[Artifact, ...] = (*run.context_artifacts, *artifacts)
        draft.set(context_artifacts=known[-ARTIFACTS_KEPT:])
    draft.set(calls=(), commentary="", unconsulted=0)


def _result_message(call: Call, turn: int, *, readable: bool) -> Message:
    assert call.result is not None, f"call {call.id} has no result"
    result = call.result
    rest = f'\n[{READ_ARTIFACT} with call="{call.id}" shows all of it]' if result.artifact and readable else ""
    return Message(
        role="tool",
        text=result_text(result) + rest,
        call_id=call.id,
        tool=call.tool,
        status=result.status,
        artifact=result.artifact.digest if result.artifact else "",
        turn=turn,
        pinned=result.pinned,
    )


def fits(draft: Draft, text: str) -> bool:
    """Whether an input has room beside the system prompt and what is pinned, or will be."""
    run = draft.run
    fixed = sum(_size(unit) for unit in groups(run.messages) if unit[0].role == "system" or _pinned(unit))
    waiting = sum(len(run.queued_input[i]) for i in run.queued_pinned)
    waiting += sum(len(call.arguments) for call in run.calls if call.pinned)  # being judged
    return fixed + waiting + Message(role="user", text=text).size() <= draft.spec.context.bytes


def _pinned(unit: list[Message]) -> bool:
    return any(message.pinned for message in unit)


def _size(unit: Iterable[Message]) -> int:
    return sum(message.size() for message in unit)


def _newest_input(messages: tuple[Message, ...]) -> int:
    """Return the position of the newest message that somebody said to the run, or -1."""
    for position in range(len(messages) - 1, -1, -1):
        if messages[position].role == "user" and not messages[position].note:
            return position
    return -1


def keep_window(draft: Draft, rules: ContextRules) -> None:
    """Drop the oldest messages until the context is within its bounds; shorten what alone is too large.

    The newest unit is kept whole in number, and so are results that the model has not read yet, though something was
    said after them. What may neither be dropped nor shortened may still be too large. With a slack, more is dropped at
    once than has to be, so that the next requests begin like this one.
    """
    run = draft.run
    if len(run.messages) <= rules.messages and run.messages_size <= rules.bytes:
        return
    units = groups(run.messages)
    newest = _newest_input(run.messages)
    kept_share = 1 - rules.window_slack
    most, room = int(rules.messages * kept_share), int(rules.bytes * kept_share)
    count, size, start = len(run.messages), run.messages_size, 0
    unread = max((i for i, unit in enumerate(units) if unit[0].role == "assistant"), default=-1)
    kept: list[Message] = []
    for position, unit in enumerate(units):
        over = count > most or size > room
        wanted = unit[0].role == "system" or _pinned(unit) or start == newest or position == len(units) - 1
        wanted = wanted or (position == unread and bool(unit[0].calls))
        start += len(unit)
        if over and not wanted:
            count -= len(unit)
            size -= _size(unit)
        else:
            kept.extend(unit)
    messages = tuple(kept)
    dropped = len(run.messages) - count
    if dropped:
        draft.shorten("window", dropped, run.messages_size - size)
    if size > rules.bytes:
        cut = _fitted(messages, rules.bytes)
        changed = sum(1 for old, new in zip(messages, cut, strict=True) if old is not new)
        if changed:
            draft.shorten("cut", changed, size - _size(cut))
        messages, size = cut, _size(cut)
    draft.set(messages=messages, messages_size=size, messages_dropped=run.messages_dropped + dropped)


def _fitted(messages: tuple[Message, ...], room: int) -> tuple[Message, ...]:
    """Cut tool results, if that is not enough all words that may be cut, and at last the arguments of calls."""
    cut = _shortened(messages, room, frozenset(i for i, m in enumerate(messages) if m.role == "tool" and not m.pinned))
    if sum(message.size() for message in cut) <= room:
        return cut
    newest = _newest_input(messages)
    words = frozenset(
        i for i, message in enumerate(messages) if message.role != "system" and not message.pinned and i != newest
    )
    cut = _shortened(messages, room, words)
    if sum(message.size() for message in cut) <= room:
        return cut
    return _shortened(tuple(map(_without_arguments, messages)), room, words)


def _shortened(messages: tuple[Message, ...], room: int, chosen: frozenset[int]) -> tuple[Message, ...]:
    """Cut the longest of the *chosen* messages down to one length, so that all together fit."""
    fixed = sum(message.size() - (len(message.text) if i in chosen else 0) for i, message in enumerate(messages))
    lengths = sorted(len(messages[i].text) for i in chosen)
    left, each = max(0, room - fixed), 0
    for position, length in enumerate(lengths):
        each = left // (len(lengths) - position)
        if length > each:
            break
        left -= length
    return tuple(
        replace(message, text=shortened(message.text, each)) if i in chosen and len(message.text) > each else message
        for i, message in enumerate(messages)
    )


def _without_arguments(message: Message) -> Message:
    """Take out the arguments of calls: the calls are long made, and the journal has them."""
    if message.pinned or not message.calls:
        return message
    calls = tuple(replace(call, arguments="{}") if len(call.arguments) > 2 else call for call in message.calls)
    return replace(message, calls=calls)


def halve_window(draft: Draft) -> bool:
    """Drop the older half of what may be dropped, for a model that found the context too long.

    Returns whether anything was dropped or shortened.
    """
    run = draft.run
    before = (len(run.messages), run.messages_size)
    keep_window(
        draft,
        ContextRules(messages=max(2, len(run.messages) // 2 + 1), bytes=max(1, run.messages_size // 2)),
    )
    return (len(draft.run.messages), draft.run.messages_size) != before


def summarisable(draft: Draft) -> int:
    """Return how many of the oldest messages (after the system prompt) a model should summarise now; 0 for none.

    Half of the turns are summarised at once, so that it is not asked for every turn.
    """
    rules, run = draft.spec.context, draft.run
    if not rules.summarise or run.turn_count < run.summarise_from:
        return 0
    units = groups(run.messages)[1:]
    turns = sum(1 for unit in units if unit[0].role == "assistant")
    tokens = estimate_tokens(run.messages_size)
    share = rules.summarise_share * (run.tokens_left or 0)
    if turns <= rules.summarise_turns and not (run.tokens_left is not None and turns > 2 and tokens > share):
        return 0
    count = sum(len(unit) for unit in units[: len(units) // 2])
    return count if _replaceable(run.messages, count) else 0


def _replaceable(messages: tuple[Message, ...], count: int) -> frozenset[int]:
    """Return where, of the oldest *count* messages after the system prompt, a summary may stand instead."""
    newest, found, start = _newest_input(messages), set[int](), 0
    for unit in groups(messages[: count + 1]):
        if start > 0 and start != newest and not _pinned(unit):
            found.update(range(start, start + len(unit)))
        start += len(unit)
    return frozenset(found)


def replace_by_summary(draft: Draft, count: int, summary: str) -> bool:
    """Put *summary* in the place of the oldest *count* messages; return False if it is no use.

    A count that would part a call from its result is rounded down. Pinned messages and the newest input stay, in front
    of the summary. A summary that is empty, or no shorter than what it replaces, is none.
    """
    run = draft.run
    count = min(max(0, count), len(run.messages) - 1)
    while count and count + 1 < len(run.messages) and run.messages[count + 1].role == "tool":
        count -= 1
    old = _replaceable(run.messages, count)
    kept = tuple(message for i, message in enumerate(run.messages[: 1 + count]) if i not in old)
    replaced = sum(run.messages[i].size() for i in old)
    text = summary.strip()
    note = Message(role="user", text=f"[Summary of the conversation so far]\n{text}", turn=run.turn_count, note=True)
    if not text or note.size() >= replaced:
        no_summary(draft)
        return False
    messages = (*kept, note, *run.messages[1 + count :])
    draft.set(
        messages=messages,
        messages_size=sum(message.size() for message in messages),
        messages_dropped=run.messages_dropped + len(old),
    )
    draft.shorten("summary", len(old), replaced - note.size())
    return True


def no_summary(draft: Draft) -> None:
    """Let some turns pass before a summary is asked for again: this one cost tokens and was no use."""
    draft.set(summarise_from=draft.run.turn_count + draft.spec.context.summary_pause_turns)
