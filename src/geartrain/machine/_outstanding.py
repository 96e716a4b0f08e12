"""What must be in progress for a run, when it wants to be woken, and for what: all from the run alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from geartrain.ids import effect_key
from geartrain.limits import Unlimited
from geartrain.machine._commands import (
    AnnounceApproval,
    AnnounceEnd,
    CallModel,
    Command,
    CompactContext,
    EvaluatePermissions,
    PrepareContext,
    RunCall,
    StartSubAgent,
)
from geartrain.machine._events import ApprovalExpired, DeadlinePassed, Event, GraceElapsed, TimerFired
from geartrain.machine._outside import EXTERNAL, awaits_answer, in_inactive_wait
from geartrain.machine._run import Call, Run
from geartrain.machine._spec import AgentSpec
from geartrain.machine._states import (
    ASKED,
    AWAITING_INPUT,
    ENDED,
    IN_DOUBT,
    IN_PROGRESS,
    STARTED,
    STOPPING,
    UNDECIDED,
    VERIFYING,
    HoldKind,
    RunState,
)

WRAP_UP_TOKENS = 1_024
# Calls about which something is to be done now.
_WANTED: Final = IN_PROGRESS | UNDECIDED | {ASKED}


def outstanding(run: Run) -> tuple[Command, ...]:
    """Return what must be in progress for *run* now: nothing else may be, and nothing of it may be missing."""
    if run.state in ENDED:
        return (AnnounceEnd(key="end", state=run.state),)
    if run.ending is not None:
        return tuple(_awaited_while_ending(run))
    commands: list[Command] = []
    if run.state is RunState.PREPARE_CONTEXT:
        # Finding the agent that takes over and then asking its providers are two effects: each has its own key.
        target, purpose = (run.handing_off.tool, "handoff") if run.handing_off is not None else ("", "context")
        key = effect_key(f"t{run.turn_count}.{purpose}", run.recoveries + run.resends + 1)
        commands.append(PrepareContext(key=key, handoff_to=target))
    elif run.state is RunState.MODEL_THINKING:
        commands.append(_call_model(run))
    elif run.state is RunState.COMPACT_OR_SAVE:
        key = effect_key(f"t{run.turn_count}.compact", run.recoveries + 1)
        commands.append(CompactContext(key=key, messages=run.compacting))
    if run.calls:
        commands.extend(_for_calls(run))
    return tuple(commands)


def _call_model(run: Run) -> CallModel:
    turn, left = run.turn_count + 1, run.tokens_left
    if left is not None:
        left = max(left, WRAP_UP_TOKENS if run.wrap_up_turn == turn else 1)
    return CallModel(
        key=effect_key(f"t{turn}.model", run.model_attempt),
        turn=turn,
        attempt=run.model_attempt,
        tools=run.wrap_up_turn != turn,
        max_output_tokens=left,
    )


def _for_calls(run: Run) -> Iterator[Command]:
    wanted = [call for call in run.calls if call.status in _WANTED]
    undecided = tuple([call.id for call in wanted if call.status in UNDECIDED])
    if undecided and run.state is not RunState.SUSPENDED and not any(hold.kind in STOPPING for hold in run.holds):
        number = run.evaluations + 1
        key = effect_key(f"t{run.turn_count}.policy", number)
        yield EvaluatePermissions(key=key, call_ids=undecided, evaluation=number)
    for call in wanted:
        if call.status is ASKED:
            yield AnnounceApproval(key=f"{call.id}.ask", call_id=call.id)
        elif call.status not in IN_PROGRESS:
            continue
        elif call.sub_agent:
            yield StartSubAgent(key=call.id, call_id=call.id, agent=call.tool, arguments=call.arguments)
        else:
            yield run_call(call)


def _awaited_while_ending(run: Run) -> Iterator[Command]:
    """Yield the started writes: they may finish within the grace; reads and everything else are cancelled."""
    for call in run.calls:
        if call.status is STARTED or call.status is VERIFYING:
            yield run_call(call)


def run_call(call: Call) -> RunCall:
    """Return the command that runs, or verifies, *call*."""
    verifying = call.status is VERIFYING
    return RunCall(
        key=effect_key(f"{call.id}.verify" if verifying else call.id, call.attempt),
        call_id=call.id,
        tool=call.tool,
        arguments=call.arguments,
        attempt=call.attempt,
        read_only=call.read_only,
        mode="verify" if verifying else "run",
        external=call.external,
        timeout_seconds=call.timeout_seconds,
    )


def call_dwells_until(call: Call, spec: AgentSpec) -> float | None:
    """Return until when a call's answer may be awaited before it counts as lost, or None for no such time."""
    if call.sub_agent or call.status not in IN_PROGRESS:
        return None
    if awaits_answer(call):
        return call.since + call.timeout_seconds
    own = _own_limit(spec, RunState.EXECUTE_TOOL)
    return call.since + (call.timeout_seconds + spec.limits.dwell_seconds if own is None else own)


def _dwells(run: Run, spec: AgentSpec) -> Iterator[float | None]:
    """Yield until when each call's answer may be awaited; of a thousand open ones most are not awaited here."""
    for call in [call for call in run.calls if call.status in IN_PROGRESS and not call.sub_agent]:
        yield call_dwells_until(call, spec)


def _own_limit(spec: AgentSpec, state: RunState) -> float | None:
    """Return the limit that the agent's own rules give to a wait, if they do."""
    return None if spec.stuck is None else spec.stuck.dwell.get(state)


def person_waits_until(call: Call) -> float | None:
    """Return until when somebody may answer the agent's question or settle a doubt, or None for no such time."""
    return call.expires_at if call.status is AWAITING_INPUT or call.status is IN_DOUBT else None


def waits_until(run: Run, spec: AgentSpec) -> float | None:
    """Return until when the state's own wait may last, calls aside, or None for no such time."""
    seconds = _wait_seconds(run, spec)
    return None if seconds is None else run.entered_at + seconds


def _wait_seconds(run: Run, spec: AgentSpec) -> float | None:
    limits, own = spec.limits, _own_limit(spec, run.state)
    match run.state:
        case RunState.MODEL_THINKING if spec.model == EXTERNAL and limits.external_seconds is not None:
            return limits.external_seconds
        case RunState.MODEL_THINKING | RunState.COMPACT_OR_SAVE:
            usual = limits.model_seconds * limits.model_attempts
        case RunState.PREPARE_CONTEXT:
            usual = limits.context_seconds
        case RunState.WAIT_APPROVAL:
            usual = limits.policy_seconds
        case _:
            return None
    return usual + limits.dwell_seconds if own is None else own


def dwells_until(run: Run, spec: AgentSpec) -> float | None:
    """Return until when the present waits may last before an answer counts as lost, or None for no such time."""
    if run.ending is not None:
        return run.ending.grace_until + spec.limits.dwell_seconds
    times = [waits_until(run, spec), *_dwells(run, spec)]
    return min((time for time in times if time is not None), default=None)


def _external_until(run: Run, spec: AgentSpec) -> float | None:
    """Return when an answer from outside is overdue."""
    times = [call_dwells_until(call, spec) for call in run.calls if call.external and awaits_answer(call)]
    if run.state is RunState.MODEL_THINKING and spec.model == EXTERNAL:
        times.append(waits_until(run, spec))
    return min((time for time in times if time is not None), default=None)


def overdue_keys(run: Run, spec: AgentSpec, now: float) -> tuple[str, ...]:
    """Return the keys of the commands whose answers are overdue at *now*, whoever is to bring them."""
    keys = [run_call(call).key for call in run.calls if _is_over(call_dwells_until(call, spec), now)]
    if _is_over(waits_until(run, spec), now):
        keys += [command.key for command in outstanding(run) if not isinstance(command, _OF_CALLS)]
    return tuple(keys)


_OF_CALLS: Final = (RunCall, StartSubAgent, AnnounceApproval, AnnounceEnd)


def _is_over(until: float | None, now: float) -> bool:
    return until is not None and now >= until


def _unacted_until(run: Run, spec: AgentSpec) -> float | None:
    """Return when an answer is overdue about which nothing was done since; what is only reported stays overdue."""
    until = [waits_until(run, spec), *_dwells(run, spec)]
    done = run.acted.time if run.acted is not None else -math.inf
    return min((time for time in until if time is not None and time > done), default=None)


def _alarms(run: Run, spec: AgentSpec, *, at_work: bool) -> Iterator[tuple[float, str, str]]:
    """Yield (time, kind, call id) of everything that the run waits for.

    Of one that nothing is *at_work* on, no answer is overdue, and no active time passes.
    """
    if run.ending is not None:
        yield run.ending.grace_until, "grace", ""
        return
    if run.deadline is not None:
        yield run.deadline, "deadline", ""
    outside = run.state is RunState.MODEL_THINKING and spec.model == EXTERNAL
    for call in [call for call in run.calls if call.expires_at is not None or call.external]:
        outside = outside or call.external
        if call.status is ASKED and call.expires_at is not None:
            yield call.expires_at, "approval", call.id
        elif (person := person_waits_until(call)) is not None:
            yield person, "expired", ""
    for hold in run.holds:
        if hold.expires_at is not None:
            yield hold.expires_at, "expired", ""
    if run.resume_at is not None:
        yield run.resume_at, "back_off", ""
    if run.state is RunState.SUSPENDED or not at_work:
        return
    limit = run.budget.max_seconds
    counted = not (run.wrapping_up or run.answering or run.held_by(HoldKind.BUDGET) or in_inactive_wait(run, spec))
    if not isinstance(limit, Unlimited) and counted:
        yield run.updated_at + max(0.0, limit - run.whole.active_seconds), "active_seconds", ""
    # Without rules (specs of old) effects of ours keep their own time, and nobody else does.
    overdue = _unacted_until(run, spec) if spec.stuck is not None else _external_until(run, spec) if outside else None
    if overdue is not None:
        yield overdue, "dwell", ""


def wake_at(run: Run, spec: AgentSpec, *, after: float = -math.inf, at_work: bool = True) -> float | None:
    """Return the earliest time (seconds since 1970) at which the run wants to be woken, or None.

    Args:
        run: The run.
        spec: Its spec.
        after: Only times after this one count.
        at_work: False for a run that is kept from going on: it waits for nothing that it would have begun.
    """
    if run.state in ENDED:
        return None
    times = [time for time, _, _ in _alarms(run, spec, at_work=at_work)]
    return min((time for time in times if time > after), default=None)


def alarms(run: Run, spec: AgentSpec, now: float, *, at_work: bool = True) -> tuple[Event, ...]:
    """Return the events that are due at *now*, earliest first; *at_work* as for `wake_at`.

    Their ids are derived: due twice is once.
    """
    if run.state in ENDED:
        return ()
    due = sorted(alarm for alarm in _alarms(run, spec, at_work=at_work) if alarm[0] <= now)
    return tuple(_alarm_event(run, kind, call_id, now) for _, kind, call_id in due)


# The ids of timer events begin so.
_TIMERS: Final[Mapping[str, str]] = {
    "back_off": "back_off",
    "active_seconds": "active",
    "expired": "expired",
    "dwell": "dwell",
}


def _alarm_event(run: Run, kind: str, call_id: str, now: float) -> Event:
    match kind:
        case "grace":
            again = run.ending is not None and run.ending.extended
            return GraceElapsed(id="grace.2" if again else "grace", time=now, source="timer")
        case "deadline":
            return DeadlinePassed(id="deadline", time=now, source="timer")
        case "approval":
            return ApprovalExpired(id=f"{call_id}.expired", time=now, source="timer", call_id=call_id)
        case _:
            number = f"{_TIMERS[kind]}.{run.seq}"
            return TimerFired(id=number, time=now, source="timer", kind=kind)  # type: ignore[arg-type]
