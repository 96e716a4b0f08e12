"""Reading runs from a journal: one run, its timeline, and whether a replay goes the same way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from geartrain.errors import FormatUnknown, InvalidValue, RunNotFound
from geartrain.ids import sub_agent_run_id
from geartrain.machine import (
    ENDED,
    AgentSpec,
    Budget,
    Call,
    Difference,
    ErrorKind,
    Event,
    HoldKind,
    Refusal,
    Run,
    RunState,
    Usage,
    awaits_answer,
    awaits_reply,
    decode_event,
    decode_spec,
    rests,
    split_path,
    step,
    sub_agents_at_work,
)
from geartrain.machine import CallStatus as _CallStatus
from geartrain.persistence import Journal, RunCorrupt, RunRow, StoredEvent
from geartrain.runtime._entry import DEPTH, SUB_AGENTS, Revived, ending_of, revive
from geartrain.runtime._reading._projection import project
from geartrain.runtime._reading._shortenings import seen
from geartrain.runtime._reading._stepper import Stepper
from geartrain.trace import TraceRecord

_PAGE = 1_000
# What somebody outside is to bring, beside the kinds of holds.
REPLY: Final = "reply"
ANSWER: Final = "answer"
_HELD: Final[Mapping[_CallStatus, HoldKind]] = {
    _CallStatus.ASKED: HoldKind.APPROVAL,
    _CallStatus.IN_DOUBT: HoldKind.IN_DOUBT,
    _CallStatus.AWAITING_INPUT: HoldKind.INPUT,
}
# What `list(waiting=True)` keeps: whatever only a person or somebody outside can lift or bring.
_AWAITED: Final = (*HoldKind, REPLY, ANSWER)


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for somebody.

    `waits_for` is "approval" (a decision), "in_doubt" (a word on whether a write was done), "input" (what the agent
    asked its user), or "answer" (an external tool's result). `id` is the same whenever the same call is told of.
    With the `role` input or answer it is no call of a tool, but what was said to the run, or what it would finish with;
    the text is in its arguments, `{"text": …}`. `provider_id` is what those who asked for it call it: for a plan, the
    name of its step. `agent` is who made it, `root` the run that all began with, `path` the calls that lead from there
    to this one's run: empty for a call of the root itself.
    """

    id: str = ""
    run_id: str
    call_id: str
    tool: str
    arguments: str
    arguments_digest: str
    waits_for: str
    reason: str = ""
    since: float = 0.0
    expires_at: float | None = None
    role: str = "tool"
    provider_id: str = ""
    agent: str = ""
    root: str = ""
    path: tuple[str, ...] = ()


class SubAgentCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose sub-agent is at work: `run_id` is its run, `share` what that may use."""

    call_id: str
    agent: str
    run_id: str
    since: float
    share: Budget | None = None


class RunSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment, as of the event `seq`.

    `waiting` lists the calls that wait for somebody, `awaits_reply` says that the model's turn does. A run `at_rest`
    has ended or waits for nothing but somebody. `quarantine` is why it is set apart until somebody resumes or cancels
    it, `ending` the code for which it ends as soon as what is in progress has ended. `out_of_budget` is the limit that
    it is held for, told as an `error` is; `budget` are the limits in force. `sub_agents` are at work for it, `queued`
    more wait; `usage` is its own, `tree_usage` its own and that of all that was below it and has ended.
    """

    id: str
    state: str
    agent: str
    seq: int
    input: str
    answer: str | None
    error: dict[str, str] | None
    holds: tuple[str, ...]
    waiting: tuple[OpenCall, ...]
    turn_count: int
    usage: Usage
    tool_calls: int
    tool_failures: int
    active_seconds: float
    created_at: float
    updated_at: float
    ended: bool
    at_rest: bool = False
    awaits_reply: bool = False
    spec: str = ""
    labels: Mapping[str, str] = {}
    context: Mapping[str, Any] = {}
    set_apart: str = ""
    continues: str = ""
    quarantine: str = ""
    ending: str = ""
    out_of_budget: dict[str, str] | None = None
    budget: Budget = Budget()
    parent: str = ""
    root: str = ""
    sub_agents: tuple[SubAgentCall, ...] = ()
    queued: int = 0
    tree_usage: Usage = Usage()
    deadline: float | None = None

    @classmethod
    def of(cls, run: Run, spec: AgentSpec, set_apart: str = "") -> RunSnapshot:
        """Return what *run*, under *spec*, looks like."""
        error = run.error
        return cls(
            id=run.id,
            state=str(run.state),
            agent=run.agent,
            seq=run.seq,
            input=run.user_input,
            answer=run.final_answer,
            error=None
            if error is None
            else {"code": str(error.code), "kind": str(error.kind), "message": error.message},
            holds=tuple(map(str, run.holds)),
            waiting=open_calls(run),
            turn_count=run.turn_count,
            usage=run.token_count,
            tool_calls=run.tool_calls,
            tool_failures=run.tool_failures,
            active_seconds=run.active_seconds,
            created_at=run.created_at,
            updated_at=run.updated_at,
            ended=run.state in ENDED,
            at_rest=rests(run, spec) and not sub_agents_at_work(run),
            awaits_reply=awaits_reply(run, spec),
            spec=run.spec,
            labels=run.labels,
            context=run.context,
            set_apart=set_apart,
            continues=run.continues,
            quarantine=next((hold.reason for hold in run.holds if hold.kind is HoldKind.QUARANTINED), ""),
            ending=ending_of(run),
            out_of_budget=_out_of_budget(run),
            parent=run.parent.run_id if run.parent is not None else "",
            root=run.root or run.id,
            sub_agents=sub_agent_calls(run),
            queued=sum(1 for call in run.calls if call.sub_agent and call.status is _CallStatus.ALLOWED),
            tree_usage=run.whole.token_count,
            budget=run.budget,
            deadline=run.deadline,
        )


def _out_of_budget(run: Run) -> dict[str, str] | None:
    hold = next((hold for hold in run.holds if hold.kind is HoldKind.BUDGET), None)
    if hold is None:
        return None
    return {"code": hold.code, "kind": str(ErrorKind.BUDGET), "message": hold.reason}


def sub_agent_calls(run: Run) -> tuple[SubAgentCall, ...]:
    """Return the calls of *run* whose sub-agents are at work, in call order."""
    return tuple(
        SubAgentCall(
            call_id=call.id,
            agent=call.tool,
            run_id=sub_agent_run_id(run.id, call.id),
            since=call.since,
            share=call.share,
        )
        for call in sub_agents_at_work(run)
    )


def open_calls(run: Run) -> tuple[OpenCall, ...]:
    """Return the calls of *run* that wait for somebody, in call order."""
    return tuple(
        OpenCall(
            id=f"{run.id}/{call.id}",
            run_id=run.id,
            call_id=call.id,
            tool=call.tool,
            arguments=call.arguments,
            arguments_digest=call.arguments_digest,
            waits_for=waits_for,
            reason=call.reason,
            since=call.since,
            expires_at=call.since + call.timeout_seconds if waits_for == ANSWER else call.expires_at,
            role=call.role,
            provider_id=call.provider_id,
            agent=run.agent,
            root=run.root or run.id,
            path=run.parent.path if run.parent is not None else (),
        )
        for call in run.calls
        if (waits_for := _waits_for(run, call))
    )


def _waits_for(run: Run, call: Call) -> str:
    """Return what *call* waits for, or an empty text."""
    if awaits_answer(call):
        # A named event is nobody's to answer: another run of its tree is to publish something.
        return ANSWER if run.ending is None and not call.event else ""
    hold = _HELD.get(call.status)
    return str(hold) if hold is not None else ""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a listing. `holds` also names what somebody outside is to bring: `reply`, `answer(CALL)`.

    A run that `delegates` does nothing itself and waits for its sub-agents: whether they get on, its `RunTree` says.
    """

    id: str
    state: str
    agent: str
    holds: tuple[str, ...]
    turn_count: int
    input_tokens: int
    output_tokens: int
    tool_calls: int
    tool_failures: int
    error: str | None
    created_at: float
    updated_at: float
    seq: int
    parent: str | None = None
    root: str | None = None
    labels: Mapping[str, str] = {}
    set_apart: str = ""
    at_rest: bool = False
    delegates: bool = False
    ending: str = ""
    depth: int = 0

    @classmethod
    def of(cls, row: RunRow) -> RunSummary:
        """Return what a row of the store says."""
        head, counters = row.head, row.head.counters
        return cls(
            id=row.run_id,
            state=head.state,
            agent=head.agent,
            holds=head.holds,
            turn_count=counters.get("turn_count", 0),
            input_tokens=counters.get("input_tokens", 0),
            output_tokens=counters.get("output_tokens", 0),
            tool_calls=counters.get("tool_calls", 0),
            tool_failures=counters.get("tool_failures", 0),
            error=counters.get("error"),
            created_at=head.created_at,
            updated_at=head.updated_at,
            seq=row.last_seq,
            parent=head.parent,
            root=head.root,
            labels=head.labels,
            set_apart=row.mark.reason if row.mark is not None else "",
            at_rest=not head.live and SUB_AGENTS not in head.holds,
            delegates=not head.live and SUB_AGENTS in head.holds,
            ending=counters.get("ending", ""),
            depth=counters.get(DEPTH, 0),
        )


async def list_runs(
    journal: Journal,
    *,
    after: tuple[float, str] | None,
    limit: int,
    states: Sequence[str],
    agent: str | None,
    waiting: bool,
    root: str | None = None,
) -> Sequence[RunSummary]:
    """Return runs, newest first; see `Runtime.list`.

    Raises:
        InvalidValue: *limit* is less than 1, or one of *states* is no state.
    """
    if limit < 1:
        raise InvalidValue("limit", "at least 1", limit)
    unknown = next((state for state in states if state not in RunState.__members__), None)
    if unknown is not None:
        raise InvalidValue("states", f"among {', '.join(RunState)}", unknown)
    held = _AWAITED if waiting else ()
    rows = await journal.list(after=after, limit=limit, states=states, agent=agent, root=root, held=held)
    return [RunSummary.of(row) for row in rows]


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a run's journal: its number, the event, and the states it led through."""

    seq: int
    event: Event
    path: tuple[str, ...]


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay found: how many events were folded, and the first difference, if there is one."""

    run_id: str
    events: int
    state: str
    difference: Difference | None = None


def journal_entry(row: StoredEvent) -> JournalEntry:
    """Return an event as callers see it.

    Raises:
        FormatUnknown: It is newer than this version.
    """
    return JournalEntry(seq=row.seq, event=decode_event(row.type, row.version, row.body), path=split_path(row.path))


async def read_run(journal: Journal, run_id: str) -> Revived:
    """Return a run as it is stored, with its specs.

    Raises:
        RunNotFound: There is none of that id.
        RunCorrupt: What is stored of it is damaged.
        FormatUnknown: Something of it is newer than this version.
    """
    loaded = await journal.load(run_id)
    if loaded is None:
        raise RunNotFound(run_id)
    return revive(loaded)


async def snapshot_of(journal: Journal, run_id: str) -> RunSnapshot:
    """Return a run as it is stored; raises as `read_run` does."""
    row = await journal.head(run_id)
    revived = await read_run(journal, run_id)
    spec = revived.specs[revived.run.spec]
    return RunSnapshot.of(revived.run, spec, row.mark.reason if row is not None and row.mark is not None else "")


async def stored_events(journal: Journal, run_id: str, after: int = 0) -> AsyncIterator[StoredEvent]:
    """Yield a run's events numbered above *after*, in order, a page at a time."""
    while page := await journal.read(run_id, after=after, limit=_PAGE):
        for row in page:
            yield row
        after = page[-1].seq


async def specs_of(journal: Journal, run_id: str) -> dict[str, AgentSpec]:
    loaded = await journal.load(run_id)
    if loaded is None:
        raise RunNotFound(run_id)
    return {digest: decode_spec(data) for digest, data in loaded.specs.items()}


async def timeline(journal: Journal, run_id: str, *, full: bool = False) -> AsyncIterator[TraceRecord]:
    """Yield all that happened in a run, from its journal alone; with *full*, what each model call saw as well.

    Raises:
        RunNotFound: There is no such run.
        RunCorrupt: The journal is damaged, or does not lead where it led when it was written.
        FormatUnknown: Something of it is newer than this version.
    """
    specs = await specs_of(journal, run_id)
    run = Run(id=run_id)
    async for row in stored_events(journal, run_id):
        event = decode_event(row.type, row.version, row.body)
        result = step(run, event, specs)
        if isinstance(result, Refusal):
            raise RunCorrupt(run_id, f"event {row.seq} ({row.type}) cannot follow: {result.reason}")
        for record in project(run, event, result.run, checkpointed=row.checkpointed):
            if full and record.event == "llm_call_started":
                record.payload["saw"] = seen(result.run.messages)
            yield record
        run = result.run


async def replay(journal: Journal, run_id: str) -> ReplayReport:
    """Fold a run's journal again from its first event, and compare every path with the recorded one.

    Raises:
        RunNotFound: There is no such run.
        RunCorrupt: A row is damaged or a number is missing.
    """
    specs = await specs_of(journal, run_id)
    run = Run(id=run_id)
    difference: Difference | None = None
    async for row in stored_events(journal, run_id):
        recorded = split_path(row.path)
        if row.seq != run.seq + 1:
            difference = Difference(run.seq + 1, row.type, recorded, (), f"the next number is {row.seq}")
            break
        try:
            event = decode_event(row.type, row.version, row.body)
        except FormatUnknown as unknown:
            difference = Difference(row.seq, row.type, recorded, (), str(unknown))
            break
        result = step(run, event, specs)
        if isinstance(result, Refusal):
            difference = Difference(row.seq, row.type, recorded, (), result.reason)
            break
        found = tuple(map(str, result.path))
        if found != recorded:
            difference = Difference(row.seq, row.type, recorded, found)
            break
        run = result.run
    return ReplayReport(run_id=run_id, events=run.seq, state=str(run.state), difference=difference)


async def stepper_of(journal: Journal, run_id: str) -> Stepper:
    """Return a run to be gone through event by event.

    Raises:
        RunNotFound: There is no such run.
        RunCorrupt: A row is damaged or a number is missing.
    """
    specs = await specs_of(journal, run_id)
    return Stepper(run_id, [row async for row in stored_events(journal, run_id)], specs)
