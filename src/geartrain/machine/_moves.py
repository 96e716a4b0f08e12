"""The moves between states that need no event of their own: from one resting place to the next.

    begin_context → to_model            context assembled
    decide → answer | open_calls | handoff | anomaly
    settle_calls → issue what may run → WAIT_APPROVAL | EXECUTE_TOOL | SUSPENDED | observe
    observe → save → to_model           results merged in call order, window kept

Rule 1: consecutive reads run together; a write is a barrier and runs alone; sub-agents are neither.
Rule 2: nothing new starts while the run is stopped (paused, out of budget, quarantined); what runs finishes.
Rule 3: a suspended run goes on when its set of holds is empty, where it was (`phase`).
"""

from __future__ import annotations

import msgspec

from geartrain.ids import call_id, digest
from geartrain.limits import Unlimited
from geartrain.machine._context import (
    assemble,
    keep_window,
    merge_results,
    say,
    summarisable,
    take_input,
)
from geartrain.machine._draft import Draft
from geartrain.machine._ending import end, fail, over_budget, reached
from geartrain.machine._run import Call
from geartrain.machine._states import CallStatus, HoldKind, ReasonCode, ResultStatus, RunState
from geartrain.machine._values import CallResult, Message, RequestedCall, ToolCall

HANDOFF_PREFIX = "hand_off_to_"


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
    if not draft.run.holds:
        _look_at_budget(draft)
    if draft.run.ending is not None:
        return
    if draft.run.holds and draft.run.calls:
        settle_calls(draft)
        return
    if draft.run.holds:
        suspend(draft, RunState.MODEL_THINKING)
        return
    take_input(draft)
    keep_window(draft, draft.spec.context)
    draft.set(unconsulted=0, compacted_for_length=False)
    draft.enter(RunState.MODEL_THINKING)


def _look_at_budget(draft: Draft) -> None:
    """Let the run end, be held, or take its last turn without tools, when a limit is reached."""
    if draft.run.wrapping_up:
        return
    cause = reached(draft, before_call=True)
    if cause is not None:
        over_budget(draft, cause)
    elif draft.spec.on_budget == "wrap_up" and draft.run.turn_count + 1 == draft.run.budget.max_turns:
        draft.set(wrapping_up=str(ReasonCode.MAX_TURNS_EXCEEDED))


def suspend(draft: Draft, phase: RunState) -> None:
    """Rest until every hold is lifted, then go on in *phase*."""
    draft.set(phase=phase)
    if draft.run.state is not RunState.SUSPENDED:
        draft.enter(RunState.SUSPENDED)


def go_on(draft: Draft) -> None:
    """Leave SUSPENDED if nothing holds the run any more; elsewhere let calls move."""
    run = draft.run
    if run.state is RunState.SUSPENDED:
        if run.holds:
            return
        if run.calls:
            settle_calls(draft)
        elif run.phase is RunState.PREPARE_CONTEXT:
            draft.enter(RunState.PREPARE_CONTEXT)
        elif run.phase is RunState.COMPACT_OR_SAVE:
            draft.enter(RunState.COMPACT_OR_SAVE)
            after_saving(draft)
        else:
            to_model(draft)
    elif run.calls and run.state is not RunState.MODEL_THINKING:
        settle_calls(draft)


def decide(draft: Draft, text: str, requested: tuple[RequestedCall, ...], anomaly: str, code: str) -> None:
    """Take the model's reply for what it is: an answer, calls, a handoff, or an anomaly."""
    draft.enter(RunState.DECIDE_ACTION)
    run = draft.run
    nothing_to_add = not text and not requested and bool(run.calls)
    if anomaly or (not text.strip() and not requested and not nothing_to_add):
        problem = anomaly or "the reply was empty: neither text nor tool calls"
        _anomaly(draft, text, problem, code)
    elif requested and run.wrapping_up:
        fail(
            draft,
            run.wrapping_up,
            "the last turn, given to wrap up without tools, asked for tools all the same",
        )
    elif requested:
        open_calls(draft, text, requested)
    elif nothing_to_add:
        settle_calls(draft)
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
    say(draft, Message(role="user", text=f"[This reply could not be used] {problem}", turn=turn))
    if draft.run.calls:
        settle_calls(draft)
    else:
        save(draft)


def _answer(draft: Draft, text: str) -> None:
    """Finish with *text*, unless something was said meanwhile that the model has not heard and still may."""
    turn = draft.run.turn_count
    if draft.run.queued_input and not draft.run.calls and reached(draft, before_call=True) is None:
        say(draft, Message(role="assistant", text=text, turn=turn))
        save(draft)
        return
    draft.set(final_answer=text)
    if not draft.run.calls:
        say(draft, Message(role="assistant", text=text, turn=turn))
    end(draft, RunState.FINISHED, None)


def open_calls(draft: Draft, text: str, requested: tuple[RequestedCall, ...]) -> None:
    """Open the calls of a reply, give those that cannot be made their result at once, and go on."""
    run, spec = draft.run, draft.spec
    first = len(run.calls)
    calls = list(run.calls)
    for position, request in enumerate(requested, start=1):
        call = _opened(draft, call_id(run.turn_count, position), request)
        if position > spec.limits.calls_per_reply:
            text_ = f"too many calls in one reply: at most {spec.limits.calls_per_reply} are run"
            call = _done(call, ResultStatus.REFUSED, text_)
        calls.append(call)
    commentary = f"{run.commentary}\n{text}" if run.commentary and text else run.commentary or text
    draft.set(calls=tuple(calls), commentary=commentary)
    _count_failures(draft, calls[first:])
    draft.enter(RunState.WAIT_APPROVAL)
    settle_calls(draft)


def _opened(draft: Draft, own_id: str, request: RequestedCall) -> Call:
    """Return the call as the recorded spec sees it: with its flags, or with the error that it is."""
    spec = draft.spec
    call = Call(
        id=own_id,
        tool=request.tool[:200],
        arguments=request.arguments,
        arguments_digest=digest(request.arguments.encode("utf-8", "surrogatepass")),
        provider_id=request.provider_id[:200],
        since=draft.now,
    )
    problem = arguments_problem(request)
    target = request.tool.removeprefix(HANDOFF_PREFIX)
    if request.tool.startswith(HANDOFF_PREFIX) and target in spec.handoffs:
        return _handoff(draft, call, target)
    sub_agent, tool = spec.sub_agent(request.tool), spec.tool(request.tool)
    if sub_agent is None and tool is None:
        known = ", ".join([*(each.name for each in spec.tools), *(each.name for each in spec.sub_agents)])
        return _done(call, ResultStatus.ERROR, f"there is no tool {call.tool!r}; there are: {known or 'none'}")
    if problem:
        return _done(call, ResultStatus.ERROR, problem)
    if sub_agent is not None:
        return msgspec.structs.replace(call, sub_agent=True)
    assert tool is not None
    ask_user = tool.kind == "ask_user"
    return msgspec.structs.replace(
        call,
        read_only=tool.read_only,
        idempotent=tool.idempotent,
        verify=tool.verify,
        external=tool.external,
        ask_user=ask_user,
        timeout_seconds=tool.timeout_seconds,
        status=CallStatus.ALLOWED if ask_user else CallStatus.PROPOSED,
    )


def _handoff(draft: Draft, call: Call, target: str) -> Call:
    if draft.run.handing_off is not None:
        return _done(call, ResultStatus.REFUSED, "only one handoff at a time: another one comes first")
    own = ToolCall(id=call.id, tool=target, arguments=call.arguments, provider_id=call.provider_id)
    draft.set(handing_off=own)
    return _done(call, ResultStatus.OK, f"handed off to {target}")


def arguments_problem(request: RequestedCall) -> str:
    """Return what is wrong with a call's arguments as JSON, or an empty text."""
    if request.oversized:
        return f"the arguments are too large ({request.oversized} bytes)"
    try:
        value = msgspec.json.decode(request.arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        return f"the arguments are not JSON: {problem}"
    return "" if isinstance(value, dict) else "the arguments must be a JSON object"


def _done(call: Call, status: ResultStatus, text: str) -> Call:
    return msgspec.structs.replace(
        call, status=CallStatus.DONE, result=CallResult(status=status, text=text, size=len(text))
    )


def _count_failures(draft: Draft, calls: list[Call]) -> None:
    failed = sum(1 for call in calls if call.result and call.result.status is ResultStatus.ERROR)
    if failed:
        draft.set(tool_failures=draft.run.tool_failures + failed)


def settle_calls(draft: Draft) -> None:
    """Start what may start now, and rest where the open calls leave the run."""
    if draft.run.ending is not None:
        return
    _issue(draft)
    run = draft.run
    undecided = any(call.status in (CallStatus.PROPOSED, CallStatus.APPROVED) for call in run.calls)
    if all(call.status is CallStatus.DONE for call in run.calls):
        observe(draft)
    elif run.unconsulted and not run.holds:
        to_model(draft)
    elif draft.calls_in_progress:
        _rest(draft, RunState.EXECUTE_TOOL)
    elif undecided and not draft.stopped:
        _rest(draft, RunState.WAIT_APPROVAL)
    else:
        assert run.holds, f"run {run.id}: calls open, none in progress, and no hold: {run.calls!r}"
        suspend(draft, RunState.WAIT_APPROVAL if undecided else RunState.EXECUTE_TOOL)


def _rest(draft: Draft, state: RunState) -> None:
    if draft.run.state is not state:
        draft.enter(state)


def _issue(draft: Draft) -> None:
    """Set the calls in progress that may be: reads up to the first unfinished write, or that write alone."""
    if draft.stopped:
        return
    all_before_done = True
    for call in draft.run.calls:
        done = call.status is CallStatus.DONE
        if call.status is CallStatus.ALLOWED and (all_before_done or not call.barrier):
            if call.ask_user:
                draft.set_call(call, status=CallStatus.AWAITING_INPUT)
                draft.hold(HoldKind.INPUT, call.id)
            else:
                draft.set_call(call, status=CallStatus.RUNNING)
        if call.barrier and not done:
            return
        all_before_done = all_before_done and done


def observe(draft: Draft) -> None:
    """Merge the results of the turn, in call order, and go on."""
    draft.enter(RunState.OBSERVE)
    merge_results(draft)
    save(draft)


def save(draft: Draft) -> None:
    """Keep the window; rest only while a model summarises."""
    draft.enter(RunState.COMPACT_OR_SAVE)
    keep_window(draft, draft.spec.context)
    after_saving(draft)


def after_saving(draft: Draft) -> None:
    """Summarise if it is time to, hand off if that was asked for, else ask the model."""
    count = summarisable(draft)
    if count and not draft.run.holds:
        draft.set(compacting=count)
        return
    leave_saving(draft)


def leave_saving(draft: Draft) -> None:
    """Go on from COMPACT_OR_SAVE."""
    draft.set(compacting=0)
    if draft.run.handing_off is None:
        to_model(draft)
    elif draft.run.holds:
        suspend(draft, RunState.PREPARE_CONTEXT)
    else:
        draft.enter(RunState.PREPARE_CONTEXT)


def let_through(draft: Draft, call: Call) -> None:
    """Allow a call, if the budget of tool calls has room for it."""
    limit = draft.run.budget.max_tool_calls
    if not isinstance(limit, Unlimited) and draft.run.tool_calls >= limit:
        text = f"{ReasonCode.TOOL_CALL_BUDGET_EXCEEDED}: {limit} tool calls are used up"
        draft.finish_call(call, CallResult(status=ResultStatus.REFUSED, text=text, size=len(text)))
        return
    draft.set(tool_calls=draft.run.tool_calls + 1)
    draft.set_call(call, status=CallStatus.ALLOWED)


def deny(draft: Draft, call: Call, code: ReasonCode, reason: str, by: str) -> None:
    """Deny a call: end the run, or tell the model, as the agent says."""
    text = reason or "no reason given"
    draft.finish_call(call, CallResult(status=ResultStatus.DENIED, text=text, size=len(text), by=by))
    if draft.spec.on_denied == "fail":
        fail(draft, code, f"call {call.id} of {call.tool!r}: {text}", by)


def doubt(draft: Draft, call: Call, reason: str) -> None:
    """Deal with a started write whose outcome was not seen: again with the same key, `verify`, or a person."""
    if draft.run.ending is not None:
        text = f"its outcome is not known: {reason}"
        draft.finish_call(call, CallResult(status=ResultStatus.IN_DOUBT, text=text, size=len(text)))
    elif call.status is CallStatus.STARTED and call.idempotent and call.attempt < draft.spec.limits.write_attempts:
        draft.set_call(call, status=CallStatus.ALLOWED, attempt=call.attempt + 1)
    elif call.status is CallStatus.STARTED and call.verify:
        draft.set_call(call, status=CallStatus.VERIFYING, reason=reason)
    else:
        draft.set_call(call, status=CallStatus.IN_DOUBT, reason=reason)
        draft.hold(HoldKind.IN_DOUBT, call.id, reason)


def lose_progress(draft: Draft) -> None:
    """Take everything in progress as lost: started writes are in doubt, all else is wanted again.

    Sub-agents and external calls go on elsewhere and are not lost.
    """
    for call in draft.run.calls:
        if call.sub_agent or (call.external and call.status is not CallStatus.VERIFYING):
            continue
        if call.status is CallStatus.STARTED:
            doubt(draft, call, "the process that ran it is gone")
        elif call.status is CallStatus.VERIFYING:
            draft.set_call(call, attempt=call.attempt + 1)
        elif call.status is CallStatus.RUNNING:
            draft.set_call(call, status=CallStatus.ALLOWED, attempt=call.attempt + 1)
