"""Whether a run gets on: each turn with calls is compared with those before it, once its results are in. Pure.

Rule 1: a turn is new if its calls, arguments or results differ from those of each of the newest turns in the context.
Rule 2: whatever is said to the run is new as well: what it asks for then is an answer to that.
Rule 3: what is done about no progress starts the counting anew; something new forgets it all.
Rule 4: a plan gets on with each step, whatever it asks for: it has only so many.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Final

from geartrain.limits import Unlimited
from geartrain.machine._context import say
from geartrain.machine._draft import Draft
from geartrain.machine._ending import fail
from geartrain.machine._reached import counted
from geartrain.machine._run import Run
from geartrain.machine._states import HoldKind, ReasonCode
from geartrain.machine._stuck_rules import Acted, StuckRules
from geartrain.machine._values import Message

# How many turns back something counts as seen before: of older ones the results may have shrunk to a line.
_REMEMBERED: Final = 5

# What was asked for, and what came of it.
_Turn = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


def note_progress(draft: Draft) -> None:
    """Count what the turn just merged has brought, and do about it what the agent wants done."""
    rules, run = draft.spec.stuck, draft.run
    if rules is None or draft.spec.plan:
        return
    newest, *before = islice(_turns(run.messages), 1 + _REMEMBERED)
    if newest not in before or run.queued_input:
        draft.set(repeated=1, idle_turns=0, idle_from=run.token_count.total_tokens, idle_since=draft.now, nudges=0)
        return
    draft.set(repeated=run.repeated + 1 if newest == before[0] else 1, idle_turns=run.idle_turns + 1)
    about = no_progress(draft.run, rules)
    if about:
        _act(draft, rules, f"{about}: {', '.join(tool for tool, _ in newest[0])}")


def _turns(messages: tuple[Message, ...]) -> Iterator[_Turn]:
    """Yield the turns with calls, newest first, back to the newest thing that was said to the run."""
    results: list[tuple[str, str]] = []
    for message in takewhile(_unsaid, reversed(messages)):
        if message.role == "tool":
            # The text of one that was trimmed names its call.
            results.append((message.status, message.artifact or message.text))
        elif message.calls:
            yield tuple((call.tool, call.arguments) for call in message.calls), tuple(results)
            results.clear()


def _unsaid(message: Message) -> bool:
    return message.role != "user" or message.note


def no_progress(run: Run, rules: StuckRules) -> str:
    """Return which limit of turns or tokens without anything new *run* has reached, or an empty text."""
    idle_tokens = run.token_count.total_tokens - run.idle_from
    if _reached(rules.repeats, run.repeated):
        return f"{run.repeated} times in a row the same calls with the same results"
    if _reached(rules.idle_turns, run.idle_turns):
        return f"{run.idle_turns} turns with nothing new"
    if run.idle_turns and _reached(rules.idle_tokens, idle_tokens):
        return f"{idle_tokens} tokens used with nothing new"
    return ""


def _reached(limit: int | Unlimited, value: int) -> bool:
    return not isinstance(limit, Unlimited) and value >= limit


def _act(draft: Draft, rules: StuckRules, about: str) -> None:
    action: str = rules.on_no_progress
    told = draft.run.acted
    if action == "report" and told is not None and told.cause == "no_progress" and told.since == draft.run.idle_since:
        return
    if action == "nudge" and draft.run.nudges >= rules.nudges:
        action, about = "fail", f"{about}; told so {counted(draft.run.nudges, 'time')}"
    acted = Acted(cause="no_progress", action=action, about=about, since=draft.run.idle_since, time=draft.now)
    nudges = draft.run.nudges + (action == "nudge")
    used = draft.run.token_count.total_tokens
    draft.set(acted=acted, nudges=nudges, repeated=0, idle_turns=0, idle_from=used)
    match action:
        case "nudge":
            text = (
                f"[No progress] {about}. Do something else, or answer with what there is."
                f"{' If nothing new comes, the run ends.' if nudges >= rules.nudges else ''}"
            )
            say(draft, Message(role="user", text=text, turn=draft.run.turn_count, note=True))
        case "fail":
            fail(draft, ReasonCode.NO_PROGRESS, about)
        case "suspend":
            draft.hold(HoldKind.STUCK, reason=f"no progress: {about}", code=ReasonCode.NO_PROGRESS)
