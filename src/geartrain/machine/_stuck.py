"""Why a run does not move, from the run alone: the first question of whoever watches many."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from geartrain.machine._outside import waits_outside
from geartrain.machine._outstanding import call_dwells_until, dwells_until
from geartrain.machine._run import Run
from geartrain.machine._spec import AgentSpec
from geartrain.machine._states import ENDED, RunState

REPEATS = 3


class StuckCause(StrEnum):
    """Why a run does not move."""

    LOST_REPLY = "lost_reply"
    DEAD_EFFECT = "dead_effect"
    DWELL = "dwell"
    NO_PROGRESS = "no_progress"


class Stuck(msgspec.Struct, frozen=True):
    """A cause, since when (seconds since 1970), and what it is about."""

    cause: StuckCause
    since: float
    about: str


def stuck(run: Run, now: float, spec: AgentSpec) -> Stuck | None:
    """Return why *run* does not move at *now*, or None if it does, rests, or has ended.

    A model that does not answer is a lost reply; a call without a result a dead effect; any other wait over its limit
    dwells; the same calls with the same arguments turn after turn are no progress.
    """
    if run.state in ENDED or run.state is RunState.SUSPENDED:
        return None
    until = dwells_until(run, spec)
    if until is not None and now >= until:
        return _overdue(run, now, spec)
    if waits_outside(run, spec):
        return None
    asked = _asked(run)
    repeats = next((n for n, calls in enumerate(asked) if calls != asked[0]), len(asked))
    if repeats >= REPEATS:
        tools = ", ".join(tool for tool, _ in asked[0])
        return Stuck(StuckCause.NO_PROGRESS, run.entered_at, f"{repeats} times in a row: {tools}")
    return None


def _overdue(run: Run, now: float, spec: AgentSpec) -> Stuck:
    if run.ending is not None:
        return Stuck(StuckCause.DWELL, run.ending.time, f"ending as {run.ending.state}")
    for call in run.calls:
        call_until = call_dwells_until(call, spec.limits)
        if call_until is not None and now >= call_until:
            return Stuck(StuckCause.DEAD_EFFECT, call.since, f"call {call.id} of {call.tool}")
    if run.state is RunState.MODEL_THINKING:
        about = f"model call of turn {run.turn_count + 1}, attempt {run.model_attempt}"
        return Stuck(StuckCause.LOST_REPLY, run.entered_at, about)
    return Stuck(StuckCause.DWELL, run.entered_at, str(run.state))


def _asked(run: Run) -> list[tuple[tuple[str, str], ...]]:
    """Return what the newest asking messages ask for, newest first, back to the newest input."""
    asked: list[tuple[tuple[str, str], ...]] = []
    for message in reversed(run.messages):
        if message.role == "user" and not message.note:
            break
        if message.calls:
            asked.append(tuple((call.tool, call.arguments) for call in message.calls))
    return asked
