"""A tree of runs as lines: a line for each, and of one that is too large those that matter most. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from geartrain.cli._text import counted, one_line
from geartrain.limits import Unlimited
from geartrain.machine import HoldKind, RunState
from geartrain.runtime import QUEUED, SUB_AGENTS, RunTree

# Holds that say how a run stands, and not what it waits for.
_STANDS: Final = frozenset({HoldKind.PAUSED, HoldKind.STUCK, HoldKind.QUARANTINED})
_WIDE: Final = 200
# In fewer columns there is no room for the ids of runs: `show --tree` has them.
_NARROW: Final = 110


def lines(tree: RunTree, now: float | None = None) -> list[str]:
    """Return a line for each run of *tree*, indented by its depth, and a last one that counts them."""
    layout = Layout(tree, now)
    return [*map(layout.line, tree.walk()), counts(tree)]


class Layout:
    """How the runs of a tree stand in columns: who, which run, how it stands. A narrow one leaves out which run."""

    def __init__(self, tree: RunTree, now: float | None, columns: int = _WIDE) -> None:
        self._top = tree.depth
        self._now = now
        self._named = columns >= _NARROW
        self._columns = columns

    def line(self, run: RunTree) -> str:
        """Return what there is to say of a run, in one line."""
        indent = run.depth - self._top
        head = "  " * indent + one_line(f"{run.call_id if indent else ''} {run.agent}", 40)
        name = f" {one_line(run.id):<20}" if self._named else ""
        return f"{head:<{30 if self._named else 20}}{name} {one_line(', '.join(self._parts(run)), _WIDE)}"

    def _parts(self, run: RunTree) -> Iterator[str]:
        delegates = any(not child.ended for child in run.children)
        at_work = not (run.ended or run.at_rest or run.state == QUEUED or delegates)
        since = f" for {self._now - run.updated_at:,.0f} s" if at_work and self._now is not None else ""
        yield f"{run.state}{since}"
        if run.error is not None:
            yield run.error
        if run.set_apart:
            yield f"set apart: {run.set_apart}"
        yield from _waits(run)
        if run.state != QUEUED:
            yield _used(run)

    def cut(self, line: str) -> str:
        """Return as much of a line as fits."""
        return line if len(line) < self._columns else f"{line[: self._columns - 2]}…"


def _used(run: RunTree) -> str:
    """Return what a run has used with all that is below it, for that is what its budget is for."""
    runs, budget = run.walk(), run.budget
    turns, calls = (sum(getattr(each, name) for each in runs) for name in ("turn_count", "tool_calls"))
    used = ((turns, "turn", budget and budget.max_turns), (_tokens(runs), "token", budget and budget.max_tokens))
    return ", ".join([*(_of(*each) for each in used), counted(calls, "call")])


def _of(used: int, what: str, limit: float | Unlimited | None) -> str:
    if limit is None or isinstance(limit, Unlimited):
        return counted(used, what)
    return f"{used:,}/{limit:,} {what}s"


def _tokens(runs: Sequence[RunTree]) -> int:
    return sum(run.input_tokens + run.output_tokens for run in runs)


def _waits(run: RunTree) -> Iterator[str]:
    """Yield who or what a run waits for."""
    asked = {f"{call.waits_for}({call.call_id})" for call in run.waiting}
    for call in run.waiting:
        yield f"waits for {call.waits_for}: {call.call_id} {call.tool}"
    for hold in run.holds:
        if hold not in asked and not hold.startswith(SUB_AGENTS):
            yield hold if hold in _STANDS else f"waits for {hold}"
    at_work = sum(1 for child in run.children if not child.ended)
    if at_work or run.queued:
        queued = f", {run.queued} more queued" if run.queued else ""
        yield f"waits for {counted(at_work, 'sub-agent')}{queued}"


def counts(tree: RunTree) -> str:
    """Return in one line how many runs of *tree* are where."""
    runs = tree.walk()
    states = Counter(run.state for run in runs)
    queued = sum(run.queued for run in runs)
    more = f", {queued:,} calls queued" if queued else ""
    return f"{counted(len(runs), 'run')}: {_told(states)}{more}; {_tokens(runs):,} tokens"


def fitting(tree: RunTree, room: int, columns: int = _WIDE, now: float | None = None) -> list[str]:
    """Return the lines of *tree* that fit: of one that is too large, the runs that matter most, each below its parents.

    These are the ones that wait for somebody, then those at work, then those that went wrong, the newest first.
    """
    layout, runs = Layout(tree, now, columns), tree.walk()
    if len(runs) < room:
        return [*map(layout.cut, map(layout.line, runs)), layout.cut(counts(tree))]
    above = {child.id: run for run in runs for child in run.children}
    kept = {tree.id}
    for run in sorted(runs, key=lambda run: (_rank(run), -run.updated_at)):
        wanted = {run.id}
        while run.id in above and (run := above[run.id]).id not in kept:
            wanted.add(run.id)
        if len(kept | wanted) <= room - 2:
            kept |= wanted
    folded = Counter(run.state for run in runs if run.id not in kept)
    shown = [layout.line(run) for run in runs if run.id in kept]
    return [layout.cut(line) for line in (*shown, f"… {_told(folded)} more", counts(tree))]


def _rank(run: RunTree) -> int:
    """Return how much it matters that a run is seen: the less, the more."""
    if run.ended:
        return 4 if run.state == RunState.FINISHED else 2
    if run.waiting or run.set_apart or run.state == RunState.SUSPENDED:
        return 0
    return 3 if run.state == QUEUED else 1


def _told(states: Counter[str]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
