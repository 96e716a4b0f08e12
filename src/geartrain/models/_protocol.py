"""What a model client must do: take a request, give a reply, say clearly why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from geartrain.errors import ResourceError, UsageError
from geartrain.machine import Call, Message, Progress, RequestedCall, ToolSpec, Usage, Value


class ModelRequest(Value, frozen=True, kw_only=True):
    """Everything that one model call sees. The same run gives the same request.

    `purpose` compact asks for a summary of `messages` as text. `tools` is empty when the model may only answer.
    `open_calls` are calls that still run (only for agents that are consulted after each result).
    `context` is the data that the run was started with. `progress` is how far a plan has come; no model has one.
    """

    run_id: str
    agent: str
    turn: int
    attempt: int
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    purpose: Literal["reply", "compact"] = "reply"
    model: str = ""
    max_output_tokens: int | None = None
    output_schema: dict[str, Any] | None = None
    open_calls: tuple[Call, ...] = ()
    context: dict[str, Any] = {}
    progress: Progress | None = None


class ModelReply(Value, frozen=True, kw_only=True):
    """What a model said: text, tool calls, or both. `finish_reason` is the provider's word, for the trace."""

    text: str = ""
    calls: tuple[RequestedCall, ...] = ()
    usage: Usage | None = None
    finish_reason: str = "stop"


Emit = Callable[[str], None]


@runtime_checkable
class Model(Protocol):
    """A client of one model. Shared by all runs of an agent; holds no state of a run.

    One with an attribute `summarises` that is False is never asked for a summary, unless an agent says so. One whose
    replies say what they cost (`Usage.cost`) has an attribute `reports_cost` that is True.
    """

    name: str

    async def reply(self, request: ModelRequest, emit: Emit, /) -> ModelReply:
        """Return the model's reply. `emit` may be called with pieces of text while they come (shown live only).

        Called within a time limit and cancelled when it passes or the run ends. It must not retry by itself: the
        runtime does, and knows how often.

        Raises:
            ModelUnavailable: A later try may succeed.
            ModelRejected: The same request will fail again.
            ContextTooLong: The request does not fit; the runtime shortens the context once.
        """
        ...


@dataclass(eq=False)
class ModelUnavailable(ResourceError):
    """The model cannot answer now. `retry_after_seconds` is the provider's wish, obeyed when given."""

    model: str
    reason: str
    retry_after_seconds: float | None = None

    def __str__(self) -> str:
        return f"model {self.model!r}: cannot answer now: {self.reason}"


@dataclass(eq=False)
class ModelRejected(UsageError):
    """The model refuses this request, and would again."""

    model: str
    reason: str

    def __str__(self) -> str:
        return f"model {self.model!r}: refused the request: {self.reason}"


@dataclass(eq=False)
class ContextTooLong(UsageError):
    """The request is longer than the model takes."""

    model: str
    reason: str

    def __str__(self) -> str:
        return f"model {self.model!r}: the context is too long: {self.reason}"
