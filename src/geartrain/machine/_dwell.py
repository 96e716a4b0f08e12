"""What becomes of waits that have outlasted their limit, and of work that is given up.

Rule 1: a write that has started is never started again here: it is in doubt, and goes the way of all doubts.
Rule 2: answers from outside are no dwell: that they are overdue ends the wait for them, whatever the agent's rules say.
Rule 3: without rules (specs of old) an answer that is overdue is taken for lost, once somebody says that it is.
"""

from __future__ import annotations

from geartrain.machine._call_handlers import ask_instead
from geartrain.machine._charging import charge_lost
from geartrain.machine._context import no_summary
from geartrain.machine._crashes import interrupt
from geartrain.machine._draft import Draft, Refused
from geartrain.machine._ending import fail
from geartrain.machine._moves import ask_again, doubt, go_on, leave_in_doubt, leave_saving
from geartrain.machine._outside import EXTERNAL, awaits_answer
from geartrain.machine._outstanding import call_dwells_until, waits_until
from geartrain.machine._run import Call
from geartrain.machine._states import ALLOWED, RUNNING, UNDECIDED, HoldKind, ReasonCode, ResultStatus, RunState
from geartrain.machine._stuck import Stuck, overdue_since
from geartrain.machine._stuck_rules import Acted
from geartrain.machine._values import CallResult

# What "fail" calls the end of a wait that is no call's.
_CODES = {
    RunState.PREPARE_CONTEXT: ReasonCode.CONTEXT_FAILED,
    RunState.MODEL_THINKING: ReasonCode.MODEL_FAILED,
    RunState.COMPACT_OR_SAVE: ReasonCode.MODEL_FAILED,
    RunState.WAIT_APPROVAL: ReasonCode.SYSTEM_ERROR,
}


def dwelt(draft: Draft) -> None:
    """Do about answers that are overdue what the agent wants done; without rules, take them for lost."""
    until = waits_until(draft.run, draft.spec)
    overdue = until is not None and draft.now >= until
    lost = [call for call in draft.run.calls if _is_overdue(draft, call)]
    if not (overdue or lost):
        raise Refused("no wait is over its limit")
    outside_wait, outside_lost = overdue and _is_outside(draft), [call for call in lost if awaits_answer(call)]
    rules = draft.spec.stuck
    if rules is not None and (overdue > outside_wait or len(lost) > len(outside_lost)):
        found = overdue_since(draft.run, draft.now, draft.spec)
        assert found is not None, "what is overdue has a name"
        _note(draft, found, rules.on_dwell)
        about = f"{found.about}: no answer within {draft.now - found.since:.0f} s"
        match rules.on_dwell:
            case "fail":
                _fail(draft, about)
                return
            case "suspend":
                draft.hold(HoldKind.STUCK, reason=f"{found.cause}: {about}", code=_code(draft))
                interrupt(draft)
                return
            case "report":  # what is awaited from outside has an end all the same
                overdue, lost = outside_wait, outside_lost
    _take_for_lost(draft, lost, overdue=overdue)


def _is_overdue(draft: Draft, call: Call) -> bool:
    until = call_dwells_until(call, draft.spec)
    return until is not None and draft.now >= until


def _is_outside(draft: Draft) -> bool:
    outside = draft.spec.limits.external_seconds
    return draft.run.state is RunState.MODEL_THINKING and draft.spec.model == EXTERNAL and outside is not None


def _note(draft: Draft, found: Stuck, action: str) -> None:
    draft.set(acted=Acted(cause=found.cause.value, action=action, about=found.about, since=found.since, time=draft.now))


def _fail(draft: Draft, about: str) -> None:
    summary = draft.run.state is RunState.COMPACT_OR_SAVE
    if summary or draft.run.state is RunState.MODEL_THINKING:
        charge_lost(draft, summary=summary)
    fail(draft, _code(draft), about)


def _code(draft: Draft) -> ReasonCode:
    of_call = any(_is_overdue(draft, call) for call in draft.run.calls)
    return ReasonCode.TOOL_LOST if of_call else _CODES[draft.run.state]


def _take_for_lost(draft: Draft, lost: list[Call], *, overdue: bool) -> None:
    for call in lost:
        _call_dwelt(draft, call)
    if overdue:
        _wait_dwelt(draft)
    if draft.run.ending is None and draft.run.calls:
        go_on(draft)


def _wait_dwelt(draft: Draft) -> None:
    run, attempts = draft.run, draft.spec.limits.model_attempts
    resends = draft.spec.stuck.resends if draft.spec.stuck is not None else 0
    match run.state:
        case RunState.MODEL_THINKING if _is_outside(draft):
            seconds = draft.spec.limits.external_seconds
            fail(draft, ReasonCode.MODEL_FAILED, f"nobody took turn {run.turn_count + 1} within {seconds:g} s")
        case RunState.MODEL_THINKING if run.model_attempt >= attempts:
            text = f"no reply to {run.model_attempt} attempts of turn {run.turn_count + 1}"
            charge_lost(draft)
            fail(draft, ReasonCode.MODEL_FAILED, text)
        case RunState.MODEL_THINKING:
            ask_again(draft)
        case RunState.PREPARE_CONTEXT if run.resends < resends:
            draft.set(resends=run.resends + 1, entered_at=draft.now)
        case RunState.PREPARE_CONTEXT:
            fail(draft, ReasonCode.CONTEXT_FAILED, "the context providers did not answer")
        case RunState.COMPACT_OR_SAVE:
            charge_lost(draft, summary=True)
            no_summary(draft)
            leave_saving(draft)
        case _ if _policy_asked_twice(draft):
            ask_instead(draft, "the policy was asked twice and gave no verdict")
        case _:
            draft.set(evaluations=run.evaluations + 1, entered_at=draft.now)


def _policy_asked_twice(draft: Draft) -> bool:
    """Whether the wait that is over is not the first one for these calls: it began after they did."""
    asked = [call.since for call in draft.run.calls if call.status in UNDECIDED]
    return draft.spec.rules_version >= 2 and draft.run.entered_at > min(asked, default=draft.now)


def _call_dwelt(draft: Draft, call: Call) -> None:
    """Give up what has been at work for too long; a read is run once more as often as the rules say."""
    rules = draft.spec.stuck
    text = f"no answer within {draft.now - call.since:.0f} s"
    if call.status is not RUNNING:
        doubt(draft, call, text)
    elif call.doubted:
        leave_in_doubt(draft, call, text)
    elif rules is not None and not awaits_answer(call) and call.resends < rules.resends:
        draft.set_call(call, status=ALLOWED, attempt=call.attempt + 1, resends=call.resends + 1)
    else:
        draft.finish_call(call, CallResult(status=ResultStatus.TIMED_OUT, text=text, size=len(text)))
        draft.set(tool_failures=draft.run.tool_failures + 1)
