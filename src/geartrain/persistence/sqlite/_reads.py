"""What is asked of a store file. Each function runs whole in the thread of a reading connection.

A damaged row is the business of its run alone: what reads one run raises `RunCorrupt`, what reads many leaves the
row out or marks it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from geartrain.persistence._edge import hold_kind
from geartrain.persistence._errors import RunCorrupt
from geartrain.persistence._protocol import REFUSALS_KEPT, InboxItem, LoadedRun, Mark, RefusedEvent, RunRow, StoredEvent
from geartrain.persistence.sqlite._rows import (
    EVENT_COLUMNS,
    INBOX_COLUMNS,
    RUN_COLUMNS,
    damaged_run_row,
    event_of,
    inbox_item_of,
    intact,
    run_row_of,
)
from geartrain.persistence.sqlite._schema import REFUSALS_SINCE

_LINES: Final = f"SELECT {RUN_COLUMNS}, marks.reason, marks.time FROM runs LEFT JOIN marks USING (run_id)"  # noqa: S608 - column names


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let everything inside see one and the same state of the store."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def head(connection: sqlite3.Connection, run_id: str) -> RunRow | None:
    """Return one run's line, or None."""
    with snapshot(connection):
        return _head(connection, run_id)


def _head(connection: sqlite3.Connection, run_id: str) -> RunRow | None:
    row = connection.execute(
        f"{_LINES} WHERE runs.run_id = ?",
        (run_id,),
    ).fetchone()
    if row is not None:
        return run_row_of(row, _mark_of(row))
    if connection.execute("SELECT 1 FROM events WHERE run_id = ? LIMIT 1", (run_id,)).fetchone():
        raise RunCorrupt(run_id, "there are events, but no head")
    return None


def _mark_of(row: tuple[Any, ...]) -> Mark | None:
    reason, time = row[-2:]
    return None if reason is None else Mark(reason=reason, time=time)


def load(connection: sqlite3.Connection, run_id: str) -> LoadedRun | None:
    """Return what is needed to go on with a run, or None."""
    with snapshot(connection):
        row = _head(connection, run_id)
        if row is None:
            return None
        seq, version, body = _checkpoint(connection, run_id, row.last_seq)
        return LoadedRun(
            run_id=run_id,
            head=row.head,
            last_seq=row.last_seq,
            checkpoint=body,
            checkpoint_version=version,
            checkpoint_seq=seq,
            events=tuple(_events(connection, run_id, seq, row.last_seq, row.last_seq)),
            specs=_specs(connection, run_id),
            inbox=tuple(inbox(connection, run_id, limit=-1)),
            mark=row.mark,
        )


def _checkpoint(connection: sqlite3.Connection, run_id: str, last_seq: int) -> tuple[int, int, bytes | None]:
    row = connection.execute(
        "SELECT seq, version, checksum, body FROM checkpoints WHERE run_id = ?", (run_id,)
    ).fetchone()
    if row is not None:
        seq, version, found, body = row
        if intact((run_id, seq, version), found, body) and seq <= last_seq:
            return seq, version, body
    return 0, 1, None


def _events(connection: sqlite3.Connection, run_id: str, after: int, last_seq: int, limit: int) -> list[StoredEvent]:
    rows = connection.execute(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?",  # noqa: S608 - column names
        (run_id, after, limit),
    ).fetchall()
    for seq, row in enumerate(rows, after + 1):
        if row[0] != seq:
            raise RunCorrupt(run_id, f"event {seq} is missing")
    if len(rows) < min(limit, last_seq - after):
        raise RunCorrupt(run_id, f"event {after + len(rows) + 1} is missing (the last one is {last_seq})")
    return [event_of(run_id, row) for row in rows]


def _specs(connection: sqlite3.Connection, run_id: str) -> dict[str, bytes]:
    rows = connection.execute(
        "SELECT digest, checksum, body FROM run_specs LEFT JOIN specs USING (digest) WHERE run_id = ?",
        (run_id,),
    ).fetchall()
    for digest, found, body in rows:
        if not intact((digest,), found, body):
            raise RunCorrupt(run_id, f"spec {digest!r} is missing or fails its checksum")
    return {digest: body for digest, _, body in rows}


def events(connection: sqlite3.Connection, run_id: str, after: int, limit: int) -> Sequence[StoredEvent]:
    """Return events numbered above *after*, in order, at most *limit*."""
    with snapshot(connection):
        row = _head(connection, run_id)
        return [] if row is None else _events(connection, run_id, after, row.last_seq, limit)


def find(connection: sqlite3.Connection, run_id: str, event_id: str) -> StoredEvent | None:
    """Return the outside event of that id, or None."""
    row = connection.execute(
        f"SELECT {EVENT_COLUMNS} FROM events WHERE run_id = ? AND id = ? AND outside = 1",  # noqa: S608 - column names
        (run_id, event_id),
    ).fetchone()
    return None if row is None else event_of(run_id, row)


def inbox(connection: sqlite3.Connection, run_id: str, *, limit: int) -> Sequence[InboxItem]:
    """Return what waits for a run, oldest first; a negative *limit* means all, as in SQL."""
    rows = connection.execute(
        f"SELECT {INBOX_COLUMNS} FROM inbox WHERE run_id = ? ORDER BY number LIMIT ?",  # noqa: S608 - column names
        (run_id, limit),
    )
    return [inbox_item_of(row) for row in rows.fetchall()]


def runs(
    connection: sqlite3.Connection,
    *,
    after: tuple[float, str] | None,
    limit: int,
    states: Sequence[str],
    equal: dict[str, Any],
    held: Collection[str],
    marked: bool | None,
) -> Sequence[RunRow]:
    """Return lines newest first; *equal* holds values that columns must have."""
    conditions = [f"{column} = ?" for column in equal]
    values = list(equal.values())
    if after is not None:
        conditions.append("created_at <= ? AND (created_at < ? OR runs.run_id > ?)")
        values += [after[0], *after]
    if states:
        conditions.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    if marked is not None:
        conditions.append("marked = ?")
        values.append(int(marked))
    if held:
        # Leaves out nearly all that has no such hold without decoding it; the loop below looks closely.
        conditions.append(f"({' OR '.join('instr(holds, ?)' for _ in held)})")
        values += [msgspec.json.encode(kind).decode().removesuffix('"') for kind in held]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    cursor = connection.execute(
        f"{_LINES} {where} ORDER BY created_at DESC, runs.run_id LIMIT ?",
        (*values, -1 if held else limit),
    )
    found: list[RunRow] = []
    for row in cursor:
        if len(found) == limit:
            break
        line = _line(row)
        if not held or not set(held).isdisjoint(map(hold_kind, line.head.holds)):
            found.append(line)
    cursor.close()
    return found


def _line(row: tuple[Any, ...]) -> RunRow:
    try:
        return run_row_of(row, _mark_of(row))
    except RunCorrupt:
        return damaged_run_row(row)


def refused(connection: sqlite3.Connection, run_id: str) -> Sequence[RefusedEvent]:
    """Return the newest events that a run has refused, oldest first; a store of before that was kept has none."""
    if connection.execute("PRAGMA user_version").fetchone()[0] < REFUSALS_SINCE:
        return []
    rows = connection.execute(
        "SELECT id, type, state, reason, time FROM refusals WHERE run_id = ? ORDER BY number DESC LIMIT ?",
        (run_id, REFUSALS_KEPT),
    ).fetchall()
    return [
        RefusedEvent(id=event_id, type=kind, state=state, reason=reason, time=time)
        for event_id, kind, state, reason, time in reversed(rows)
    ]


def runnable(connection: sqlite3.Connection, after: str, limit: int) -> Sequence[str]:
    """Return ids of unmarked runs that are live or have inbox items, ordered by id, above *after*."""
    rows = connection.execute(
        """
        SELECT run_id FROM (
            SELECT * FROM (SELECT run_id FROM runs WHERE live = 1 AND marked = 0 AND run_id > ?1
                ORDER BY run_id LIMIT ?2)
            UNION
            SELECT * FROM (SELECT DISTINCT run_id FROM inbox WHERE run_id > ?1
                AND run_id NOT IN (SELECT run_id FROM marks) ORDER BY run_id LIMIT ?2)
        ) ORDER BY run_id LIMIT ?2
        """,
        (after, limit),
    )
    return [run_id for (run_id,) in rows]


def due(connection: sqlite3.Connection, now: float, limit: int) -> Sequence[str]:
    """Return ids of unmarked runs, not ended, whose `wake_at` is at or before *now*, earliest first."""
    rows = connection.execute(
        "SELECT run_id FROM runs WHERE wake_at IS NOT NULL AND ended = 0 AND marked = 0 AND wake_at <= ? "
        "ORDER BY wake_at, run_id LIMIT ?",
        (now, limit),
    )
    return [run_id for (run_id,) in rows]


def next_wake(connection: sqlite3.Connection, after: float | None) -> float | None:
    """Return the earliest `wake_at` (above *after*) of the unmarked runs that have not ended, or None."""
    row = connection.execute(
        "SELECT wake_at FROM runs WHERE wake_at IS NOT NULL AND ended = 0 AND marked = 0 AND wake_at > ? "
        "ORDER BY wake_at LIMIT 1",
        (float("-inf") if after is None else after,),
    ).fetchone()
    return None if row is None else float(row[0])


def blob(connection: sqlite3.Connection, table: str, digest: str) -> bytes | None:
    """Return the bytes stored in *table* under *digest*, or None; what fails its checksum is not there."""
    row = connection.execute(f"SELECT checksum, body FROM {table} WHERE digest = ?", (digest,)).fetchone()  # noqa: S608 - ours
    return row[1] if row is not None and intact((digest,), *row) else None
