"""What each event does to a call: verdicts, decisions, starts, results, doubts."""

from __future__ import annotations

from typing import Any

from geartrain.ids import digest
from geartrain.machine._charging import charge_sub_agent
from geartrain.machine._draft import Draft, Refused
from geartrain.machine._ending import end_if_idle
from geartrain.machine._events import (
    ApprovalDecided,
    ApprovalExpired,
    CallAnswered,
    CallSettled,
    PermissionsEvaluated,
    ShareRaised,
    SubAgentEnded,
    ToolFinished,
    ToolStarted,
    WriteInDoubt,
)
from geartrain.machine._guards import text_problem
from geartrain.machine._ledger import beyond_reach
from geartrain.machine._moves import deny, doubt, go_on, leave_in_doubt, let_through, not_done
from geartrain.machine._opening import arguments_problem
from geartrain.machine._outside import awaits_answer, bounded
from geartrain.machine._run import Call
from geartrain.machine._shorten import brief
from geartrain.machine._states import (
    APPROVED,
    ASKED,
    ENDED,
    FAILURES,
    IN_DOUBT,
    RUNNING,
    STARTED,
    UNDECIDED,
    VERIFYING,
    CallStatus,
    HoldKind,
    ReasonCode,
    ResultStatus,
    RunState,
)
from geartrain.machine._values import CallResult, PermissionDecision, RequestedCall, Verdict

REMEMBERED_KEPT = 100
_BY_PERSON = ("approved", "denied", "expired")
_NOT_SEEN = (ResultStatus.TIMED_OUT, ResultStatus.CANCELLED, ResultStatus.IN_DOUBT)


def moved(draft: Draft) -> None:
    """Go on after calls have changed: an ending run ends once idle, another goes where its calls lead."""
    if draft.run.ending is None:
        go_on(draft)
    elif draft.run.state not in ENDED:
        end_if_idle(draft)


def _record(draft: Draft, call: Call, decision: Any, by: str, reason: str = "", *, remember: bool = False) -> None:
    draft.decided(
        PermissionDecision(
            call_id=call.id,
            tool=call.tool,
            arguments_digest=call.arguments_digest,
            decision=decision,
            by=brief(by),
            time=draft.now,
            reason=brief(reason),
            remember=remember,
        )
    )


def on_permissions(draft: Draft, event: PermissionsEvaluated) -> None:
    """Apply the policy's verdicts to the calls that waited for them; a denial that ends the run ends this too."""
    if event.evaluation and event.evaluation != draft.run.evaluations + 1:
        raise Refused(f"evaluation {event.evaluation} is not awaited", duplicate=True)
    waiting = {call.id for call in draft.run.calls if call.status in UNDECIDED}
    verdicts = {verdict.call_id: verdict for verdict in event.verdicts if verdict.call_id in waiting}
    if not verdicts:
        raise Refused("no call waits for these verdicts", duplicate=True)
    draft.set(evaluations=draft.run.evaluations + 1)
    for call in draft.run.calls:
        verdict = verdicts.get(call.id)
        if verdict is not None and draft.run.ending is None:
            _apply(draft, _changed(draft, _stricter(draft, call, verdict), verdict), verdict)
    moved(draft)


def ask_instead(draft: Draft, problem: str) -> None:
    """Have a person decide about the calls that a policy was asked about and never judged; that counts as Ask."""
    draft.set(evaluations=draft.run.evaluations + 1)
    for call in draft.run.calls:
        if call.status in UNDECIDED:
            _apply(draft, call, Verdict(call_id=call.id, verdict="ask", error=problem))


def _stricter(draft: Draft, call: Call, verdict: Verdict) -> Call:
    """Take away the safety flags that today's tool does not have any more."""
    lost = {flag: False for flag in ("read_only", "idempotent", "verify") if flag in verdict.withdrawn}
    return draft.set_call(call, **lost) if lost else call


def _changed(draft: Draft, call: Call, verdict: Verdict) -> Call:
    """Give a call the arguments that a guardrail has changed; an approval given for other ones no longer counts."""
    if verdict.arguments is None or call.doubted:
        return call
    changed = digest(verdict.arguments.encode("utf-8", "surrogatepass"))
    proposed = call.arguments if call.proposed is None else call.proposed
    return draft.set_call(
        call, arguments=verdict.arguments, arguments_digest=changed, approved=False, proposed=proposed
    )


def _decider(verdict: Verdict) -> str:
    if verdict.guard:
        return brief(f"guardrail:{verdict.guard}")
    return brief(f"policy:{verdict.rule}" if verdict.rule else "policy")


def _apply(draft: Draft, call: Call, verdict: Verdict) -> None:
    by = _decider(verdict)
    if call.doubted and not call.idempotent:
        # It was to run again under its key, and today's tool keeps no keys any more.
        leave_in_doubt(draft, call, "cannot be run again: the tool is no longer idempotent")
        return
    if call.doubted and verdict.arguments is not None:
        # Its earlier attempt, which may have done it, had these arguments: under their key others must not run.
        leave_in_doubt(draft, call, "cannot be run again: its arguments would be changed")
        return
    match verdict.verdict:
        case "allow":
            _record(draft, call, "allow", by, verdict.reason)
            let_through(draft, call)
        case "deny":
            _record(draft, call, "deny", by, verdict.reason)
            deny(draft, call, ReasonCode.TOOL_DENIED, verdict.reason, by)
        case "invalid" if call.doubted:
            leave_in_doubt(draft, call, f"cannot be run again: {verdict.reason}")
        case "invalid" if call.role == "tool":
            result = CallResult(status=ResultStatus.ERROR, text=verdict.reason, size=len(verdict.reason))
            draft.finish_call(call, result)
            draft.set(tool_failures=draft.run.tool_failures + 1)
        case "ask" if call.approved:
            _record(draft, call, "allow", by, "the approval given is valid")
            let_through(draft, call)
        case "ask" if (rule := _remembered(draft, call)) is not None:
            _record(draft, call, "allow", rule.by, f"remembered since {rule.call_id}")
            let_through(draft, call)
        case _:
            _record(draft, call, "ask", by, verdict.reason)
            expires_at = draft.now + (verdict.expires_seconds or draft.spec.limits.approval_expiry_seconds)
            reason = brief("; ".join(filter(None, (verdict.reason, verdict.error))))
            draft.set_call(call, status=ASKED, expires_at=expires_at, reason=reason)
            draft.hold(HoldKind.APPROVAL, call.id, reason)


def _remembered(draft: Draft, call: Call) -> PermissionDecision | None:
    key = (call.tool, call.arguments_digest)
    return next((rule for rule in draft.run.remembered if (rule.tool, rule.arguments_digest) == key), None)


def on_decided(draft: Draft, event: ApprovalDecided) -> None:
    """Take a person's decision on one call, once."""
    call = _asked(draft, event.call_id)
    if event.arguments_digest and event.arguments_digest != call.arguments_digest:
        raise Refused(f"the decision is about other arguments ({event.arguments_digest}) than call {call.id!r} has")
    by = event.by or event.source
    if not event.approved:
        _record(draft, call, "denied", by, event.reason)
        draft.lift(lambda hold: hold.call_id == call.id)
        deny(draft, call, ReasonCode.APPROVAL_DENIED, event.reason, by)
        moved(draft)
        return
    if event.arguments is not None:
        requested = RequestedCall(tool=call.tool, arguments=event.arguments)
        problem = arguments_problem(requested) if call.role == "tool" else text_problem(event.arguments)
        if problem:
            raise Refused(f"the edited arguments of call {call.id!r} cannot be used: {problem}")
        edited = digest(event.arguments.encode("utf-8", "surrogatepass"))
        call = draft.set_call(call, arguments=event.arguments, arguments_digest=edited, proposed=None)
    _record(draft, call, "approved", by, event.reason, remember=bool(event.remember))
    if event.remember:
        newest = draft.run.permission_decisions[-1]
        draft.set(remembered=(*draft.run.remembered, newest)[-REMEMBERED_KEPT:])
    draft.set_call(call, status=APPROVED, approved=True, expires_at=None)
    draft.lift(lambda hold: hold.call_id == call.id)
    moved(draft)


def _asked(draft: Draft, call_id: str) -> Call:
    """Return the call if it waits for a decision; otherwise say what was decided, if anything was."""
    call = draft.run.call(call_id)
    if call is not None and call.status is ASKED:
        return call
    decisions = [d for d in draft.run.permission_decisions if d.call_id == call_id and d.decision != "ask"]
    if decisions:
        # A person's decision says more than what the policy made of it afterwards.
        decision = max(decisions, key=lambda d: (d.decision in _BY_PERSON, d.time))
        raise Refused(f"call {call_id!r} is already decided: {decision.decision} by {decision.by}", duplicate=True)
    raise Refused(f"call {call_id!r} is not waiting for a decision")


def on_expired(draft: Draft, event: ApprovalExpired) -> None:
    """Deny what nobody decided in time."""
    call = _asked(draft, event.call_id)
    if call.expires_at is None or draft.now < call.expires_at:
        raise Refused(f"the approval of call {call.id!r} has not expired")
    _record(draft, call, "expired", event.source)
    draft.lift(lambda hold: hold.call_id == call.id)
    deny(draft, call, ReasonCode.APPROVAL_EXPIRED, "nobody decided in time", event.source)
    moved(draft)


def on_tool_started(draft: Draft, event: ToolStarted) -> None:
    """Journal that a write is about to start."""
    call = draft.need_call(event.call_id, RUNNING)
    if call.attempt != event.attempt or not call.barrier:
        raise Refused(f"attempt {event.attempt} of call {call.id!r} is not awaited as a write")
    draft.set_call(call, status=STARTED)


def on_tool_finished(draft: Draft, event: ToolFinished) -> None:
    """Give a call its result, unless that is not known: a started write is then in doubt."""
    call = _awaited(draft, event.call_id, event.attempt)
    if call.sub_agent:
        raise Refused(f"call {call.id!r} is a sub-agent's: its run's end is awaited")
    if call.status is RUNNING and call.barrier and event.status is ResultStatus.OK:
        raise Refused(f"the write {call.id!r} was not journalled as started")
    if call.status is VERIFYING and event.verdict == "not_done":
        not_done(draft, call)
    elif _unseen(call, event):
        doubt(draft, call, event.text)
    else:
        result = CallResult(status=event.status, text=event.text, size=event.size, artifact=event.artifact)
        draft.finish_call(call, result)
        if event.status in FAILURES:
            draft.set(tool_failures=draft.run.tool_failures + 1)
    moved(draft)


def _unseen(call: Call, event: ToolFinished) -> bool:
    """Whether an answer leaves open if a write was done: only an exception of the tool itself is a failure."""
    match call.status:
        case CallStatus.VERIFYING:
            return event.verdict != "done"
        case CallStatus.STARTED:
            return event.status in _NOT_SEEN
        case _:
            return call.doubted


def _awaited(draft: Draft, call_id: str, attempt: int) -> Call:
    call = draft.need_call(call_id, RUNNING, STARTED, VERIFYING)
    if call.attempt != attempt:
        raise Refused(f"attempt {attempt} of call {call_id!r} is not awaited ({call.attempt} is)", duplicate=True)
    return call


def on_in_doubt(draft: Draft, event: WriteInDoubt) -> None:
    """Deal with a started write whose outcome was not seen."""
    call = draft.need_call(event.call_id, STARTED, VERIFYING)
    if call.attempt != event.attempt:
        raise Refused(f"attempt {event.attempt} of call {call.id!r} is not awaited ({call.attempt} is)", duplicate=True)
    doubt(draft, call, event.reason)
    moved(draft)


def on_settled(draft: Draft, event: CallSettled) -> None:
    """Take a person's word for whether a write was done."""
    call = draft.need_call(event.call_id, IN_DOUBT)
    by = event.by or event.source
    if event.done:
        text = event.text or "done, as found afterwards"
        draft.finish_call(call, CallResult(status=ResultStatus.OK, text=text, size=len(text), by=by))
    elif event.not_done == "run":
        _record(draft, call, "approved", by, event.text)
        attempt = call.attempt + 1
        draft.set_call(call, status=APPROVED, attempt=attempt, approved=True, doubted=False, expires_at=None)
        draft.lift(lambda hold: hold.call_id == call.id)
    elif event.not_done == "skip":
        text = event.text or "it was not done, and is not to be"
        draft.finish_call(call, CallResult(status=ResultStatus.NOT_STARTED, text=text, size=len(text), by=by))
    else:
        raise Refused("say done, or not_done with run or skip")
    moved(draft)


def on_answered(draft: Draft, event: CallAnswered) -> None:
    """Take a person's answer in the tool's place."""
    call = draft.run.call(event.call_id)
    if call is None:
        raise Refused(f"call {event.call_id!r} is not open")
    if call.role != "tool":
        raise Refused(f"{call.id!r} is the run's {call.role}: it is approved or denied, not answered")
    if call.result is not None:
        raise Refused(f"call {call.id!r} already has its result ({call.result.status})", duplicate=True)
    if draft.run.ending is not None and not awaits_answer(call):
        raise Refused(f"the run is ending, and nobody is to answer call {call.id!r}")
    if call.sub_agent and call.status is RUNNING and bounded(draft.spec):
        raise Refused(f"call {call.id!r} has started a run, whose end is awaited: cancel that")
    if call.status in (STARTED, VERIFYING) and not call.external:
        raise Refused(f"the write {call.id!r} has started; its outcome is awaited")
    result = CallResult(status=event.status, text=event.text, size=len(event.text), by=event.by or event.source)
    draft.finish_call(call, result)
    if event.status in FAILURES:
        draft.set(tool_failures=draft.run.tool_failures + 1)
    moved(draft)


def on_sub_agent_ended(draft: Draft, event: SubAgentEnded) -> None:
    """Take a sub-agent's end for the result of its call; a failed one is an observation with its code."""
    call = draft.need_call(event.call_id, RUNNING)
    if not call.sub_agent:
        raise Refused(f"call {call.id!r} is no sub-agent's")
    charge_sub_agent(draft, event)
    if event.state is RunState.FINISHED:
        result = CallResult(status=ResultStatus.OK, text=event.text, size=len(event.text))
    else:
        why = f"{event.error.kind}: {event.error.code}: {event.error.message}" if event.error else str(event.state)
        status = ResultStatus.CANCELLED if event.state is RunState.CANCELLED else ResultStatus.ERROR
        result = CallResult(status=status, text=why, size=len(why))
        if status in FAILURES:
            draft.set(tool_failures=draft.run.tool_failures + 1)
    draft.finish_call(call, result)
    moved(draft)


def on_share_raised(draft: Draft, event: ShareRaised) -> None:
    """Reserve a new share for a sub-agent at work, if the run's own budget has that much left."""
    call = draft.need_call(event.call_id, RUNNING)
    if not call.sub_agent or call.share is None:
        raise Refused(f"call {call.id!r} has no share of this run's budget")
    if (problem := beyond_reach(draft, call.share, event.budget)) is not None:
        raise Refused(problem)
    draft.set_call(call, share=event.budget)
    moved(draft)
