"""`watch`: following a run by reading its store, whichever process moves it."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from geartrain.cli._acts import Setting, steps_in
from geartrain.cli._outcome import advice, exit_code, reasons, summary
from geartrain.cli._screen import Screen
from geartrain.cli._show import Timeline, left_behind
from geartrain.cli._stores import Place, find_run
from geartrain.persistence.sqlite import store_owner
from geartrain.runtime import RunSnapshot, RunTail, open_reader

# How often the store is read again: another process has no way to tell us that the run has moved.
POLL_SECONDS: Final = 0.25


async def watch(setting: Setting, given: str) -> int:
    """Print what happens to a run until it has ended; return its exit code."""
    place, run_id = await find_run(given, setting.store, setting.folder, setting.index)
    async with open_reader(place.path) as reader:
        end = await _to_its_end(setting, reader.tail(run_id), place)
    return conclude(setting.screen, end)


def conclude(screen: Screen, end: RunSnapshot) -> int:
    """Say how a run has ended, and return its exit code."""
    screen.tell(summary(end), "bold")
    for line in reasons(end):
        screen.say(f"geartrain: {line}", "red")
    for line in advice(end):
        screen.say(line, "dim")
    return exit_code(end)


async def _to_its_end(setting: Setting, tail: RunTail, place: Place) -> RunSnapshot:
    screen = setting.screen
    shown = Timeline(screen, full=False)
    told: tuple[str, ...] = ()
    while True:
        records = await tail.read()
        for record in records:
            if screen.json:
                screen.answer(msgspec.json.encode(record).decode())
            else:
                shown.take(record)
        snapshot = tail.snapshot
        if snapshot is not None and snapshot.ended:
            return snapshot
        if records:
            continue
        if snapshot is not None:
            lines = tuple(await _waits(setting, place, snapshot))
            for line in lines if lines != told else ():
                screen.say(line, "yellow")
            told = lines
        await asyncio.sleep(POLL_SECONDS)


async def _waits(setting: Setting, place: Place, snapshot: RunSnapshot) -> list[str]:
    """Return what the run waits for, or that nobody moves it."""
    way = setting.way(place)
    steps = await steps_in(place, snapshot, way)
    if steps or snapshot.at_rest or store_owner(place.path) is not None:
        return steps
    return left_behind(snapshot, None, way)
