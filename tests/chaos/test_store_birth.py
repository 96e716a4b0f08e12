"""A store is made whole or not at all: found by killing `geartrain run` while its store was being made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from geartrain import faults
from geartrain.persistence import StoreUnusable
from geartrain.persistence.sqlite import SqliteJournal

pytestmark = pytest.mark.real_time


class Died(Exception):
    pass


def die_at_the_commit(name: str, _subject: str) -> None:
    if name == "store.commit.before":
        raise Died


async def test_a_store_whose_making_was_cut_short_is_not_there_at_all(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    faults.install(die_at_the_commit)
    try:
        with pytest.raises(Died):
            await SqliteJournal.open(path)
    finally:
        faults.install(None)

    assert not path.exists()
    with pytest.raises(StoreUnusable, match="does not exist"):
        await SqliteJournal.open(path, read_only=True)


async def test_what_was_left_of_a_store_in_the_making_is_no_hindrance(tmp_path: Path) -> None:
    for left in ("runs.db.new", "runs.db.new-journal"):
        (tmp_path / left).write_bytes(b"half of something")

    journal = await SqliteJournal.open(tmp_path / "runs.db")

    await journal.aclose()
    assert set(os.listdir(tmp_path)) == {"runs.db", "runs.db.lock"}
