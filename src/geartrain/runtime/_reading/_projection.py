"""The trace as a projection of the journal: pure, so that the timeline of any run is rebuilt from its id."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from geartrain.machine import (
    ENDED,
    EVENT_VERSIONS,
    Acted,
    ApprovalDecided,
    ApprovalExpired,
    Call,
    CallAnswered,
    CallResult,
    CallSettled,
    CallStatus,
    CompactionFailed,
    ContextPrepared,
    Event,
    EventHeard,
    GuardVerdict,
    HandedOff,
    InputReceived,
    ModelFailed,
    ModelReplied,
    PermissionsEvaluated,
    ResultStatus,
    Run,
    RunState,
    SubAgentEnded,
    ToolFinished,
    ToolStarted,
    TurnTaken,
    Verdict,
    WriteInDoubt,
    awaits_answer,
)
from geartrain.runtime._planned import PLAN
from geartrain.runtime._reading._call_payloads import (
    Payload,
    call_finished,
    delegated,
    requested,
    result_in,
    role_of,
    short,
)
from geartrain.runtime._reading._shortenings import model_asked, prepared, shortenings
from geartrain.trace import TraceRecord

# How much of a text a record shows; the journal has all of it.
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def project(
    before: Run, event: Event, after: Run, *, checkpointed: bool = False, traced: bool = True
) -> list[TraceRecord]:
    """Return what *event* did to a run, in the order in which a reader wants to know it.

    Without *traced* what a tool traced itself is left out: who follows a run has seen it when it happened.
    """
    seq, ts, turn = after.seq, after.updated_at, after.turn_count
    records = _told_by_tool(event, after) if traced and isinstance(event, ToolFinished | WriteInDoubt) else []
    for name, payload in _records(before, event, after, checkpointed=checkpointed):
        records.append(TraceRecord(run_id=after.id, event=name, ts=ts, seq=seq, turn=turn, payload=payload))
    return records


def _told_by_tool(event: ToolFinished | WriteInDoubt, after: Run) -> list[TraceRecord]:
    return [
        TraceRecord(
            run_id=after.id,
            event=each.name,
            ts=each.time,
            seq=after.seq,
            turn=after.turn_count,
            payload={**each.payload, "call_id": event.call_id},
        )
        for each in event.traced
    ]


def _records(before: Run, event: Event, after: Run, *, checkpointed: bool) -> Iterator[tuple[str, Payload]]:
    own = _OWN.get(type(event))
    if own is not None:
        yield from own(event, before, after)
    elif type(event).__name__ not in _SILENT:
        yield _plain(event)
    yield from _transitions(before, after)
    planned = isinstance(event, ModelReplied) and event.model == PLAN
    yield from _calls(before, after, planned=planned)
    yield from _done_at_once(before, after, planned=planned)
    yield from shortenings(event, after)
    if after.acted is not None and after.acted is not before.acted:
        yield "run_stuck", acted_payload(after.acted)
    if _model_called(before, after):
        yield "llm_call_started", model_asked(after)
    if checkpointed:
        yield "checkpoint_saved", {"seq": after.seq, "messages": len(after.messages)}
    if after.state in ENDED:
        yield "run_finished", _finished(after)


def acted_payload(acted: Acted) -> Payload:
    """Return what is to be told of a run that did not get on, and of what is done about it."""
    return {"cause": acted.cause, "about": short(acted.about), "since": acted.since, "action": acted.action}


_SILENT: Final = frozenset({"RunStarted", "ContextCompacted"})


def _snake(name: str) -> str:
    return _WORD.sub("_", name).lower()


# What a tool traces under one of these names is told under `tool.NAME`: it must not pass for what the run did.
OWN_NAMES: Final = frozenset(map(_snake, EVENT_VERSIONS)) | {
    "answer_requested",
    "approval_decided",
    "approval_requested",
    "call_settled",
    "checkpoint_saved",
    "context_compacted",
    "effect_abandoned",
    "effects_were_dead",
    "event_refused",
    "guardrail",
    "handoff",
    "late_result",
    "llm_attempt_failed",
    "llm_call_finished",
    "llm_call_started",
    "llm_delta",
    "loop_stalled",
    "loop_went_on",
    "permission_evaluated",
    "result_dropped",
    "run_finished",
    "run_stuck",
    "state_transition",
    "sub_agent_started",
    "tool_call_finished",
    "tool_call_requested",
    "tool_call_started",
}


def _plain(event: Event) -> tuple[str, Payload]:
    """Return an event without a record of its own under its own name: `PauseRequested` is `pause_requested`."""
    payload = {
        name: short(value) if isinstance(value, str) else value
        for name in event.__struct_fields__
        if name not in ("id", "time", "source")
        and isinstance(value := getattr(event, name), (str, int, float))
        and value
    }
    return _snake(type(event).__name__), payload


def _transitions(before: Run, after: Run) -> Iterator[tuple[str, Payload]]:
    if before.seq == 0:
        yield (
            "run_started",
            {
                "agent": after.agent,
                "input": short(after.user_input),
                "spec": after.spec,
                **({"labels": after.labels} if after.labels else {}),
                **({"continues": after.continues} if after.continues else {}),
                **({"principal": after.principal} if after.principal else {}),
                **({"parent": after.parent.run_id, "root": after.root} if after.parent is not None else {}),
            },
        )
    state = before.state
    for entered in after.path:
        if before.seq == 0 and entered is RunState.CREATED:
            continue
        payload: Payload = {"from": str(state), "to": str(entered)}
        if entered is RunState.SUSPENDED:
            payload["holds"] = [str(hold) for hold in after.holds]
        yield "state_transition", payload
        state = entered


def _calls(before: Run, after: Run, *, planned: bool) -> Iterator[tuple[str, Payload]]:
    """Yield what happened to calls that no event names: opened, asked about, or done without running."""
    known = {call.id: call for call in before.calls}
    for call in after.calls:
        earlier = known.get(call.id)
        if earlier is None and call.role == "tool":
            yield "tool_call_requested", requested(call, planned=planned)
            if call.result is not None:
                yield "tool_call_finished", call_finished(call)
        if awaits_answer(call) and not call.event and (earlier is None or not awaits_answer(earlier)):
            yield "answer_requested", requested(call)
        if call.sub_agent and call.status is CallStatus.RUNNING and (earlier is None or earlier.status != call.status):
            yield "sub_agent_started", delegated(after, call)
        if call.status is CallStatus.ASKED and (earlier is None or earlier.status is not CallStatus.ASKED):
            yield (
                "approval_requested",
                {
                    "call_id": call.id,
                    "tool": call.tool,
                    "arguments": short(call.arguments),
                    "reason": call.reason,
                    "expires_at": call.expires_at,
                    **role_of(call),
                },
            )


def _done_at_once(before: Run, after: Run, *, planned: bool) -> Iterator[tuple[str, Payload]]:
    """Yield the calls of a reply of which none could begin: they are in the context before they were ever open."""
    if after.turn_count == before.turn_count or after.calls or RunState.OBSERVE not in after.path:
        return
    told = [message for message in after.messages if message.turn == after.turn_count]
    for call in (call for message in told for call in message.calls):
        yield "tool_call_requested", requested(call, planned=planned)
        if (result := result_in(after, call.id)) is not None:
            yield "tool_call_finished", {**result, "tool": call.tool}


def _model_called(before: Run, after: Run) -> bool:
    if after.state is not RunState.MODEL_THINKING:
        return False
    asked = (before.turn_count, before.model_attempt)
    return before.state is not RunState.MODEL_THINKING or asked != (after.turn_count, after.model_attempt)


def _finished(run: Run) -> Payload:
    payload: Payload = {
        "state": str(run.state),
        "turn_count": run.turn_count,
        "input_tokens": run.token_count.input_tokens,
        "output_tokens": run.token_count.output_tokens,
        "tool_calls": run.tool_calls,
        "tool_failures": run.tool_failures,
        "active_seconds": round(run.active_seconds, 3),
    }
    if run.token_count.cost:
        payload["cost"] = round(run.token_count.cost, 6)
    if run.error is not None:
        payload |= {"code": str(run.error.code), "kind": str(run.error.kind), "message": run.error.message}
    if run.ending is not None and run.ending.by:
        payload["by"] = run.ending.by
    if run.state is RunState.FINISHED:
        payload["answer"] = short(run.final_answer or "")
    return payload


def _replied(event: ModelReplied, before: Run, after: Run) -> Iterator[tuple[str, Payload]]:
    used = after.token_count
    payload: Payload = {
        "turn": event.turn,
        "attempt": event.attempt,
        "model": event.model,
        "input_tokens": used.input_tokens - before.token_count.input_tokens,
        "output_tokens": used.output_tokens - before.token_count.output_tokens,
        "usage_estimated": event.usage is None or event.usage.estimated,
        "calls": len(event.calls),
        "text": short(event.text),
        **_cost(before, after),
    }
    if event.lost_attempts:
        payload["lost_attempts"] = event.lost_attempts
    if event.anomaly:
        payload["anomaly"] = event.anomaly
    yield "llm_call_finished", payload


def _cost(before: Run, after: Run) -> Payload:
    cost = after.token_count.cost - before.token_count.cost
    return {"cost": round(cost, 6)} if cost else {}


def _model_failed(event: ModelFailed, _before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    yield (
        "llm_call_finished",
        {
            "turn": event.turn,
            "attempt": event.attempt,
            "code": event.code,
            "error": short(event.message),
        },
    )


def _turn_taken(event: TurnTaken, _before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    yield "turn_taken", {"by": event.by, "text": short(event.text), "calls": len(event.calls)}


def _permissions(event: PermissionsEvaluated, before: Run, after: Run) -> Iterator[tuple[str, Payload]]:
    for verdict in event.verdicts:
        call = before.call(verdict.call_id)
        payload: Payload = {"call_id": verdict.call_id, "verdict": verdict.verdict, "reason": verdict.reason}
        payload |= role_of(call)
        if call is not None:
            payload["tool"] = call.tool
            payload["approved_before"] = call.status is CallStatus.APPROVED
        if verdict.rule:
            payload["rule"] = verdict.rule
        if verdict.guard:
            payload["guard"] = verdict.guard
        if verdict.error:
            payload["error"] = verdict.error
        if verdict.withdrawn:
            payload["withdrawn"] = list(verdict.withdrawn)
        if verdict.arguments is not None:
            payload["arguments"] = short(verdict.arguments)
        for guard in verdict.guards:
            yield "guardrail", _guardrail(guard, verdict, call)
        yield "permission_evaluated", payload
        if call is None or call.result is not None or call.role != "tool":
            continue
        changed = after.call(verdict.call_id)
        if changed is not None and changed.result is not None:
            yield "tool_call_finished", call_finished(changed)
        elif changed is None and (result := result_in(after, call.id)) is not None:
            yield "tool_call_finished", result


def _guardrail(guard: GuardVerdict, verdict: Verdict, call: Call | None) -> Payload:
    payload: Payload = {"call_id": verdict.call_id, "guard": guard.guard, "verdict": guard.verdict, **role_of(call)}
    if call is not None:
        payload["tool"] = call.tool
    if guard.reason:
        payload["reason"] = guard.reason
    if guard.error:
        payload["error"] = guard.error
    return payload


def _decided(event: ApprovalDecided, before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    call = before.call(event.call_id)
    payload: Payload = {
        "call_id": event.call_id,
        "tool": call.tool if call is not None else "",
        "decision": "approved" if event.approved else "denied",
        "by": event.by or event.source,
    }
    if event.reason:
        payload["reason"] = event.reason
    if event.arguments is not None:
        payload["arguments"] = short(event.arguments)
    if event.remember:
        payload["remember"] = event.remember
    yield "approval_decided", payload


def _expired(event: ApprovalExpired, _before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    yield "approval_decided", {"call_id": event.call_id, "decision": "expired", "by": event.source}


def _tool_started(event: ToolStarted, before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    call = before.call(event.call_id)
    tool = call.tool if call is not None else ""
    yield "tool_call_started", {"call_id": event.call_id, "tool": tool, "attempt": event.attempt}


def _tool_finished(event: ToolFinished, before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    call = before.call(event.call_id)
    payload: Payload = {
        "call_id": event.call_id,
        "tool": call.tool if call is not None else "",
        "status": str(event.status),
        "text": short(event.text),
        "size": event.size,
        "attempt": event.attempt,
    }
    if event.tries > 1:
        payload["tries"] = event.tries
    if event.verdict:
        payload["verified"] = event.verdict
    if event.artifact is not None:
        payload["artifact"] = event.artifact.digest
    yield "tool_call_finished", payload


def _in_doubt(event: WriteInDoubt, before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    call = before.call(event.call_id)
    tool = call.tool if call is not None else ""
    yield "write_in_doubt", {"call_id": event.call_id, "tool": tool, "reason": event.reason}


def _settled(event: CallSettled, _before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    outcome = "done" if event.done else f"not done, {event.not_done}"
    yield "call_settled", {"call_id": event.call_id, "outcome": outcome, "by": event.by or event.source}


def _answered(event: CallAnswered, before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    call = before.call(event.call_id)
    yield (
        "tool_call_finished",
        {
            "call_id": event.call_id,
            "tool": call.tool if call is not None else "",
            "status": str(event.status),
            "text": short(event.text),
            "size": len(event.text),
            "by": event.by or event.source,
        },
    )


_ENDED_AS: Final = {RunState.FINISHED: "ok", RunState.FAILED: "error", RunState.CANCELLED: "cancelled"}


def _sub_agent_ended(event: SubAgentEnded, before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    call = before.call(event.call_id)
    yield (
        "tool_call_finished",
        {
            "call_id": event.call_id,
            "tool": call.tool if call is not None else "",
            "status": _ENDED_AS.get(event.state, str(event.state)),
            "run_id": event.run_id,
            "text": short(event.text if event.error is None else event.error.message),
            "size": len(event.text),
            "turns": event.turns,
            "input_tokens": event.usage.input_tokens,
            "output_tokens": event.usage.output_tokens,
            **({} if event.error is None else {"code": str(event.error.code)}),
        },
    )


def _heard(event: EventHeard, before: Run, after: Run) -> Iterator[tuple[str, Payload]]:
    if event.number:
        yield "event_heard", {"call_id": event.call_id, "name": event.name, "number": event.number}
    call, waits = before.call(event.call_id), after.call(event.call_id)
    if call is not None and (waits is None or waits.result is not None):
        status = ResultStatus.REFUSED if event.refused else ResultStatus.OK
        result = CallResult(status=status, text=event.text, size=len(event.text))
        yield "tool_call_finished", call_finished(replace(call, result=result))


def _not_compacted(event: CompactionFailed, _before: Run, after: Run) -> Iterator[tuple[str, Payload]]:
    yield (
        "context_compacted",
        {"how": "summary failed", "messages": len(after.messages), "error": short(event.message)},
    )


def _handed_off(event: HandedOff, before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    yield "handoff", {"from": before.agent, "to": event.agent, "spec": event.spec}


def _input(event: InputReceived, _before: Run, _after: Run) -> Iterator[tuple[str, Payload]]:
    yield "input_received", {"text": short(event.text), "by": event.by or event.source}


_OWN: Final[dict[type[Any], Callable[[Any, Run, Run], Iterator[tuple[str, Payload]]]]] = {
    ModelReplied: _replied,
    ModelFailed: _model_failed,
    TurnTaken: _turn_taken,
    PermissionsEvaluated: _permissions,
    ApprovalDecided: _decided,
    ApprovalExpired: _expired,
    ToolStarted: _tool_started,
    ToolFinished: _tool_finished,
    WriteInDoubt: _in_doubt,
    CallSettled: _settled,
    CallAnswered: _answered,
    ContextPrepared: prepared,
    CompactionFailed: _not_compacted,
    HandedOff: _handed_off,
    InputReceived: _input,
    SubAgentEnded: _sub_agent_ended,
    EventHeard: _heard,
}
