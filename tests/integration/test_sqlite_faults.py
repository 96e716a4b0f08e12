"""The SQLite store in a world that fails: at any statement, at the commit, on a full disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from geartrain import faults
from geartrain.errors import GeartrainError
from geartrain.limits import Limits
from geartrain.persistence import (
    CommitUnknown,
    Entry,
    StoreClosed,
    StoreFailed,
    StoreUnusable,
)
from geartrain.persistence.sqlite import SqliteJournal, _file
from geartrain.testing._journal_samples import (
    ENDED,
    START,
    a_head,
    a_message,
    an_entry,
    an_event,
    epoch_of,
    outcomes_of,
)

pytestmark = pytest.mark.real_time


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
async def journal(path: Path) -> AsyncIterator[SqliteJournal]:
    journal = await SqliteJournal.open(path)
    yield journal
    await journal.aclose()


@pytest.fixture
def hook() -> Iterator[Callable[[faults.Hook], None]]:
    yield faults.install
    faults.install(None)


class FailingConnection(sqlite3.Connection):
    """Raises at the statement of that number; counts them; may have little room."""

    fail_at = 0
    count = 0
    pages = 0
    error: type[sqlite3.Error] = sqlite3.OperationalError
    code = sqlite3.SQLITE_ERROR

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if FailingConnection.pages:
            super().execute(f"PRAGMA max_page_count = {FailingConnection.pages}")

    def _step(self, sql: str) -> None:
        if sql.startswith("ROLLBACK"):
            return
        FailingConnection.count += 1
        if FailingConnection.count == FailingConnection.fail_at:
            error = FailingConnection.error("on purpose")
            error.sqlite_errorcode = FailingConnection.code
            raise error

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        self._step(sql)
        return super().execute(sql, *arguments)

    def executemany(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        self._step(sql)
        return super().executemany(sql, *arguments)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[FailingConnection]:
    monkeypatch.setattr(_file, "CONNECTION_CLASS", FailingConnection)
    monkeypatch.setattr(FailingConnection, "fail_at", 0)
    monkeypatch.setattr(FailingConnection, "pages", 0)
    monkeypatch.setattr(FailingConnection, "code", sqlite3.SQLITE_ERROR)
    monkeypatch.setattr(FailingConnection, "error", sqlite3.OperationalError)
    return FailingConnection


def _full(run_id: str, epoch: int, expected: int = 0, **fields: Any) -> Entry:
    more: dict[str, Any] = {"checkpoint": b"c", "specs": {"s": b"s"}, "artifacts": {"d": b"d"}, "consumed": (1,)}
    return an_entry(run_id, epoch, expected, outgoing=(a_message("x", f"{run_id}{expected}"),), **{**more, **fields})


async def _append(journal: SqliteJournal, epoch: int) -> None:
    await asyncio.gather(journal.append(_full("new", epoch)), journal.append(_full("over", epoch, 1, head=ENDED)))


async def _append_beside_a_refused_one(journal: SqliteJournal, epoch: int) -> None:
    found = await outcomes_of([journal.append(_full("new", epoch)), journal.append(an_entry("over", epoch, 9))])
    if found[0] != 1:
        raise StoreFailed("", "", "")


OPERATIONS: dict[str, Callable[[SqliteJournal, int], Awaitable[Any]]] = {
    "append": _append,
    "append one by one": _append_beside_a_refused_one,
    "claim": lambda journal, _: journal.claim("conformance", now=START, lease_seconds=5),
    "mark": lambda journal, _: journal.mark("over", "odd", now=START),
    "delete": lambda journal, _: journal.delete("over"),
    "prune": lambda journal, _: journal.prune(before=START + 9),
}


def _everything(path: Path) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return [sorted(connection.execute(f"SELECT * FROM {table}")) for table in tables]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("error", [sqlite3.OperationalError, sqlite3.IntegrityError])
async def test_an_operation_that_fails_at_any_statement_is_whole_or_undone(
    path: Path, failing: type[FailingConnection], operation: str, error: type[sqlite3.Error]
) -> None:
    """ST-1: and nobody else is locked out, whichever statement failed, the commit included."""
    journal = await SqliteJournal.open(path)
    epoch = await epoch_of(journal)
    await journal.append(_full("over", epoch, head=ENDED))
    before = _everything(path)
    failing.error = error
    failures = 0

    for number in range(1, 60):
        failing.count, failing.fail_at = 0, number
        try:
            await OPERATIONS[operation](journal, epoch)
        except GeartrainError:
            failures += 1
        failing.fail_at = 0
        with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
        if _everything(path) != before:
            break

    else:
        pytest.fail("the operation never succeeded")
    assert failures >= 3 or error is sqlite3.IntegrityError
    assert (await journal.statistics()).failed is False
    await journal.aclose()


async def test_a_full_disk_refuses_appends_until_there_is_room_again(
    path: Path, failing: type[FailingConnection]
) -> None:
    failing.pages = 60
    journal = await SqliteJournal.open(path)
    epoch = await epoch_of(journal)
    acknowledged = 0
    refusal: GeartrainError | None = None
    while refusal is None:
        big = (an_event(acknowledged + 1, body=b"x" * 3_000),)
        try:
            acknowledged = await journal.append(an_entry("r", epoch, acknowledged, events=big))
        except StoreFailed as error:
            refusal = error
    assert "full" in str(refusal)
    assert (await journal.statistics()).failed is True
    with pytest.raises(StoreFailed):
        await journal.append(
            an_entry("r", epoch, acknowledged, events=(an_event(acknowledged + 1, body=b"x" * 9_000),))
        )
    assert len(await journal.read("r")) == acknowledged > 10

    failing.pages = 0

    # The connection that had no room was given up with the append that failed.
    assert await journal.append(an_entry("r", epoch, acknowledged)) == acknowledged + 1
    assert (await journal.statistics()).failed is False
    assert len(await journal.read("r")) == acknowledged + 1
    await journal.aclose()


async def test_a_commit_that_fails_after_it_was_done_is_read_back_and_succeeds(
    journal: SqliteJournal, hook: Callable[[faults.Hook], None]
) -> None:
    epoch = await epoch_of(journal)
    hook(_failing("store.commit.after"))

    futures = [journal.append(an_entry(run_id, epoch)) for run_id in "abc"]
    futures.append(journal.append(an_entry("a", epoch, 9)))

    assert await outcomes_of(futures) == [1, 1, 1, "JournalConflict"]
    assert await journal.append(an_entry("a", epoch, 1, events=())) == 1
    assert (await journal.statistics()).failed is False


async def test_a_failed_commit_is_read_back_on_a_fresh_connection(
    journal: SqliteJournal, hook: Callable[[faults.Hook], None]
) -> None:
    epoch = await epoch_of(journal)
    doubtful = journal._writer
    hook(_failing("store.commit.after"))

    await journal.append(an_entry("r", epoch))

    assert journal._writer is not doubtful


async def test_a_rollback_that_fails_too_leaves_no_transaction_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ST-1."""
    failing = ["INSERT INTO events", "ROLLBACK"]

    class Stubborn(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if failing and sql == failing[-1] == "ROLLBACK":
                raise sqlite3.OperationalError("cannot roll back")
            return super().execute(sql, *arguments)

        def executemany(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            if failing and failing[0] in sql:
                raise sqlite3.OperationalError("cannot insert")
            return super().executemany(sql, *arguments)

    monkeypatch.setattr(_file, "CONNECTION_CLASS", Stubborn)
    journal = await SqliteJournal.open(path)
    epoch = await epoch_of(journal)
    assert await outcomes_of([journal.append(an_entry("r", epoch))]) == ["StoreFailed"]
    with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")

    failing.clear()

    assert await journal.append(an_entry("r", epoch)) == 1
    await journal.aclose()


async def test_what_was_read_back_is_synced_once_more(path: Path, hook: Callable[[faults.Hook], None]) -> None:
    """After a failed sync it may be in the memory of the machine only."""
    journal = await SqliteJournal.open(path)
    epoch = await epoch_of(journal)
    hook(_failing("store.commit.after"))

    await journal.append(an_entry("r", epoch))

    assert _size_of_log(path) == 0
    await journal.aclose()


async def test_what_a_failed_sync_left_in_the_log_is_thrown_away(path: Path, failing: type[FailingConnection]) -> None:
    """Or it might come to light after a crash, though its caller was told that it is not there."""
    journal = await SqliteJournal.open(path)
    epoch = await epoch_of(journal)
    failing.code = sqlite3.SQLITE_IOERR_FSYNC
    failing.count, failing.fail_at = 0, _statements_before_commit()

    outcomes = await outcomes_of([journal.append(an_entry("r", epoch))])

    assert (outcomes, _size_of_log(path)) == (["StoreFailed"], 0)
    assert await journal.append(an_entry("r", epoch)) == 1
    await journal.aclose()


def _statements_before_commit() -> int:
    return len(["BEGIN", "SELECT the epoch", "SAVEPOINT", "INSERT the run", "INSERT the events", "COMMIT"])


def _size_of_log(path: Path) -> int:
    return os.stat(f"{path}-wal").st_size


async def test_a_commit_that_was_not_done_is_refused_and_nothing_is_there(
    journal: SqliteJournal, hook: Callable[[faults.Hook], None]
) -> None:
    epoch = await epoch_of(journal)
    hook(_failing("store.commit.before"))
    futures = [journal.append(an_entry(run_id, epoch)) for run_id in "abc"]

    assert await outcomes_of(futures) == ["StoreFailed"] * 3

    faults.install(None)
    assert [*await journal.list()] == []
    assert await outcomes_of([journal.append(an_entry(run_id, epoch)) for run_id in "abc"]) == [1, 1, 1]


async def test_a_commit_that_cannot_be_read_back_is_unknown(
    journal: SqliteJournal, hook: Callable[[faults.Hook], None]
) -> None:
    epoch = await epoch_of(journal)
    hook(_failing("store.commit.after", "store.read"))

    with pytest.raises(CommitUnknown, match="reading back"):
        await journal.append(an_entry("r", epoch))

    faults.install(None)
    assert (await journal.statistics()).failed is True
    loaded = await journal.load("r")  # what its message tells the caller to do
    assert loaded is not None
    assert await journal.append(an_entry("r", epoch, loaded.last_seq)) == 2


async def test_no_other_append_starts_before_a_failed_commit_was_read_back(
    journal: SqliteJournal, hook: Callable[[faults.Hook], None]
) -> None:
    epoch = await epoch_of(journal)
    reached: list[str] = []
    second: list[asyncio.Future[int]] = []
    loop = asyncio.get_running_loop()

    def remember(name: str, subject: str) -> None:
        reached.append(f"{name} {subject}")
        if name == "store.commit.before" and subject == "a":
            loop.call_soon_threadsafe(lambda: second.append(journal.append(an_entry("b", epoch))))
        if name == "store.commit.after" and subject == "a":
            raise OSError("the line went dead")

    hook(remember)
    await journal.append(an_entry("a", epoch))
    await second[0]

    assert reached == [
        "store.commit.before a",
        "store.commit.after a",
        "store.read a",
        "store.commit.before b",
        "store.commit.after b",
    ]


def _failing(*names: str) -> faults.Hook:
    def fail(name: str, subject: str) -> None:
        if name in names:
            raise OSError(f"{name} of {subject}")

    return fail


async def test_a_value_that_cannot_be_stored_is_refused_alone(journal: SqliteJournal) -> None:
    epoch = await epoch_of(journal)
    futures = [
        journal.append(an_entry("a", epoch)),
        journal.append(an_entry("b", epoch, events=(an_event(1, version=2**70),))),
        journal.append(an_entry("c", epoch, head=a_head(counters={"turns": object()}))),
        journal.append(an_entry("d", epoch, head=a_head(updated_at=float("nan")))),
        journal.append(an_entry("e", epoch)),
    ]

    assert await outcomes_of(futures) == [1, "InvalidValue", "InvalidValue", "InvalidValue", 1]
    assert [row.run_id for row in await journal.list()] == ["a", "e"]


async def test_far_too_many_waiting_entries_are_refused_at_once(path: Path) -> None:
    journal = await SqliteJournal.open(path, limits=Limits(appends_waiting=2))
    epoch = await epoch_of(journal)
    futures = [journal.append(an_entry(run_id, epoch)) for run_id in "ab"]

    with pytest.raises(StoreFailed, match="2 entries wait already"):
        journal.append(an_entry("c", epoch))

    assert await outcomes_of(futures) == [1, 1]
    assert await journal.append(an_entry("c", epoch)) == 1
    await journal.aclose()


async def test_a_file_system_without_a_write_ahead_log_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Network(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            return super().execute("SELECT 'delete'" if "journal_mode" in sql else sql, *arguments)

    monkeypatch.setattr(_file, "CONNECTION_CLASS", Network)

    with pytest.raises(StoreUnusable, match="cannot use a write-ahead log here"):
        await SqliteJournal.open(path)


async def test_an_append_whose_scope_is_cancelled_leaves_the_store_free_for_others(
    journal: SqliteJournal, path: Path
) -> None:
    """ST-1: also when the scope cancels every wait inside it."""
    epoch = await epoch_of(journal)
    for number in range(20):
        with anyio.move_on_after(0.0002 * number):
            await asyncio.gather(*[journal.append(an_entry(f"r{number}-{each}", epoch)) for each in range(50)])

    await journal.mark("r", "the writer is done with all that was before", now=START)
    with contextlib.closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    assert {row.last_seq for row in await journal.list(limit=2_000)} <= {1}


async def test_closing_in_a_cancelled_scope_lets_go_all_the_same(path: Path) -> None:
    """ST-4."""
    journal = await SqliteJournal.open(path)
    epoch = await epoch_of(journal)
    futures = [journal.append(an_entry(str(number), epoch)) for number in range(2_000)]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await journal.aclose()

    again = await SqliteJournal.open(path)

    outcomes = await outcomes_of(futures)
    assert outcomes.count(1) == len(await again.list(limit=5_000))
    await again.aclose()


async def test_whatever_is_asked_of_a_closed_handle_is_refused(path: Path) -> None:
    journal = await SqliteJournal.open(path)
    reading = [asyncio.create_task(journal.load("r")) for _ in range(50)]
    await asyncio.sleep(0)
    await journal.aclose()

    for ask in (journal.load("r"), journal.list(), journal.claim("a", now=START, lease_seconds=1)):
        with pytest.raises(StoreClosed):
            await ask
    found = await asyncio.gather(*reading, return_exceptions=True)
    assert {type(each) for each in found} <= {type(None), StoreClosed}
