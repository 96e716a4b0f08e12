"""How a run ends: one cause, the first; results within grace are kept; every call has its result.

Rule 1: a cause of the end is sticky. Nothing starts after it.
Rule 2: the run ends when nothing is in progress, or when the grace is over, whichever is first.
Rule 3: open reads are then cancelled, started writes in doubt, everything else not started.
"""

from __future__ import annotations

from geartrain.limits import UNLIMITED
from geartrain.machine._context import keep_window, merge_results, say
from geartrain.machine._draft import Draft
from geartrain.machine._outside import awaits_answer
from geartrain.machine._reasons import KIND_OF_CODE
from geartrain.machine._run import Run
from geartrain.machine._shorten import brief
from geartrain.machine._states import (
    ENDED,
    CallStatus,
    HoldKind,
    ReasonCode,
    ResultStatus,
    RunState,
)
from geartrain.machine._termination import CLOCK_GRAIN
from geartrain.machine._values import CallResult, Ending, Message, RunError


def error(code: ReasonCode | str, message: str) -> RunError:
    """Return the error of that code, with its kind."""
    reason = ReasonCode(code)
    return RunError(code=reason, kind=KIND_OF_CODE[reason], message=brief(message))


def reached(draft: Draft, *, before_call: bool) -> RunError | None:
    """Return which limit the run has reached, or None; the own conditions of the spec come last."""
    code = _budget_reached(draft.run, before_call=before_call)
    if code is not None:
        return error(code, _used_up(draft, code))
    own = own_condition(draft, before_call=before_call)
    return error(own, f"a condition of the agent's stop_when holds in {draft.run.phase}") if own is not None else None


def own_condition(draft: Draft, *, before_call: bool) -> ReasonCode | None:
    """Return the code of the spec's own condition, if that holds."""
    condition = draft.spec.stop_when
    return None if condition is None else condition.met(draft.run.measure(before_call=before_call))


def _budget_reached(run: Run, *, before_call: bool) -> ReasonCode | None:
    """Return the code of the first limit that is reached, in their order of precedence.

    The same as the conditions of `_termination` say, one by one (a test holds them together), but this is looked at
    twice a step and therefore makes no objects. Turns and tool calls limit what comes next, not what is under way.
    """
    budget = run.budget
    turns, seconds, failures = budget.max_turns, budget.max_seconds, budget.max_tool_failures
    tokens, cost, calls = budget.max_tokens, budget.max_cost, budget.max_tool_calls
    code = None
    if before_call and turns is not UNLIMITED and run.turn_count >= turns:
        code = ReasonCode.MAX_TURNS_EXCEEDED
    elif seconds is not UNLIMITED and run.active_seconds >= seconds - CLOCK_GRAIN:
        code = ReasonCode.TIMEOUT
    elif failures is not UNLIMITED and run.tool_failures >= failures:
        code = ReasonCode.TOO_MANY_TOOL_FAILURES
    elif tokens is not UNLIMITED and run.token_count.total_tokens >= tokens:
        code = ReasonCode.TOKEN_BUDGET_EXCEEDED
    elif cost is not UNLIMITED and run.token_count.cost >= cost:
        code = ReasonCode.COST_BUDGET_EXCEEDED
    elif before_call and calls is not UNLIMITED and run.tool_calls >= calls:
        code = ReasonCode.TOOL_CALL_BUDGET_EXCEEDED
    return code


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
    """Set the cause of the run's end, if it has none, and end it if nothing is in progress.

    Else it rests in EXECUTE_TOOL, whose effects are what it waits for.
    """
    if draft.run.ending is None:
        grace = draft.spec.limits.grace_seconds
        ending = Ending(state=state, error=cause, by=brief(by), time=draft.now, grace_until=draft.now + grace)
        draft.set(ending=ending)
        draft.take_back_writes()
        _give_up_outside(draft)
    end_if_idle(draft)
    if draft.run.state not in ENDED and draft.run.state is not RunState.EXECUTE_TOOL:
        draft.enter(RunState.EXECUTE_TOOL)


def _give_up_outside(draft: Draft) -> None:
    """Cancel the reads that somebody outside was to answer: no effect of ours would report that."""
    if draft.spec.limits.external_seconds is None:
        return
    for call in draft.run.calls:
        if awaits_answer(call) and not call.barrier:
            status, text = _LEFT_OVER[CallStatus.RUNNING]
            draft.finish_call(call, CallResult(status=status, text=text, size=len(text)))


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
_NOT_STARTED = (ResultStatus.NOT_STARTED, "the run ended before this call was started")


def end_now(draft: Draft) -> None:
    """Give every open call its result and go into the ended state."""
    ending = draft.run.ending
    assert ending is not None, "a run ends for a cause"
    if draft.run.guarding:
        draft.set(calls=())  # a text that nobody let through is no part of the context
    for call in draft.run.calls:
        if call.result is None:
            status, text = _LEFT_OVER.get(CallStatus.IN_DOUBT if call.doubted else call.status, _NOT_STARTED)
            draft.finish_call(call, CallResult(status=status, text=text, size=len(text)))
    if draft.run.calls:
        merge_results(draft)
    if draft.run.final_answer is not None:
        say(draft, Message(role="assistant", text=draft.run.final_answer, turn=draft.run.turn_count))
    keep_window(draft, draft.spec.context)
    draft.set(holds=(), error=ending.error, compacting=0)
    draft.enter(ending.state)


def check_budget(draft: Draft) -> None:
    """Look at the limits after an event: end the run, put it on hold, or have it wrap up, as the agent says."""
    if draft.run.ending is None and not draft.run.wrapping_up and not draft.run.answering:
        cause = reached(draft, before_call=False)
        if cause is not None:
            over_budget(draft, cause)


def wrap_up(draft: Draft, code: ReasonCode) -> None:
    """Have the next turn be the last, taken without tools."""
    draft.set(wrapping_up=str(code), wrap_up_turn=0)


def over_budget(draft: Draft, cause: RunError) -> None:
    """Do what the agent wants done when a limit is reached.

    A raised budget lifts no condition of the agent's own, and no turn is left to wrap up in when it is turns that are
    used up: both end the run.
    """
    mode, raisable = draft.spec.on_budget, _budget_reached(draft.run, before_call=True) is not None
    if mode == "suspend" and raisable:
        draft.hold(HoldKind.BUDGET, reason=cause.message)
    elif mode == "wrap_up" and cause.code not in (ReasonCode.CONDITION_MET, ReasonCode.MAX_TURNS_EXCEEDED):
        wrap_up(draft, cause.code)
    else:
        fail(draft, cause.code, cause.message)
