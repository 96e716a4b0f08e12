"""`show --tree` and `watch --tree`: a run with all that is below it, a line each."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Final

from geartrain.cli._acts import Setting
from geartrain.cli._errors import OptionInvalid
from geartrain.cli._given import opened
from geartrain.cli._outcome import Way, command_line, tree_steps
from geartrain.cli._show import kept_by
from geartrain.cli._stores import find_run
from geartrain.cli._tree_lines import Layout, fitting, lines
from geartrain.cli._watch import conclude
from geartrain.persistence.sqlite import store_owner
from geartrain.runtime import RunTree, open_reader

POLL_SECONDS: Final = 0.25
# Lines of a terminal that a tree leaves free.
_FREE_LINES: Final = 3


async def show_tree(setting: Setting, given: str) -> int:
    """Print a run and all that is below it; return 0."""
    async with opened(setting, given) as one:
        if one.exported:
            raise OptionInvalid("--tree", f"{given!r} has one run, and none of those below it")
        place, tree = one.place, await one.reader.tree(one.run_id)
    if setting.screen.json:
        setting.screen.print_json(tree)
        return 0
    for line in lines(tree, time.time()):
        setting.screen.answer(line)
    owner = store_owner(place.path)
    steps = _steps(tree, setting.way(place), driven=owner is not None)
    for line in [*steps, *kept_by(owner, steps)]:
        setting.screen.tell(line, "yellow")
    return 0


async def watch_tree(setting: Setting, given: str) -> int:
    """Print a tree as it changes, until its root has ended; return the exit code of that.

    Looking takes no more than a quarter of the time, however large the tree is.
    """
    place, run_id = await find_run(given, setting.store, setting.folder, setting.index)
    view, way = _View(setting), setting.way(place)
    async with open_reader(place.path) as reader:
        while True:
            began = time.monotonic()
            tree = await reader.tree(run_id)
            if not tree.ended and store_owner(place.path) is None:
                view.tell(_steps(tree, way, driven=False))
            view.show(tree)
            if tree.ended:
                break
            await asyncio.sleep(max(POLL_SECONDS, 3 * (time.monotonic() - began)))
        end = await reader.snapshot(run_id)
    return conclude(setting.screen, end)


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
        """Say what the tree waits for, once, above the tree."""
        if told != self._told:
            self._told = told
            self._replace(())
            for line in told:
                self._screen.say(line, "yellow")

    def _changed(self, tree: RunTree) -> list[str]:
        changed, layout = [], Layout(tree, None)
        for run in tree.walk():
            line = layout.line(run)
            if self._known.get(run.id) != line:
                self._known[run.id] = line
                changed.append(line)
        return changed

    def _draw(self, tree: RunTree) -> None:
        size = shutil.get_terminal_size()
        above = sum(1 + len(line) // size.columns for line in self._told)
        shown = fitting(tree, max(5, size.lines - _FREE_LINES - above), size.columns, time.time())
        self._replace(shown)

    def _replace(self, lines: Sequence[str]) -> None:
        """Put *lines* in the place of what was drawn last, at once: whoever stops between has one or the other."""
        erasure = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        sys.stdout.write(erasure + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = len(lines)
