"""What each event does to a run: the model's side and the run's own life.

A handler changes the draft or raises `Refused`; which state an event is possible in is in the table, not here.
"""

from __future__ import annotations

from typing import Final

from geartrain.limits import Unlimited
from geartrain.machine._charging import charge, charge_lost
from geartrain.machine._context import (
    assemble,
    fits,
    halve_window,
    no_summary,
    queue_input,
    replace_by_summary,
    say,
)
from geartrain.machine._crashes import forget_crashes
from geartrain.machine._draft import Draft, Refused
from geartrain.machine._dwell import dwelt
from geartrain.machine._ending import end, fail, grace_over
from geartrain.machine._events import (
    BudgetRaised,
    CancelRequested,
    CompactionFailed,
    ContextCompacted,
    ContextFailed,
    ContextPrepared,
    DeadlinePassed,
    GraceElapsed,
    HandedOff,
    HandoffFailed,
    InputReceived,
    ModelFailed,
    ModelReplied,
    PauseRequested,
    RunResumed,
    RunStarted,
    TimerFired,
    TurnTaken,
)
from geartrain.machine._moves import (
    begin_context,
    decide,
    go_on,
    leave_saving,
    settle_calls,
    suspend,
    to_model,
)
from geartrain.machine._outside import EXTERNAL
from geartrain.machine._outstanding import person_waits_until
from geartrain.machine._reached import deadline_text, error
from geartrain.machine._run import Call
from geartrain.machine._shorten import brief, shortened
from geartrain.machine._states import CallStatus, HoldKind, ReasonCode, ResultStatus, RunState
from geartrain.machine._termination import CLOCK_GRAIN
from geartrain.machine._values import CallResult, Hold, Message

# The holds that `RunResumed` lifts.
_LIFTED: Final = (HoldKind.PAUSED, HoldKind.QUARANTINED, HoldKind.STUCK)


def on_started(draft: Draft, event: RunStarted) -> None:
    """Begin the run."""
    draft.set(
        agent=event.agent,
        spec=event.spec,
        user_input=event.input,
        budget=event.budget,
        request=event.request,
        deadline=event.deadline,
        principal=event.principal,
        permissions=event.permissions,
        labels=event.labels,
        context=event.context,
        parent=event.parent,
        root=event.root or draft.run.id,
        depth=event.depth,
        continues=event.continues,
        created_at=draft.now,
        started_at=draft.now,
    )
    if "input" in draft.spec.guarded:
        draft.set(queued_input=(event.input,), unheard=True)
    begin_context(draft, event.history)


def on_context_prepared(draft: Draft, event: ContextPrepared) -> None:
    """Assemble the context with what the providers gave."""
    if draft.run.handing_off is not None:
        raise Refused("the context waits for the agent that takes over")
    assemble(draft, event.messages, ())
    to_model(draft)


def on_context_failed(draft: Draft, event: ContextFailed) -> None:
    """End the run: it must not go on without what it was to know."""
    fail(draft, ReasonCode.CONTEXT_FAILED, f"context provider {event.provider!r}: {event.message}")


def on_handed_off(draft: Draft, event: HandedOff) -> None:
    """Go on under the other spec; the conversation is kept, the instructions change."""
    handing_off = draft.run.handing_off
    if handing_off is None or handing_off.tool != event.agent:
        raise Refused(f"no handoff to {event.agent!r} was asked for")
    draft.set(agent=event.agent, spec=event.spec, handing_off=None)
    if not draft.spec.providers:
        assemble(draft, (), ())
        to_model(draft)
    elif draft.stopped:
        suspend(draft, RunState.PREPARE_CONTEXT)
    else:
        draft.set(entered_at=draft.now)


def on_handoff_failed(draft: Draft, event: HandoffFailed) -> None:
    """Tell the model and stay."""
    if draft.run.handing_off is None:
        raise Refused("no handoff was asked for")
    draft.set(handing_off=None)
    text = f"[The handoff to {event.agent!r} failed] {event.message}"
    say(draft, Message(role="user", text=brief(text), turn=draft.run.turn_count, note=True))
    to_model(draft)


def _expected_turn(draft: Draft, turn: int, attempt: int) -> None:
    expected = (draft.run.turn_count + 1, draft.run.model_attempt)
    if (turn, attempt) != expected:
        raise Refused(
            f"turn {turn}, attempt {attempt} is not awaited (turn {expected[0]}, attempt {expected[1]} is)",
            duplicate=(turn, attempt) < expected,
        )


def on_model_replied(draft: Draft, event: ModelReplied) -> None:
    """Charge the reply and take it for what it is."""
    _expected_turn(draft, event.turn, event.attempt)
    size = len(event.text) + sum(len(call.arguments) for call in event.calls)
    charge_lost(draft, event.lost_attempts)
    charge(draft, event.usage, size)
    draft.set(turn_count=event.turn, model_attempt=1)
    decide(draft, event.text, event.calls, event.anomaly, event.anomaly_code)


def on_turn_taken(draft: Draft, event: TurnTaken) -> None:
    """Let a person's words stand for the model's."""
    if draft.run.state is RunState.SUSPENDED and draft.run.phase is not RunState.MODEL_THINKING:
        raise Refused(f"the model's turn has not come: the run goes on in {draft.run.phase}")
    awaited = draft.run.turn_count + 1
    if event.turn and event.turn != awaited:
        raise Refused(f"turn {event.turn} is not awaited (turn {awaited} is)", duplicate=event.turn < awaited)
    if draft.run.state is RunState.MODEL_THINKING and draft.spec.model != EXTERNAL:
        charge_lost(draft)
    draft.set(turn_count=draft.run.turn_count + 1, model_attempt=1)
    decide(draft, event.text, event.calls, "", ReasonCode.UNSUPPORTED_ACTION)


def on_model_failed(draft: Draft, event: ModelFailed) -> None:
    """End the run, unless a shorter context is worth one more try."""
    _expected_turn(draft, event.turn, event.attempt)
    charge_lost(draft, event.lost_attempts)
    if event.usage is not None:
        charge(draft, event.usage, 0)
    too_long = event.code == "context_too_long"
    if too_long and not draft.run.compacted_for_length and not draft.run.calls and halve_window(draft):
        draft.enter(RunState.COMPACT_OR_SAVE)
        draft.set(model_attempt=draft.run.model_attempt + 1, compacted_for_length=True)
        to_model(draft)
        return
    fail(draft, event.code, event.message)


def on_compacted(draft: Draft, event: ContextCompacted) -> None:
    """Put the summary in the place of what it summarises."""
    if not draft.run.compacting:
        raise Refused("no summary is awaited")
    charge_lost(draft, event.lost_attempts, summary=True)
    charge(draft, event.usage, len(event.summary), summary=True)
    replace_by_summary(draft, min(event.replaced, draft.run.compacting), event.summary)
    leave_saving(draft)


def on_compaction_failed(draft: Draft, event: CompactionFailed) -> None:
    """Keep the window as it is and go on."""
    if not draft.run.compacting:
        raise Refused("no summary is awaited")
    charge_lost(draft, event.lost_attempts, summary=True)
    if event.usage is not None:
        charge(draft, event.usage, 0, summary=True)
    no_summary(draft)
    leave_saving(draft)


def on_input(draft: Draft, event: InputReceived) -> None:
    """Answer the agent's question if it asked one, else queue for the next model call."""
    asking = next((c for c in draft.run.calls if c.status is CallStatus.AWAITING_INPUT), None)
    if asking is not None:
        _answer_question(draft, asking, event)
        return
    queued, room = draft.run.queued_input, draft.spec.context.bytes
    if len(queued) >= draft.spec.limits.queued_inputs or sum(map(len, queued)) + len(event.text) > room:
        raise Refused(
            f"{len(queued)} inputs of {sum(map(len, queued))} bytes wait already, and this one has {len(event.text)}: "
            f"there is room for {draft.spec.limits.queued_inputs} inputs of {room} bytes together"
        )
    if not fits(draft, event.text):
        raise Refused(f"an input of {len(event.text)} bytes does not fit in the context of {room} bytes")
    queue_input(draft, event.text, pinned=event.pinned)


def _answer_question(draft: Draft, asking: Call, event: InputReceived) -> None:
    text = event.text
    if "input" in draft.spec.guarded:
        # Judged like all that is said, it follows as a message; there is always room for what was asked for.
        answer = shortened(text, draft.spec.context.result_bytes)
        queue_input(draft, answer, pinned=event.pinned)
        text = "the answer follows as a message"
    by = event.by or event.source
    result = CallResult(status=ResultStatus.OK, text=text, size=len(text), by=by, pinned=event.pinned)
    draft.finish_call(asking, result)
    go_on(draft)


def on_pause(draft: Draft, event: PauseRequested) -> None:
    """Hold the run: what runs finishes, nothing new starts."""
    if draft.run.held_by(HoldKind.PAUSED):
        raise Refused("it is paused already", duplicate=True)
    draft.hold(HoldKind.PAUSED, reason=event.reason)
    if draft.run.state in (RunState.WAIT_APPROVAL, RunState.EXECUTE_TOOL):
        settle_calls(draft)


def on_resumed(draft: Draft, event: RunResumed) -> None:
    """Lift a pause, a quarantine, or a stop for want of progress; other holds have events of their own.

    That the run's parent goes on lifts a pause alone.
    """
    lifted = (HoldKind.PAUSED,) if event.source == "parent" else _LIFTED
    if not draft.lift(lambda hold: hold.kind in lifted):
        waits = ", ".join(map(str, draft.run.holds))
        raise Refused(f"it waits for {waits}" if waits else "it is not paused")
    forget_crashes(draft)
    go_on(draft)


def on_budget_raised(draft: Draft, event: BudgetRaised) -> None:
    """Take the new budget and lift the hold that the old one set."""
    draft.set(budget=event.budget, wrapping_up="")
    draft.lift(lambda hold: hold.kind is HoldKind.BUDGET)
    go_on(draft)


def on_cancel(draft: Draft, event: CancelRequested) -> None:
    """End as CANCELLED: nothing starts any more, what is in progress has the grace."""
    if draft.run.ending is not None:
        raise Refused("it is ending already", duplicate=True)
    cause = error(event.code, event.reason or "cancelled")
    end(draft, RunState.CANCELLED, cause, event.by or event.source)


def on_deadline(draft: Draft, _event: DeadlinePassed) -> None:
    """End because the absolute deadline is over."""
    run = draft.run
    if run.deadline is None or draft.now < run.deadline:
        raise Refused("it has no deadline" if run.deadline is None else "its deadline has not passed")
    if run.ending is not None:
        raise Refused("it is ending already", duplicate=True)
    fail(draft, ReasonCode.DEADLINE_EXCEEDED, deadline_text(draft))


def on_grace(draft: Draft, _event: GraceElapsed) -> None:
    """End without waiting any longer."""
    ending = draft.run.ending
    if ending is None or draft.now < ending.grace_until:
        raise Refused("it is not ending" if ending is None else "its grace is not over")
    grace_over(draft)


def on_timer(draft: Draft, event: TimerFired) -> None:
    """Deal with a wait that is over. One that is not, or is no more, is refused."""
    run = draft.run
    match event.kind:
        case "back_off":
            if run.resume_at is None or draft.now < run.resume_at:
                raise Refused("no back-off is over")
            draft.set(resume_at=None)
        case "active_seconds":
            limit = run.budget.max_seconds
            if isinstance(limit, Unlimited) or run.wrapping_up or run.whole.active_seconds < limit - CLOCK_GRAIN:
                raise Refused("its active seconds are not used up")
        case "expired":
            _expired(draft)
        case _:
            dwelt(draft)


def _expired(draft: Draft) -> None:
    """Go on without the person who was asked: an input is timed out; an unsettled doubt, or a hold, ends the run."""
    due = [c for c in draft.run.calls if (until := person_waits_until(c)) is not None and draft.now >= until]
    holds = [hold for hold in draft.run.holds if hold.expires_at is not None and draft.now >= hold.expires_at]
    if not due and not holds:
        raise Refused("nobody's time to answer is over")
    for call in due:
        if call.status is CallStatus.AWAITING_INPUT:
            text = "nobody answered in time"
            draft.finish_call(call, CallResult(status=ResultStatus.TIMED_OUT, text=text, size=len(text)))
            draft.set(tool_failures=draft.run.tool_failures + 1)
    lost = next((call for call in due if call.status is CallStatus.IN_DOUBT), None)
    if lost is not None:
        fail(draft, ReasonCode.TOOL_LOST, f"call {lost.id} of {lost.tool!r}: nobody settled in time if it was done")
    elif holds:
        _hold_expired(draft, max(holds, key=lambda hold: bool(hold.code)))
    else:
        go_on(draft)


def _hold_expired(draft: Draft, hold: Hold) -> None:
    """End a run that nobody let go on: with the reason for which it was held, or as cancelled after a pause."""
    text = f"nobody lifted the hold {hold.kind!s} in time"
    if hold.code:
        fail(draft, hold.code, f"{hold.reason}; {text}")
    else:
        end(draft, RunState.CANCELLED, error(ReasonCode.CANCELLED_BY_SYSTEM, text), "timer")
