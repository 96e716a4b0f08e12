"""Why a run does not move, from the run alone: the first question of whoever watches many."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from geartrain.machine._outside import EXTERNAL, awaits_answer, waits_outside
from geartrain.machine._outstanding import call_dwells_until, dwells_until
from geartrain.machine._run import Run
from geartrain.machine._spec import AgentSpec
from geartrain.machine._states import ENDED, IN_PROGRESS, HoldKind, RunState
from geartrain.machine._stuck_rules import Acted

# How many turns alike are no progress by the specs of old, which have no rules about it.
REPEATS = 3


class StuckCause(StrEnum):
    """Why a run does not move."""

    LOST_REPLY = "lost_reply"
    DEAD_EFFECT = "dead_effect"
    DWELL = "dwell"
    NO_PROGRESS = "no_progress"


class Stuck(msgspec.Struct, frozen=True):
    """A cause, since when (seconds since 1970), what it is about, and what was done about it, if anything was."""

    cause: StuckCause
    since: float
    about: str
    done: str = ""


def stuck(run: Run, now: float, spec: AgentSpec) -> Stuck | None:
    """Return why *run* does not move at *now*, or None if it does, rests, or has ended.

    A model whose own limit has passed is a lost reply, such a call a dead effect; a wait over a limit of the agent's
    rules dwells, and so does any other wait over its limit. Turns that bring nothing new are no progress. A run that is
    held for it rests, and is named all the same.
    """
    if run.state in ENDED:
        return None
    acted = run.acted
    if acted is not None and (run.held_by(HoldKind.STUCK) or _resent(run, acted)):
        return _told(acted)
    if run.state is RunState.SUSPENDED:
        return None
    found = overdue_since(run, now, spec)
    if found is not None or waits_outside(run, spec):
        return found
    return _without_progress(run) if spec.stuck is not None else _repeating(run)


def overdue_since(run: Run, now: float, spec: AgentSpec) -> Stuck | None:
    """Return the wait of *run* that is over its limit at *now*, or None."""
    until = dwells_until(run, spec)
    if until is None or now < until:
        return None
    done = run.acted.action if run.acted is not None and run.acted.time >= until else ""
    if run.ending is not None:
        return Stuck(StuckCause.DWELL, run.ending.time, f"ending as {run.ending.state}", done)
    limits = spec.limits
    for call in run.calls:
        call_until = call_dwells_until(call, spec)
        if call_until is not None and now >= call_until:
            own = call.since + call.timeout_seconds + (0.0 if awaits_answer(call) else limits.dwell_seconds)
            cause = StuckCause.DEAD_EFFECT if now >= own else StuckCause.DWELL
            return Stuck(cause, call.since, f"call {call.id} of {call.tool}", done)
    if run.state is RunState.MODEL_THINKING:
        own = run.entered_at + limits.model_seconds * limits.model_attempts + limits.dwell_seconds
        cause = StuckCause.LOST_REPLY if now >= own or spec.model == EXTERNAL else StuckCause.DWELL
        about = f"model call of turn {run.turn_count + 1}, attempt {run.model_attempt}"
        return Stuck(cause, run.entered_at, about, done)
    return Stuck(StuckCause.DWELL, run.entered_at, str(run.state), done)


def _resent(run: Run, acted: Acted) -> bool:
    """Whether what was asked for once more is still awaited."""
    if acted.action != "resend" or run.state is RunState.SUSPENDED:
        return False
    again = any(call.since == acted.time and call.status in IN_PROGRESS for call in run.calls)
    return again or (run.entered_at == acted.time and run.state is not RunState.EXECUTE_TOOL)


def _told(acted: Acted) -> Stuck:
    return Stuck(StuckCause(acted.cause), acted.since, acted.about, acted.action)


def _without_progress(run: Run) -> Stuck | None:
    acted = run.acted
    if acted is not None and acted.cause == "no_progress" and acted.since == run.idle_since:
        return _told(acted)  # nothing new has come since
    return None


def _repeating(run: Run) -> Stuck | None:
    asked = _asked(run)
    repeats = next((n for n, calls in enumerate(asked) if calls != asked[0]), len(asked))
    if repeats < REPEATS:
        return None
    tools = ", ".join(tool for tool, _ in asked[0])
    return Stuck(StuckCause.NO_PROGRESS, run.entered_at, f"{repeats} times in a row: {tools}")


def _asked(run: Run) -> list[tuple[tuple[str, str], ...]]:
    """Return what the newest asking messages ask for, newest first, back to the newest input."""
    asked: list[tuple[tuple[str, str], ...]] = []
    for message in reversed(run.messages):
        if message.role == "user" and not message.note:
            break
        if message.calls:
            asked.append(tuple((call.tool, call.arguments) for call in message.calls))
    return asked
