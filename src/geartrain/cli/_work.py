"""`work`: all runs of one store, driven until every one rests."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final

import anyio

from geartrain.cli._acts import Setting
from geartrain.cli._agents import cast_of
from geartrain.cli._interruption import Interruption
from geartrain.cli._outcome import FAILED, SUSPENDED, command_line
from geartrain.cli._screen import Screen
from geartrain.cli._stores import Place, store_to_read
from geartrain.cli._text import counted
from geartrain.limits import Limits
from geartrain.machine import HoldKind, RunState
from geartrain.runtime import RunReader, Runtime, RunTotals, open_reader

_LOOK_SECONDS: Final = 0.5
_PAGE: Final = 1_000
_SHOWN: Final = 20


async def work(setting: Setting, *, stay: bool) -> int:
    """Drive all runs to rest, or (with *stay*) until a signal comes; return the exit code."""
    place = store_to_read(setting.store, setting.folder, setting.index)
    cast = cast_of(setting.app, setting.folder)
    screen = setting.screen
    before = await _totals(place)

    def on_first() -> None:
        screen.progress("")
        screen.say(f"geartrain: waiting up to {Limits().grace_seconds:.0f} s for what has started; again stops now")

    def on_second() -> None:
        screen.say("geartrain: stopped at once; a write that had begun may have been done")

    with Interruption(on_first, on_second) as interruption:
        async with Runtime.open(place.path, agents=cast.agents.values(), policy=cast.policy) as runtime:
            setting.index.note(place.path)
            with anyio.CancelScope() as scope:
                interruption.guard(scope)
                await _drive(runtime, screen, stay=stay)
    screen.progress("")
    return await _conclude(setting, place, before, interruption.signal)


async def _drive(runtime: Runtime, screen: Screen, *, stay: bool) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell, runtime, screen)
        await (runtime.wait_closed() if stay else runtime.wait_at_rest())
        tasks.cancel_scope.cancel()


async def _tell(runtime: Runtime, screen: Screen) -> None:
    """Show how far it is, in one line that replaces itself."""
    while True:
        statistics = await runtime.statistics()
        waiting = f", {len(statistics.suspects_waiting)} wait to go on alone" if statistics.suspects_waiting else ""
        failing = ", the store cannot write" if statistics.store_failing else ""
        screen.progress(f"{_states(statistics.totals)}; {statistics.runs_loaded:,} at work{waiting}{failing}")
        await anyio.sleep(_LOOK_SECONDS)


def _states(totals: RunTotals) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in totals.by_state.items()) or "no run"


async def _totals(place: Place) -> RunTotals:
    async with open_reader(place.path) as reader:
        return await reader.totals()


async def _conclude(setting: Setting, place: Place, before: RunTotals, number: int | None) -> int:
    """Say how all runs stand now, and return the exit code."""
    screen = setting.screen
    async with open_reader(place.path) as reader:
        after = await reader.totals()
        apart = await _set_apart(reader)
    if screen.json:
        body: dict[str, Any] = {"by_state": after.by_state, "set_apart": apart, "signal": number}
        screen.print_json(body)
    else:
        screen.tell(f"{counted(after.runs, 'run')}: {_states(after)}" if after.runs else f"no run in {place.path}")
        way = setting.way(place)
        for run_id in apart[:_SHOWN]:
            screen.say(f"set apart: {command_line('show', run_id, way)}", "red")
        if len(apart) > _SHOWN:
            screen.say(f"… and {len(apart) - _SHOWN:,} more", "red")
        if number is None and (after.by_state.get(RunState.SUSPENDED) or _left(after)):
            store = ("--store", str(place.path)) if place.how == "named" else ()
            screen.tell(f"who waits for somebody: {shlex.join(['geartrain', 'list', '--waiting', *store])}")
    if number is not None:
        return 128 + number
    if after.by_state.get(RunState.SUSPENDED) or apart or _left(after):
        return SUSPENDED
    return FAILED if after.by_state.get(RunState.FAILED, 0) > before.by_state.get(RunState.FAILED, 0) else 0


def _left(totals: RunTotals) -> int:
    """Return how many runs have not ended and are not suspended: those that wait for somebody outside."""
    over = (RunState.FINISHED, RunState.FAILED, RunState.CANCELLED)
    return totals.runs - sum(totals.by_state.get(state, 0) for state in over)


async def _set_apart(reader: RunReader) -> Sequence[str]:
    """Return the runs that nobody moves until a person has looked at them, the newest first."""
    found: list[str] = []
    after: tuple[float, str] | None = None
    while rows := await reader.list(after=after, limit=_PAGE, states=(RunState.SUSPENDED,)):
        found += [row.id for row in rows if row.set_apart or HoldKind.QUARANTINED in row.holds]
        after = (rows[-1].created_at, rows[-1].id)
    return found
