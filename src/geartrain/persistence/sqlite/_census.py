"""Counting all runs of a store file, in its own language: 100,000 of them take a fraction of a second."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from geartrain.persistence._totals import Totals

# A run without counters has an empty text there, which is no JSON.
_COUNTER: Final = "json_extract(nullif(counters, ''), ?)"
# Which runs ended before a time, and leave nothing below them behind that has not.
OVER: Final = """
    ended = 1 AND updated_at < ? AND NOT EXISTS (
        WITH RECURSIVE below (run_id, ended) AS (
            SELECT child.run_id, child.ended FROM runs AS child WHERE child.parent = runs.run_id
            UNION SELECT child.run_id, child.ended FROM below JOIN runs AS child ON child.parent = below.run_id
        )
        SELECT 1 FROM below WHERE ended = 0
    )
"""


@dataclass(frozen=True, slots=True)
class Census:
    """How many runs there are in each state, when one was moved last, how many are set apart, and their counters."""

    by_state: dict[str, int]
    updated_at: float | None
    marked: int
    totals: Totals


def ended(connection: sqlite3.Connection, *, before: float) -> int:
    """Return how many runs ended before that time, with all below them."""
    row = connection.execute(f"SELECT count(*) FROM runs WHERE {OVER}", (before,)).fetchone()  # noqa: S608 - ours
    return int(row[0])


def census(connection: sqlite3.Connection, *, sums: Sequence[str], tallies: Sequence[str]) -> Census:
    """Count the runs, and add up their counters."""
    rows = connection.execute(
        "SELECT state, count(*), max(updated_at), sum(marked) FROM runs GROUP BY state"
    ).fetchall()
    totals = Totals(sums, tallies)
    try:
        _add_up(connection, totals)
    except sqlite3.OperationalError:  # a damaged row, or an SQLite without JSON: then one by one, as far as they go
        totals = _one_by_one(connection, Totals(sums, tallies))
    return Census(
        by_state={state: count for state, count, _, _ in rows},
        updated_at=max((updated_at for _, _, updated_at, _ in rows), default=None),
        marked=sum(marked for _, _, _, marked in rows),
        totals=totals,
    )


def _add_up(connection: sqlite3.Connection, totals: Totals) -> None:
    if totals.sums:
        columns = ", ".join(f"sum({_COUNTER})" for _ in totals.sums)
        found = connection.execute(f"SELECT {columns} FROM runs", [_path(name) for name in totals.sums]).fetchone()  # noqa: S608 - ours
        totals.sums.update((name, value or 0) for name, value in zip(totals.sums, found, strict=True))
    for name, tally in totals.tallies.items():
        # The first condition leaves out nearly all runs without decoding anything.
        rows = connection.execute(
            f"SELECT {_COUNTER} AS value, count(*) FROM runs WHERE instr(counters, ?) GROUP BY value",  # noqa: S608 - ours
            (_path(name), msgspec.json.encode(name).decode()),
        )
        tally.update((value, count) for value, count in rows if isinstance(value, str))


def _path(name: str) -> str:
    return f'$."{name}"'


def _one_by_one(connection: sqlite3.Connection, totals: Totals) -> Totals:
    for (counters,) in connection.execute("SELECT counters FROM runs WHERE counters <> ''"):
        totals.add(_decoded(counters))
    return totals


def _decoded(counters: Any) -> dict[str, Any]:
    try:
        return msgspec.json.decode(counters, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, TypeError):
        return {}
