"""Files that cannot serve as a store, and stored data that is damaged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from geartrain.errors import FormatUnknown, GeartrainError, InvalidValue
from geartrain.persistence import (
    RunCorrupt,
    StoreUnusable,
)
from geartrain.persistence.sqlite import SqliteJournal, _file
from geartrain.persistence.sqlite._schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from geartrain.testing._journal_samples import START, a_head, a_message, an_entry, an_event, epoch_of

pytestmark = pytest.mark.real_time


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def content(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def files(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def make_folder(path: Path) -> None:
    path.mkdir()


def make_text(path: Path) -> None:
    path.write_text("not a database, but long enough to be one" * 10)


def make_short(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00")


def make_foreign(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (run_id TEXT)")


def make_named(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 7")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_cut(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("CREATE TABLE t (x)")
    path.write_bytes(path.read_bytes()[:300])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (make_folder, "is a folder"),
        (make_pipe, "is not a regular file"),
        (make_text, "is not an SQLite file"),
        (make_short, "is not an SQLite file"),
        (make_foreign, "is another program's SQLite file"),
        (make_named, "is another program's SQLite file"),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(
    path: Path, make: Callable[[Path], None], reason: str, read_only: bool
) -> None:
    make(path)
    before = files(path.parent)

    with pytest.raises(StoreUnusable, match=reason):
        await SqliteJournal.open(path, read_only=read_only)

    assert files(path.parent) == before


async def test_a_damaged_first_page_is_refused_with_what_sqlite_says(path: Path) -> None:
    make_cut(path)

    with pytest.raises(StoreUnusable, match="cannot be opened"):
        await SqliteJournal.open(path)


async def test_a_path_with_a_nul_is_refused(path: Path) -> None:
    """ST-9."""
    with pytest.raises(InvalidValue):
        await SqliteJournal.open(f"{path}\x00.db")


async def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="does not exist; make it first"):
        await SqliteJournal.open(tmp_path / "no" / "runs.db")

    assert files(tmp_path) == {}


async def test_a_missing_file_is_not_made_by_a_reader(path: Path) -> None:
    with pytest.raises(StoreUnusable, match="does not exist"):
        await SqliteJournal.open(path, read_only=True)

    assert files(path.parent) == {}


@pytest.mark.parametrize("number", [SCHEMA_VERSION + 1, 1_000])
@pytest.mark.parametrize("read_only", [False, True])
async def test_a_newer_schema_is_refused_with_both_versions(path: Path, number: int, read_only: bool) -> None:
    """JR-5."""
    await (await SqliteJournal.open(path)).aclose()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    before = content(path)

    with pytest.raises(FormatUnknown) as refusal:
        await SqliteJournal.open(path, read_only=read_only)

    assert (refusal.value.found, refusal.value.readable) == (str(number), f"1 to {SCHEMA_VERSION}")
    assert content(path) == before


async def test_a_newer_schema_that_is_still_in_the_log_is_refused_too(path: Path) -> None:
    """JR-5."""
    await (await SqliteJournal.open(path)).aclose()
    newer = sqlite3.connect(path, isolation_level=None)
    newer.execute("PRAGMA user_version = 9")

    with pytest.raises(FormatUnknown):
        await SqliteJournal.open(path)

    newer.close()


async def test_a_store_of_the_first_schema_is_taken_over_with_what_is_in_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as old:
        old.setattr(_file, "MIGRATIONS", MIGRATIONS[:1])
        old.setattr(_file, "note_lost", lambda connection: connection.execute("UPDATE owner SET held = 0"))
        old.setattr(_file, "_check_schema", lambda *_: None)
        await (await SqliteJournal.open(path)).aclose()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        connection.execute("UPDATE owner SET owner = 'before', epoch = 7, held = 1")

    journal = await SqliteJournal.open(path)
    claim = await journal.claim("now", now=START, lease_seconds=30)
    assert (claim.epoch, claim.lost) == (8, {7})
    assert await journal.append(an_entry("r", claim.epoch)) == 1
    await journal.aclose()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


async def test_a_claim_whose_process_is_gone_is_known_as_lost_and_one_given_back_is_not(path: Path) -> None:
    """Also if others have come and gone in between; the newest thousand stay known."""
    lost = []
    for number in range(3):
        journal = await SqliteJournal.open(path)
        claim = await journal.claim(f"o{number}", now=START, lease_seconds=30)
        if number == 1:
            await journal.release(claim)
        else:
            lost.append(claim.epoch)
        await journal.aclose()

    journal = await SqliteJournal.open(path)
    assert (await journal.claim("last", now=START, lease_seconds=30)).lost == set(lost)
    await journal.aclose()


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    put(path, b"")

    journal = await SqliteJournal.open(path)

    assert await journal.append(an_entry("r", await epoch_of(journal))) == 1
    await journal.aclose()


async def _fill(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    epoch = await epoch_of(journal)
    for name in ("good", "bad", "fine"):
        mark = f"|{name}|".encode()
        events = tuple(an_event(seq, body=mark * 30, outside=seq == 2) for seq in range(1, 6))
        await journal.append(an_entry(name, epoch, events=events, checkpoint=b"point" + mark * 20, specs={name: mark}))
        await journal.append(an_entry(name, epoch, 5, outgoing=(a_message(name, body=b"mail" + mark * 9),)))
    await journal.aclose()


@pytest.mark.parametrize("found", [b"|bad||bad|", b"mail|bad|"])
async def test_a_flipped_byte_in_one_run_is_seen_by_that_run_alone(path: Path, found: bytes) -> None:
    await _fill(path)
    data = bytearray(content(path))
    at = data.rindex(found) if found.startswith(b"mail") else data.index(b"|bad|" * 30)
    data[at + 6] ^= 1
    put(path, data)

    journal = await SqliteJournal.open(path)
    with pytest.raises(RunCorrupt):
        await (journal.inbox("bad") if found.startswith(b"mail") else journal.read("bad"))
    assert [len((await journal.load(name)).events) for name in ("good", "fine")] == [1, 1]  # type: ignore[union-attr]
    assert {row.run_id for row in await journal.list()} == {"good", "bad", "fine"}
    await journal.aclose()


async def test_a_checkpoint_that_fails_its_checksum_is_passed_over(path: Path) -> None:
    await _fill(path)
    data = bytearray(content(path))
    data[data.index(b"point|bad|")] ^= 1
    put(path, data)

    journal = await SqliteJournal.open(path)
    loaded = await journal.load("bad")
    await journal.aclose()

    assert loaded is not None
    assert (loaded.checkpoint, loaded.checkpoint_seq) == (None, 0)
    assert [event.seq for event in loaded.events] == [1, 2, 3, 4, 5, 6]


async def test_a_head_that_fails_its_checksum_is_listed_as_damaged_and_hides_no_other(path: Path) -> None:
    await _fill(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET state = 'FINISHED' WHERE run_id = 'bad'")

    journal = await SqliteJournal.open(path)
    with pytest.raises(RunCorrupt, match="head"):
        await journal.load("bad")
    marks = {row.run_id: row.mark and row.mark.reason for row in await journal.list()}
    await journal.aclose()

    assert marks == {"good": None, "bad": "what is stored as its head fails its checksum", "fine": None}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("DELETE FROM events WHERE run_id = 'bad' AND seq = 3", "event 3 is missing"),
        ("DELETE FROM events WHERE run_id = 'bad' AND seq = 6", "event 6 is missing"),
        ("UPDATE events SET seq = 7 WHERE run_id = 'bad' AND seq = 6", "event 6 is missing"),
        ("UPDATE events SET time = time + 1 WHERE run_id = 'bad' AND seq = 6", "event 6 fails its checksum"),
        ("DELETE FROM runs WHERE run_id = 'bad'", "no head"),
    ],
)
async def test_a_missing_or_changed_row_is_noticed(path: Path, damage: str, reason: str) -> None:
    await _fill(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(damage)

    journal = await SqliteJournal.open(path)
    with pytest.raises(RunCorrupt, match=reason):
        await journal.read("bad")
    assert len(await journal.read("good")) == 6
    await journal.aclose()


async def test_no_flipped_byte_anywhere_gives_a_wrong_answer(path: Path) -> None:
    """Each answer is the right one or a refusal, and the process lives on."""
    await _fill(path)
    journal = await SqliteJournal.open(path, read_only=True)
    names = ("good", "bad", "fine")
    right = {name: await journal.load(name) for name in names}
    await journal.aclose()
    sound = content(path)
    refused = 0

    for at in range(100, len(sound), 509):
        damaged = bytearray(sound)
        damaged[at] ^= 0x55
        put(path, damaged)
        try:
            journal = await SqliteJournal.open(path, read_only=True)
        except GeartrainError:
            refused += 1
            continue
        for name in names:
            try:
                answer = await journal.load(name)
            except GeartrainError:
                refused += 1
                continue
            assert answer is None or answer == right[name] or answer.checkpoint is None
        await journal.aclose()

    assert refused > 10


async def test_forced_checkpoints_beside_readers_leave_a_sound_file(path: Path) -> None:
    """ST-6: whatever SQLite this is, in the mode that we use."""
    journal = await SqliteJournal.open(path)
    epoch = await epoch_of(journal)
    assert journal._writer is not None
    assert journal.sqlite_version in (await journal.statistics()).durability
    other = await SqliteJournal.open(path, read_only=True)

    for expected in range(60):
        entries = [an_entry(f"r{number}", epoch, expected) for number in range(20)]
        futures = [journal.append(entry) for entry in entries]
        checkpoint = journal._writer.run(lambda writer: writer.execute("PRAGMA wal_checkpoint(RESTART)").fetchall())
        await asyncio.gather(*futures, checkpoint, other.load("r1"), journal.load("r2"), other.list())

    assert await _integrity(journal) == "ok"
    assert [row.last_seq for row in await other.list()] == [60] * 20
    await other.aclose()
    await journal.aclose()


async def test_many_suspended_runs_are_found_without_searching_them(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    epoch = await epoch_of(journal)
    for start in range(0, 20_000, 500):
        heads = [a_head(state="SUSPENDED", live=False, wake_at=START + number) for number in range(start, start + 500)]
        await asyncio.gather(
            *[journal.append(an_entry(f"r{start + n:06}", epoch, head=head)) for n, head in enumerate(heads)]
        )
    await journal.aclose()
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    journal = await SqliteJournal.open(path)
    await journal._list_reader.run(lambda reader: reader.set_progress_handler(count, 100))
    assert await journal.next_wake() == START
    assert len(await journal.due(START + 99)) == 100
    assert [*await journal.runnable()] == []
    assert len(await journal.list()) == 100
    await journal.aclose()

    assert steps < 200, "so many hundreds of SQLite's instructions mean that runs were searched one by one"


async def _integrity(journal: SqliteJournal) -> str:
    assert journal._writer is not None
    found: str = await journal._writer.run(lambda writer: writer.execute("PRAGMA integrity_check").fetchone()[0])
    return found


async def test_a_store_with_a_second_name_is_refused(tmp_path: Path) -> None:
    journal = await SqliteJournal.open(tmp_path / "other.db")
    await journal.aclose()
    (tmp_path / "alias.db").hardlink_to(tmp_path / "other.db")

    with pytest.raises(StoreUnusable, match="several names"):
        await SqliteJournal.open(tmp_path / "alias.db")
