"""What the next model call sees: assembling, merging results, and keeping the window.

Rule 1: results enter in call order, together with the message that asked for them; the two are never parted.
Rule 2: the system prompt, pinned messages and the newest input are never dropped.
Rule 3: what is dropped is counted, never silently lost: the journal has it.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from geartrain.machine._draft import Draft
from geartrain.machine._run import Call
from geartrain.machine._spec import ContextRules
from geartrain.machine._states import ResultStatus
from geartrain.machine._values import Artifact, CallResult, Message, ToolCall, Usage

ARTIFACTS_KEPT: Final = 64
# Characters of English text in a token, as the providers' own rule of thumb has it.
CHARACTERS_PER_TOKEN: Final = 4
SHORTENED: Final = "\n[… shortened to fit the context]"


def estimate_tokens(size: int) -> int:
    """Return about how many tokens *size* characters are: one for four, at least one."""
    return max(1, (size + CHARACTERS_PER_TOKEN - 1) // CHARACTERS_PER_TOKEN)


def charge(draft: Draft, usage: Usage | None, reply_size: int) -> None:
    """Add what a model call used; a missing figure is estimated, and no figure ever lowers the count."""
    if usage is None:
        usage = Usage(
            input_tokens=estimate_tokens(draft.run.messages_size),
            output_tokens=estimate_tokens(reply_size),
            estimated=True,
        )
    elif usage.input_tokens < 0 or usage.output_tokens < 0 or not usage.cost >= 0:
        usage = Usage(
            input_tokens=max(0, usage.input_tokens),
            output_tokens=max(0, usage.output_tokens),
            cost=usage.cost if usage.cost >= 0 else 0.0,
            estimated=True,
        )
    draft.set(token_count=draft.run.token_count.plus(usage))


def say(draft: Draft, *messages: Message) -> None:
    """Append messages to the context."""
    draft.set(
        messages=(*draft.run.messages, *messages),
        messages_size=draft.run.messages_size + sum(message.size() for message in messages),
    )


def assemble(draft: Draft, provided: tuple[Message, ...], history: tuple[Message, ...]) -> None:
    """Put the opening context together: instructions, history, what the providers gave, the input.

    After a handoff the context so far is kept and only the instructions change.
    """
    run = draft.run
    system = Message(role="system", text=draft.spec.instructions)
    if run.messages:
        kept = tuple(message for message in run.messages if message.role != "system")
        newest = 1 if kept and kept[-1].role == "user" else 0
        before = len(kept) - newest
        opening: tuple[Message, ...] = (system, *kept[:before], *provided, *kept[before:])
    else:
        opening = (system, *history, *provided, Message(role="user", text=run.user_input))
    draft.set(messages=opening, messages_size=sum(message.size() for message in opening))


def take_input(draft: Draft) -> None:
    """Let the model hear what was said meanwhile."""
    if draft.run.queued_input:
        turn = draft.run.turn_count
        say(draft, *(Message(role="user", text=text, turn=turn) for text in draft.run.queued_input))
        draft.set(queued_input=())


def result_text(result: CallResult) -> str:
    """Return what the model reads of a result: an ok as it is, anything else with its status named."""
    if result.status is ResultStatus.OK:
        return result.text or "(no output)"
    return f"[{result.status}] {result.text}".rstrip()


def merge_results(draft: Draft) -> None:
    """Move the open turn into the context: one message that asks, then one result per call, in call order."""
    run = draft.run
    turn = run.turn_count
    asked = tuple(
        ToolCall(id=call.id, tool=call.tool, arguments=call.arguments, provider_id=call.provider_id)
        for call in run.calls
    )
    results = tuple(_result_message(call, turn) for call in run.calls)
    say(draft, Message(role="assistant", text=run.commentary, calls=asked, turn=turn), *results)
    artifacts = [call.result.artifact for call in run.calls if call.result and call.result.artifact]
    if artifacts:
        known: tuple[Artifact, ...] = (*run.context_artifacts, *artifacts)
        draft.set(context_artifacts=known[-ARTIFACTS_KEPT:])
    draft.set(calls=(), commentary="", unconsulted=0)


def _result_message(call: Call, turn: int) -> Message:
    assert call.result is not None, f"call {call.id} has no result"
    result = call.result
    return Message(
        role="tool",
        text=result_text(result),
        call_id=call.id,
        tool=call.tool,
        status=result.status,
        artifact=result.artifact.digest if result.artifact else "",
        turn=turn,
    )


def groups(messages: tuple[Message, ...]) -> list[list[Message]]:
    """Return messages in units that may not be parted: an asking message and its results, or one alone."""
    grouped: list[list[Message]] = []
    for message in messages:
        if message.role == "tool" and grouped:
            grouped[-1].append(message)
        else:
            grouped.append([message])
    return grouped


def keep_window(draft: Draft, rules: ContextRules) -> None:
    """Drop the oldest messages until the context is within its bounds; shorten what alone is too large."""
    run = draft.run
    if len(run.messages) <= rules.messages and run.messages_size <= rules.bytes:
        return
    units = groups(run.messages)
    newest_input = max((i for i, unit in enumerate(units) if unit[0].role == "user"), default=0)
    count, size, dropped = len(run.messages), run.messages_size, 0
    kept: list[list[Message]] = []
    for position, unit in enumerate(units):
        over = count > rules.messages or size > rules.bytes
        needed = unit[0].role == "system" or unit[0].pinned or position in (newest_input, len(units) - 1)
        if over and not needed:
            count -= len(unit)
            size -= sum(message.size() for message in unit)
            dropped += len(unit)
        else:
            kept.append(unit)
    messages = tuple(message for unit in kept for message in unit)
    if size > rules.bytes:
        messages = _shortened(messages, rules.bytes)
        size = sum(message.size() for message in messages)
    draft.set(messages=messages, messages_size=size, messages_dropped=run.messages_dropped + dropped)


def _shortened(messages: tuple[Message, ...], room: int) -> tuple[Message, ...]:
    """Cut the longest tool results down to one length, so that all together fit."""
    tools = [message for message in messages if message.role == "tool"]
    others = sum(message.size() for message in messages if message.role != "tool")
    overhead = sum(message.size() - len(message.text) for message in tools)
    each = max(0, (room - others - overhead) // max(1, len(tools)) - len(SHORTENED))
    return tuple(
        replace(message, text=message.text[:each] + SHORTENED)
        if message.role == "tool" and len(message.text) > each + len(SHORTENED)
        else message
        for message in messages
    )


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
    if not rules.summarise:
        return 0
    units = groups(run.messages)[1:]
    turns = sum(1 for unit in units if unit[0].role == "assistant")
    tokens = estimate_tokens(run.messages_size)
    share = rules.summarise_share * (run.tokens_left or 0)
    if turns <= rules.summarise_turns and not (run.tokens_left is not None and turns > 2 and tokens > share):
        return 0
    newest_input = max((i for i, unit in enumerate(units) if unit[0].role == "user"), default=len(units))
    return sum(len(unit) for unit in units[: min(len(units) // 2, newest_input)])


def replace_by_summary(draft: Draft, count: int, summary: str) -> bool:
    """Put *summary* in the place of the oldest *count* messages; return False if it is no use.

    Pinned messages among them stay, in front of the summary. A summary that is empty, or no shorter than what it
    replaces, is none.
    """
    run = draft.run
    system, oldest, rest = run.messages[:1], run.messages[1 : 1 + count], run.messages[1 + count :]
    pinned = tuple(message for message in oldest if message.pinned)
    replaced = sum(message.size() for message in oldest if not message.pinned)
    text = summary.strip()
    note = Message(role="user", text=f"[Summary of the conversation so far]\n{text}", turn=run.turn_count)
    if not text or note.size() >= replaced:
        return False
    messages = (*system, *pinned, note, *rest)
    draft.set(
        messages=messages,
        messages_size=sum(message.size() for message in messages),
        messages_dropped=run.messages_dropped + len(oldest) - len(pinned),
    )
    return True
