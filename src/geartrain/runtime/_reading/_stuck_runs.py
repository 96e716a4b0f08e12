"""Which runs do not get on: of those at work, each read and asked. Runs that rest or have ended cost nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from geartrain.errors import FormatUnknown
from geartrain.machine import HoldKind, Run, Stuck, stuck
from geartrain.persistence import Journal, RunCorrupt
from geartrain.runtime._entry import revive

_PAGE: Final = 100


class StuckRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that does not get on: why, since when (seconds since 1970), what it is about, what was done about it.

    `cause` is lost_reply, dead_effect, dwell or no_progress; `done` is the last thing done about it: report, resend,
    nudge, suspend, or nothing yet.
    """

    run_id: str
    agent: str
    state: str
    cause: str
    since: float
    about: str
    done: str = ""


async def stuck_runs(journal: Journal, now: float) -> AsyncIterator[StuckRun]:
    """Yield the runs that do not get on at *now*: of those at work by their ids, then of those held for it."""
    after = ""
    while page := await journal.runnable(after=after, limit=_PAGE):
        for run_id in page:
            found = await _stuck(journal, run_id, now)
            if found is not None:
                yield found
        after = page[-1]
    cursor: tuple[float, str] | None = None
    while rows := await journal.list(after=cursor, limit=_PAGE, live=False, held=(HoldKind.STUCK,)):
        for row in rows:
            found = await _stuck(journal, row.run_id, now)
            if found is not None:
                yield found
        cursor = (rows[-1].head.created_at, rows[-1].run_id)


async def _stuck(journal: Journal, run_id: str, now: float) -> StuckRun | None:
    try:
        loaded = await journal.load(run_id)
        if loaded is None or loaded.mark is not None:
            return None
        revived = revive(loaded)
    except (RunCorrupt, FormatUnknown):  # it has another trouble, which listings and `show` name
        return None
    run = revived.run
    found = stuck(run, now, revived.specs[run.spec])
    return None if found is None else stuck_run(run, found)


def stuck_run(run: Run, found: Stuck) -> StuckRun:
    """Return what was *found* about a run, with what else a listing says."""
    return StuckRun(
        run_id=run.id,
        agent=run.agent,
        state=str(run.state),
        cause=str(found.cause),
        since=found.since,
        about=found.about,
        done=found.done,
    )
