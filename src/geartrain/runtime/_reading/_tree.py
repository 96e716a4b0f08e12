"""A tree of runs at one moment: who is at work for whom, what each has used, and who waits for somebody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from geartrain.errors import FormatUnknown, RunNotFound
from geartrain.machine import ENDED, Budget
from geartrain.persistence import Journal, RunCorrupt, RunRow
from geartrain.runtime._entry import CALL
from geartrain.runtime._reading._runs import OpenCall, RunSnapshot, RunSummary

_PAGE: Final = 1_000
# The state of a run that has been started and waits for its place.
QUEUED: Final = "QUEUED"


class RunTree(msgspec.Struct, frozen=True, kw_only=True):
    """A run and all that is below it, in call order.

    `state` is QUEUED for a run that has been started and waits for its place. `call_id` is its parent's call, `depth`
    counts from the root of the whole tree. `waiting` are its own calls that wait for somebody, `queued` its
    sub-agents' calls that have yet to start. `budget`, `waiting`, `awaits_reply` and `out_of_budget` are of runs that
    have not ended. A tree is `at_rest` if its run and all below it have ended or wait for nothing but somebody.
    """

    id: str
    agent: str
    state: str
    call_id: str = ""
    depth: int = 0
    holds: tuple[str, ...] = ()
    waiting: tuple[OpenCall, ...] = ()
    awaits_reply: bool = False
    out_of_budget: dict[str, str] | None = None
    queued: int = 0
    at_rest: bool = False
    turn_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    error: str | None = None
    set_apart: str = ""
    ended: bool = False
    created_at: float = 0.0
    updated_at: float = 0.0
    budget: Budget | None = None
    children: tuple[RunTree, ...] = ()

    def walk(self) -> list[RunTree]:
        """Return this run and all below it, each before its children."""
        return [self, *(each for child in self.children for each in child.walk())]

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """All calls in the tree that wait for somebody."""
        return tuple(call for run in self.walk() for call in run.waiting)


Snapshot = Callable[[str], Awaitable[RunSnapshot]]


async def rows_of_tree(journal: Journal, run_id: str) -> tuple[dict[str, RunRow], dict[str, list[str]]]:
    """Return the rows of a run and of all that is below it, each before those it has started, and who has started whom.

    Raises:
        RunNotFound: There is no such run.
    """
    top = await journal.head(run_id)
    if top is None:
        raise RunNotFound(run_id)
    started: dict[str, list[RunRow]] = {}
    after: tuple[float, str] | None = None
    while page := await journal.list(after=after, limit=_PAGE, root=top.head.root or run_id):
        for row in page:
            started.setdefault(row.head.parent or "", []).append(row)
        after = (page[-1].head.created_at, page[-1].run_id)
    rows, below, reached = {run_id: top}, dict[str, list[str]](), [run_id]
    for each in reached:
        below[each] = [row.run_id for row in started.get(each, ()) if row.run_id not in rows]
        rows.update((row.run_id, row) for row in started.get(each, ()))
        reached += below[each]
    return rows, below


async def read_tree(journal: Journal, run_id: str, snapshot: Snapshot) -> RunTree:
    """Return the tree that begins with a run; *snapshot* reads one run as it is now.

    Raises:
        RunNotFound: There is no such run.
    """
    rows, below = await rows_of_tree(journal, run_id)
    found: dict[str, RunSnapshot] = {}
    for row in rows.values():
        if not row.head.ended and row.mark is None:
            try:
                found[row.run_id] = await snapshot(row.run_id)
            except (RunCorrupt, FormatUnknown, RunNotFound):  # one that cannot be read hides no other
                continue
    summaries = {each: (RunSummary.of(row), str(row.head.counters.get(CALL, ""))) for each, row in rows.items()}
    return _node(run_id, summaries, below, found)


def _node(
    run_id: str,
    summaries: Mapping[str, tuple[RunSummary, str]],
    below: Mapping[str, list[str]],
    found: Mapping[str, RunSnapshot],
) -> RunTree:
    summary, call_id = summaries[run_id]
    now = found.get(run_id)
    children = [_node(each, summaries, below, found) for each in below[run_id]]
    known = {child.id for child in children}
    for call in now.sub_agents if now is not None else ():
        if call.run_id not in known:
            child = RunTree(
                id=call.run_id,
                agent=call.agent,
                state=QUEUED,
                call_id=call.call_id,
                depth=summary.depth + 1,
                budget=call.share,
                created_at=call.since,
                updated_at=call.since,
            )
            children.append(child)
    children.sort(key=lambda child: _in_call_order(child.call_id))
    ended = summary.state in ENDED
    return RunTree(
        id=run_id,
        agent=summary.agent,
        state=now.state if now is not None else summary.state,
        call_id=call_id,
        depth=summary.depth,
        holds=now.holds if now is not None else summary.holds,
        waiting=now.waiting if now is not None else (),
        awaits_reply=now is not None and now.awaits_reply,
        out_of_budget=now.out_of_budget if now is not None else None,
        queued=now.queued if now is not None else 0,
        at_rest=ended or bool(summary.set_apart) or ((summary.delegates or summary.at_rest) and _rest(now, children)),
        turn_count=summary.turn_count,
        input_tokens=summary.input_tokens,
        output_tokens=summary.output_tokens,
        tool_calls=summary.tool_calls,
        tool_failures=summary.tool_failures,
        error=summary.error,
        set_apart=summary.set_apart,
        ended=ended,
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        budget=now.budget if now is not None else None,
        children=tuple(children),
    )


def _rest(run: RunSnapshot | None, children: Sequence[RunTree]) -> bool:
    """Whether those that are at work for a run rest; one that has ended is to be told of first."""
    at_work = {call.run_id for call in run.sub_agents} if run is not None else set()
    return all(child.at_rest and not child.ended for child in children if child.id in at_work)


def _in_call_order(call_id: str) -> tuple[int, int]:
    turn, _, position = call_id.removeprefix("t").partition(".c")
    return (int(turn), int(position)) if turn.isdecimal() and position.isdecimal() else (0, 0)
