"""Which runs a store keeps: deleting ended ones, one by one or by age."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final

from geartrain.errors import InvalidValue, RunNotFound
from geartrain.machine import ENDED
from geartrain.persistence import RunNotEnded
from geartrain.runtime._node import Node
from geartrain.runtime._reading._tree import rows_of_tree

# So many go in one transaction; between two, appends of other runs have their turn.
_AT_ONCE: Final = 200


async def delete_run(node: Node, run_id: str) -> None:
    """Delete an ended run with all below it, itself last; see `Runtime.delete`."""
    rows, _ = await rows_of_tree(node.journal, run_id)
    living = next((row for row in rows.values() if not row.head.ended), None)
    if living is not None:
        raise RunNotEnded(living.run_id, living.head.state)
    for each in reversed(rows):
        if not await node.journal.delete(each) and each == run_id:
            raise RunNotFound(run_id)
        _forget(node, each)


async def prune_runs(node: Node, before: float | datetime, *, dry_run: bool) -> int:
    """Delete runs that ended before a time; see `Runtime.prune`."""
    time = checked_time(before)
    if dry_run:
        return await node.journal.ended(before=time)
    gone = 0
    while count := await node.journal.prune(before=time, limit=_AT_ONCE):
        gone += count
    for run_id, actor in list(node.actors.items()):
        if actor.run.state in ENDED and actor.run.updated_at < time:
            _forget(node, run_id)
    return gone


def _forget(node: Node, run_id: str) -> None:
    node.apart.pop(run_id, None)
    actor = node.actors.get(run_id)
    if actor is not None and actor.run.state in ENDED:
        actor.drop(RunNotFound(run_id))


def checked_time(before: Any) -> float:
    """Return a time in seconds since 1970.

    Raises:
        InvalidValue: It is none.
    """
    if isinstance(before, datetime):
        if before.tzinfo is None:
            raise InvalidValue("before", "a datetime with a time zone", before)
        return before.timestamp()
    if isinstance(before, bool) or not isinstance(before, int | float) or not math.isfinite(before):
        raise InvalidValue("before", "seconds since 1970, or a datetime with a time zone", before)
    return float(before)
