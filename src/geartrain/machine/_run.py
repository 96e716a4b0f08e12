"""The run: all that a step may know of it, as one frozen value of bounded size.

`messages` holds only what the next model call may see; what the window drops stays in the journal. So each step
costs the same however long the run is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from geartrain.limits import Unlimited
from geartrain.machine._spec import Budget
from geartrain.machine._states import IN_PROGRESS, CallStatus, ResultStatus, RunState
from geartrain.machine._stuck_rules import Acted
from geartrain.machine._termination import Measured
from geartrain.machine._values import (
    Artifact,
    AwaitedEvent,
    CallResult,
    Ending,
    Hold,
    Message,
    ParentRef,
    PermissionDecision,
    PublishedEvent,
    RunError,
    Shortening,
    ToolCall,
    Usage,
    Used,
    Value,
)


def _amounts(shares: list[Budget], unit: str) -> list[float]:
    amounts = [getattr(share, unit) for share in shares]
    return [float(amount) for amount in amounts if not isinstance(amount, Unlimited)]


class Call(Value, frozen=True, kw_only=True, omit_defaults=False):
    """A call of the open turn. `since` is the time of its last change of status.

    `sub_agent` calls start a run; the flags are the stricter of the recorded and today's tool. `approved` once a
    person has approved it with these very arguments, `counted` once the call counts as a tool call, `doubted`
    while an earlier attempt may have done what the next one is to do. `proposed` holds the arguments as the model or a
    person gave them, once guardrails have changed them: they are judged anew from there. A `role` other than tool makes
    it a guard call: a text that is judged. Of its attempts, `resends` were made because an answer was overdue. `share`
    is what a sub-agent's run may use, reserved while it is at work.
    """

    id: str
    tool: str
    arguments: str
    arguments_digest: str
    provider_id: str = ""
    status: CallStatus = CallStatus.PROPOSED
    attempt: int = 1
    since: float = 0.0
    read_only: bool = False
    idempotent: bool = False
    verify: bool = False
    external: bool = False
    sub_agent: bool = False
    ask_user: bool = False
    approved: bool = False
    counted: bool = False
    doubted: bool = False
    timeout_seconds: float = 30.0
    expires_at: float | None = None
    pinned: bool = False
    proposed: str | None = None
    reason: str = ""
    result: CallResult | None = None
    role: Literal["tool", "input", "answer"] = "tool"
    resends: int = 0
    event: Literal["", "publish", "wait_for"] = ""
    share: Budget | None = None

    @property
    def barrier(self) -> bool:
        """Whether this call runs alone: neither reads nor sub-agents do."""
        return not (self.read_only or self.sub_agent or self.ask_user)


class Run(Value, frozen=True, kw_only=True, omit_defaults=False):
    """One agent execution as of event `seq`.

    `phase` is where a suspended run goes on; for the others it equals `state`. `entered_at` is when the present state
    was entered. `unconsulted` counts results that the model has not been asked about (consult each_result).
    `wrapping_up` is the budget code for which the last turn is taken without tools, `wrap_up_turn` the number of that
    turn once it has begun. `unheard` as long as the run's own input is not judged; `inputs_judged` counts the inputs
    that were given to guardrails. `shortened` is how the last step shortened the context. `queued_pinned` are the
    positions of pinned inputs in `queued_input`. No summary is asked for before turn `summarise_from`.
    `restarted_at` are the times of the newest restarts of its actor. `unclean` counts the processes in a row that died
    while they moved it, without progress in between; `alone` while it goes on alone after that, and `crashes_alone`
    counts those that died meanwhile.
    `repeated` turns in a row were alike, `idle_turns` brought nothing new, since the time `idle_since` and from
    `idle_from` tokens on; `nudges` counts what was said about it. `resends` counts how often context providers were
    asked once more, `acted` is what was last done about a run that did not get on. `below` is what its sub-agents have
    used. `published` and `awaited` are the named events of its tree, if it is the root, and `heard` the number of the
    newest one of each name that it has heard itself.
    """

    id: str
    seq: int = 0
    state: RunState = RunState.CREATED
    phase: RunState = RunState.CREATED
    agent: str = ""
    spec: str = ""
    path: tuple[RunState, ...] = ()
    holds: tuple[Hold, ...] = ()
    ending: Ending | None = None
    user_input: str = ""
    messages: tuple[Message, ...] = ()
    messages_size: int = 0
    messages_dropped: int = 0
    shortened: tuple[Shortening, ...] = ()
    turn_count: int = 0
    model_attempt: int = 1
    token_count: Usage = Usage()
    active_seconds: float = 0.0
    tool_failures: int = 0
    tool_calls: int = 0
    anomalies: int = 0
    calls: tuple[Call, ...] = ()
    commentary: str = ""
    unconsulted: int = 0
    permission_decisions: tuple[PermissionDecision, ...] = ()
    remembered: tuple[PermissionDecision, ...] = ()
    context_artifacts: tuple[Artifact, ...] = ()
    queued_input: tuple[str, ...] = ()
    unheard: bool = False
    inputs_judged: int = 0
    queued_pinned: tuple[int, ...] = ()
    budget: Budget = Budget()
    deadline: float | None = None
    compacting: int = 0
    summarise_from: int = 0
    compacted_for_length: bool = False
    wrapping_up: str = ""
    wrap_up_turn: int = 0
    handing_off: ToolCall | None = None
    evaluations: int = 0
    recoveries: int = 0
    restarts: int = 0
    restarted_at: tuple[float, ...] = ()
    resume_at: float | None = None
    unclean: int = 0
    alone: bool = False
    crashes_alone: int = 0
    repeated: int = 0
    idle_turns: int = 0
    idle_from: int = 0
    idle_since: float = 0.0
    nudges: int = 0
    resends: int = 0
    acted: Acted | None = None
    created_at: float = 0.0
    started_at: float = 0.0
    updated_at: float = 0.0
    entered_at: float = 0.0
    parent: ParentRef | None = None
    root: str = ""
    depth: int = 0
    continues: str = ""
    principal: str = ""
    permissions: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    context: dict[str, Any] = {}
    request: str = ""
    final_answer: str | None = None
    error: RunError | None = None
    below: Used | None = None
    published: tuple[PublishedEvent, ...] = ()
    awaited: tuple[AwaitedEvent, ...] = ()
    heard: dict[str, int] = {}

    @property
    def whole(self) -> Run:
        """The run with what its sub-agents have used added to its own counts: what its budget is compared with."""
        below = self.below
        if below is None:
            return self
        return msgspec.structs.replace(
            self,
            below=None,
            turn_count=self.turn_count + below.turns,
            active_seconds=self.active_seconds + below.seconds,
            tool_failures=self.tool_failures + below.tool_failures,
            tool_calls=self.tool_calls + below.tool_calls,
            token_count=self.token_count.plus(below.usage),
        )

    @property
    def measured(self) -> Measured:
        """What the run has used so far, as conditions look at it before a model call."""
        return self.measure()

    def measure(self, *, before_call: bool = True) -> Measured:
        """Return what the run and its sub-agents have used so far, as conditions look at it."""
        whole = self.whole
        return Measured(
            before_call=before_call,
            turns=whole.turn_count,
            seconds=whole.active_seconds,
            tool_failures=whole.tool_failures,
            tokens=whole.token_count.total_tokens,
            cost=whole.token_count.cost,
            tool_calls=whole.tool_calls,
            called=tuple(self._called()),
        )

    def _called(self) -> Iterator[str]:
        """Yield the tools whose calls went well: of the open turn, or else of the turn that the context ends with."""
        for call in self.calls:
            if call.result is not None and call.result.status is ResultStatus.OK:
                yield call.tool
        for message in () if self.calls else reversed(self.messages):
            if message.role != "tool":
                break
            if message.status is ResultStatus.OK:
                yield message.tool

    @property
    def tokens_left(self) -> int | None:
        """Tokens that the budget leaves, or None if it sets no limit."""
        limit = self.budget.max_tokens
        return None if isinstance(limit, Unlimited) else limit - self.whole.token_count.total_tokens

    def reserved(self) -> dict[str, float]:
        """Return how much of each limit that the budget sets the sub-agents at work have reserved."""
        budget = self.budget
        limited = [unit for unit in budget.__struct_fields__ if not isinstance(getattr(budget, unit), Unlimited)]
        if not limited:
            return {}
        shares = [call.share for call in self.calls if call.share is not None and call.status in IN_PROGRESS]
        return {unit: sum(_amounts(shares, unit)) for unit in limited}

    def call(self, call_id: str) -> Call | None:
        """Return the open turn's call of that id, or None."""
        for call in self.calls:
            if call.id == call_id:
                return call
        return None

    @property
    def guarding(self) -> bool:
        """Whether the open calls are guard calls: texts that are judged."""
        return bool(self.calls) and self.calls[0].role != "tool"

    @property
    def answering(self) -> bool:
        """Whether the run's answer is being judged."""
        return bool(self.calls) and self.calls[0].role == "answer"

    def held_by(self, kind: str) -> bool:
        """Whether a hold of that kind is open."""
        return any(hold.kind == kind for hold in self.holds)
