from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.persistence import RunCorrupt, StoreUnusable
from geartrain.persistence.sqlite import _census, _reads
from geartrain.persistence.sqlite._file import check_version, has_reset_race
from geartrain.persistence.sqlite._journal import durability
from geartrain.persistence.sqlite._rows import event_of, event_row
from geartrain.persistence.sqlite._schema import MIGRATIONS, statements
from geartrain.testing._journal_samples import an_event


def test_the_private_names_of_aiosqlite_that_we_use_are_there() -> None:
    connection = aiosqlite.Connection(lambda: sqlite3.connect(":memory:"), iter_chunk_size=1)

    assert callable(connection._execute)
    assert connection._thread.daemon is False
    assert isinstance(type(connection)._conn, property)


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_the_range_of_the_reset_race_is_known(version: tuple[int, int, int], affected: bool) -> None:
    """ST-6."""
    assert has_reset_race(version) is affected
    assert ("safe mode" in durability(version)) is affected
    assert ".".join(map(str, version)) in durability(version)


def test_an_old_sqlite_is_refused_with_both_versions() -> None:
    """ST-6."""
    with pytest.raises(StoreUnusable, match=r"SQLite 3\.36\.0; 3\.37\.0 or newer"):
        check_version("x.db", (3, 36, 0))
    check_version("x.db", sqlite3.sqlite_version_info)


def test_every_changed_column_of_an_event_row_is_noticed() -> None:
    run_id, *row = event_row("r", an_event(1, outside=True))
    changes = [2, "other", "other", 2, 1.0, "other", "other", 0, 1, 0, b"other"]
    assert event_of(run_id, tuple(row)) == an_event(1, outside=True)

    for column, change in enumerate(changes):
        for value in (change, None):
            with pytest.raises(RunCorrupt):
                event_of(run_id, (*row[:column], value, *row[column + 1 :]))
    with pytest.raises(RunCorrupt):
        event_of("another run", tuple(row))


@given(body=st.binary(min_size=1, max_size=2_000), at=st.integers(0), flip=st.integers(1, 255))
def test_any_flipped_byte_of_a_body_is_noticed(body: bytes, at: int, flip: int) -> None:
    _, *row = event_row("r", an_event(1, body=body))
    damaged = bytearray(body)
    damaged[at % len(body)] ^= flip

    with pytest.raises(RunCorrupt):
        event_of("r", (*row[:-1], bytes(damaged)))


def test_a_run_that_is_born_while_it_is_looked_for_is_not_taken_for_damaged(tmp_path: Path) -> None:
    """Its head and its events are read as of one moment."""
    path = tmp_path / "runs.db"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode=WAL")
    for statement in statements(MIGRATIONS[0]):
        writer.execute(statement)

    class Slow(sqlite3.Connection):
        """A connection that looks for events only after somebody else has written some."""

        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            if sql.startswith("SELECT 1 FROM events"):
                writer.execute("INSERT INTO events VALUES ('r', 1, 'e', 'T', 1, 0, '', '', 0, 0, 0, x'')")
            return super().execute(sql, *parameters)

    reader = sqlite3.connect(path, isolation_level=None, factory=Slow)

    assert _reads.head(reader, "r") is None


def plan_of(ask: str) -> str:
    """Return how SQLite answers the statements of the function *ask*."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for script in MIGRATIONS:
        for statement in statements(script):
            connection.execute(statement)
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    arguments: dict[str, tuple[object, ...]] = {"due": (9.0, 10), "next_wake": (1.0,), "runnable": ("", 10)}
    getattr(_reads, ask)(connection, *arguments[ask])
    connection.set_trace_callback(None)
    lines = [row[3] for text in asked for row in connection.execute(f"EXPLAIN QUERY PLAN {text}")]
    connection.close()
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("ask", "index"), [("due", "runs_wake"), ("next_wake", "runs_wake"), ("runnable", "runs_live")]
)
def test_what_is_asked_often_walks_an_index(ask: str, index: str) -> None:
    plan = plan_of(ask)

    assert f"SEARCH runs USING INDEX {index}" in plan
    assert "SCAN runs" not in plan


def test_a_listing_walks_its_index_and_sorts_nothing() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for statement in statements(MIGRATIONS[0]):
        connection.execute(statement)
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    _reads.runs(connection, after=(5.0, "r"), limit=3, states=(), equal={}, held=None, marked=None)
    connection.set_trace_callback(None)
    plan = "\n".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {asked[0]}"))
    connection.close()

    assert "runs USING INDEX runs_created" in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize("damage", ["{", "[1]", "7"])
def test_runs_are_counted_although_the_counters_of_one_are_damaged(damage: str) -> None:
    connection = sqlite3.connect(":memory:")
    for statement in statements(MIGRATIONS[0]):
        connection.execute(statement)
    for number, counters in enumerate(('{"turns":2,"error":"late"}', damage, "", '{"turns":3}')):
        connection.execute(
            "INSERT INTO runs VALUES (?, ?, NULL, NULL, 0, 1, 'DONE', 'a', 0, 1, NULL, ?, '', ?, '', 0, 0)",
            (f"r{number}", number, number, counters),
        )

    found = _census.census(connection, sums=["turns"], tallies=["error"])

    assert (found.by_state, found.updated_at, found.marked) == ({"DONE": 4}, 3.0, 0)
    assert (found.totals.sums, found.totals.tallies) == ({"turns": 5}, {"error": {"late": 1}})
