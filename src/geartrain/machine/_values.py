"""The vocabulary of runs: small frozen structs that events, commands, specs and runs are made of.

All of it is stored as JSON. Optional fields have defaults, so that what an older version wrote stays readable.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from geartrain.machine._states import ErrorKind, HoldKind, ReasonCode, ResultStatus, RunState


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The base of every stored value: frozen, named fields, defaults left out of the JSON.

    Values hold JSON data and other values, so they are never part of a cycle: the garbage collector need not look.
    """


class Usage(Value, frozen=True, kw_only=True):
    """Tokens and cost of a model reply. `estimated` when the provider gave no figure, or not a usable one."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Return both added up."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
            estimated=self.estimated or other.estimated,
        )


class Used(Value, frozen=True, kw_only=True):
    """What the runs of sub-agents have used, all that is below them included."""

    turns: int = 0
    seconds: float = 0.0
    tool_failures: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()

    def plus(self, other: Used) -> Used:
        """Return both added up."""
        return Used(
            turns=self.turns + other.turns,
            seconds=self.seconds + other.seconds,
            tool_failures=self.tool_failures + other.tool_failures,
            tool_calls=self.tool_calls + other.tool_calls,
            usage=self.usage.plus(other.usage),
        )


class RequestedCall(Value, frozen=True, kw_only=True):
    """A tool call as a model asked for it. `arguments` is JSON text exactly as it came, perhaps broken.

    `oversized` is the size in bytes of arguments that were too large to keep; `arguments` is then empty.
    """

    tool: str
    arguments: str = "{}"
    provider_id: str = ""
    oversized: int = 0


class ToolCall(Value, frozen=True, kw_only=True):
    """A tool call in the context: with our own id, and the provider's id only to answer the provider."""

    id: str
    tool: str
    arguments: str
    provider_id: str = ""


class Message(Value, frozen=True, kw_only=True):
    """One message of the context.

    An assistant message may hold `calls`; each is answered by one tool message with its `call_id`, in call order.
    `turn` is the turn it belongs to (0: before the first). The window never drops `pinned` messages. A `note` is said
    by the machine itself (a summary, a reply that could not be used) and is nobody's input. `provider` is the context
    provider that told it. A `shrunk` result is a line that names what was there.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    tool: str = ""
    status: ResultStatus = ResultStatus.OK
    artifact: str = ""
    turn: int = 0
    pinned: bool = False
    note: bool = False
    provider: str = ""
    shrunk: bool = False

    def size(self) -> int:
        """Return about how many bytes of context this message takes."""
        size = len(self.text) + 16
        for call in self.calls:
            size += len(call.arguments) + len(call.tool) + 32
        return size


class Artifact(Value, frozen=True, kw_only=True):
    """A large output stored once beside the journal. `digest` finds it; `size` is in bytes."""

    digest: str
    size: int
    media_type: str = "text/plain"


class CallResult(Value, frozen=True, kw_only=True):
    """The one result of a call: `text` is what the model sees, cleaned and trimmed.

    `size` is the number of bytes of the whole output; `artifact` holds it when the text was trimmed. A `pinned` one
    is never dropped from the context, nor is the message that asked for it.
    """

    status: ResultStatus
    text: str
    size: int = 0
    artifact: Artifact | None = None
    by: str = ""
    pinned: bool = False


class Shortening(Value, frozen=True, kw_only=True):
    """One shortening of the context: how many messages, and how many bytes fewer the next model call sees.

    `window` drops the oldest messages, `summary` puts a summary in their place, `shrink` makes old results a line
    each (`calls` names some of them), `cut` shortens what is too large for the context.
    """

    how: Literal["window", "shrink", "summary", "cut"]
    messages: int
    bytes: int
    calls: tuple[str, ...] = ()


class Traced(Value, frozen=True, kw_only=True):
    """What a tool wanted traced while it ran, in its own words and at its own time (seconds since 1970)."""

    name: str
    time: float
    payload: dict[str, Any] = {}


class GuardVerdict(Value, frozen=True, kw_only=True):
    """What one guardrail said about a call, when it did not plainly allow it."""

    guard: str
    verdict: Literal["allow", "deny", "ask", "change"]
    reason: str = ""
    error: str = ""


class Verdict(Value, frozen=True, kw_only=True):
    """What the guardrails and the policy said about one call, together.

    `invalid` means that the arguments do not fit the tool (or that there is no such tool any more): the call
    fails with `reason` and nobody is asked. `withdrawn` names safety flags (read_only, idempotent, verify) that
    the recorded tool has and today's does not: the stricter one counts. `expires_seconds` is how long an `ask` waits
    for somebody, if not as long as the agent's limit says. `arguments`, if given, replace the call's own. `guard` is
    the guardrail that decided (else it was the policy, by its `rule`); `guards` are the guardrails that did not plainly
    allow.
    """

    call_id: str
    verdict: Literal["allow", "deny", "ask", "invalid"]
    reason: str = ""
    rule: str = ""
    withdrawn: tuple[str, ...] = ()
    error: str = ""
    expires_seconds: float | None = None
    arguments: str | None = None
    guard: str = ""
    guards: tuple[GuardVerdict, ...] = ()


class PermissionDecision(Value, frozen=True, kw_only=True):
    """A decision about a call, by the policy or by a person; bound to tool and arguments by their digest."""

    call_id: str
    tool: str
    arguments_digest: str
    decision: Literal["allow", "deny", "ask", "approved", "denied", "expired"]
    by: str
    time: float
    reason: str = ""
    remember: bool = False


class Hold(Value, frozen=True, kw_only=True):
    """A reason why a run is suspended; `call_id` where it is about one call.

    One that only a person lifts has a time `expires_at` (None, as holds from before it was kept have it: never), and
    the `code` with which the run ends then, if that is not a cancellation.
    """

    kind: HoldKind
    call_id: str = ""
    reason: str = ""
    expires_at: float | None = None
    code: str = ""

    def __str__(self) -> str:
        return f"{self.kind}({self.call_id})" if self.call_id else str(self.kind)


class RunError(Value, frozen=True, kw_only=True):
    """Why a run did not finish: a code, its kind, and one sentence with the values."""

    code: ReasonCode
    kind: ErrorKind
    message: str


class Ending(Value, frozen=True, kw_only=True):
    """The first cause of a run's end; sticky. The run ends when nothing is in progress, or at `grace_until`.

    `extended` once the grace was over and only sub-agents had not ended: their own grace began a little later.
    """

    state: RunState
    error: RunError | None
    by: str
    time: float
    grace_until: float
    extended: bool = False


class PublishedEvent(Value, frozen=True, kw_only=True):
    """An event that a run of this one's tree has published, kept by the run that all began with."""

    number: int
    name: str
    payload: str
    run_id: str
    call_id: str


class AwaitedEvent(Value, frozen=True, kw_only=True):
    """The run and call of this one's tree that wait for an event of that name, till a time `until`."""

    name: str
    run_id: str
    call_id: str
    until: float | None = None

    def waits(self, now: float) -> bool:
        """Whether its time is not over."""
        return self.until is None or now <= self.until


class ParentRef(Value, frozen=True, kw_only=True):
    """The run and call that started this run as a sub-agent.

    `path` are the calls that lead to it from the root of the tree; the last is `call_id`.
    """

    run_id: str
    call_id: str
    path: tuple[str, ...] = ()
