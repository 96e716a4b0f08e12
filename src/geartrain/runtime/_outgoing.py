"""What a run sends other runs: pure functions of the step that sends it, written in that step's own append.

    a sub-agent's call begins      → `RunStarted` to the run that it starts
    a sub-agent's run has ended    → `SubAgentEnded` to its parent
    a run is ending                → `CancelRequested` to its sub-agents at work
    a run is paused, or goes on    → `PauseRequested`, `RunResumed` to them
    a share has been raised        → `BudgetRaised` to the run that has it
    a named event is published     → `EventPublished` to the root, and from there `EventHeard` to who waits for it

Rule 1: what is sent is stored with what sends it, or neither is; so nothing is lost between two runs.
Rule 2: ids are derived, so what is sent twice arrives once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import msgspec

from geartrain.ids import digest, sub_agent_run_id
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import (
    ENDED,
    EVENT_VERSIONS,
    KIND_OF_CODE,
    Budget,
    BudgetRaised,
    Call,
    CallStatus,
    CancelRequested,
    Event,
    EventAwaited,
    EventHeard,
    EventPublished,
    HoldKind,
    ParentRef,
    PauseRequested,
    ReasonCode,
    Run,
    RunError,
    RunResumed,
    RunStarted,
    RunState,
    ShareRaised,
    SubAgentEnded,
    answers,
    awaited_by,
    encode_event,
    published_by,
    sub_agents_at_work,
)
from geartrain.persistence import Outgoing
from geartrain.runtime._agent import RegisteredAgent
from geartrain.runtime._entry import Moved
from geartrain.runtime._sub_agents import input_of

# Room in the event of an end for all but its answer.
_OTHER_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Moving:
    """One step as senders see it: the run before and after it, and what this process knows."""

    before: Run
    after: Run
    event: Event
    agents: Mapping[str, RegisteredAgent]
    limits: Limits
    begun: Sequence[Call]


class Sent(msgspec.Struct, frozen=True, gc=False):
    """An event for another run, and the specs that it names, by digest."""

    run_id: str
    event: Event
    specs: Mapping[str, bytes] = {}


Sender = Callable[[Moving], Iterator[Sent]]


def _begun(before: Run, after: Run) -> Sequence[Call]:
    """Return the calls that a step has set to work; of a thousand open ones it has touched few."""
    if after.calls is before.calls:
        return ()
    touched = [pair for pair in zip_longest(before.calls, after.calls) if pair[0] is not pair[1]]
    running = [(was, now) for was, now in touched if now is not None and now.status is CallStatus.RUNNING]
    # As long as a turn is open its calls keep their places.
    return [now for was, now in running if was is None or was.id != now.id or was.status is not CallStatus.RUNNING]


def starts(moving: Moving) -> Iterator[Sent]:
    """Yield the starts of sub-agents whose calls this step has begun. One that cannot start here sends nothing."""
    after = moving.after
    for call in moving.begun:
        if call.sub_agent and _hindrance(call, moving.agents) is None:
            registered = moving.agents[call.tool]
            yield Sent(
                sub_agent_run_id(after.id, call.id),
                _start(after, call, registered),
                {registered.digest: registered.encoded},
            )


def _hindrance(call: Call, agents: Mapping[str, RegisteredAgent]) -> RunError | None:
    """Return why the sub-agent of *call* cannot start here, or None."""
    registered = agents.get(call.tool)
    if registered is None:
        return _error(ReasonCode.AGENT_GONE, f"no agent {call.tool!r} is registered here")
    if call.share is not None and call.share.max_cost is not UNLIMITED and not registered.agent.tells_cost:
        message = f"the run's cost is limited, and nothing tells what a call of agent {call.tool!r} costs"
        return _error(ReasonCode.COST_BUDGET_EXCEEDED, message)
    return None


def _error(code: ReasonCode, message: str) -> RunError:
    return RunError(code=code, kind=KIND_OF_CODE[code], message=message)


def _start(parent: Run, call: Call, registered: RegisteredAgent) -> RunStarted:
    path = parent.parent.path if parent.parent is not None else ()
    return RunStarted(
        id=f"{call.id}.start",  # not that of a start from outside: under one id, nobody would see that there are two
        time=parent.updated_at,
        source="parent",
        by=parent.principal,
        agent=call.tool,
        spec=registered.digest,
        input=input_of(call.arguments),
        budget=call.share or Budget(),
        request=digest(f"{parent.id}\x1f{call.id}".encode()),
        deadline=parent.deadline,
        principal=parent.principal,
        permissions=parent.permissions,
        context=parent.context,
        parent=ParentRef(run_id=parent.id, call_id=call.id, path=(*path, call.id)),
        root=parent.root,
        depth=parent.depth + 1,
    )


def end(moving: Moving) -> Iterator[Sent]:
    """Yield the end of a sub-agent's run, for the call that started it."""
    run = moving.after
    if run.parent is None or run.state not in ENDED:
        return
    whole = run.whole
    room = max(1, moving.limits.event_bytes - _OTHER_BYTES) // 4
    event = SubAgentEnded(
        id=f"{run.parent.call_id}.ended",
        time=run.updated_at,
        source="sub_agent",
        call_id=run.parent.call_id,
        run_id=run.id,
        state=run.state,
        text=(run.final_answer or "")[:room],
        error=run.error,
        usage=whole.token_count,
        turns=whole.turn_count,
        tool_calls=whole.tool_calls,
        tool_failures=whole.tool_failures,
        seconds=whole.active_seconds,
    )
    yield Sent(run.parent.run_id, event)


def cancels(moving: Moving) -> Iterator[Sent]:
    """Yield the cancels for all that is at work below a run that has begun to end."""
    run = moving.after
    if run.ending is None or moving.before.ending is not None:
        return
    cause = run.ending.error.code if run.ending.error is not None else run.ending.state
    for call in sub_agents_at_work(run):
        event = CancelRequested(
            id=f"{run.id}.cancel",
            time=run.updated_at,
            source="parent",
            by=run.ending.by,
            reason=f"the run that started this one is ending: {cause}",
            code="cancelled_by_parent",
        )
        yield Sent(sub_agent_run_id(run.id, call.id), event)


def pauses(moving: Moving) -> Iterator[Sent]:
    """Yield the pause of a run, or its end, for all that is at work below it."""
    run = moving.after
    paused = run.held_by(HoldKind.PAUSED)
    if paused == moving.before.held_by(HoldKind.PAUSED) or run.ending is not None:
        return
    common = {"id": f"{run.id}.{'pause' if paused else 'resume'}.{run.seq}", "time": run.updated_at}
    event: Event
    if paused:
        event = PauseRequested(**common, source="parent", by=moving.event.by, reason="its parent is paused")  # type: ignore[arg-type]
    else:
        event = RunResumed(**common, source="parent", by=moving.event.by)  # type: ignore[arg-type]
    for call in sub_agents_at_work(run):
        known = moving.before.call(call.id)
        if known is not None and known.status is call.status:
            yield Sent(sub_agent_run_id(run.id, call.id), event)


def raises(moving: Moving) -> Iterator[Sent]:
    """Yield the new budget of a sub-agent at work whose share has changed."""
    run = moving.after
    if not isinstance(moving.event, ShareRaised):
        return
    call = run.call(moving.event.call_id)
    if call is not None and call.share is not None:
        event = BudgetRaised(
            id=f"{run.id}.raise.{run.seq}",
            time=run.updated_at,
            source="parent",
            by=moving.event.by,
            budget=call.share,
        )
        yield Sent(sub_agent_run_id(run.id, call.id), event)


def named_events(moving: Moving) -> Iterator[Sent]:
    """Yield what a call publishes or waits for, to the root; and what the root answers."""
    before, after, event = moving.before, moving.after, moving.event
    root = after.root or after.id
    for call in moving.begun:
        if call.event:
            brought = published_by(after, call) if call.event == "publish" else awaited_by(after, call)
            yield Sent(root, brought)
    if isinstance(event, EventHeard) and (waiting := after.call(event.call_id)) is not None and waiting.result is None:
        yield Sent(root, awaited_by(after, waiting))
    if isinstance(event, EventPublished | EventAwaited):
        yield from (Sent(run_id, heard) for run_id, heard in answers(before, event, after))


SENDERS: tuple[Sender, ...] = (starts, cancels, pauses, raises, named_events, end)
# What may make a run send something though it has neither a parent nor such a call.
_TREE_EVENTS: Final = (EventPublished, EventAwaited, EventHeard, ShareRaised)


def _may_send(run: Run, event: Event) -> bool:
    """Whether a run has anything to do with others: most have not, and then no sender is asked."""
    if run.parent is not None or isinstance(event, _TREE_EVENTS):
        return True
    return bool(run.calls) and any(call.sub_agent or call.event for call in run.calls)


def sent_by(
    before: Run, moves: Sequence[Moved], agents: Mapping[str, RegisteredAgent], limits: Limits
) -> tuple[Sent, ...]:
    """Return what the steps *moves* send, in their order."""
    sent: list[Sent] = []
    for moved in moves:
        if not _may_send(moved.run, moved.event):
            before = moved.run
            continue
        moving = Moving(before, moved.run, moved.event, agents, limits, _begun(before, moved.run))
        for sender in SENDERS:
            sent.extend(sender(moving))
        before = moved.run
    return tuple(sent)


def outgoing(sent: Sent) -> Outgoing:
    """Return what is sent as the journal keeps it."""
    name = type(sent.event).__name__
    return Outgoing(
        run_id=sent.run_id,
        id=sent.event.id,
        type=name,
        version=EVENT_VERSIONS[name],
        body=encode_event(sent.event),
    )


def turned_away(run: Run, events: Iterable[Event]) -> Iterator[Outgoing]:
    """Yield the ends of sub-agents that *events* were to start: another run has taken the id of theirs."""
    for event in events:
        if isinstance(event, RunStarted) and event.parent is not None and event.parent != run.parent:
            message = f"run {run.id!r} is there already, and is none of its sub-agents: its id was given from outside"
            error = _error(ReasonCode.SYSTEM_ERROR, message)
            parent = event.parent
            yield outgoing(Sent(parent.run_id, _never_begun(parent.call_id, run.id, error, run.updated_at)))


def unable_sub_agent(before: Run, after: Run, agents: Mapping[str, RegisteredAgent]) -> SubAgentEnded | None:
    """Return the end of the first sub-agent begun since *before* that nobody here can start, or None."""
    for call in _begun(before, after):
        if call.sub_agent and (error := _hindrance(call, agents)) is not None:
            return _never_begun(call.id, sub_agent_run_id(after.id, call.id), error, after.updated_at)
    return None


def _never_begun(call_id: str, run_id: str, error: RunError, time: float) -> SubAgentEnded:
    """Return the end of a sub-agent that has not begun."""
    return SubAgentEnded(
        id=f"{call_id}.gone", time=time, call_id=call_id, run_id=run_id, state=RunState.FAILED, error=error
    )
