"""How a run ends: one cause, the first; results within grace are kept; every call has its result.

Rule 1: a cause of the end is sticky. Nothing starts after it.
Rule 2: the run ends when nothing is in progress, or when the grace is over, whichever is first.
Rule 3: open reads are then cancelled, started writes in doubt, everything else not started.
Rule 4: sub-agents are waited for a little longer, the deeper the run the less: so each has ended before the one above
it gives up. Those that have not ended even then are named in the cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from geartrain.ids import sub_agent_run_id
from geartrain.machine._context import keep_window, merge_results, say
from geartrain.machine._draft import Draft
from geartrain.machine._outside import awaits_answer, bounded, sub_agents_at_work
from geartrain.machine._reached import budget_reached, deadline_passed, error, reached
from geartrain.machine._run import Call, Run
from geartrain.machine._shorten import brief
from geartrain.machine._states import (
    ALLOWED,
    APPROVED,
    ENDED,
    PROPOSED,
    RUNNING,
    CallStatus,
    HoldKind,
    ReasonCode,
    ResultStatus,
    RunState,
)
from geartrain.machine._values import CallResult, Ending, Message, RunError

# Runs of sub-agents named of those that did not end in time.
SURVIVORS_NAMED: Final = 5


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
    cause = _with_survivors(draft.run, ending.error) if bounded(draft.spec) else ending.error
    _leave_over(draft, draft.run.calls)
    if draft.run.calls:
        merge_results(draft)
    if draft.run.final_answer is not None:
        say(draft, Message(role="assistant", text=draft.run.final_answer, turn=draft.run.turn_count))
    keep_window(draft, draft.spec.context)
    draft.set(holds=(), error=cause, compacting=0)
    draft.enter(ending.state)


def _leave_over(draft: Draft, calls: Iterable[Call]) -> None:
    for call in calls:
        if call.result is None:
            status, text = _LEFT_OVER.get(CallStatus.IN_DOUBT if call.doubted else call.status, _NOT_STARTED)
            draft.finish_call(call, CallResult(status=status, text=text, size=len(text)))


def _with_survivors(run: Run, cause: RunError | None) -> RunError | None:
    """Return *cause* with the runs of sub-agents named that have not ended in time."""
    left = [sub_agent_run_id(run.id, call.id) for call in sub_agents_at_work(run)]
    if not left or cause is None:
        return cause
    return error(cause.code, f"{cause.message}; not ended in time: {', '.join(left[:SURVIVORS_NAMED])}")


def grace_over(draft: Draft) -> None:
    """End without waiting any longer; but for sub-agents, whose grace began later, a part of what a wait may dwell."""
    ending = draft.run.ending
    assert ending is not None, "only an ending run has a grace"
    if ending.extended or not (bounded(draft.spec) and sub_agents_at_work(draft.run)):
        end_now(draft)
        return
    _leave_over(draft, [call for call in draft.run.calls if not call.sub_agent])
    draft.set(ending=replace(ending, grace_until=_patient_until(draft), extended=True))


def wait_anew(draft: Draft) -> None:
    """Begin the wait for sub-agents anew: they could not end while no process was at work."""
    ending = draft.run.ending
    if ending is not None and ending.extended:
        draft.set(ending=replace(ending, grace_until=_patient_until(draft)))


def _patient_until(draft: Draft) -> float:
    return draft.now + draft.spec.limits.dwell_seconds / (draft.run.depth + 1)


def check_budget(draft: Draft) -> None:
    """Look at the limits after an event: end the run, put it on hold, or have it wrap up, as the agent says.

    A run that takes its last turn, or whose answer is being judged, is ended by its deadline alone. Of a run that is
    ending nobody asks.
    """
    if deadline_passed(draft) or not (draft.run.wrapping_up or draft.run.answering):
        cause = reached(draft, before_call=False)
        if cause is not None:
            over_budget(draft, cause)


def wrap_up(draft: Draft, code: ReasonCode) -> None:
    """Have the next turn be the last, taken without tools."""
    draft.set(wrapping_up=str(code), wrap_up_turn=0)


def over_budget(draft: Draft, cause: RunError) -> None:
    """Do what the agent wants done when a limit is reached.

    A raised budget lifts neither a deadline nor a condition of the agent's own, and no turn is left to wrap up in when
    it is turns that are used up: these end the run.
    """
    mode = draft.spec.on_budget
    raisable = budget_reached(draft.run.whole, before_call=True) is not None and cause.code not in _FINAL
    if mode == "suspend" and raisable:
        draft.hold(HoldKind.BUDGET, reason=cause.message, code=cause.code)
    elif mode == "wrap_up" and cause.code not in (*_FINAL, ReasonCode.CONDITION_MET, ReasonCode.MAX_TURNS_EXCEEDED):
        wrap_up(draft, cause.code)
        _cut_off(draft, cause.code)
    else:
        fail(draft, cause.code, cause.message)


def no_more(code: str) -> CallResult:
    """Return the result of a call that is not begun, as the budget is used up."""
    text = f"{code}: the budget is used up; answer with what there is"
    return CallResult(status=ResultStatus.REFUSED, text=text, size=len(text))


_FINAL = (ReasonCode.DEADLINE_EXCEEDED,)
_NOT_BEGUN = frozenset({PROPOSED, APPROVED, ALLOWED})


def _cut_off(draft: Draft, code: ReasonCode) -> None:
    """Let a run wrap up now: of its open calls none begins any more, and no read takes more time if time is used up.

    A write under way is awaited, for nobody would know if it was done; so is a sub-agent, which keeps a budget itself,
    and a person who was asked.
    """
    if draft.spec.rules_version < 2 or draft.run.guarding:
        return
    draft.take_back_writes()
    for call in draft.run.calls:
        reads = call.status is RUNNING and not call.barrier and not call.sub_agent
        if call.doubted:
            continue
        if call.status in _NOT_BEGUN:
            draft.finish_call(call, no_more(code))
        elif reads and code is ReasonCode.TIMEOUT:
            text = f"{code}: cancelled, for the active seconds are used up; answer with what there is"
            draft.finish_call(call, CallResult(status=ResultStatus.CANCELLED, text=text, size=len(text)))
