"""The names of the machine: states, call statuses, holds, kinds of errors and reason codes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RunState(StrEnum):
    """Where a run is. Every state that a run passes through is recorded with the event that led there."""

    CREATED = "CREATED"
    PREPARE_CONTEXT = "PREPARE_CONTEXT"
    MODEL_THINKING = "MODEL_THINKING"
    DECIDE_ACTION = "DECIDE_ACTION"
    WAIT_APPROVAL = "WAIT_APPROVAL"
    EXECUTE_TOOL = "EXECUTE_TOOL"
    OBSERVE = "OBSERVE"
    COMPACT_OR_SAVE = "COMPACT_OR_SAVE"
    SUSPENDED = "SUSPENDED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


ENDED: Final[frozenset[RunState]] = frozenset({RunState.FINISHED, RunState.FAILED, RunState.CANCELLED})


class CallStatus(StrEnum):
    """How far a tool call has come.

    proposed → (policy) → allowed | asked | done; asked → (a person) → approved → (policy again) → allowed;
    allowed → running → done; a write goes running → started → done, and from started possibly → in_doubt.
    """

    PROPOSED = "proposed"
    ASKED = "asked"
    APPROVED = "approved"
    ALLOWED = "allowed"
    RUNNING = "running"
    STARTED = "started"
    VERIFYING = "verifying"
    IN_DOUBT = "in_doubt"
    AWAITING_INPUT = "awaiting_input"
    DONE = "done"


# Looking a member up on its enum costs a fifth of a microsecond (Python 3.11), and each step asks every open call what
# it is: so these names are bound once.
PROPOSED, ASKED, APPROVED, ALLOWED, RUNNING, STARTED, VERIFYING, IN_DOUBT, AWAITING_INPUT, DONE = CallStatus

# An effect, or a sub-agent, is at work on such a call.
IN_PROGRESS: Final[frozenset[CallStatus]] = frozenset({RUNNING, STARTED, VERIFYING})
# The policy is to be asked about such a call.
UNDECIDED: Final[frozenset[CallStatus]] = frozenset({PROPOSED, APPROVED})


class ResultStatus(StrEnum):
    """How a tool call ended. The text for the model names it."""

    OK = "ok"
    ERROR = "error"
    TIMED_OUT = "timed_out"
    REFUSED = "refused"
    DENIED = "denied"
    CANCELLED = "cancelled"
    IN_DOUBT = "in_doubt"
    NOT_STARTED = "not_started"


# What counts toward `max_tool_failures`. Denials and cancellations are not failures, and neither is what we refused
# to start: a reply with 200 calls would otherwise end its run at once.
FAILURES: Final[frozenset[ResultStatus]] = frozenset({ResultStatus.ERROR, ResultStatus.TIMED_OUT})


class HoldKind(StrEnum):
    """Why a run is suspended. The run goes on when it has no hold left."""

    APPROVAL = "approval"
    IN_DOUBT = "in_doubt"
    INPUT = "input"
    PAUSED = "paused"
    BUDGET = "budget"
    STUCK = "stuck"
    QUARANTINED = "quarantined"


# While one of these is open, nothing new starts; what runs finishes. The others are about one call each.
STOPPING: Final[frozenset[HoldKind]] = frozenset(
    {HoldKind.PAUSED, HoldKind.BUDGET, HoldKind.QUARANTINED, HoldKind.STUCK}
)


class ErrorKind(StrEnum):
    """Whose trouble it was; in the outcome, the trace and the metrics alike."""

    CANCELLED = "cancelled"
    BUDGET = "budget"
    DEADLINE = "deadline"
    PERMISSION = "permission"
    MODEL = "model"
    CONTEXT = "context"
    TOOL = "tool"
    SYSTEM = "system"


class ReasonCode(StrEnum):
    """Why a run did not finish. What each means is in `_reasons`, one row a code."""

    CANCELLED_BY_USER = "cancelled_by_user"
    CANCELLED_BY_PARENT = "cancelled_by_parent"
    CANCELLED_BY_SYSTEM = "cancelled_by_system"
    MAX_TURNS_EXCEEDED = "max_turns_exceeded"
    TIMEOUT = "timeout"
    TOO_MANY_TOOL_FAILURES = "too_many_tool_failures"
    TOKEN_BUDGET_EXCEEDED = "token_budget_exceeded"  # noqa: S105 - tokens of a model, no secret
    COST_BUDGET_EXCEEDED = "cost_budget_exceeded"
    TOOL_CALL_BUDGET_EXCEEDED = "tool_call_budget_exceeded"
    CONDITION_MET = "condition_met"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    TOOL_DENIED = "tool_denied"
    APPROVAL_DENIED = "approval_denied"
    APPROVAL_EXPIRED = "approval_expired"
    INPUT_DENIED = "input_denied"
    OUTPUT_DENIED = "output_denied"
    MODEL_FAILED = "model_failed"
    PLAN_FAILED = "plan_failed"
    UNSUPPORTED_ACTION = "unsupported_action"
    INVALID_OUTPUT = "invalid_output"
    NO_PROGRESS = "no_progress"
    CONTEXT_FAILED = "context_failed"
    CONTEXT_TOO_LONG = "context_too_long"
    TOOL_LOST = "tool_lost"
    SYSTEM_ERROR = "system_error"
    AGENT_GONE = "agent_gone"
