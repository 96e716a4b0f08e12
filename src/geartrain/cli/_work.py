"""`work`: all runs of one store, driven until every one rests."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import anyio

from geartrain.cli._acts import Setting
from geartrain.cli._agents import cast_of
from geartrain.cli._interruption import Interruption
from geartrain.cli._outcome import FAILED, SUSPENDED, command_line
from geartrain.cli._screen import Screen
from geartrain.cli._stores import Place, store_to_read
from geartrain.cli._text import counted
from geartrain.errors import GeartrainError, RuntimeClosed
from geartrain.limits import Limits
from geartrain.machine import ENDED, HoldKind, RunState
from geartrain.runtime import RunReader, Runtime, RunTotals, open_reader

_LOOK_SECONDS: Final = 0.5
_PAGE: Final = 1_000
_SHOWN: Final = 20
# What cannot be read is set apart in whatever state it was.
_NOT_ENDED: Final = tuple(state for state in RunState if state not in ENDED)


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
        if screen.moving:
            tasks.start_soon(_tell, runtime, screen)
        with suppress(RuntimeClosed):  # it has lost its store; how far it came is told by what is stored
            await (runtime.wait_closed() if stay else runtime.wait_at_rest())
        tasks.cancel_scope.cancel()


async def _tell(runtime: Runtime, screen: Screen) -> None:
    """Show how far it is, in one line that replaces itself; looking takes no more than a tenth of the time."""
    while True:
        began = anyio.current_time()
        screen.progress(await _progress(runtime))
        await anyio.sleep(max(_LOOK_SECONDS, 9 * (anyio.current_time() - began)))


async def _progress(runtime: Runtime) -> str:
    try:
        statistics = await runtime.statistics()
    except GeartrainError as error:  # what is driven goes on when the store can be read again
        return str(error)
    waiting = f", {len(statistics.suspects_waiting)} wait to go on alone" if statistics.suspects_waiting else ""
    failing = ", the store cannot write" if statistics.store_failing else ""
    return f"{_states(statistics.totals)}; {statistics.runs_loaded:,} at work{waiting}{failing}"


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
    if apart or _left(after):
        return SUSPENDED
    return FAILED if after.by_state.get(RunState.FAILED, 0) > before.by_state.get(RunState.FAILED, 0) else 0


def _left(totals: RunTotals) -> int:
    """Return how many runs have not ended: each waits for somebody, or for another process to go on with it."""
    return totals.runs - sum(totals.by_state.get(state, 0) for state in ENDED)


async def _set_apart(reader: RunReader) -> Sequence[str]:
    """Return the runs that nobody moves until a person has looked at them, the newest first."""
    found: list[str] = []
    after: tuple[float, str] | None = None
    while rows := await reader.list(after=after, limit=_PAGE, states=_NOT_ENDED):
        found += [row.id for row in rows if row.set_apart or HoldKind.QUARANTINED in row.holds]
        after = (rows[-1].created_at, rows[-1].id)
    return found
