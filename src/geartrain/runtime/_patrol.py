"""The patrol: now and then it looks whether what the loaded runs wait for is really in progress.

Reconciling after each append should leave nothing to be found. What is found all the same (a bug, a stranger's executor
that lost an effect) is begun again and told, and the run does not wait for it until its limit.
"""

from __future__ import annotations

import asyncio
from typing import Final

from geartrain.errors import plain_traceback
from geartrain.runtime._log import log
from geartrain.runtime._node import Node, RunAtWork

# Runs looked at before others have their turn on the loop.
_SLICE: Final = 50


async def patrol(node: Node) -> None:
    """Look at the runs in memory every `limits.patrol_seconds`, until cancelled."""
    while True:
        await asyncio.sleep(node.limits.patrol_seconds)
        for number, run_id in enumerate(list(node.actors), start=1):
            actor = node.actors.get(run_id)
            if actor is not None:
                _look_at(node, actor)
            if number % _SLICE == 0:
                await asyncio.sleep(0)


def _look_at(node: Node, actor: RunAtWork) -> None:
    """Begin a run's dead effects again; one that cannot be looked at stops nobody."""
    if node.closing or node.circuit.open or not actor.run.seq or not actor.cell.idle:
        return  # a run with something on its way is reconciled when that is stored
    try:
        dead = node.effects.patrol(actor)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one run, the others are looked at
        log.error("patrol_failed", run_id=actor.run.id, traceback=plain_traceback(error))
        return
    if dead:
        log.warning("effects_were_dead", run_id=actor.run.id, keys=list(dead))
        node.hub.live(actor.run.id, "effects_were_dead", {"keys": list(dead)})
