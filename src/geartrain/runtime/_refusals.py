"""Which events runs have refused, kept where another process can read it: for whoever asks why a run does not go on.

Rule 1: a refusal is in no journal, and the run that refuses does not wait for this.
Rule 2: a flood costs no more than a trickle: of each run the newest few are kept, and all of them are written together,
at most once a second. What was not written yet when the process dies is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from geartrain.machine import Event, Refusal, Run
from geartrain.persistence import REFUSALS_KEPT, Journal, RefusedEvent
from geartrain.runtime._edge import clean_text
from geartrain.runtime._log import log
from geartrain.tools import error_text

GATHER_SECONDS: Final = 1.0
# Runs with something to be written; beyond these, what the longest-waiting ones have refused is forgotten.
RUNS_WAITING: Final = 1_000
_REASON: Final = 500


class Refusals:
    """What was refused and is not written yet."""

    __slots__ = ("_some", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[str, deque[RefusedEvent]] = {}
        self._some = asyncio.Event()

    def note(self, run: Run, event: Event, refusal: Refusal) -> None:
        """Keep a refusal; an alarm that comes too late is none that anybody asks about."""
        if event.source == "timer" or not run.seq:
            return
        refused = RefusedEvent(
            id=clean_text(event.id),
            type=refusal.event,
            state=str(refusal.state),
            reason=clean_text(refusal.reason[:_REASON]),
            time=event.time,
        )
        self._waiting.setdefault(run.id, deque(maxlen=REFUSALS_KEPT)).append(refused)
        if len(self._waiting) > RUNS_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._some.set()

    async def serve(self, journal: Journal) -> None:
        """Write what was refused, until cancelled."""
        while True:
            await self._some.wait()
            await asyncio.sleep(GATHER_SECONDS)
            await self.flush(journal)

    async def flush(self, journal: Journal) -> None:
        """Write what waits; if the store cannot, it is forgotten, for it has more to do than this then."""
        self._some.clear()
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        try:
            await journal.note_refused({run_id: tuple(events) for run_id, events in waiting.items()})
        except Exception as error:  # noqa: BLE001 - a store may be a stranger's, and nothing is decided by refusals
            log.warning("refusals_not_kept", runs=len(waiting), error=error_text(error))
