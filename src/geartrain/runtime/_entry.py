"""From steps to what is stored, and back: pure, and the only place that knows both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from geartrain.limits import Limits
from geartrain.machine import (
    ENDED,
    EVENT_VERSIONS,
    RUN_VERSION,
    AgentSpec,
    Command,
    Event,
    Run,
    RunState,
    awaits_answer,
    awaits_reply,
    decode_event,
    decode_run,
    decode_spec,
    encode_event,
    encode_run,
    join_path,
    rests,
    split_path,
    step,
    sub_agents_at_work,
    wake_at,
)
from geartrain.machine import Refusal as _Refusal
from geartrain.persistence import Entry, Head, LoadedRun, Outgoing, RunCorrupt, StoredEvent

# The counter that says under which claim a run was last moved: that tells whether the process that did so died.
EPOCH: Final = "epoch"
# A checkpoint is written at these boundaries only, if enough was written since the last one.
_BOUNDARIES = frozenset({RunState.COMPACT_OR_SAVE, RunState.SUSPENDED, *ENDED})
# About how much of a checkpoint each open call takes.
_CALL_BYTES: Final = 1_000
# What a run waits for that has sub-agents at work, beside the kinds of holds.
SUB_AGENTS: Final = "sub_agents"
# Of a sub-agent's run, among its counters: which call of its parent has started it, and how deep it is in its tree.
CALL: Final = "call"
DEPTH: Final = "depth"


class Moved(msgspec.Struct, frozen=True, gc=False):
    """One event, the run after it, and what must be in progress then. `digest` is set if it came from outside."""

    event: Event
    run: Run
    digest: str
    commands: tuple[Command, ...]


def stored(moved: Moved) -> StoredEvent:
    """Return an event as the journal keeps it."""
    event = moved.event
    name = type(event).__name__
    return StoredEvent(
        seq=moved.run.seq,
        id=event.id,
        type=name,
        version=EVENT_VERSIONS[name],
        time=moved.run.updated_at,
        body=encode_event(event),
        digest=moved.digest,
        path=join_path(moved.run.path),
        outside=bool(moved.digest),
    )


def head_of(run: Run, spec: AgentSpec) -> Head:
    """Return what is asked of many runs at once."""
    ended = run.state in ENDED
    usage = run.token_count
    counters: dict[str, int | float | str] = {
        "turn_count": run.turn_count,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "tool_calls": run.tool_calls,
        "tool_failures": run.tool_failures,
        "active_seconds": round(run.active_seconds, 3),
    }
    if usage.cost:
        counters["cost"] = round(usage.cost, 6)
    if run.error is not None:
        counters["error"] = str(run.error.code)
    if run.ending is not None and not ended:
        counters["ending"] = ending_of(run)
    if run.parent is not None:
        counters[CALL], counters[DEPTH] = run.parent.call_id, run.depth
    return Head(
        state=run.state,
        agent=run.agent,
        live=not rests(run, spec),
        ended=ended,
        holds=(*map(str, run.holds), *_outside_waits(run, spec)),
        parent=run.parent.run_id if run.parent is not None else None,
        root=run.root or None,
        wake_at=wake_at(run, spec),
        created_at=run.created_at,
        updated_at=run.updated_at,
        counters=counters,
        labels=run.labels,
    )


def ending_of(run: Run) -> str:
    """Return why a run that has not ended is ending: the code of its cause; nothing if it is not."""
    if run.ending is None or run.state in ENDED:
        return ""
    return str(run.ending.error.code) if run.ending.error is not None else str(run.ending.state)


def _outside_waits(run: Run, spec: AgentSpec) -> Iterator[str]:
    """Yield what somebody outside is to bring, named as holds are, so that listings find it."""
    if awaits_reply(run, spec):
        yield "reply"
    if run.ending is None:
        yield from (
            f"{call.event or 'answer'}({call.id})" for call in run.calls if call.external and awaits_answer(call)
        )
    if sub_agents_at_work(run):
        yield SUB_AGENTS


def entry_of(
    moves: Sequence[Moved],
    *,
    expected: int,
    epoch: int,
    spec: AgentSpec,
    tail_bytes: int,
    specs: Mapping[str, bytes],
    artifacts: Mapping[str, bytes],
    consumed: tuple[int, ...],
    limits: Limits,
    outgoing: tuple[Outgoing, ...] = (),
) -> Entry:
    """Return the entry that writes *moves*, with a checkpoint if one is due.

    One is due at a boundary when the bytes since the last one pass a fixed size, and the size of the run's context:
    so all checkpoints together cost no more than the events do.
    """
    run = moves[-1].run
    events = [stored(moved) for moved in moves]
    tail = tail_bytes + sum(len(event.body) for event in events)
    # A run with many sub-agents has many events before it comes to the next boundary: their ends.
    delegates = bool(sub_agents_at_work(run))
    boundary = delegates or any(state in _BOUNDARIES for moved in moves for state in moved.run.path)
    size = run.messages_size + (_CALL_BYTES * len(run.calls) if delegates else 0)
    checkpoint = None
    if boundary and tail >= max(limits.checkpoint_bytes, size):
        checkpoint = encode_run(run)
        events[-1] = msgspec.structs.replace(events[-1], checkpointed=True)
    return Entry(
        run_id=run.id,
        epoch=epoch,
        expected=expected,
        events=tuple(events),
        head=_head_under(run, spec, epoch),
        checkpoint=checkpoint,
        checkpoint_version=RUN_VERSION,
        specs=specs,
        artifacts=artifacts,
        consumed=consumed,
        outgoing=outgoing,
    )


def nothing_new(
    run: Run, spec: AgentSpec, epoch: int, consumed: tuple[int, ...] = (), answers: tuple[Outgoing, ...] = ()
) -> Entry:
    """Return the entry that writes once more where *run* is, and lets go of what was sent to it and cannot move it.

    *answers* say so to whom it matters.
    """
    head = _head_under(run, spec, epoch)
    return Entry(
        run_id=run.id, epoch=epoch, expected=run.seq, events=(), head=head, consumed=consumed, outgoing=answers
    )


def _head_under(run: Run, spec: AgentSpec, epoch: int) -> Head:
    head = head_of(run, spec)
    return msgspec.structs.replace(head, counters={**head.counters, EPOCH: epoch})


@dataclass(frozen=True, slots=True)
class Revived:
    """A run read back from its journal, with its specs, and the bytes since its last checkpoint."""

    run: Run
    specs: dict[str, AgentSpec]
    tail_bytes: int


def revive(loaded: LoadedRun) -> Revived:
    """Return the run that a journal leads to: its checkpoint, and the events after it folded in.

    Raises:
        FormatUnknown: Something of it is newer than this version.
        RunCorrupt: An event cannot have led where the journal goes on.
    """
    specs = {digest: decode_spec(data) for digest, data in loaded.specs.items()}
    run = Run(id=loaded.run_id)
    if loaded.checkpoint is not None:
        run = decode_run(loaded.checkpoint_version, loaded.checkpoint)
        if run.id != loaded.run_id or run.seq != loaded.checkpoint_seq or run.spec not in specs:
            raise RunCorrupt(loaded.run_id, f"its checkpoint is not one of this run at event {loaded.checkpoint_seq}")
    tail_bytes = 0
    for row in loaded.events:
        event = decode_event(row.type, row.version, row.body)
        result = step(run, event, specs)
        if isinstance(result, _Refusal):
            raise RunCorrupt(loaded.run_id, f"event {row.seq} ({row.type}) cannot follow: {result.reason}")
        if tuple(map(str, result.path)) != split_path(row.path):
            reason = f"event {row.seq} ({row.type}) led to {row.path or 'no change'}, now to {join_path(result.path)}"
            raise RunCorrupt(loaded.run_id, reason)
        run = result.run
        tail_bytes += len(row.body)
    return Revived(run, specs, tail_bytes)
