"""Folding: the run that a journal leads to, and whether it leads the same way again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from geartrain.machine._events import Event
from geartrain.machine._run import Run
from geartrain.machine._states import RunState
from geartrain.machine._step import Refusal, Specs, step


class Difference(msgspec.Struct, frozen=True):
    """The first place at which a journal does not lead where it led when it was written."""

    seq: int
    event: str
    recorded: tuple[str, ...]
    found: tuple[str, ...]
    reason: str = ""


def fold(run: Run, events: Iterable[tuple[Event, tuple[str, ...] | None]], specs: Specs) -> Run | Difference:
    """Return the run after *events*, each with the path of states recorded for it (None: do not compare).

    A refusal, or a path other than the recorded one, is returned as a `Difference`.
    """
    for event, recorded in events:
        result = step(run, event, specs)
        if isinstance(result, Refusal):
            return Difference(run.seq + 1, result.event, recorded or (), (), result.reason)
        if recorded is not None and tuple(map(str, result.path)) != tuple(recorded):
            found = tuple(map(str, result.path))
            return Difference(run.seq + 1, type(event).__name__, tuple(recorded), found)
        run = result.run
    return run


def join_path(path: Iterable[RunState]) -> str:
    """Return a path as it is stored: state names joined by `>`."""
    return ">".join(path)


def split_path(text: str) -> tuple[str, ...]:
    """Return the state names of a stored path."""
    return tuple(text.split(">")) if text else ()
