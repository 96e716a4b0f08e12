"""One budget for a tree of runs: what a sub-agent's call reserves before it starts, and what its end gives back.

    left  = budget - used by the run and all below it - Σ shares of the sub-agents at work
    share = min(the sub-agent's own budget, its cut of what is left), limit by limit

Rule 1: a share is reserved in the step that starts its sub-agent, so that all of them together never exceed the budget.
Rule 2: a sub-agent's end says what it really used: that is charged (`_charging`), and the rest of its share is free.
Rule 3: a call for which nothing is left waits as long as sub-agents at work may give something back; then it is refused
with the code of the limit that is used up.
Rule 4: a run keeps one turn to itself, so that it can say what came of it all; one that is consulted after each result
also one for each open call. When these are used up, it is consulted once a sub-agent has given some back.
Rule 5: journals from before `sub_agents_at_once` was recorded are read by the rules of their time (see `StepLimits`).

`weights` cuts what is left among those that start at once, in proportion (1 each: equally): no more can be at work at
once, and what one does not use is there for the next. `on_demand` gives each all that is left, up to its own budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from geartrain.limits import UNLIMITED, Unlimited
from geartrain.machine._draft import Draft
from geartrain.machine._outside import bounded, sub_agents_at_work
from geartrain.machine._run import Call, Run
from geartrain.machine._spec import AgentSpec, Budget
from geartrain.machine._states import DONE, IN_PROGRESS, RUNNING, ReasonCode, ResultStatus
from geartrain.machine._values import CallResult

# The limits of a budget, in their order of precedence, each with its code.
UNITS: Final[Mapping[str, ReasonCode]] = {
    "max_turns": ReasonCode.MAX_TURNS_EXCEEDED,
    "max_seconds": ReasonCode.TIMEOUT,
    "max_tool_failures": ReasonCode.TOO_MANY_TOOL_FAILURES,
    "max_tokens": ReasonCode.TOKEN_BUDGET_EXCEEDED,
    "max_cost": ReasonCode.COST_BUDGET_EXCEEDED,
    "max_tool_calls": ReasonCode.TOOL_CALL_BUDGET_EXCEEDED,
}
# Of these a part is worth something; of the others only whole ones are.
_DIVISIBLE: Final = frozenset({"max_seconds", "max_cost"})
_SECONDS_WORTH: Final = 0.001


def _left_of(run: Run, reserved: Mapping[str, float]) -> dict[str, float]:
    """Return how much of each limit is neither used nor *reserved*; infinity without that limit."""
    whole = run.whole
    return {unit: _amount(run.budget, unit) - _used(whole, unit) - reserved.get(unit, 0) for unit in UNITS}


def _used(whole: Run, unit: str) -> float:
    match unit:
        case "max_turns":
            return whole.turn_count
        case "max_seconds":
            return whole.active_seconds
        case "max_tool_failures":
            return whole.tool_failures
        case "max_tokens":
            return whole.token_count.total_tokens
        case "max_cost":
            return whole.token_count.cost
        case _:
            return whole.tool_calls


def only_sub_agents(run: Run, spec: AgentSpec) -> bool:
    """Whether sub-agents are at work, and nothing else is."""
    if not bounded(spec):
        return False
    at_work = [call.sub_agent for call in run.calls if call.status in IN_PROGRESS]
    return bool(at_work) and all(at_work)


def may_consult(draft: Draft) -> bool:
    """Whether a turn is left that no sub-agent at work has reserved."""
    run = draft.run
    return _left_of(run, run.reserved())["max_turns"] >= 1 or not sub_agents_at_work(run)


def start_sub_agents(draft: Draft, waiting: Sequence[Call]) -> bool:
    """Start those of the *waiting* calls that there is a place and a share for; return whether any was refused."""
    run, limits = draft.run, draft.spec.limits
    if limits.sub_agents_at_once is None:
        for call in waiting:
            draft.set_call(call, status=RUNNING)
        return False
    if run.depth >= limits.sub_agent_depth:
        for call in waiting:
            _refuse(draft, call, f"sub-agents may be {limits.sub_agent_depth} deep, and this run is at that depth")
        return True
    places = limits.sub_agents_at_once - len(sub_agents_at_work(run))
    starting = waiting[: max(0, places)]
    weights = [_weight(draft.spec, call) for call in starting]
    free = _free(draft, draft.run.reserved())
    for position, call in enumerate(starting):
        used_up = next((unit for unit, left in free.items() if not _worth(unit, left)), None)
        if used_up is not None:
            return _wait_or_refuse(draft, used_up, waiting[position:])
        share = _share(draft.spec, call, free, weights[position] / sum(weights[position:]))
        draft.set_call(call, status=RUNNING, share=share)
        for unit, left in free.items():
            if not math.isinf(left):
                free[unit] = left - getattr(share, unit)
    return False


def _wait_or_refuse(draft: Draft, used_up: str, waiting: Sequence[Call]) -> bool:
    """Let calls for which nothing is left wait for what may be given back, or refuse all; return whether it did."""
    if _worth(used_up, _free(draft, reserved={})[used_up]):
        return False
    for call in waiting:
        _refuse(draft, call, f"{UNITS[used_up]}: nothing of {used_up} is left for a sub-agent")
    return True


def _weight(spec: AgentSpec, call: Call) -> float:
    sub_agent = spec.sub_agent(call.tool)
    return 1.0 if sub_agent is None else sub_agent.weight


def _share(spec: AgentSpec, call: Call, free: Mapping[str, float], part: float) -> Budget:
    """Return a share for *call*: that *part* of what is free, or all of it on demand, up to its own budget."""
    sub_agent = spec.sub_agent(call.tool)
    own = sub_agent.budget if sub_agent is not None else None
    amounts: dict[str, float | Unlimited] = {}
    for unit, left in free.items():
        most = UNLIMITED if own is None else getattr(own, unit)
        if math.isinf(left):
            amounts[unit] = most
            continue
        cut = left if spec.shares == "on_demand" else left * part
        cut = cut if unit in _DIVISIBLE else max(1, int(cut))
        amounts[unit] = cut if isinstance(most, Unlimited) else min(cut, most)
    return Budget(**amounts)  # type: ignore[arg-type]


def _free(draft: Draft, reserved: Mapping[str, float]) -> dict[str, float]:
    """Return how much of each limit sub-agents may still reserve, with so much *reserved* already."""
    free = _left_of(draft.run, reserved)
    free["max_turns"] -= 1
    if draft.spec.consult == "each_result":
        free["max_turns"] -= len([call for call in draft.run.calls if call.status is not DONE])
    return free


def _worth(unit: str, amount: float) -> bool:
    """Whether so much is worth a start."""
    return amount >= (_SECONDS_WORTH if unit == "max_seconds" else 1) if unit != "max_cost" else amount > 0


def _refuse(draft: Draft, call: Call, text: str) -> None:
    draft.finish_call(call, CallResult(status=ResultStatus.REFUSED, text=text, size=len(text)))


def beyond_reach(draft: Draft, share: Budget, wanted: Budget) -> str | None:
    """Return why a share at work cannot become *wanted*: the first limit of which too little is left; or None."""
    for unit, left in _free(draft, draft.run.reserved()).items():
        now, then = _amount(share, unit), _amount(wanted, unit)
        if not math.isinf(left) and then - now > max(0.0, left):
            most = now + max(0.0, left)
            return f"its parent has less than that: {unit} can be raised to {most:g}, or the parent's own budget first"
    return None


def _amount(budget: Budget, unit: str) -> float:
    limit = getattr(budget, unit)
    return math.inf if isinstance(limit, Unlimited) else limit
