"""What must hold of the runs of one tree: who was started by whom, what its end brought, and that none is left behind.

Rule 1: a sub-agent's run begins only after its parent's call of it is stored, and was not refused.
Rule 2: its end is the result of that call and of no other: with its state, its answer, and what it and all below it
have used.
Rule 3: no run outlives its root, and in the end nothing is on its way to anybody.
"""

from __future__ import annotations

from collections.abc import Iterator

from geartrain.testing._ledger_calls import judged, replies, requested
from geartrain.testing._ledger_store import SeenEvent, StoredRun, StoreSeen


def started_by_a_call(store: StoreSeen) -> Iterator[str]:
    """Look for runs of sub-agents that no call of their parent has started."""
    for run in store.runs.values():
        starts = run.of_type("RunStarted")
        if len(starts) != 1:
            yield f"{run.run_id} was started {len(starts)} times"
        if not run.parent or not starts:
            continue
        parent, call = store.runs.get(run.parent), _call_of(starts[0])
        if parent is None:
            yield f"{run.run_id} is the run of a sub-agent, and its parent {run.parent} is not stored"
        elif requested(parent).get(call, {}).get("tool") != starts[0].body["agent"]:
            yield f"{run.run_id} was started before {run.parent} had stored the call {call} of it"
        elif call not in judged(parent):
            yield f"{run.run_id} was started before the verdict about {run.parent}/{call} was stored"


def ends_are_told(store: StoreSeen) -> Iterator[str]:
    """Look for ends of sub-agents that their parent knows in another way than they came about."""
    children = {(run.parent, _call_of(run.of_type("RunStarted")[0])): run for run in _below(store)}
    for parent in store.runs.values():
        for event in parent.of_type("SubAgentEnded"):
            child = children.get((parent.run_id, event.body["call_id"]))
            what = f"the end of {event.body['call_id']}, event {event.seq} of {parent.run_id},"
            if child is None:
                if (event.body.get("error") or {}).get("code") != "agent_gone":
                    yield f"{what} is that of a run that is not stored"
            elif not child.ended or child.state != event.body["state"]:
                yield f"{what} says {event.body['state']}, and {child.run_id} is {child.state}"
            else:
                yield from _told_as_it_was(child, event, what)


def _told_as_it_was(child: StoredRun, event: SeenEvent, what: str) -> Iterator[str]:
    answers = [reply.body.get("text", "") for _, reply in replies(child)]
    if child.state == "FINISHED" and event.body.get("text", "") != answers[-1]:
        yield f"{what} says {event.body.get('text')!r}, and {child.run_id} has answered {answers[-1]!r}"
    if (turns := used_turns(child)) != event.body.get("turns", 0):
        yield f"{what} is charged {event.body.get('turns', 0)} turns, and {child.run_id} has used {turns}"
    if (tokens := used_tokens(child)) != _tokens(event):
        yield f"{what} is charged {_tokens(event)} tokens, and {child.run_id} has used {tokens}"


def none_outlives_its_root(store: StoreSeen) -> Iterator[str]:
    """Look for runs that go on though their root has ended, for ends nobody was told, and for what is on its way."""
    for run in _below(store):
        root, parent = store.runs.get(run.root), store.runs.get(run.parent)
        if root is not None and root.ended and not run.ended:
            yield f"{run.run_id} is {run.state}, and its root {run.root} has ended"
        told = {event.body["run_id"] for event in parent.of_type("SubAgentEnded")} if parent is not None else set()
        if run.ended and parent is not None and not parent.ended and run.run_id not in told:
            yield f"{run.run_id} has ended, and its parent does not know"
    for run_id, type_ in store.sent:
        yield f"{type_} still waits for {run_id}"


def used_turns(run: StoredRun) -> int:
    """Return the turns of a run and of all below it that have ended."""
    below: int = sum(event.body.get("turns", 0) for event in run.of_type("SubAgentEnded"))
    return below + max((turn for turn, _ in replies(run)), default=0)


def used_tokens(run: StoredRun) -> int:
    """Return the tokens of a run, those of attempts that were lost included, and of all below it that have ended."""
    return run.tokens + sum(_tokens(event) for event in run.of_type("SubAgentEnded"))


def _tokens(event: SeenEvent) -> int:
    usage = event.body.get("usage") or {}
    tokens: int = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    return tokens


def _below(store: StoreSeen) -> Iterator[StoredRun]:
    return (run for run in store.runs.values() if run.parent and run.of_type("RunStarted"))


def _call_of(start: SeenEvent) -> str:
    call: str = start.body["parent"]["call_id"]
    return call
