"""What every code means and what to do about it, as one table: `docs/errors.md` and the command line are made from it.

Rule 1: a code belongs to one kind, which says whose trouble it was; outcome, trace and metrics name the same kind.
Rule 2: a code is added together with its row (a test says so); one that was stored once keeps its name for ever.
Rule 3: `what_to_do` is one or two sentences to whoever runs the agent, without the values of one run: those are in the
error's own message.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from geartrain.machine._states import ErrorKind, HoldKind, ReasonCode, ResultStatus


class Meaning(msgspec.Struct, frozen=True):
    """What a name means, and what to do about it."""

    means: str
    what_to_do: str


class Reason(Meaning, frozen=True):
    """What a reason code means, what to do about it, and its kind."""

    kind: ErrorKind


KINDS: Final[Mapping[ErrorKind, Meaning]] = MappingProxyType(
    {
        ErrorKind.CANCELLED: Meaning(
            "Somebody wanted the run to end.",
            "Nothing is wrong. What was done until then is in the journal.",
        ),
        ErrorKind.BUDGET: Meaning(
            "A limit on what the run may use was reached.",
            "Look at what used it up (`geartrain show RUN`) before you raise the limit.",
        ),
        ErrorKind.DEADLINE: Meaning(
            "The time until which the result was wanted is over.",
            "Start earlier, or ask for less.",
        ),
        ErrorKind.PERMISSION: Meaning(
            "Something was not allowed, by the policy, a guardrail or a person.",
            "Nothing that was denied was done. Change the rules, or what the agent is told of them.",
        ),
        ErrorKind.MODEL: Meaning(
            "The model could not be asked, or what it said could not be used.",
            "Look at the provider first, then at the instructions.",
        ),
        ErrorKind.CONTEXT: Meaning(
            "What the model is to see could not be put together.",
            "Look at the context providers, and at how large the context is.",
        ),
        ErrorKind.TOOL: Meaning(
            "What came of a tool call could not be found out.",
            "Look at the outside world before the same is done once more.",
        ),
        ErrorKind.SYSTEM: Meaning(
            "The runtime, or the program around it, could not go on with the run.",
            "Mend the program, then resume the run; report it if it is ours.",
        ),
    }
)

_CONTINUE: Final = (
    "To go on from what was said, start a run that continues it (`start(…, continues=RUN)`, `geartrain run --continue`)"
)

REASONS: Final[Mapping[ReasonCode, Reason]] = MappingProxyType(
    {
        ReasonCode.CANCELLED_BY_USER: Reason(
            kind=ErrorKind.CANCELLED,
            means="Somebody cancelled the run; the message is the reason that was given.",
            what_to_do=f"Nothing is wrong. {_CONTINUE}.",
        ),
        ReasonCode.CANCELLED_BY_PARENT: Reason(
            kind=ErrorKind.CANCELLED,
            means="The run that had started this one as a sub-agent ended, or no longer wanted it.",
            what_to_do="Look at the parent run: its own error says why.",
        ),
        ReasonCode.CANCELLED_BY_SYSTEM: Reason(
            kind=ErrorKind.CANCELLED,
            means="The runtime cancelled the run: it had as many events as are kept, or nobody resumed it in time.",
            what_to_do=f"{_CONTINUE}; the limits are `events_per_run` and `approval_expiry_seconds`.",
        ),
        ReasonCode.MAX_TURNS_EXCEEDED: Reason(
            kind=ErrorKind.BUDGET,
            means="The model was asked as often as it may be and gave no answer.",
            what_to_do="Raise `Budget.max_turns`, or let the last turn be an answer with `on_budget='wrap_up'`; see in "
            "the timeline whether the turns brought anything new.",
        ),
        ReasonCode.TIMEOUT: Reason(
            kind=ErrorKind.BUDGET,
            means="The run's active seconds are used up. Time suspended, or without a process, does not count.",
            what_to_do="Raise `Budget.max_seconds`, or find the slow model or tool in the timeline.",
        ),
        ReasonCode.TOO_MANY_TOOL_FAILURES: Reason(
            kind=ErrorKind.BUDGET,
            means="So many tool calls have failed or timed out. A call fails once, however often it was tried.",
            what_to_do="Mend the tool whose errors the timeline shows, or raise `Budget.max_tool_failures`.",
        ),
        ReasonCode.TOKEN_BUDGET_EXCEEDED: Reason(
            kind=ErrorKind.BUDGET,
            means="The model calls have used as many tokens, in and out, as the run may; lost attempts count.",
            what_to_do="Raise `Budget.max_tokens`, or make the context smaller: `Agent(window=…)`, shorter results.",
        ),
        ReasonCode.COST_BUDGET_EXCEEDED: Reason(
            kind=ErrorKind.BUDGET,
            means="The model calls have cost as much as the run may, in the unit of the prices that were given.",
            what_to_do="Raise `Budget.max_cost`, or take a cheaper model or a smaller context.",
        ),
        ReasonCode.TOOL_CALL_BUDGET_EXCEEDED: Reason(
            kind=ErrorKind.BUDGET,
            means="As many tool calls were let through as may be. A call beyond the limit is refused and not run.",
            what_to_do="Raise `Budget.max_tool_calls`, or get an answer from what there is: `on_budget='wrap_up'`.",
        ),
        ReasonCode.CONDITION_MET: Reason(
            kind=ErrorKind.BUDGET,
            means="The agent's own `stop_when` holds.",
            what_to_do="Nothing, if that is what it is for; otherwise change `Agent(stop_when=…)`.",
        ),
        ReasonCode.DEADLINE_EXCEEDED: Reason(
            kind=ErrorKind.DEADLINE,
            means="The deadline that the run was started with has passed, whatever the run was doing.",
            what_to_do=f"Give a later `deadline`, or do without one and set `Budget.max_seconds`. {_CONTINUE}.",
        ),
        ReasonCode.TOOL_DENIED: Reason(
            kind=ErrorKind.PERMISSION,
            means="The policy or a guardrail denied a call, and the agent ends on that (`on_denied='fail'`).",
            what_to_do="Change the rule, or tell the model of denials instead: `Agent(on_denied='tell')`.",
        ),
        ReasonCode.APPROVAL_DENIED: Reason(
            kind=ErrorKind.PERMISSION,
            means="A person denied a call, and the agent ends on that (`on_denied='fail'`).",
            what_to_do="Nothing, if the run was to end; `Agent(on_denied='tell')` lets the model find another way.",
        ),
        ReasonCode.APPROVAL_EXPIRED: Reason(
            kind=ErrorKind.PERMISSION,
            means="Nobody decided about a call in the time that there was for it.",
            what_to_do="Decide sooner (`geartrain list --waiting`), or raise `Limits.approval_expiry_seconds`.",
        ),
        ReasonCode.INPUT_DENIED: Reason(
            kind=ErrorKind.PERMISSION,
            means="An input guardrail, or a person whom it asked, did not let through what was said to the run.",
            what_to_do="Say it in another way, or change `Agent(input_guardrails=…)`.",
        ),
        ReasonCode.OUTPUT_DENIED: Reason(
            kind=ErrorKind.PERMISSION,
            means="An output guardrail, or a person whom it asked, did not let through the answer.",
            what_to_do="Say in the instructions what no answer may hold; `Agent(on_denied='tell')` gives another try.",
        ),
        ReasonCode.MODEL_FAILED: Reason(
            kind=ErrorKind.MODEL,
            means="The model did not answer, in as many attempts as it has; or nobody took the turn of one outside.",
            what_to_do=f"Look whether the provider works (key, quota, network). {_CONTINUE}.",
        ),
        ReasonCode.PLAN_FAILED: Reason(
            kind=ErrorKind.MODEL,
            means="The plan ended the run: a step that it needs did not go well, or the plan itself is wrong. The "
            "message names the step, or what is wrong.",
            what_to_do="Look what became of that step, or mend the plan; then start again.",
        ),
        ReasonCode.UNSUPPORTED_ACTION: Reason(
            kind=ErrorKind.MODEL,
            means="The model's replies could not be used, as often as is borne: empty, malformed, or no action that "
            "there is.",
            what_to_do="Look at the replies in the timeline; mend the instructions, or the model client.",
        ),
        ReasonCode.INVALID_OUTPUT: Reason(
            kind=ErrorKind.MODEL,
            means="The model's answers did not have the form that was asked for, as often as is borne.",
            what_to_do="Make the form simpler, or say in the instructions what it must be like.",
        ),
        ReasonCode.NO_PROGRESS: Reason(
            kind=ErrorKind.MODEL,
            means="The model asked for the same again and again, and nothing new came of it, though it was told so.",
            what_to_do="Look at what it repeats; give it another way, or another `Agent(stuck=StuckRules(...))`.",
        ),
        ReasonCode.CONTEXT_FAILED: Reason(
            kind=ErrorKind.CONTEXT,
            means="A context provider raised, took too long, or told nothing that can be used.",
            what_to_do="Mend the provider that the message names, or raise `Limits.context_provider_seconds`.",
        ),
        ReasonCode.CONTEXT_TOO_LONG: Reason(
            kind=ErrorKind.CONTEXT,
            means="What the model must see does not fit: instructions, what is pinned, and the newest input.",
            what_to_do="Pin less, shorten instructions or input, or give the agent a larger `window` or another model.",
        ),
        ReasonCode.TOOL_LOST: Reason(
            kind=ErrorKind.TOOL,
            means="Nobody settled in time whether a write was done whose result was lost; or a call was overdue, and "
            "the agent ends on that (`StuckRules(on_dwell='fail')`).",
            what_to_do="Look in the outside world whether it was done. Tools with `verify` can find out by themselves.",
        ),
        ReasonCode.SYSTEM_ERROR: Reason(
            kind=ErrorKind.SYSTEM,
            means="The run was set aside, as an event of it could not be handled or it kept killing its process; or "
            "its policy gave no verdict, and the agent ends on that (`StuckRules(on_dwell='fail')`).",
            what_to_do="`geartrain show RUN` and the log say where it failed: mend that. Then resume the run, if it "
            "waits, or cancel it.",
        ),
        ReasonCode.AGENT_GONE: Reason(
            kind=ErrorKind.SYSTEM,
            means="The run's agent is not among those that this program knows.",
            what_to_do="Register an agent of that name (`Runtime.open(…, agents=[…])`, `--app`), then resume the run.",
        ),
    }
)

KIND_OF_CODE: Final[Mapping[ReasonCode, ErrorKind]] = MappingProxyType(
    {code: reason.kind for code, reason in REASONS.items()}
)

HOLDS: Final[Mapping[HoldKind, Meaning]] = MappingProxyType(
    {
        HoldKind.APPROVAL: Meaning(
            "A call waits for a person's decision; without one it is denied when the approval expires.",
            "`geartrain approve RUN`, `deny`; `RunHandle.approve`, `deny`.",
        ),
        HoldKind.IN_DOUBT: Meaning(
            "A write was started and its result was not seen: it may have been done, so it is not run again blindly. "
            "Unsettled until it expires, it ends the run (`tool_lost`).",
            "Look whether it was done, then `geartrain settle RUN`; `RunHandle.settle`.",
        ),
        HoldKind.INPUT: Meaning(
            "The agent asked its user something; unanswered until it expires, the question has timed out.",
            "`geartrain send RUN TEXT`; `RunHandle.send`.",
        ),
        HoldKind.PAUSED: Meaning(
            "Somebody paused the run: what was at work has finished, nothing new starts. Not resumed for as long as "
            "an approval lasts, it is cancelled.",
            "`geartrain resume RUN`; `RunHandle.resume`.",
        ),
        HoldKind.BUDGET: Meaning(
            "A limit is reached, and the agent waits then (`on_budget='suspend'`), for as long as an approval lasts.",
            "`geartrain resume RUN` with a higher limit; `RunHandle.raise_budget`; or cancel it.",
        ),
        HoldKind.STUCK: Meaning(
            "The run did not get on, and its agent's rules hold it then: an answer was overdue, or nothing new came. "
            "It fails when an approval would expire.",
            "`geartrain show RUN` says what is stuck; `resume` asks once more, `cancel` ends it.",
        ),
        HoldKind.QUARANTINED: Meaning(
            "The run is set aside, because going on would fail again or hurt others; its journal says why. It fails "
            "when an approval would expire.",
            "Mend the cause, then `geartrain resume RUN` tries again; `geartrain cancel RUN` ends it.",
        ),
    }
)

RESULTS: Final[Mapping[ResultStatus, Meaning]] = MappingProxyType(
    {
        ResultStatus.OK: Meaning("The tool returned.", "Nothing."),
        ResultStatus.ERROR: Meaning(
            "The tool raised, its arguments did not fit, or there is no such tool. Counts as a failure.",
            "The model reads the error and may try another way.",
        ),
        ResultStatus.TIMED_OUT: Meaning(
            "A read, or a question to a person, was not answered in time. Counts as a failure.",
            "Raise the tool's `timeout_seconds`, or make it faster.",
        ),
        ResultStatus.REFUSED: Meaning(
            "The call was not started: too many calls, or a budget that is used up. No failure.",
            "The model reads which limit it was.",
        ),
        ResultStatus.DENIED: Meaning(
            "The policy, a guardrail or a person did not allow the call. No failure.",
            "The model reads the reason, if the agent is told of denials.",
        ),
        ResultStatus.CANCELLED: Meaning(
            "A read was at work when the run ended, or when its active seconds were used up and it was to wrap up.",
            "Nothing: reading again does no harm.",
        ),
        ResultStatus.IN_DOUBT: Meaning(
            "A write was started, and it is not known whether it was done.",
            "Look in the outside world before it is done once more.",
        ),
        ResultStatus.NOT_STARTED: Meaning(
            "The call had not begun when the run ended, found no place in its time, or is not to be run.",
            "Nothing was done.",
        ),
    }
)


def what_to_do(code: str) -> str:
    """Return what to do about a run that ended with *code*; an empty text for a code of another version."""
    reason = REASONS.get(code)  # type: ignore[call-overload]
    return reason.what_to_do if reason is not None else ""
