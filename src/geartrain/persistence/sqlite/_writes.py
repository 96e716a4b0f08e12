"""What is written besides entries. Each function runs in a transaction of its own, in the writing thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from geartrain.persistence._errors import OwnershipLost, RunNotEnded, StoreBusy
from geartrain.persistence._protocol import LOST_CLAIMS_KEPT, REFUSALS_KEPT, Claim, RefusedEvent
from geartrain.persistence.sqlite._census import OVER

_OWN_TABLES = ("events", "checkpoints", "inbox", "run_specs", "run_artifacts", "marks", "refusals", "runs")
_SHARED_TABLES = (("specs", "run_specs"), ("artifacts", "run_artifacts"))


def claim(
    connection: sqlite3.Connection, path: str, pid: int, owner: str, *, now: float, lease_seconds: float
) -> Claim:
    """Make a new epoch, unless another owner's claim is in force."""
    holder, epoch, held, claimed_at, expires_at = connection.execute(
        "SELECT owner, epoch, held, claimed_at, expires_at FROM owner"
    ).fetchone()
    if held and holder != owner and expires_at > now:
        raise StoreBusy(path, pid, claimed_at)
    if held:
        note_lost(connection)
    lost = frozenset(number for (number,) in connection.execute("SELECT epoch FROM lost_claims"))
    new = Claim(owner=owner, epoch=epoch + 1, expires_at=now + lease_seconds, lost=lost)
    connection.execute(
        "UPDATE owner SET owner = ?, epoch = ?, held = 1, claimed_at = ?, expires_at = ?",
        (new.owner, new.epoch, now, new.expires_at),
    )
    return new


def note_lost(connection: sqlite3.Connection) -> None:
    """Note that the claim in force, if one is, was never given back; it is in force no longer."""
    connection.execute("INSERT OR IGNORE INTO lost_claims SELECT epoch FROM owner WHERE held = 1")
    connection.execute(
        "DELETE FROM lost_claims WHERE epoch NOT IN (SELECT epoch FROM lost_claims ORDER BY epoch DESC LIMIT ?)",
        (LOST_CLAIMS_KEPT,),
    )
    connection.execute("UPDATE owner SET held = 0")


def renew(connection: sqlite3.Connection, old: Claim, *, now: float, lease_seconds: float) -> Claim:
    """Extend a claim that is in force."""
    epoch, held = connection.execute("SELECT epoch, held FROM owner").fetchone()
    if not held or epoch != old.epoch:
        raise OwnershipLost(old.epoch, epoch)
    new = msgspec.structs.replace(old, expires_at=now + lease_seconds)
    connection.execute("UPDATE owner SET expires_at = ?", (new.expires_at,))
    return new


def release(connection: sqlite3.Connection, epoch: int) -> None:
    """Give the claim of *epoch* back, if it is still the newest."""
    connection.execute("UPDATE owner SET held = 0 WHERE epoch = ?", (epoch,))


def mark(connection: sqlite3.Connection, run_id: str, reason: str | None, *, now: float) -> None:
    """Set a run apart, or (None) take it back in."""
    if reason is None:
        connection.execute("DELETE FROM marks WHERE run_id = ?", (run_id,))
    else:
        connection.execute(
            "INSERT OR REPLACE INTO marks (run_id, reason, time) VALUES (?, ?, ?)", (run_id, reason, now)
        )
    connection.execute("UPDATE runs SET marked = ? WHERE run_id = ?", (int(reason is not None), run_id))


def note_refused(connection: sqlite3.Connection, refused: Mapping[str, Sequence[RefusedEvent]]) -> None:
    """Keep what runs have refused, of each the newest few."""
    for run_id, events in refused.items():
        if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
            continue
        connection.executemany(
            "INSERT INTO refusals (run_id, id, type, state, reason, time) VALUES (?, ?, ?, ?, ?, ?)",
            [(run_id, event.id, event.type, event.state, event.reason, event.time) for event in events],
        )
        connection.execute(
            "DELETE FROM refusals WHERE run_id = ?1 AND number <= "
            "(SELECT number FROM refusals WHERE run_id = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
            (run_id, REFUSALS_KEPT),
        )


def delete(connection: sqlite3.Connection, run_id: str) -> bool:
    """Delete an ended run with all that is its own; return whether there was one."""
    row = connection.execute("SELECT ended, state FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    if row is None:
        return False
    if not row[0]:
        raise RunNotEnded(run_id, row[1])
    _forget(connection, [run_id])
    return True


def prune(connection: sqlite3.Connection, *, before: float, limit: int) -> int:
    """Delete up to *limit* runs that ended before that time, oldest first; return how many went."""
    rows = connection.execute(
        f"SELECT run_id FROM runs WHERE {OVER} ORDER BY updated_at, run_id LIMIT ?",  # noqa: S608 - ours
        (before, limit),
    ).fetchall()
    _forget(connection, [run_id for (run_id,) in rows])
    return len(rows)


def _forget(connection: sqlite3.Connection, run_ids: Iterable[str]) -> None:
    ids = [(run_id,) for run_id in run_ids]
    suspects = {
        shared: {
            digest
            for run_id in ids
            for (digest,) in connection.execute(f"SELECT digest FROM {referring} WHERE run_id = ?", run_id)  # noqa: S608 - ours
        }
        for shared, referring in _SHARED_TABLES
    }
    for table in _OWN_TABLES:
        connection.executemany(f"DELETE FROM {table} WHERE run_id = ?", ids)  # noqa: S608 - ours
    for shared, referring in _SHARED_TABLES:
        connection.executemany(
            f"DELETE FROM {shared} WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM {referring} WHERE digest = ?1)",  # noqa: S608 - ours
            [(digest,) for digest in suspects[shared]],
        )
