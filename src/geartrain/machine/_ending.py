"""How a run ends: one cause, the first; results within grace are kept; every call has its result.

Rule 1: a cause of the end is sticky. Nothing starts after it.
Rule 2: the run ends when nothing is in progress, or when the grace is over, whichever is first.
Rule 3: open reads are then cancelled, started writes in doubt, everything else not started.
"""

from __future__ import annotations

from geartrain.limits import Unlimited
from geartrain.machine._context import merge_results
from geartrain.machine._draft import Draft
from geartrain.machine._spec import Budget
from geartrain.machine._states import (
    KIND_OF_CODE,
    CallStatus,
    HoldKind,
    ReasonCode,
    ResultStatus,
    RunState,
)
from geartrain.machine._termination import (
    Condition,
    CostReached,
    SecondsReached,
    TokensReached,
    ToolCallsReached,
    ToolFailuresReached,
    TurnsReached,
)
from geartrain.machine._values import CallResult, Ending, RunError

# A budget's limits, in the order in which they are named when several are reached.
_LIMITS: tuple[tuple[str, type[Condition]], ...] = (
    ("max_turns", TurnsReached),
    ("max_seconds", SecondsReached),
    ("max_tool_failures", ToolFailuresReached),
    ("max_tokens", TokensReached),
    ("max_cost", CostReached),
    ("max_tool_calls", ToolCallsReached),
)
# These limit what comes next, not what is under way: they are looked at before a model call only.
_BEFORE_CALL = (TurnsReached, ToolCallsReached)


def conditions(budget: Budget) -> tuple[Condition, ...]:
    """Return the conditions that a budget sets, in the order in which their codes take precedence."""
    return tuple(
        kind(getattr(budget, name)) for name, kind in _LIMITS if not isinstance(getattr(budget, name), Unlimited)
    )


def error(code: ReasonCode | str, message: str) -> RunError:
    """Return the error of that code, with its kind."""
    reason = ReasonCode(code)
    return RunError(code=reason, kind=KIND_OF_CODE[reason], message=message)


def reached(draft: Draft, *, before_call: bool) -> RunError | None:
    """Return which limit the run has reached, or None; the own conditions of the spec come last."""
    used = draft.run.measured
    for condition in conditions(draft.run.budget):
        if isinstance(condition, _BEFORE_CALL) and not before_call:
            continue
        code = condition.met(used)
        if code is not None:
            return error(code, _used_up(draft, code))
    own = draft.spec.stop_when.met(used) if draft.spec.stop_when is not None else None
    return error(own, "a condition of the agent's stop_when holds") if own is not None else None


def _used_up(draft: Draft, code: ReasonCode) -> str:
    run, budget = draft.run, draft.run.budget
    where = f"in {run.phase}, turn {run.turn_count}"
    match code:
        case ReasonCode.MAX_TURNS_EXCEEDED:
            return f"{run.turn_count} of {budget.max_turns} turns used without an answer"
        case ReasonCode.TIMEOUT:
            return f"{run.active_seconds:.1f} of {budget.max_seconds} active seconds used, {where}"
        case ReasonCode.TOO_MANY_TOOL_FAILURES:
            return f"{run.tool_failures} of {budget.max_tool_failures} tool failures, {where}"
        case ReasonCode.TOKEN_BUDGET_EXCEEDED:
            return f"{run.token_count.total_tokens} of {budget.max_tokens} tokens used, {where}"
        case ReasonCode.COST_BUDGET_EXCEEDED:
            return f"cost {run.token_count.cost:.4f} of {budget.max_cost}, {where}"
        case _:
            return f"{run.tool_calls} of {budget.max_tool_calls} tool calls used, {where}"


def end(draft: Draft, state: RunState, cause: RunError | None, by: str = "") -> None:
    """Set the cause of the run's end, if it has none, and end it if nothing is in progress."""
    if draft.run.ending is None:
        grace = draft.spec.limits.grace_seconds
        ending = Ending(state=state, error=cause, by=by, time=draft.now, grace_until=draft.now + grace)
        draft.set(ending=ending)
        for call in draft.run.calls:
            if call.status is CallStatus.RUNNING and call.barrier:
                draft.set_call(call, status=CallStatus.ALLOWED)
    end_if_idle(draft)


def fail(draft: Draft, code: ReasonCode | str, message: str, by: str = "") -> None:
    """End the run as FAILED with that reason."""
    end(draft, RunState.FAILED, error(code, message), by)


def end_if_idle(draft: Draft) -> None:
    """End a run that has a cause to, once nothing is in progress."""
    if not draft.calls_in_progress:
        end_now(draft)


_LEFT_OVER = {
    CallStatus.RUNNING: (ResultStatus.CANCELLED, "the run ended while this call was running"),
    CallStatus.STARTED: (ResultStatus.IN_DOUBT, "the run ended before the outcome of this write was known"),
    CallStatus.VERIFYING: (ResultStatus.IN_DOUBT, "the run ended before the outcome of this write was known"),
    CallStatus.IN_DOUBT: (ResultStatus.IN_DOUBT, "the run ended before this doubt was settled"),
}


def end_now(draft: Draft) -> None:
    """Give every open call its result and go into the ended state."""
    ending = draft.run.ending
    assert ending is not None, "a run ends for a cause"
    for call in draft.run.calls:
        if call.result is None:
            status, text = _LEFT_OVER.get(
                call.status, (ResultStatus.NOT_STARTED, "the run ended before this call was started")
            )
            draft.finish_call(call, CallResult(status=status, text=text))
    if draft.run.calls:
        merge_results(draft)
    draft.set(holds=(), error=ending.error, compacting=0, queued_input=())
    draft.enter(ending.state)


def check_budget(draft: Draft) -> None:
    """Look at the limits after an event: end the run, put it on hold, or have it wrap up, as the agent says."""
    if draft.run.ending is None and not draft.run.wrapping_up:
        cause = reached(draft, before_call=False)
        if cause is not None:
            over_budget(draft, cause)


def over_budget(draft: Draft, cause: RunError) -> None:
    """Do what the agent wants done when a limit is reached."""
    mode = "fail" if cause.code is ReasonCode.CONDITION_MET else draft.spec.on_budget
    if mode == "suspend":
        draft.hold(HoldKind.BUDGET, reason=cause.message)
    elif mode == "wrap_up" and not draft.run.wrapping_up:
        draft.set(wrapping_up=str(cause.code))
    else:
        fail(draft, cause.code, cause.message)
