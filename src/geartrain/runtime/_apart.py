"""What the kin of a damaged run are told: nothing will ever be sent to them by it.

Rule 1: to the run above it has failed, charged with what the store's lines count of it and of all below it.
Rule 2: the runs below it are cancelled, for nobody will hear of their ends.
Rule 3: they are told before the run is marked; should the process die meanwhile, the run is found, and they are told,
once more.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable

from geartrain.actors import ActorStopped, Reply
from geartrain.errors import EventRefused, GeartrainError, RunNotFound
from geartrain.machine import (
    KIND_OF_CODE,
    CancelRequested,
    Event,
    ReasonCode,
    RunError,
    RunState,
    SubAgentEnded,
    Usage,
)
from geartrain.persistence import CommitUnknown, JournalConflict, RunRow, StoreFailed
from geartrain.runtime._entry import CALL
from geartrain.runtime._kin import Loader
from geartrain.runtime._log import log
from geartrain.runtime._node import Node
from geartrain.runtime._reading._tree import rows_of_tree
from geartrain.runtime._run_supervisor import BACKOFF


async def tell_kin(node: Node, loader: Loader, run_id: str, reason: str) -> None:
    """Tell the runs next to one that is damaged, above and below it, if it has not ended."""
    try:
        rows, below = await rows_of_tree(node.journal, run_id)
    except RunNotFound:
        return
    if rows[run_id].head.ended:  # what it was to tell was stored with its end
        return
    now = node.clock.now()
    for child in below[run_id]:
        if not rows[child].head.ended:
            cancel = CancelRequested(
                id=f"{run_id}.cancel",
                time=now,
                source="parent",
                reason="the run that started this one is damaged",
                code="cancelled_by_parent",
            )
            await _bring(loader, child, cancel)
    parent = rows[run_id].head.parent
    if parent is not None:
        await _bring(loader, parent, _lost(run_id, rows[run_id], rows.values(), reason, now))


def _lost(run_id: str, row: RunRow, whole: Iterable[RunRow], reason: str, now: float) -> SubAgentEnded:
    """Return the end of a sub-agent's run that cannot be read: what it and all below it have used is in their rows."""
    counted = [each.head.counters for each in whole]

    def used(name: str) -> float:
        return sum(float(counters.get(name, 0)) for counters in counted)

    code = ReasonCode.SYSTEM_ERROR
    call_id = row.head.counters[CALL]
    return SubAgentEnded(
        id=f"{call_id}.apart",
        time=now,
        source="sub_agent",
        call_id=call_id,
        run_id=run_id,
        state=RunState.FAILED,
        error=RunError(code=code, kind=KIND_OF_CODE[code], message=f"its run {run_id} is damaged: {reason}"),
        usage=Usage(
            input_tokens=int(used("input_tokens")), output_tokens=int(used("output_tokens")), cost=used("cost")
        ),
        turns=int(used("turn_count")),
        tool_calls=int(used("tool_calls")),
        tool_failures=int(used("tool_failures")),
        seconds=used("active_seconds"),
    )


async def _bring(loader: Loader, run_id: str, event: Event) -> None:
    for attempt in itertools.count(1):
        reply: Reply[int] = Reply()
        try:
            actor = await loader.actor(run_id)
            actor.put_result(event, reply=reply)
            await reply.wait_answered()
        except (ActorStopped, CommitUnknown, JournalConflict):  # it has left memory meanwhile, and may have taken it
            await asyncio.sleep(BACKOFF.wait_seconds(attempt, 0.0))
            continue
        except StoreFailed:
            raise
        except EventRefused:  # it knows, or waits for nothing any more
            pass
        except GeartrainError as error:
            log.warning("kin_not_told", run_id=run_id, error=str(error))
        return
