"""Events: the facts that move a run. A closed union; each has a JSON form with its `type`.

Every event carries its id, its time (seconds since 1970), its `source`, and for a person's act `by`. Ids of events
that answer an effect are derived from the effect's key, so an answer posted twice is one event.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from geartrain.machine._spec import Budget
from geartrain.machine._states import ResultStatus, RunState
from geartrain.machine._values import (
    Artifact,
    Message,
    ParentRef,
    RequestedCall,
    RunError,
    ToolCall,
    Traced,
    Usage,
    Verdict,
)


class EventBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, gc=False):
    """What every event has.

    `idle_seconds` is how much of the time since the event before is no active time of the run: the store could not
    write, or the run was kept from going on.
    """

    id: str
    time: float
    source: str = "runtime"
    by: str = ""
    idle_seconds: float = 0.0


class RunStarted(EventBase, frozen=True, kw_only=True):
    """The run begins. `request` is the digest of what the caller asked for, `spec` that of the agent's spec.

    `history` holds the messages of the ended run that this one continues.
    """

    agent: str
    spec: str
    input: str
    budget: Budget
    request: str = ""
    deadline: float | None = None
    principal: str = ""
    permissions: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    context: dict[str, Any] = {}
    parent: ParentRef | None = None
    root: str = ""
    depth: int = 0
    continues: str = ""
    history: tuple[Message, ...] = ()


class ContextPrepared(EventBase, frozen=True, kw_only=True):
    """The context providers have answered; their messages go before the input."""

    messages: tuple[Message, ...] = ()


class ContextFailed(EventBase, frozen=True, kw_only=True):
    """A context provider raised or took too long."""

    provider: str
    message: str


class ModelReplied(EventBase, frozen=True, kw_only=True):
    """The model's reply of a turn. Without `usage` its cost is estimated.

    `anomaly` says what is wrong with a reply that is no answer, calls or handoff. `lost_attempts` came before it and
    ended without a word from the provider, which may have done, and charged, its work.
    """

    turn: int
    attempt: int
    text: str = ""
    calls: tuple[RequestedCall, ...] = ()
    usage: Usage | None = None
    finish_reason: str = ""
    model: str = ""
    anomaly: str = ""
    anomaly_code: Literal["unsupported_action", "invalid_output"] = "unsupported_action"
    lost_attempts: int = 0


class ModelFailed(EventBase, frozen=True, kw_only=True):
    """The model call failed and its retries are used up. `code` context_too_long forces one compaction.

    Of its attempts, `lost_attempts` ended without a word from the provider.
    `plan_failed` is what a plan says of its own end, or what is wrong with it.
    """

    turn: int
    attempt: int
    code: Literal["model_failed", "context_too_long", "plan_failed"]
    message: str
    usage: Usage | None = None
    lost_attempts: int = 0


class TurnTaken(EventBase, frozen=True, kw_only=True):
    """A person wrote the model's reply in its place. `turn` is the one that it is for; 0: whichever is awaited."""

    text: str = ""
    calls: tuple[RequestedCall, ...] = ()
    turn: int = 0


class PermissionsEvaluated(EventBase, frozen=True, kw_only=True):
    """The policy's verdicts on the calls that waited for it.

    `evaluation` is the number that the command gave; verdicts of an earlier one are refused. 0 is not compared.
    """

    verdicts: tuple[Verdict, ...]
    evaluation: int = 0


class ApprovalDecided(EventBase, frozen=True, kw_only=True):
    """A person's decision on one call. Edited `arguments` replace the model's and are bound to their own digest.

    `arguments_digest`, if given, is what the person saw: a decision about other arguments is refused.
    """

    call_id: str
    approved: bool
    reason: str = ""
    arguments: str | None = None
    arguments_digest: str = ""
    remember: Literal["", "run"] = ""


class ApprovalExpired(EventBase, frozen=True, kw_only=True):
    """Nobody decided in time."""

    call_id: str


class ToolStarted(EventBase, frozen=True, kw_only=True):
    """A write is about to start: from here on its outcome is in doubt until its result is stored."""

    call_id: str
    attempt: int


class ToolFinished(EventBase, frozen=True, kw_only=True):
    """A call has its result. `verdict` not_done is a `verify` that found the write not done.

    `traced` is what the tool traced on the way, as far as it is kept.
    """

    call_id: str
    attempt: int
    status: ResultStatus
    text: str
    size: int = 0
    artifact: Artifact | None = None
    tries: int = 1
    verdict: Literal["", "done", "not_done"] = ""
    traced: tuple[Traced, ...] = ()


class WriteInDoubt(EventBase, frozen=True, kw_only=True):
    """A started write's result was not seen: time-out, cancellation, lost worker, or `verify` could not tell.

    `traced` is what the tool traced until then, as far as it is kept.
    """

    call_id: str
    attempt: int
    reason: str
    traced: tuple[Traced, ...] = ()


class CallSettled(EventBase, frozen=True, kw_only=True):
    """A person (or the tool's `verify`) settled a doubt: the write was done, or it was not and is run or skipped."""

    call_id: str
    done: bool
    text: str = ""
    not_done: Literal["", "run", "skip"] = ""


class CallAnswered(EventBase, frozen=True, kw_only=True):
    """A person answered a call in the tool's place."""

    call_id: str
    text: str
    status: ResultStatus = ResultStatus.OK


class SubAgentEnded(EventBase, frozen=True, kw_only=True):
    """A sub-agent's run has ended; its end is the result of the call that started it.

    What it used includes all that is below it.
    """

    call_id: str
    run_id: str
    state: RunState
    text: str = ""
    error: RunError | None = None
    usage: Usage = Usage()
    turns: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    seconds: float = 0.0


class ShareRaised(EventBase, frozen=True, kw_only=True):
    """A sub-agent at work is to have *budget* from now on: its parent pays for it out of what is left there."""

    call_id: str
    budget: Budget


class EventPublished(EventBase, frozen=True, kw_only=True):
    """A run of this one's tree has published something under a name; `call_id` is the call that did."""

    run_id: str
    call_id: str
    name: str
    payload: str = ""


class EventAwaited(EventBase, frozen=True, kw_only=True):
    """A run of this one's tree waits for an event of that name, with a number above `after`, till a time `until`."""

    run_id: str
    call_id: str
    name: str
    after: int = 0
    until: float | None = None


class EventHeard(EventBase, frozen=True, kw_only=True):
    """What a call waited for has been published; without a `number`, what it published itself is known.

    `refused` says why it is neither.
    """

    call_id: str
    name: str
    number: int = 0
    payload: str = ""
    refused: str = ""

    @property
    def text(self) -> str:
        """The result of the call."""
        return self.refused or (self.payload if self.number else f"published {self.name!r}")


class ContextCompacted(EventBase, frozen=True, kw_only=True):
    """A model summarised the oldest `replaced` messages of the window's history."""

    summary: str
    replaced: int
    usage: Usage | None = None
    lost_attempts: int = 0


class CompactionFailed(EventBase, frozen=True, kw_only=True):
    """Summarising failed: the window alone is kept."""

    message: str
    usage: Usage | None = None
    lost_attempts: int = 0


class InputReceived(EventBase, frozen=True, kw_only=True):
    """Something was said to the run; it is heard at the next model call. `pinned`, it stays in the context."""

    text: str
    pinned: bool = False


class PauseRequested(EventBase, frozen=True, kw_only=True):
    """Pause: what runs finishes, nothing new starts."""

    reason: str = ""


class RunResumed(EventBase, frozen=True, kw_only=True):
    """Go on after a pause, or out of quarantine."""


class CancelRequested(EventBase, frozen=True, kw_only=True):
    """Cancel. `code` says who: the user, the parent run, or the system."""

    reason: str = ""
    code: Literal["cancelled_by_user", "cancelled_by_parent", "cancelled_by_system"] = "cancelled_by_user"


class DeadlinePassed(EventBase, frozen=True, kw_only=True):
    """The run's absolute deadline is over."""


class GraceElapsed(EventBase, frozen=True, kw_only=True):
    """The grace of an ending run is over."""


class BudgetRaised(EventBase, frozen=True, kw_only=True):
    """The budget from now on; it replaces the one before."""

    budget: Budget


class TimerFired(EventBase, frozen=True, kw_only=True):
    """A time that `wake_at` named has come: active seconds used up, a wait over its limit, or a back-off over.

    `expired` ends the wait for a person who was asked something, was to settle a doubt, or to lift a hold.
    """

    kind: Literal["active_seconds", "dwell", "back_off", "expired"]


class RunRecovered(EventBase, frozen=True, kw_only=True):
    """The process that moved this run is gone and another one goes on. All that was in progress is lost.

    `clean` if no process died: it was an orderly stop, which ended nothing, or the same process has read the run again.
    `reason` names it. `attempt` counts the recoveries of this run. `alone` if what it goes on with may kill its
    process, so that nothing else which may goes on at the same time.
    """

    attempt: int
    clean: bool = False
    alone: bool = False
    reason: str = ""


class ActorRestarted(EventBase, frozen=True, kw_only=True):
    """The run's actor crashed and was restarted from the last checkpoint; effects live on.

    `restarts` counts the restarts of this run, `aside` is the type of the event in hand, which is tried again at
    `resume_at`.
    """

    reason: str
    restarts: int
    resume_at: float | None = None
    aside: str = ""


class RunQuarantined(EventBase, frozen=True, kw_only=True):
    """The run is set apart until a person resumes or cancels it.

    `aside` is the type of the event that could not be handled, `aside_id` its id and `aside_body` the beginning of it;
    `traceback` is the end of what was raised, `restarts` how often the run's actor was restarted before.
    """

    reason: str
    code: Literal["system_error", "agent_gone"] = "system_error"
    aside: str = ""
    aside_id: str = ""
    aside_body: str = ""
    traceback: str = ""
    restarts: int = 0


class HandedOff(EventBase, frozen=True, kw_only=True):
    """The run goes on under another agent's spec."""

    agent: str
    spec: str
    call: ToolCall | None = None


class HandoffFailed(EventBase, frozen=True, kw_only=True):
    """The agent that should take the run over is not to be had; the model is told."""

    agent: str
    message: str


Event = (
    RunStarted
    | ContextPrepared
    | ContextFailed
    | ModelReplied
    | ModelFailed
    | TurnTaken
    | PermissionsEvaluated
    | ApprovalDecided
    | ApprovalExpired
    | ToolStarted
    | ToolFinished
    | WriteInDoubt
    | CallSettled
    | CallAnswered
    | SubAgentEnded
    | ShareRaised
    | EventPublished
    | EventAwaited
    | EventHeard
    | ContextCompacted
    | CompactionFailed
    | InputReceived
    | PauseRequested
    | RunResumed
    | CancelRequested
    | DeadlinePassed
    | GraceElapsed
    | BudgetRaised
    | TimerFired
    | RunRecovered
    | ActorRestarted
    | RunQuarantined
    | HandedOff
    | HandoffFailed
)

# What callers may post; the rest only the runtime itself can know, and is refused from outside.
PUBLIC_EVENTS: tuple[type[EventBase], ...] = (
    TurnTaken,
    ApprovalDecided,
    CallSettled,
    CallAnswered,
    InputReceived,
    PauseRequested,
    RunResumed,
    CancelRequested,
    BudgetRaised,
)
