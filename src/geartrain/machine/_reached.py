"""Which limit a run has reached: the deadline, its budget, the agent's own conditions, in this order of precedence.

The error of a limit says which one it is, where the run was and what was at work there, and all that it had used. The
texts of rules version 1 stay as they were: an error is a part of its run.
"""

from __future__ import annotations

from collections.abc import Iterator

from geartrain.limits import UNLIMITED
from geartrain.machine._draft import Draft
from geartrain.machine._reasons import KIND_OF_CODE
from geartrain.machine._run import Run
from geartrain.machine._shorten import brief
from geartrain.machine._states import ASKED, IN_PROGRESS, UNDECIDED, ReasonCode, RunState
from geartrain.machine._termination import CLOCK_GRAIN
from geartrain.machine._values import RunError

# Calls named of those that were at work.
_CALLS_NAMED = 3


def error(code: ReasonCode | str, message: str) -> RunError:
    """Return the error of that code, with its kind."""
    reason = ReasonCode(code)
    return RunError(code=reason, kind=KIND_OF_CODE[reason], message=brief(message))


def reached(draft: Draft, *, before_call: bool) -> RunError | None:
    """Return which limit the run has reached, or None; the own conditions of the spec come last."""
    if deadline_passed(draft):
        return error(ReasonCode.DEADLINE_EXCEEDED, deadline_text(draft))
    code = budget_reached(draft.run.whole, before_call=before_call)
    if code is not None:
        return error(code, _used_up(draft, code))
    own = _own_condition(draft, before_call=before_call)
    if own is None:
        return None
    if draft.spec.rules_version < 2:
        return error(own, f"a condition of the agent's stop_when holds in {draft.run.phase}")
    return error(own, with_use(draft, "a condition of the agent's stop_when holds"))


def deadline_passed(draft: Draft) -> bool:
    """Whether the run's deadline is over, by the time of the event that this step is about."""
    deadline = draft.run.deadline
    return deadline is not None and draft.now >= deadline and draft.spec.rules_version >= 2


def _own_condition(draft: Draft, *, before_call: bool) -> ReasonCode | None:
    condition = draft.spec.stop_when
    return None if condition is None else condition.met(draft.run.measure(before_call=before_call))


def budget_reached(run: Run, *, before_call: bool) -> ReasonCode | None:
    """Return the code of the first limit of the budget that is reached, in their order of precedence.

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


def deadline_text(draft: Draft) -> str:
    """Return what is said of a deadline that is over."""
    run = draft.run
    if draft.spec.rules_version < 2:
        used = f"{run.turn_count} turns, {run.token_count.total_tokens} tokens, {run.active_seconds:.1f} s active"
        return f"the deadline passed in {run.phase} after {used}"
    return with_use(draft, "the deadline passed")


def _used_up(draft: Draft, code: ReasonCode) -> str:
    run, budget = draft.run.whole, draft.run.budget
    where = f", in {run.phase}, turn {draft.run.turn_count}" if draft.spec.rules_version < 2 else ""
    match code:
        case ReasonCode.MAX_TURNS_EXCEEDED:
            limit = f"{run.turn_count} of {budget.max_turns} turns used without an answer"
            where = ""
        case ReasonCode.TIMEOUT:
            limit = f"{run.active_seconds:.1f} of {budget.max_seconds} active seconds used"
        case ReasonCode.TOO_MANY_TOOL_FAILURES:
            limit = f"{run.tool_failures} of {budget.max_tool_failures} tool failures"
        case ReasonCode.TOKEN_BUDGET_EXCEEDED:
            limit = f"{run.token_count.total_tokens} of {budget.max_tokens} tokens used"
        case ReasonCode.COST_BUDGET_EXCEEDED:
            limit = f"cost {run.token_count.cost:.4f} of {budget.max_cost}"
        case _:
            limit = f"{run.tool_calls} of {budget.max_tool_calls} tool calls used"
    return limit + where if draft.spec.rules_version < 2 else with_use(draft, limit)


def with_use(draft: Draft, text: str) -> str:
    """Return *text* with where the run is, what is at work there, and all that it has used."""
    run = draft.run
    if draft.spec.rules_version < 2:
        return text
    at_work = "".join(f", {what}" for what in _at_work(draft))
    whole = run.whole
    cost = f", cost {whole.token_count.cost:.4f}" if whole.token_count.cost else ""
    below = " (sub-agents included)" if run.below is not None else ""
    used = (
        f"{counted(whole.turn_count, 'turn')}, {whole.active_seconds:.1f} s active, "
        f"{counted(whole.token_count.total_tokens, 'token')}, {counted(whole.tool_calls, 'tool call')}, "
        f"{whole.tool_failures} failed{cost}{below}"
    )
    return f"{text}; in {run.state}, turn {run.turn_count}{at_work}; used: {used}"


def counted(number: int, one: str) -> str:
    """Return a number with its word: 1 turn, 2 turns."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


def _at_work(draft: Draft) -> Iterator[str]:
    """Yield what the run is waiting for, as far as it began before this step."""
    run = draft.run
    seconds = draft.now - run.entered_at
    if seconds > 0:
        if run.state is RunState.MODEL_THINKING:
            yield f"the model call of turn {run.turn_count + 1} (attempt {run.model_attempt}) for {seconds:.1f} s"
        elif run.state is RunState.PREPARE_CONTEXT:
            yield f"the context for {seconds:.1f} s"
        elif run.state is RunState.COMPACT_OR_SAVE:
            yield f"a summary for {seconds:.1f} s"
    at_work = [call for call in run.calls if call.status in IN_PROGRESS]
    asked = [call for call in run.calls if call.status is ASKED]
    undecided = [call for call in run.calls if call.status in UNDECIDED and run.state is RunState.WAIT_APPROVAL]
    for calls, how in ((at_work, "at work"), (asked, "waiting for approval"), (undecided, "before the policy")):
        for call in calls[:_CALLS_NAMED]:
            yield f"{call.id} of {call.tool!r} {how} for {draft.now - call.since:.1f} s"
        if len(calls) > _CALLS_NAMED:
            yield f"{len(calls) - _CALLS_NAMED} more {how}"
