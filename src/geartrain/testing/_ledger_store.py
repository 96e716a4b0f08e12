"""Reading a store with nothing but sqlite3 and json: a second opinion, which shares no code with the first."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENDS = ("FINISHED", "FAILED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """One row of a journal."""

    seq: int
    id: str
    type: str
    path: tuple[str, ...]
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run's row and its journal."""

    run_id: str
    state: str
    last_seq: int
    live: bool
    ended: bool
    holds: tuple[str, ...]
    marked: bool
    events: tuple[SeenEvent, ...]
    parent: str = ""
    root: str = ""
    tokens: int = 0

    def of_type(self, *types: str) -> list[SeenEvent]:
        """Return the events of these types, in order."""
        return [event for event in self.events if event.type in types]


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """All that a store holds, as of the moment of looking; `sent` is what waits for whom: (run id, type)."""

    runs: dict[str, StoredRun] = field(default_factory=dict)
    epoch: int = 0
    integrity: str = "ok"
    sent: tuple[tuple[str, str], ...] = ()


def read_store(path: str | os.PathLike[str]) -> StoreSeen:
    """Return what is in the store at *path*, which nobody has open; a missing or empty one holds nothing.

    A copy is read: opening the file itself would mend what the next owner is to mend.
    """
    source = Path(path)
    if not source.exists() or not source.stat().st_size:
        return StoreSeen()
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        copy = Path(folder) / "copy.db"
        for suffix in ("", "-wal"):
            part = source.with_name(source.name + suffix)
            if part.exists():
                shutil.copyfile(part, f"{copy}{suffix}")
        connection = sqlite3.connect(copy, isolation_level=None)
        try:
            return _seen(connection)
        finally:
            connection.close()


def _seen(connection: sqlite3.Connection) -> StoreSeen:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if "events" not in tables:
        return StoreSeen()
    integrity = "; ".join(str(row[0]) for row in connection.execute("PRAGMA integrity_check"))
    epoch = connection.execute("SELECT epoch FROM owner").fetchone()[0]
    events: dict[str, list[SeenEvent]] = {}
    rows = connection.execute("SELECT run_id, seq, id, type, path, body FROM events ORDER BY run_id, seq")
    for run_id, seq, id_, type_, path, body in rows:
        way = tuple(path.split(">")) if path else ()
        events.setdefault(run_id, []).append(SeenEvent(seq, id_, type_, way, json.loads(body)))
    runs = {}
    found = connection.execute(
        "SELECT run_id, state, last_seq, live, ended, holds, marked, parent, root, counters FROM runs"
    )
    for run_id, state, last_seq, live, ended, holds, marked, parent, root, counters in found:
        counted = json.loads(counters)
        runs[run_id] = StoredRun(
            run_id=run_id,
            state=state,
            last_seq=last_seq,
            live=bool(live),
            ended=bool(ended),
            holds=tuple(json.loads(holds)) if holds else (),
            marked=bool(marked),
            events=tuple(events.pop(run_id, ())),
            parent=parent or "",
            root=root or "",
            tokens=counted.get("input_tokens", 0) + counted.get("output_tokens", 0),
        )
    if events:
        integrity += f"; events of runs that have no row: {sorted(events)}"
    sent = tuple(connection.execute("SELECT run_id, type FROM inbox ORDER BY number"))
    return StoreSeen(runs, epoch, integrity, sent)
