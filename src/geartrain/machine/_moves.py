"""The moves between states that need no event of their own: from one resting place to the next.

    begin_context → to_model            context assembled
    decide → answer | open_calls | handoff | anomaly
    settle_calls → issue what may run → WAIT_APPROVAL | EXECUTE_TOOL | SUSPENDED | observe
    observe → save → to_model           results merged in call order, window kept

Rule 1: consecutive reads run together; a write is a barrier and runs alone; sub-agents are neither. In a plan nothing
is a barrier: what must not run side by side is what the plan does not ask for at once.
Rule 2: nothing new starts while the run is stopped (paused, out of budget, quarantined); what runs finishes.
Rule 3: a suspended run goes on when its set of holds is empty, where it was (`phase`); one with a plan as soon as
one of its calls can: what waits for a person holds up only what comes after it.
"""

from __future__ import annotations

from geartrain.ids import call_id
from geartrain.limits import Unlimited
from geartrain.machine._charging import charge_lost
from geartrain.machine._context import (
    assemble,
    keep_window,
    merge_results,
    say,
    summarisable,
    take_input,
)
from geartrain.machine._draft import Draft
from geartrain.machine._ending import check_budget, end, fail, no_more, over_budget, wrap_up
from geartrain.machine._guards import deny_guard, guard_answer, guard_inputs, guard_text, hear
from geartrain.machine._ledger import may_consult, only_sub_agents, start_sub_agents
from geartrain.machine._opening import done_at_once, opened, received, too_many
from geartrain.machine._outside import runs_again, starts_outside
from geartrain.machine._progress import note_progress
from geartrain.machine._reached import deadline_passed, reached, with_use
from geartrain.machine._run import Call
from geartrain.machine._shorten import brief, shortened
from geartrain.machine._shrink import shrink_results
from geartrain.machine._states import (
    ALLOWED,
    APPROVED,
    ASKED,
    AWAITING_INPUT,
    DONE,
    IN_DOUBT,
    IN_PROGRESS,
    PROPOSED,
    RUNNING,
    STARTED,
    UNDECIDED,
    VERIFYING,
    HoldKind,
    ReasonCode,
    ResultStatus,
    RunState,
)
from geartrain.machine._values import CallResult, Message, RequestedCall


def begin_context(draft: Draft, history: tuple[Message, ...] = ()) -> None:
    """Go and put the context together; rests only while providers run."""
    draft.enter(RunState.PREPARE_CONTEXT)
    if not draft.spec.providers:
        assemble(draft, (), history)
        to_model(draft)
    elif history:
        assemble(draft, (), history)


def to_model(draft: Draft) -> None:
    """Ask the model next, unless the run is held, over a limit, or ending."""
    if not draft.stopped:
        _look_at_budget(draft)
    if draft.run.ending is not None:
        return
    if draft.stopped:
        suspend(draft, RunState.MODEL_THINKING)
        return
    if guard_inputs(draft):
        settle_calls(draft)
        return
    take_input(draft)
    shrink_results(draft)
    keep_window(draft, draft.spec.context)
    size, room = draft.run.messages_size, draft.spec.context.bytes
    if size > room:
        text = f"instructions, pinned messages and the newest input take {size} of the context's {room} bytes"
        fail(draft, ReasonCode.CONTEXT_TOO_LONG, text)
        return
    draft.set(unconsulted=0)
    draft.enter(RunState.MODEL_THINKING)
    _begin_wrapping_up(draft)


def _begin_wrapping_up(draft: Draft) -> None:
    if draft.run.wrapping_up:
        draft.set(wrap_up_turn=draft.run.turn_count + 1)


def ask_again(draft: Draft) -> None:
    """Take the reply that the model owes for lost: charge it, and ask once more if the run may go on."""
    charge_lost(draft)
    draft.set(model_attempt=draft.run.model_attempt + 1, entered_at=draft.now)
    check_budget(draft)
    if draft.run.ending is not None:
        return
    if draft.stopped:
        rest_held(draft)
    else:
        _begin_wrapping_up(draft)


def rest_held(draft: Draft) -> None:
    """Rest a held run whose model was to reply; the model is asked when the run goes on."""
    if draft.run.calls:
        draft.set(unconsulted=max(1, draft.run.unconsulted))
        settle_calls(draft)
    else:
        suspend(draft, RunState.MODEL_THINKING)


def _look_at_budget(draft: Draft) -> None:
    """Let the run end, be held, or take its last turn without tools, when a limit is reached."""
    run = draft.run
    turns, taken = run.budget.max_turns, run.whole.turn_count
    if run.wrapping_up and not deadline_passed(draft):
        no_turn_left = not isinstance(turns, Unlimited) and taken >= turns
        if no_turn_left or 0 < run.wrap_up_turn <= run.turn_count:
            fail(draft, run.wrapping_up, with_use(draft, "the last turn, given to wrap up, brought no answer"))
        return
    cause = reached(draft, before_call=True)
    if cause is not None:
        over_budget(draft, cause)
    elif draft.spec.on_budget == "wrap_up" and taken + 1 == turns:
        wrap_up(draft, ReasonCode.MAX_TURNS_EXCEEDED)


def suspend(draft: Draft, phase: RunState) -> None:
    """Rest until every hold is lifted, then go on in *phase*."""
    draft.set(phase=phase)
    if draft.run.state is not RunState.SUSPENDED:
        draft.enter(RunState.SUSPENDED)


def go_on(draft: Draft) -> None:
    """Leave SUSPENDED if nothing holds the run any more; elsewhere let calls move."""
    run = draft.run
    if run.state is RunState.SUSPENDED:
        if run.holds and not _moves_in_part(draft):
            return
        if run.calls:
            # Verdicts that were on their way when the run was held are of the time before.
            draft.set(evaluations=run.evaluations + 1)
            ask_policy_again(draft)
            settle_calls(draft)
        elif run.phase is RunState.PREPARE_CONTEXT:
            check_budget(draft)  # a raised one may still be too low
            if draft.run.ending is None and not draft.stopped:
                draft.enter(RunState.PREPARE_CONTEXT)
        elif run.phase is RunState.COMPACT_OR_SAVE:
            draft.enter(RunState.COMPACT_OR_SAVE)
            after_saving(draft)
        else:
            to_model(draft)
    elif run.state is RunState.MODEL_THINKING:
        _issue(draft)
    elif run.calls:
        settle_calls(draft)


def _moves_in_part(draft: Draft) -> bool:
    """Whether some call of a plan can move though others wait for somebody, or the plan has a result to hear of."""
    run = draft.run
    if not draft.spec.plan or draft.stopped:
        return False
    return bool(run.unconsulted) or any(call.status is ALLOWED or call.status in UNDECIDED for call in run.calls)


def ask_policy_again(draft: Draft, *, writes_only: bool = False) -> None:
    """Have what was allowed and has not started checked by the policy in force now; approvals stay valid."""
    for call in draft.run.calls:
        if call.status is ALLOWED and not call.ask_user and (call.barrier or not writes_only):
            status = APPROVED if call.approved else PROPOSED
            draft.set_call(call, status=status)


def decide(draft: Draft, text: str, requested: tuple[RequestedCall, ...], anomaly: str, code: str) -> None:
    """Take the model's reply for what it is: an answer, calls, a handoff, or an anomaly."""
    draft.set(compacted_for_length=False)
    draft.enter(RunState.DECIDE_ACTION)
    run = draft.run
    nothing_to_add = not text.strip() and not requested and bool(run.calls)
    if anomaly:
        _anomaly(draft, text, anomaly, code)
    elif requested and run.wrapping_up and run.wrap_up_turn == run.turn_count and not deadline_passed(draft):
        problem = "the last turn, given to wrap up without tools, asked for tools all the same"
        fail(draft, run.wrapping_up, with_use(draft, problem))
    elif requested:
        if draft.spec.on_budget == "wrap_up" and not deadline_passed(draft):
            check_budget(draft)  # the reply itself may have crossed a limit: its calls are then refused
        open_calls(draft, text, requested)
    elif nothing_to_add:
        settle_calls(draft)
    elif not text.strip():
        _anomaly(draft, text, "the reply was empty: neither text nor tool calls", code)
    else:
        _answer(draft, text)


def _anomaly(draft: Draft, text: str, problem: str, code: str) -> None:
    draft.set(anomalies=draft.run.anomalies + 1)
    if draft.run.anomalies >= draft.spec.limits.anomalies:
        fail(draft, code, f"{draft.run.anomalies} replies could not be used; the last: {problem}")
        return
    turn = draft.run.turn_count
    if text.strip():
        say(draft, Message(role="assistant", text=text, turn=turn))
    say(draft, Message(role="user", text=f"[This reply could not be used] {brief(problem)}", turn=turn, note=True))
    if draft.run.calls:
        settle_calls(draft)
    else:
        save(draft)


def _answer(draft: Draft, text: str, *, judged: bool = False) -> None:
    """Finish with *text*, once it is judged; or go on, if the model has not heard all that was said and still may."""
    turn = draft.run.turn_count
    if draft.run.queued_input and not draft.run.calls and reached(draft, before_call=True) is None:
        say(draft, Message(role="assistant", text=text, turn=turn))
        save(draft)
        return
    if not judged and guard_answer(draft, text):
        settle_calls(draft)
        return
    draft.set(final_answer=text)
    end(draft, RunState.FINISHED, None)


def open_calls(draft: Draft, text: str, requested: tuple[RequestedCall, ...]) -> None:
    """Open the calls of a reply, give those that cannot be made their result at once, and go on."""
    run, spec = draft.run, draft.spec
    first = len(run.calls)
    calls = list(run.calls)
    for position, request in enumerate(requested, start=1):
        call = received(draft, call_id(run.turn_count, position), request)
        if position > spec.limits.calls_per_reply or len(calls) >= spec.limits.open_calls:
            calls.append(done_at_once(call, ResultStatus.REFUSED, too_many(draft)))
        elif run.wrapping_up:
            refused = no_more(run.wrapping_up)
            calls.append(done_at_once(call, refused.status, refused.text))
        else:
            calls.append(opened(draft, call, request))
    commentary = f"{run.commentary}\n{text}" if run.commentary and text else run.commentary or text
    draft.set(calls=tuple(calls), commentary=shortened(commentary, spec.context.result_bytes))
    _count_failures(draft, calls[first:])
    draft.enter(RunState.WAIT_APPROVAL)
    settle_calls(draft)


def _count_failures(draft: Draft, calls: list[Call]) -> None:
    failed = sum(1 for call in calls if call.result and call.result.status is ResultStatus.ERROR)
    if failed:
        draft.set(tool_failures=draft.run.tool_failures + failed)


def settle_calls(draft: Draft) -> None:
    """Start what may start now, and rest where the open calls leave the run."""
    if draft.run.guarding:
        _settle_guards(draft)
        return
    if draft.run.unconsulted and not draft.stopped and draft.run.ending is None:
        _look_at_budget(draft)
    if draft.run.ending is None:
        _issue(draft)
    run = draft.run
    if run.ending is not None:
        return
    statuses = {call.status for call in run.calls}
    undecided = not statuses.isdisjoint(UNDECIDED)
    if statuses <= {DONE}:
        observe(draft)
    elif run.unconsulted and not run.wrapping_up and not draft.stopped and may_consult(draft):
        to_model(draft)
    elif not statuses.isdisjoint(IN_PROGRESS) and not (draft.stopped and only_sub_agents(run, draft.spec)):
        _rest(draft, RunState.EXECUTE_TOOL)
    elif undecided and not draft.stopped:
        _rest(draft, RunState.WAIT_APPROVAL)
    else:
        assert run.holds, f"run {run.id}: calls open, none in progress, and no hold: {run.calls!r}"
        suspend(draft, RunState.WAIT_APPROVAL if undecided else RunState.EXECUTE_TOOL)


def _settle_guards(draft: Draft) -> None:
    """Rest until everything said, or the answer, is judged; then let the run hear it, or finish."""
    run = draft.run
    statuses = {call.status for call in run.calls}
    undecided = not statuses.isdisjoint(UNDECIDED)
    if draft.stopped or (ASKED in statuses and not undecided):
        suspend(draft, RunState.WAIT_APPROVAL)
    elif undecided:
        _rest(draft, RunState.WAIT_APPROVAL)
    elif not run.answering:
        hear(draft)
        to_model(draft)
    else:
        text, result = guard_text(run.calls[0].arguments), run.calls[0].result
        draft.set(calls=())
        if result is None:
            _answer(draft, text, judged=True)
        else:
            _anomaly(draft, text, f"the answer was not let through: {result.text}", ReasonCode.OUTPUT_DENIED)


def _rest(draft: Draft, state: RunState) -> None:
    if draft.run.state is not state:
        draft.enter(state)


def _issue(draft: Draft) -> None:
    """Set the calls in progress that may be: reads up to the first unfinished write, or that write alone.

    What this very event used up is looked at first: nothing starts in the step that reaches a limit. Sub-agents come
    first, for those that are refused are results, of which a plan is to hear; what waited for them may follow.
    """
    if not any(call.status is ALLOWED for call in draft.run.calls):
        return
    check_budget(draft)
    while not draft.stopped and draft.run.ending is None:
        startable = _startable(draft)
        delegated = [call for call in startable if call.sub_agent]
        if not (delegated and start_sub_agents(draft, delegated)):
            for call in startable:
                _start(draft, call)
            return
        if draft.run.unconsulted and draft.run.state is not RunState.MODEL_THINKING:
            _look_at_budget(draft)


def _startable(draft: Draft) -> list[Call]:
    """Return the allowed calls for which no other has to be done first; of a plan's calls none holds up another."""
    if draft.spec.plan:
        return [call for call in draft.run.calls if call.status is ALLOWED]
    found: list[Call] = []
    for position, call in enumerate([call for call in draft.run.calls if call.status is not DONE]):
        if call.status is ALLOWED and (position == 0 or not call.barrier):
            found.append(call)
        if call.barrier:
            break
    return found


def _start(draft: Draft, call: Call) -> None:
    """Start a call that is no sub-agent's: by asking the user, or by having somebody run it."""
    if call.ask_user:
        expires_at = draft.now + draft.spec.limits.approval_expiry_seconds
        draft.set_call(call, status=AWAITING_INPUT, expires_at=expires_at)
        draft.hold(HoldKind.INPUT, call.id)
    elif not call.sub_agent:
        draft.set_call(call, status=STARTED if starts_outside(call, draft.spec) else RUNNING)


def observe(draft: Draft) -> None:
    """Merge the results of the turn, in call order, and go on."""
    draft.enter(RunState.OBSERVE)
    merge_results(draft)
    note_progress(draft)
    if draft.run.ending is None:
        save(draft)


def save(draft: Draft) -> None:
    """Keep the window; rest only while a model summarises."""
    draft.enter(RunState.COMPACT_OR_SAVE)
    shrink_results(draft)
    keep_window(draft, draft.spec.context)
    after_saving(draft)


def after_saving(draft: Draft) -> None:
    """Summarise if it is time to and the budget has room, hand off if that was asked for, else ask the model."""
    check_budget(draft)
    if draft.run.ending is not None:
        return
    count = summarisable(draft)
    if count and not draft.stopped and not draft.run.wrapping_up:
        draft.set(compacting=count)
        return
    leave_saving(draft)


def leave_saving(draft: Draft) -> None:
    """Go on from COMPACT_OR_SAVE."""
    draft.set(compacting=0)
    if draft.run.handing_off is None:
        to_model(draft)
    else:
        to_context(draft)


def to_context(draft: Draft) -> None:
    """Have the context put together by what runs elsewhere, or wait with that while the run is held or over a limit."""
    check_budget(draft)  # a summary may have used it up in this very step
    if draft.run.ending is not None:
        return
    if draft.stopped:
        suspend(draft, RunState.PREPARE_CONTEXT)
    else:
        draft.enter(RunState.PREPARE_CONTEXT)


def let_through(draft: Draft, call: Call) -> None:
    """Allow a call, if the budget of tool calls has room for it; allowed again, it counts once."""
    limit = draft.run.budget.max_tool_calls
    if call.counted or call.role != "tool":
        draft.set_call(call, status=ALLOWED)
        return
    if draft.run.wrapping_up and draft.spec.rules_version >= 2:
        draft.finish_call(call, no_more(draft.run.wrapping_up))
        return
    used = draft.run.whole.tool_calls
    if not isinstance(limit, Unlimited) and used + draft.run.reserved()["max_tool_calls"] >= limit:
        what = "used up" if used >= limit else "used up, or reserved by sub-agents at work"
        text = f"{ReasonCode.TOOL_CALL_BUDGET_EXCEEDED}: {limit} tool calls are {what}"
        draft.finish_call(call, CallResult(status=ResultStatus.REFUSED, text=text, size=len(text)))
        return
    draft.set(tool_calls=draft.run.tool_calls + 1)
    draft.set_call(call, status=ALLOWED, counted=True)


def deny(draft: Draft, call: Call, code: ReasonCode, reason: str, by: str) -> None:
    """Deny a call: end the run, or tell the model, as the agent says.

    One that an earlier attempt may have done is not run again, but neither can it be called denied: it is in doubt.
    """
    text = reason or "no reason given"
    if call.role != "tool":
        deny_guard(draft, call, code, text, by)
        return
    if call.doubted:
        leave_in_doubt(draft, call, f"denied while in doubt: {text}")
    else:
        draft.finish_call(call, CallResult(status=ResultStatus.DENIED, text=text, size=len(text), by=by))
    if draft.spec.on_denied == "fail":
        fail(draft, code, f"call {call.id} of {call.tool!r}: {text}", by)


def doubt(draft: Draft, call: Call, reason: str) -> None:
    """Deal with a started write whose outcome was not seen: again with the same key, `verify`, or a person."""
    reason = brief(reason)
    if draft.run.ending is not None:
        text = f"its outcome is not known: {reason}"
        draft.finish_call(call, CallResult(status=ResultStatus.IN_DOUBT, text=text, size=len(text)))
    elif call.status is STARTED and runs_again(call, draft.spec):
        draft.set_call(call, status=ALLOWED, attempt=call.attempt + 1, reason=reason, doubted=True)
    elif call.status is STARTED and call.verify:
        draft.set_call(call, status=VERIFYING, reason=reason)
    else:
        leave_in_doubt(draft, call, reason)


def leave_in_doubt(draft: Draft, call: Call, reason: str) -> None:
    """Have a person settle whether a write was done, in the time that a person has for an approval."""
    expires_at = draft.now + draft.spec.limits.approval_expiry_seconds
    draft.set_call(call, status=IN_DOUBT, reason=brief(reason), expires_at=expires_at)
    draft.hold(HoldKind.IN_DOUBT, call.id, reason)


def not_done(draft: Draft, call: Call) -> None:
    """Run a write once more that `verify` found not done, unless the run ends or it was tried often enough."""
    if draft.run.ending is not None:
        text = "the write was not done"
        draft.finish_call(call, CallResult(status=ResultStatus.NOT_STARTED, text=text, size=len(text)))
    elif call.attempt < draft.spec.limits.write_attempts:
        draft.set_call(call, status=ALLOWED, attempt=call.attempt + 1, doubted=False)
    else:
        text = f"the write was not done in {call.attempt} attempts; the last: {call.reason}"
        draft.finish_call(call, CallResult(status=ResultStatus.ERROR, text=text, size=len(text)))
        draft.set(tool_failures=draft.run.tool_failures + 1)


def lose_progress(draft: Draft) -> None:
    """Take everything in progress as lost: started writes are in doubt, all else is wanted again.

    Sub-agents and external calls go on elsewhere and are not lost. Writes that have not started are checked again.
    """
    for call in draft.run.calls:
        if call.sub_agent or (call.external and call.status is not VERIFYING):
            continue
        if call.status is STARTED:
            doubt(draft, call, "the process that ran it is gone")
        elif call.status is VERIFYING:
            draft.set_call(call, attempt=call.attempt + 1, since=draft.now)
        elif call.status is RUNNING and draft.run.ending is not None:
            text = "the process that ran it is gone, and the run is ending"
            draft.finish_call(call, CallResult(status=ResultStatus.CANCELLED, text=text, size=len(text)))
        elif call.status is RUNNING:
            draft.set_call(call, status=ALLOWED, attempt=call.attempt + 1)
