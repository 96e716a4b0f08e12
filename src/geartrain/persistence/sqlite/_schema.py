"""The tables of a store file, as numbered migrations.

Migration n leads from schema n - 1 to schema n, in one transaction that also writes the number. A migration that
was released is never edited: a change is a new one at the end.

`events` holds the journals. Each row of `events`, `checkpoints`, `inbox`, `specs` and `artifacts` carries a
checksum over all that is in it and to whom it belongs; `runs` carries two, over what is written once and over what
changes. `run_specs` and `run_artifacts` say which run refers to what, so that a shared one goes with its last run.
`lost_claims` names the newest claims that were never given back.
"""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x67656172  # "gear": what `file` and we recognise a store by

MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE runs (
        run_id TEXT NOT NULL PRIMARY KEY,
        created_at REAL NOT NULL,
        parent TEXT,
        root TEXT,
        birth_checksum INTEGER NOT NULL,
        last_seq INTEGER NOT NULL,
        state TEXT NOT NULL,
        agent TEXT NOT NULL,
        live INTEGER NOT NULL,
        ended INTEGER NOT NULL,
        wake_at REAL,
        updated_at REAL NOT NULL,
        holds TEXT NOT NULL,
        counters TEXT NOT NULL,
        labels TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        marked INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX runs_created ON runs (created_at DESC, run_id);
    CREATE INDEX runs_parent ON runs (parent, created_at DESC, run_id) WHERE parent IS NOT NULL;
    CREATE INDEX runs_root ON runs (root, created_at DESC, run_id) WHERE root IS NOT NULL;
    CREATE INDEX runs_live ON runs (run_id) WHERE live = 1 AND marked = 0;
    CREATE INDEX runs_wake ON runs (wake_at, run_id) WHERE wake_at IS NOT NULL AND ended = 0 AND marked = 0;
    CREATE INDEX runs_ended ON runs (updated_at, run_id) WHERE ended = 1;

    CREATE TABLE events (
        run_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        id TEXT NOT NULL,
        type TEXT NOT NULL,
        version INTEGER NOT NULL,
        time REAL NOT NULL,
        digest TEXT NOT NULL,
        path TEXT NOT NULL,
        outside INTEGER NOT NULL,
        checkpointed INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (run_id, seq)
    );
    CREATE UNIQUE INDEX events_outside ON events (run_id, id) WHERE outside = 1;

    CREATE TABLE checkpoints (
        run_id TEXT NOT NULL PRIMARY KEY,
        seq INTEGER NOT NULL,
        version INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        body BLOB NOT NULL
    );

    CREATE TABLE inbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL,
        id TEXT NOT NULL,
        type TEXT NOT NULL,
        version INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (run_id, id)
    );

    CREATE TABLE specs (digest TEXT NOT NULL PRIMARY KEY, checksum INTEGER NOT NULL, body BLOB NOT NULL);
    CREATE TABLE run_specs (run_id TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run_id, digest)) WITHOUT ROWID;
    CREATE INDEX run_specs_digest ON run_specs (digest);

    CREATE TABLE artifacts (digest TEXT NOT NULL PRIMARY KEY, checksum INTEGER NOT NULL, body BLOB NOT NULL);
    CREATE TABLE run_artifacts (run_id TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run_id, digest)) WITHOUT ROWID;
    CREATE INDEX run_artifacts_digest ON run_artifacts (digest);

    CREATE TABLE marks (run_id TEXT NOT NULL PRIMARY KEY, reason TEXT NOT NULL, time REAL NOT NULL);

    CREATE TABLE owner (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        owner TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        held INTEGER NOT NULL,
        claimed_at REAL NOT NULL,
        expires_at REAL NOT NULL
    );
    INSERT INTO owner VALUES (1, '', 0, 0, 0, 0);
    """,
    """
    CREATE TABLE lost_claims (epoch INTEGER NOT NULL PRIMARY KEY) WITHOUT ROWID;
    """,
    """
    CREATE TABLE refusals (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id TEXT NOT NULL,
        id TEXT NOT NULL,
        type TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        time REAL NOT NULL
    );
    CREATE INDEX refusals_run ON refusals (run_id, number);
    """,
)

SCHEMA_VERSION: Final = len(MIGRATIONS)
# The schema from which on refused events are kept. They are for people: nothing is decided by them.
REFUSALS_SINCE: Final = 3


def statements(script: str) -> list[str]:
    """Return the statements of a migration, one by one."""
    return [statement.strip() for statement in script.split(";") if statement.strip()]
