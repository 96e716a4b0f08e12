"""`statistics`, `delete` and `prune`: what a store holds, and what it is to hold no longer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from geartrain.cli._acts import Setting
from geartrain.cli._errors import OptionInvalid
from geartrain.cli._screen import Screen
from geartrain.cli._stores import Place, find_run, store_to_read
from geartrain.cli._text import counted, one_line
from geartrain.cli._timeline import shown_time
from geartrain.cli._typed import typed_line
from geartrain.clock import SystemClock
from geartrain.persistence import RunNotEnded
from geartrain.runtime import Runtime, RunTotals, open_reader

_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 7 * 86_400.0}
_AGE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])")


async def statistics(setting: Setting) -> int:
    """Print what all runs of a store come to; return 0."""
    place = store_to_read(setting.store, setting.folder, setting.index)
    async with open_reader(place.path) as reader:
        totals = await reader.totals()
    if setting.screen.json:
        setting.screen.print_json(totals)
        return 0
    for name, value in _rows(totals, place):
        setting.screen.answer(f"{name:<11}{value}")
    return 0


def _rows(totals: RunTotals, place: Place) -> list[tuple[str, str]]:
    rows = [("runs", f"{totals.runs:,}"), *(("", f"{count:,} {state}") for state, count in totals.by_state.items())]
    if totals.set_apart:
        rows.append(("", f"{totals.set_apart:,} of them set apart"))
    if totals.errors_by_kind:
        codes = ", ".join(f"{count:,} {code}" for code, count in totals.errors_by_code.items())
        rows.append(("errors", f"{_errors(totals)} ({codes})"))
    return [
        *rows,
        ("turns", f"{totals.turn_count:,}"),
        ("tokens", f"{totals.total_tokens:,} ({totals.input_tokens:,} in, {totals.output_tokens:,} out)"),
        ("calls", f"{totals.tool_calls:,}, {totals.tool_failures:,} of them failed"),
        ("active", f"{totals.active_seconds:,.1f} s"),
        *([("cost", f"{totals.cost:,.4f}")] if totals.cost else []),
        ("last moved", shown_time(totals.moved_at) or "never"),
        ("store", str(place.path)),
    ]


def _errors(totals: RunTotals) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in totals.errors_by_kind.items())


def foot(totals: RunTotals) -> str:
    """Return all runs of a store in one line."""
    parts = [
        f"{counted(totals.runs, 'run')} in all: "
        + ", ".join(f"{count:,} {state}" for state, count in totals.by_state.items()),
        *([f"errors: {_errors(totals)}"] if totals.errors_by_kind else []),
        counted(totals.turn_count, "turn"),
        counted(totals.total_tokens, "token"),
        counted(totals.tool_calls, "call"),
        f"last moved {shown_time(totals.moved_at)}",
    ]
    return "; ".join(parts)


async def delete(setting: Setting, given: Sequence[str], *, yes: bool) -> int:
    """Delete ended runs for good, all that are named or none; return 0."""
    found: dict[Path, dict[str, str]] = {}
    for each in given:
        place, run_id = await find_run(each, setting.store, setting.folder, setting.index)
        if place.how == "known" and each != run_id:
            reason = f"{each!r} is {run_id} in {place.path}; to delete a run elsewhere give its whole id, or --store"
            raise OptionInvalid("RUN", reason)
        found.setdefault(place.path, {})[run_id] = await _ended(place.path, run_id)
    lines = [line for runs in found.values() for line in runs.values()]
    if not await _is_sure(setting.screen, lines, f"Delete {counted(len(lines), 'run')} for good?", yes=yes):
        return 0
    for path, runs in found.items():
        async with Runtime.open(path, recover="none") as runtime:
            for run_id in runs:
                await runtime.delete(run_id)
                setting.screen.tell(f"deleted {run_id}")
    return 0


async def _ended(path: Path, run_id: str) -> str:
    """Return a line about a run that has ended.

    Raises:
        RunNotEnded: It has not.
    """
    async with open_reader(path) as reader:
        row = await reader.journal.head(run_id)
    assert row is not None, "it was found there"
    if not row.head.ended:
        raise RunNotEnded(run_id, row.head.state)
    return one_line(f"{run_id}  {row.head.state}  {row.head.agent}  {shown_time(row.head.updated_at)}")


async def prune(setting: Setting, older_than: str, *, dry_run: bool, yes: bool) -> int:
    """Delete all runs that ended long ago; return 0."""
    screen = setting.screen
    before = SystemClock().now() - seconds_of(older_than)
    place = store_to_read(setting.store, setting.folder, setting.index)
    async with open_reader(place.path) as reader:
        count = await reader.count_ended(before=before)
    ended = f"that ended before {shown_time(before)}"
    if dry_run or not count:
        _conclude(screen, before, count, f"{counted(count, 'run')} {ended}; nothing was deleted")
        return 0
    if not await _is_sure(screen, [f"store {place.path}"], f"Delete {counted(count, 'run')} {ended}?", yes=yes):
        return 0
    async with Runtime.open(place.path, recover="none") as runtime:
        count = await runtime.prune(before=before)
    _conclude(screen, before, count, f"deleted {counted(count, 'run')} {ended}")
    return 0


def _conclude(screen: Screen, before: float, count: int, text: str) -> None:
    if screen.json:
        screen.print_json({"before": before, "runs": count})
    else:
        screen.answer(text)


def seconds_of(age: str) -> float:
    """Return the seconds of an age like `30d`.

    Raises:
        OptionInvalid: It is none.
    """
    found = _AGE.fullmatch(age.strip())
    if found is None:
        raise OptionInvalid("--older-than", f"must be a number and one of s, m, h, d, w, like 30d, got {age!r}")
    return float(found[1]) * _SECONDS[found[2]]


async def _is_sure(screen: Screen, lines: Sequence[str], question: str, *, yes: bool) -> bool:
    """Return whether whoever asked for it means it: has said so by --yes, or says so at the terminal."""
    if yes:
        return True
    if not screen.interactive:
        raise OptionInvalid("--yes", f"is needed where nobody can be asked ({question})")
    for line in lines:
        screen.say(line)
    said = await typed_line(f"{question} [y]es, [N]o: ", afresh=True)
    sure = (said or "").strip().lower() in ("y", "yes")
    if not sure:
        screen.say("nothing was deleted")
    return sure
