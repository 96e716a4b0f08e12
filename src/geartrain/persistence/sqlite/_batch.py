"""Writing a batch of entries in one transaction: fast when all is well, one by one when something is refused.

The fast way asks nothing beforehand. It writes all rows of a kind with one call, and a refusal shows itself as a
violated key or as an update that found fewer rows than there are entries. Then all is rolled back to the start of
the transaction and each entry is looked at and written by itself, under a savepoint. Either way there is one commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

from geartrain import faults
from geartrain.errors import GeartrainError, InvalidValue
from geartrain.persistence._errors import DuplicateEvent, JournalConflict, OwnershipLost
from geartrain.persistence._group import Outcome
from geartrain.persistence._protocol import Entry
from geartrain.persistence.sqlite._rows import (
    Row,
    birth_values,
    blob_rows,
    checkpoint_row,
    event_row,
    head_values,
    outgoing_row,
)

T = TypeVar("T")

_INSERT_RUN: Final = """
    INSERT INTO runs (run_id, created_at, parent, root, birth_checksum,
        last_seq, state, agent, live, ended, wake_at, updated_at, holds, counters, labels, checksum, marked)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
        EXISTS (SELECT 1 FROM marks WHERE run_id = ?1))
"""
_UPDATE_RUN: Final = """
    UPDATE runs SET last_seq = ?, state = ?, agent = ?, live = ?, ended = ?, wake_at = ?, updated_at = ?,
        holds = ?, counters = ?, labels = ?, checksum = ?
    WHERE run_id = ? AND last_seq = ?
"""
_INSERT_EVENT: Final = """
    INSERT INTO events (run_id, seq, id, type, version, time, digest, path, outside, checkpointed, checksum, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_REPLACE_CHECKPOINT: Final = (
    "INSERT OR REPLACE INTO checkpoints (run_id, seq, version, checksum, body) VALUES (?, ?, ?, ?, ?)"
)
_INSERT_OUTGOING: Final = """
    INSERT OR IGNORE INTO inbox (run_id, id, type, version, checksum, body)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6
    WHERE NOT EXISTS (SELECT 1 FROM events WHERE run_id = ?1 AND id = ?2 AND outside = 1)
"""
_DELETE_CONSUMED: Final = "DELETE FROM inbox WHERE number = ? AND run_id = ?"
_BLOBS: Final = (
    (
        "specs",
        "INSERT OR IGNORE INTO specs VALUES (?, ?, ?)",
        "INSERT OR IGNORE INTO run_specs VALUES (?, ?)",
    ),
    (
        "artifacts",
        "INSERT OR IGNORE INTO artifacts VALUES (?, ?, ?)",
        "INSERT OR IGNORE INTO run_artifacts VALUES (?, ?)",
    ),
)

# What sqlite3 and the encoders raise for a value that cannot be stored, as against a store that cannot store.
_BAD_VALUE: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    TypeError,
    ValueError,
    OverflowError,
)


class CommitFailed(Exception):
    """The commit itself failed: what the transaction did may be stored.

    `result` is what `transact` would have returned, `cause` what the commit raised.
    """

    def __init__(self, result: Any, cause: BaseException) -> None:
        super().__init__(result, cause)
        self.result: Final = result
        self.cause: Final = cause


def transact(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], subject: str = "") -> T:
    """Run *work* in a transaction of its own, all of it or nothing.

    Raises:
        CommitFailed: *work* was done, and then the commit failed.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        faults.reach("store.commit.before", subject)
    except BaseException:
        _roll_back(connection)
        raise
    try:
        connection.execute("COMMIT")
        faults.reach("store.commit.after", subject)
    except BaseException as error:
        _roll_back(connection)
        raise CommitFailed(result, error) from error
    return result


def _roll_back(connection: sqlite3.Connection) -> None:
    # After some errors (disk full, I/O) SQLite has rolled back by itself.
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def write_batch(connection: sqlite3.Connection, entries: Sequence[Entry]) -> list[Outcome]:
    """Write *entries* in one transaction, and return what became of each."""
    return transact(connection, lambda writer: _write_in_transaction(writer, entries), entries[0].run_id)


def _write_in_transaction(connection: sqlite3.Connection, entries: Sequence[Entry]) -> list[Outcome]:
    epoch, held = connection.execute("SELECT epoch, held FROM owner").fetchone()
    if held and all(entry.epoch == epoch for entry in entries):
        connection.execute("SAVEPOINT batch")
        try:
            if _write_all(connection, entries):
                return [entry.expected + len(entry.events) for entry in entries]
        except _BAD_VALUE:
            pass  # the way below finds out whose it is
        connection.execute("ROLLBACK TO batch")
    return [_write_one(connection, entry, epoch if held else None, epoch) for entry in entries]


def _write_all(connection: sqlite3.Connection, entries: Sequence[Entry]) -> bool:
    """Write the rows of all entries; return False if a run was not where its entry expected it."""
    born: list[Row] = []
    moved: list[Row] = []
    ends: dict[str, int] = {}
    for entry in entries:
        run_id, last = entry.run_id, entry.expected + len(entry.events)
        if ends.get(run_id, entry.expected) != entry.expected:
            return False  # written kind by kind, two entries of one run could help each other out of order
        ends[run_id] = last
        values = head_values(run_id, last, entry.head)
        if entry.expected:
            moved.append((*values, run_id, entry.expected))
        else:
            born.append((run_id, *birth_values(run_id, entry.head), *values))
    if born:
        connection.executemany(_INSERT_RUN, born)
    if moved and connection.executemany(_UPDATE_RUN, moved).rowcount != len(moved):
        return False
    connection.executemany(
        _INSERT_EVENT, [event_row(entry.run_id, event) for entry in entries for event in entry.events]
    )
    _write_rest(connection, entries)
    return True


def _write_rest(connection: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    checkpoints = [
        checkpoint_row(entry.run_id, entry.expected + len(entry.events), entry.checkpoint_version, entry.checkpoint)
        for entry in entries
        if entry.checkpoint is not None
    ]
    if checkpoints:
        connection.executemany(_REPLACE_CHECKPOINT, checkpoints)
    for name, insert, refer in _BLOBS:
        given = [(entry.run_id, blobs) for entry in entries if (blobs := getattr(entry, name))]
        if given:
            connection.executemany(insert, chain.from_iterable(blob_rows(blobs) for _, blobs in given))
            connection.executemany(refer, [(run_id, digest) for run_id, blobs in given for digest in blobs])
    outgoing = [outgoing_row(item) for entry in entries for item in entry.outgoing]
    consumed = [(number, entry.run_id) for entry in entries for number in entry.consumed]
    if consumed:
        connection.executemany(_DELETE_CONSUMED, consumed)
    if outgoing:
        connection.executemany(_INSERT_OUTGOING, outgoing)


def _write_one(connection: sqlite3.Connection, entry: Entry, epoch: int | None, newest: int) -> Outcome:
    if entry.epoch != epoch:
        return OwnershipLost(entry.epoch, newest)
    refusal = _refusal(connection, entry)
    if refusal is not None:
        return refusal
    connection.execute("SAVEPOINT entry")
    try:
        if not _write_all(connection, [entry]):
            raise ValueError("the run's row did not change")
    except _BAD_VALUE as error:
        connection.execute("ROLLBACK TO entry")
        return InvalidValue("entry", "of values that can be stored", f"{type(error).__name__}: {error}")
    connection.execute("RELEASE entry")
    return entry.expected + len(entry.events)


def _refusal(connection: sqlite3.Connection, entry: Entry) -> GeartrainError | None:
    coming: dict[str, tuple[str, int]] = {}
    for event in entry.events:
        if event.outside:
            row = connection.execute(
                "SELECT digest, seq FROM events WHERE run_id = ? AND id = ? AND outside = 1",
                (entry.run_id, event.id),
            ).fetchone()
            known = row or coming.get(event.id)
            if known is not None:
                return DuplicateEvent(entry.run_id, event.id, *known)
            coming[event.id] = (event.digest, event.seq)
    row = connection.execute("SELECT last_seq FROM runs WHERE run_id = ?", (entry.run_id,)).fetchone()
    last = row[0] if row else 0
    return None if last == entry.expected else JournalConflict(entry.run_id, entry.expected, last)


def settle(connection: sqlite3.Connection, entries: Sequence[Entry], cause: BaseException) -> bool:
    """Say on a fresh connection whether the batch of *entries*, whose commit failed with *cause*, is in the store.

    That it can be read says nothing yet: after a failed sync the log may be in the memory of the machine only, or
    may come to light after a crash though nobody sees it now. So the log is taken into the file and begun anew,
    which writes and syncs what counts once more and throws away what does not.

    Raises:
        sqlite3.Error: It cannot be said.
    """
    stored = _is_stored(connection, entries)
    if stored or getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_FSYNC:
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise sqlite3.OperationalError("the log could not be taken into the file")
    return stored


def _is_stored(connection: sqlite3.Connection, entries: Sequence[Entry]) -> bool:
    # A batch is written whole or not at all, so entries without events share the lot of the others; if none has
    # any, the last entry's head tells.
    found = [
        connection.execute("SELECT checksum FROM events WHERE run_id = ? AND seq = ?", (row[0], row[1])).fetchone()
        == (row[10],)
        for entry in entries
        for row in (event_row(entry.run_id, event) for event in entry.events)
    ]
    if found:
        return all(found)
    last = entries[-1]
    checksum = head_values(last.run_id, last.expected, last.head)[-1]
    row = connection.execute("SELECT checksum FROM runs WHERE run_id = ?", (last.run_id,)).fetchone()
    return bool(row == (checksum,))
