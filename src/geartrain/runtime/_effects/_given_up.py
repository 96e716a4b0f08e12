"""What still runs of an effect that was given up: it is named, and so is its end. Nobody else hears of either.

Code of a stranger can ignore that it is cancelled, sit on a thread, or have started tasks of its own. None of that can
be ended from outside, so the run goes on without it; whoever runs the service is told by the trace and the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import Context
from typing import Final

from geartrain.runtime._edge import clean_text
from geartrain.runtime._log import log
from geartrain.runtime._node import Node
from geartrain.runtime._tasks import NUDGE_SECONDS, EffectTask, End, Ended
from geartrain.tools import StartedTasks, error_text

# How an effect task ends that was given up.
GIVEN_UP: Final = (End.TIMED_OUT, End.CANCELLED)
# As many are named; of a thousand tasks the first few say enough.
NAMED_MAX: Final = 20


def name_what_runs_on(
    node: Node,
    run_id: str,
    key: str,
    *,
    abandoned: EffectTask | None,
    elsewhere: Iterable[str],
    started: StartedTasks,
) -> None:
    """Name in the trace what still runs of an effect, and later how its own task ended.

    Tasks that are being cancelled are looked at again a moment later.
    """
    alive = started.alive()
    own = [task for task in alive if not task.cancelling()]
    if len(own) < len(alive):
        loop = asyncio.get_running_loop()
        asked_to_stop = [task for task in alive if task.cancelling()]
        loop.call_later(NUDGE_SECONDS, _look_again, node, run_id, key, asked_to_stop, context=Context())
    names = [abandoned.name] if abandoned is not None else []
    names += [*elsewhere, *_names(own)]
    if abandoned is not None:
        abandoned.on_late_end = lambda ended: tell_late_end(node, run_id, key, ended)
    if names:
        _tell(node, run_id, key, names)


def _names(tasks: Iterable[asyncio.Task[object]]) -> list[str]:
    return [f"task {clean_text(task.get_name())[:200]}" for task in tasks]


def _look_again(node: Node, run_id: str, key: str, tasks: list[asyncio.Task[object]]) -> None:
    names = _names(task for task in tasks if not task.done())
    if names:
        _tell(node, run_id, key, names)


def _tell(node: Node, run_id: str, key: str, names: list[str]) -> None:
    more = len(names) - NAMED_MAX
    named = [*names[:NAMED_MAX], f"and {more} more"] if more > 0 else names
    log.warning("effect_abandoned", run_id=run_id, key=key, still_runs=named)
    node.hub.live(run_id, "effect_abandoned", {"key": key, "still_runs": named})


def tell_late_end(node: Node, run_id: str, key: str, ended: Ended) -> None:
    """Tell how something ended that nobody waits for any more; what it returned goes nowhere."""
    payload = {"key": key, "ended": str(ended.end)}
    if ended.error is not None:
        payload["error"] = clean_text(error_text(ended.error))[:500]
    log.info("late_result", run_id=run_id, **payload)
    node.hub.live(run_id, "late_result", payload)
