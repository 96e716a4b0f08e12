"""How a run stands, for whoever asks why it does not go on, in the order in which a person asks.

Was it sent? Was it processed? Was the transition refused?
"""

from __future__ import annotations

import msgspec

from geartrain.machine import (
    ENDED,
    AnnounceApproval,
    Command,
    Refusal,
    Run,
    RunCall,
    StartSubAgent,
    decode_event,
    outstanding,
    step,
    stuck,
)
from geartrain.persistence import Journal, RefusedEvent, RunCorrupt, StoredEvent
from geartrain.runtime._reading._runs import specs_of, stored_events
from geartrain.runtime._reading._stuck_runs import StuckRun, stuck_run


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was asked for and has not come: by the event of number `seq`, at `since` (seconds since 1970)."""

    key: str
    command: str
    about: str
    seq: int
    since: float


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands: what it waits for, the newest event of its journal, what it has refused, and why it is stuck.

    `refused` holds the newest few, oldest first; they are in no journal.
    """

    run_id: str
    awaited: tuple[Awaited, ...]
    newest_seq: int
    newest_type: str
    newest_id: str
    newest_time: float
    refused: tuple[RefusedEvent, ...]
    stuck: StuckRun | None


async def standing_of(journal: Journal, run_id: str, now: float) -> Standing:
    """Return how a run stands at *now*.

    Raises:
        RunNotFound: There is no such run.
        RunCorrupt: The journal is damaged, or does not lead where it led when it was written.
        FormatUnknown: Something of it is newer than this version.
    """
    specs = await specs_of(journal, run_id)
    run, asked, newest = Run(id=run_id), dict[str, Awaited](), None
    async for row in stored_events(journal, run_id):
        result = step(run, decode_event(row.type, row.version, row.body), specs)
        if isinstance(result, Refusal):
            raise RunCorrupt(run_id, f"event {row.seq} ({row.type}) cannot follow: {result.reason}")
        run, newest = result.run, row
        asked = {command.key: asked.get(command.key) or _awaited(command, row) for command in result.commands}
    if newest is None:
        raise RunCorrupt(run_id, "its journal has no events")
    wanted = [] if run.state in ENDED else outstanding(run)
    found = stuck(run, now, specs[run.spec])
    return Standing(
        run_id=run_id,
        awaited=tuple(asked[command.key] for command in wanted),
        newest_seq=newest.seq,
        newest_type=newest.type,
        newest_id=newest.id,
        newest_time=newest.time,
        refused=tuple(await journal.refused(run_id)),
        stuck=None if found is None else stuck_run(run, found),
    )


def _awaited(command: Command, row: StoredEvent) -> Awaited:
    about = ""
    match command:
        case RunCall():
            about = command.tool
        case StartSubAgent():
            about = command.agent
        case AnnounceApproval():
            about = command.call_id
    return Awaited(key=command.key, command=type(command).__name__, about=about, seq=row.seq, since=row.time)
