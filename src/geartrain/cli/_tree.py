"""`show --tree` and `watch --tree`: a run with all that is below it, a line each."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

from geartrain.cli._acts import Setting
from geartrain.cli._outcome import Way, command_line, exit_code, summary, tree_steps
from geartrain.cli._stores import find_run
from geartrain.cli._text import counted, one_line
from geartrain.limits import Unlimited
from geartrain.persistence.sqlite import store_owner
from geartrain.runtime import RunTree, open_reader

POLL_SECONDS: Final = 0.25
_WIDE: Final = 200
# Lines of a terminal that a tree leaves free.
_FREE_LINES: Final = 3


async def show_tree(setting: Setting, given: str) -> int:
    """Print a run and all that is below it; return 0."""
    place, run_id = await find_run(given, setting.store, setting.folder, setting.index)
    async with open_reader(place.path) as reader:
        tree = await reader.tree(run_id)
    if setting.screen.json:
        setting.screen.print_json(tree)
        return 0
    for line in lines(tree):
        setting.screen.answer(line)
    for line in _steps(tree, setting.way(place), driven=store_owner(place.path) is not None):
        setting.screen.tell(line, "yellow")
    return 0


async def watch_tree(setting: Setting, given: str) -> int:
    """Print a tree as it changes, until its root has ended; return the exit code of that."""
    place, run_id = await find_run(given, setting.store, setting.folder, setting.index)
    view, way = _View(setting), setting.way(place)
    async with open_reader(place.path) as reader:
        while True:
            tree = await reader.tree(run_id)
            view.show(tree)
            if tree.ended:
                break
            if store_owner(place.path) is None:
                view.tell(_steps(tree, way, driven=False))
            await asyncio.sleep(POLL_SECONDS)
        end = await reader.snapshot(run_id)
    setting.screen.tell(summary(end), "bold")
    return exit_code(end)


def lines(tree: RunTree) -> list[str]:
    """Return a line for each run of *tree*, indented by its depth, and a last one that counts them."""
    top = tree.depth
    return [*(_line(run, run.depth - top) for run in tree.walk()), counts(tree)]


def _line(run: RunTree, indent: int) -> str:
    head = "  " * indent + one_line(f"{run.call_id if indent else ''} {run.agent}", 40)
    parts = [run.state, *([] if run.state == "QUEUED" else [_used(run)])]
    if run.error is not None:
        parts.append(run.error)
    if run.set_apart:
        parts.append(f"set apart: {run.set_apart}")
    parts += _waits(run)
    return f"{head:<30} {one_line(run.id):<20} {one_line(', '.join(parts), _WIDE)}"


def _used(run: RunTree) -> str:
    tokens, budget = run.input_tokens + run.output_tokens, run.budget
    turns, most = str(run.turn_count), ""
    if budget is not None:
        turns += _of(budget.max_turns)
        most = _of(budget.max_tokens)
    return f"{turns} turns, {tokens:,}{most} tokens, {counted(run.tool_calls, 'call')}"


def _of(limit: float | Unlimited) -> str:
    return "" if isinstance(limit, Unlimited) else f"/{limit:,}"


def _waits(run: RunTree) -> Iterator[str]:
    """Yield who or what a run waits for."""
    asked = {f"{call.waits_for}({call.call_id})" for call in run.waiting}
    for call in run.waiting:
        yield f"waits for {call.waits_for}: {call.call_id} {call.tool}"
    for hold in run.holds:
        if hold not in asked and not hold.startswith("sub_agents"):
            yield f"waits for {hold}"
    at_work = sum(1 for child in run.children if not child.ended)
    if at_work or run.queued:
        queued = f", {run.queued} more queued" if run.queued else ""
        yield f"waits for {counted(at_work, 'sub-agent')}{queued}"


def counts(tree: RunTree) -> str:
    """Return in one line how many runs of *tree* are where."""
    runs = tree.walk()
    states = Counter(run.state for run in runs)
    queued = sum(run.queued for run in runs)
    tokens = sum(run.input_tokens + run.output_tokens for run in runs)
    told = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
    more = f", {queued:,} calls queued" if queued else ""
    return f"{counted(len(runs), 'run')}: {told}{more}; {tokens:,} tokens"


def _steps(tree: RunTree, way: Way, *, driven: bool) -> list[str]:
    """Return the commands that answer what the runs of *tree* ask, and the one that goes on if nobody moves them."""
    left = not (tree.at_rest or driven)
    return [*tree_steps(tree, way), *([f"nobody moves it: {command_line('resume', tree.id, way)}"] if left else [])]


class _View:
    """A tree on a screen: on a terminal always in the same place, elsewhere a line for each change."""

    def __init__(self, setting: Setting) -> None:
        self._screen = setting.screen
        self._drawn = 0
        self._known: dict[str, str] = {}
        self._told: list[str] = []

    def show(self, tree: RunTree) -> None:
        """Show *tree* as it is now."""
        if self._screen.json:
            if self._changed(tree):
                self._screen.print_json_line(tree)
        elif self._screen.shown:
            self._draw(tree)
        else:
            for line in self._changed(tree):
                self._screen.answer(line)

    def tell(self, told: list[str]) -> None:
        """Say what the tree waits for, once."""
        if told != self._told:
            self._told = told
            self._drawn = 0
            for line in told:
                self._screen.say(line, "yellow")

    def _changed(self, tree: RunTree) -> list[str]:
        changed = []
        for run in tree.walk():
            line = _line(run, run.depth - tree.depth)
            if self._known.get(run.id) != line:
                self._known[run.id] = line
                changed.append(line)
        return changed

    def _draw(self, tree: RunTree) -> None:
        size = shutil.get_terminal_size()
        room = max(5, size.lines - _FREE_LINES)
        shown = [line[: size.columns - 1] for line in fitting(tree, room)]
        if self._drawn:
            sys.stdout.write(f"\x1b[{self._drawn}F\x1b[J")
        sys.stdout.write("".join(f"{line}\n" for line in shown))
        sys.stdout.flush()
        self._drawn = len(shown)


def fitting(tree: RunTree, room: int) -> list[str]:
    """Return the lines of *tree* that fit: of one that is too large, the runs that have not ended, newest first."""
    every = lines(tree)
    if len(every) <= room:
        return every
    runs = tree.walk()
    live = [run for run in runs[1:] if not run.ended]
    live.sort(key=lambda run: (run.state == "QUEUED", -run.updated_at))
    kept = {run.id for run in live[: room - 3]}
    shown = [_line(run, run.depth - tree.depth) for run in runs if run.id in kept or run is tree]
    return [*shown, f"… {len(runs) - len(shown):,} more", counts(tree)]
