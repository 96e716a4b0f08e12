"""One run under one spec, moved by hand: for tests that say exactly what happens."""

from __future__ import annotations

from typing import Any

import msgspec

from geartrain.machine import (
    AgentSpec,
    Budget,
    Call,
    CallStatus,
    Event,
    ModelReplied,
    PermissionsEvaluated,
    Refusal,
    RequestedCall,
    ResultStatus,
    Run,
    RunStarted,
    Step,
    ToolFinished,
    ToolSpec,
    ToolStarted,
    Usage,
    Verdict,
    outstanding,
    spec_digest,
    step,
)

TOOLS = (
    ToolSpec(name="look", read_only=True),
    ToolSpec(name="write"),
    ToolSpec(name="put", idempotent=True),
    ToolSpec(name="post", verify=True),
    ToolSpec(name="ask", kind="ask_user"),
    ToolSpec(name="fetch", read_only=True, external=True),
    ToolSpec(name="ship", external=True),
)


class Bench:
    """A run at work; every event comes one second after the one before."""

    def __init__(self, **spec: Any) -> None:
        self.spec = AgentSpec(**{"name": "agent", "instructions": "Be good.", "tools": TOOLS, **spec})
        self.specs = {spec_digest(self.spec): self.spec}
        self.run = Run(id="r-1")
        self.now = 1_000.0
        self.path: tuple[str, ...] = ()

    def offer(self, kind: type[Any], /, **fields: Any) -> Step | Refusal:
        self.now = fields.pop("time", self.now + 1.0)
        result = step(self.run, kind(id=f"e{self.run.seq + 1}", time=self.now, **fields), self.specs)
        if isinstance(result, Step):
            self.run, self.path = result.run, tuple(map(str, result.path))
        return result

    def does(self, kind: type[Any], /, **fields: Any) -> Bench:
        result = self.offer(kind, **fields)
        assert isinstance(result, Step), result
        return self

    def refuses(self, kind: type[Any], /, **fields: Any) -> str:
        before = self.run
        result = self.offer(kind, **fields)
        assert isinstance(result, Refusal), result
        assert self.run is before
        return result.reason

    def starts(self, **fields: Any) -> Bench:
        defaults = {"agent": "agent", "spec": spec_digest(self.spec), "input": "go", "budget": self.spec.budget}
        return self.does(RunStarted, **{**defaults, **fields})

    def replies(self, text: str = "", *calls: str, tokens: int = 10, **fields: Any) -> Bench:
        requested = tuple(RequestedCall(tool=call.split(":")[0], arguments=_arguments(call)) for call in calls)
        usage = fields.pop("usage", Usage(input_tokens=tokens))
        turn, attempt = self.run.turn_count + 1, self.run.model_attempt
        return self.does(ModelReplied, turn=turn, attempt=attempt, text=text, calls=requested, usage=usage, **fields)

    def verdicts(self, *kinds: Any, **fields: Any) -> Bench:
        waiting = [c.id for c in self.run.calls if c.status in (CallStatus.PROPOSED, CallStatus.APPROVED)]
        verdicts = tuple(
            Verdict(call_id=call_id, verdict=kind, **fields) for call_id, kind in zip(waiting, kinds, strict=True)
        )
        return self.does(PermissionsEvaluated, verdicts=verdicts)

    def begins(self, call_id: str) -> Bench:
        return self.does(ToolStarted, call_id=call_id, attempt=self.call(call_id).attempt)

    def finishes(self, call_id: str, text: str = "done", status: ResultStatus = ResultStatus.OK, **more: Any) -> Bench:
        attempt = self.call(call_id).attempt
        return self.does(ToolFinished, call_id=call_id, attempt=attempt, status=status, text=text, **more)

    def call(self, call_id: str) -> Call:
        call = self.run.call(call_id)
        assert call is not None, self.run.calls
        return call

    @property
    def status(self) -> list[str]:
        return [str(call.status) for call in self.run.calls]

    @property
    def keys(self) -> list[str]:
        return [command.key for command in outstanding(self.run)]

    @property
    def holds(self) -> list[str]:
        return [str(hold) for hold in self.run.holds]

    @property
    def code(self) -> str:
        return str(self.run.error.code) if self.run.error else ""

    @property
    def results(self) -> list[tuple[str, str]]:
        """What the context holds of tool results: (call, status)."""
        return [(m.call_id, str(m.status)) for m in self.run.messages if m.role == "tool"]


def _arguments(call: str) -> str:
    return call.split(":", 1)[1] if ":" in call else "{}"


def writing(tool: str = "write", **spec: Any) -> Bench:
    """Return a run whose one write is started."""
    return Bench(**spec).starts().replies("", tool).verdicts("allow").begins("t1.c1")


def event_of(kind: type[Any], **fields: Any) -> Event:
    """Return an event of that kind with the least that it needs."""
    needed: dict[str, Any] = {
        "agent": "agent", "spec": "", "input": "go", "budget": Budget(), "provider": "p", "message": "m",
        "turn": 1, "attempt": 1, "code": "model_failed", "verdicts": (), "call_id": "t1.c1", "approved": True,
        "status": ResultStatus.OK, "text": "t", "reason": "r", "done": True, "run_id": "r-2", "state": "FINISHED",
        "summary": "s", "name": "n", "replaced": 1, "kind": "dwell", "restarts": 1,
    }  # fmt: skip
    required = {f.name: needed[f.name] for f in msgspec.structs.fields(kind) if f.required and f.name in needed}
    if kind.__name__ in ("RunQuarantined", "CancelRequested"):
        required.pop("code", None)
    event: Event = kind(**{"id": "e", "time": 1.0, **required, **fields})
    return event
