"""The journal in an SQLite file: two reading threads, one writing thread, and what happens when a commit fails."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from geartrain import faults
from geartrain.clock import Clock, SystemClock
from geartrain.errors import GeartrainError, InvalidValue
from geartrain.limits import Limits
from geartrain.persistence._edge import check_entry, check_id, check_refused, check_text
from geartrain.persistence._errors import (
    CommitUnknown,
    RunCorrupt,
    StoreClosed,
    StoreFailed,
    StoreReadOnly,
    StoreUnusable,
)
from geartrain.persistence._group import GroupCommitter, Outcome
from geartrain.persistence._protocol import (
    Claim,
    Entry,
    InboxItem,
    LoadedRun,
    RefusedEvent,
    RunRow,
    StoredEvent,
    StoreStatistics,
)
from geartrain.persistence.sqlite import _census, _reads, _writes
from geartrain.persistence.sqlite._batch import CommitFailed, settle, transact, write_batch
from geartrain.persistence.sqlite._file import (
    connect_reader,
    connect_writer,
    has_reset_race,
    open_reader,
    open_writer,
)
from geartrain.persistence.sqlite._lock import FileUse
from geartrain.persistence.sqlite._schema import SCHEMA_VERSION
from geartrain.persistence.sqlite._thread import ConnectionThread

T = TypeVar("T")


class SqliteJournal:
    """A `Journal` in an SQLite file, with its log beside it (`-wal`, `-shm`) and a lock file (`.lock`).

    One process owns it, as long as the handle is open; any process may open it for reading only meanwhile.
    Opened by `SqliteJournal.open`.
    """

    def __init__(
        self,
        path: str,
        use: FileUse,
        limits: Limits,
        writer: ConnectionThread | None,
        readers: tuple[ConnectionThread, ConnectionThread],
    ) -> None:
        self._path: Final = path
        self._use: Final = use
        self._pid: Final = os.getpid()
        self._read_only: Final = writer is None
        self._writer = writer
        # Listings may take long; loading a run must not wait for them.
        self._run_reader, self._list_reader = readers
        self._committer: Final = GroupCommitter(self._write_batch, limits)
        self._waiting_most: Final = limits.appends_waiting
        self._writing: Final = asyncio.Lock()
        self._failed = False
        self._closed = False
        self._gone = False

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        clock: Clock | None = None,
        limits: Limits | None = None,
        read_only: bool = False,
    ) -> SqliteJournal:
        """Open the store at *path*; a missing or empty file becomes one, its folder must be there.

        If it fails or is cancelled, nothing stays behind: no thread, no lock.

        Raises:
            StoreBusy: Another process (or another handle of this one) owns it.
            StoreUnusable: The file, its folder or this Python's SQLite cannot serve, with the reason.
            FormatUnknown: The file was made by a newer geartrain.
        """
        name = os.fspath(path)
        if "\x00" in name:
            raise InvalidValue("path", "without NUL characters", name)
        use = FileUse(name)
        threads: list[ConnectionThread] = []
        try:
            if read_only:
                threads.append(await ConnectionThread.open(partial(open_reader, name, use)))
            else:
                now = (clock or SystemClock()).now
                threads.append(await ConnectionThread.open(partial(open_writer, name, use, now())))
                threads.append(await ConnectionThread.open(partial(connect_reader, name)))
            threads.append(await ConnectionThread.open(partial(connect_reader, name)))
        except BaseException:
            # Not awaited: whoever was cancelled may not be able to await anything.
            for thread in threads:
                thread.stop()
            use.end()
            raise
        writer = None if read_only else threads[0]
        return cls(name, use, limits or Limits(), writer, (threads[-2], threads[-1]))

    @property
    def sqlite_version(self) -> str:
        """The version of SQLite that this Python is linked to."""
        return sqlite3.sqlite_version

    def _check_open(self, attempted: str) -> None:
        if self._closed:
            raise StoreClosed(self._path, attempted)
        if os.getpid() != self._pid:
            raise StoreUnusable(
                self._path,
                f"was opened by process {self._pid} before it forked; open it again in this process",
            )

    def _check_writable(self, attempted: str) -> None:
        self._check_open(attempted)
        if self._read_only:
            raise StoreReadOnly(self._path, attempted)

    # Appending

    def append(self, entry: Entry) -> asyncio.Future[int]:
        """Write what one run wants written; see `Journal.append`."""
        self._check_writable("append")
        check_entry(entry)
        if self._committer.waiting >= self._waiting_most:
            raise StoreFailed(self._path, "append", f"{self._waiting_most} entries wait already")
        return self._committer.add(entry)

    async def _write_batch(self, entries: Sequence[Entry]) -> Sequence[Outcome]:
        async with self._writing:
            return await self._written(entries)

    async def _written(self, entries: Sequence[Entry]) -> Sequence[Outcome]:
        try:
            writer = await self._sound_writer()
            outcomes: Sequence[Outcome] = await writer.run(partial(write_batch, entries=entries))
        except CommitFailed as failure:
            return await self._read_back(entries, failure)
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing was committed, and the callers must know
            self._failed = True
            await self._drop_writer()
            return [StoreFailed(self._path, f"append to run {entry.run_id!r}", _reason(error)) for entry in entries]
        self._failed = False
        return outcomes

    async def _sound_writer(self) -> ConnectionThread:
        if self._gone:
            raise StoreClosed(self._path, "write")
        if self._writer is None:
            self._writer = await ConnectionThread.open(partial(connect_writer, self._path))
        return self._writer

    async def _drop_writer(self) -> None:
        # A transaction that might still be open dies with its connection; the next to write opens another one.
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    async def _read_back(self, entries: Sequence[Entry], failure: CommitFailed) -> Sequence[Outcome]:
        """Find out on a fresh connection what a failed commit has written. No other append starts meanwhile."""
        outcomes: Sequence[Outcome] = failure.result
        pairs = list(zip(entries, outcomes, strict=True))
        reason = _reason(failure.cause)
        error: type[StoreFailed | CommitUnknown] = StoreFailed
        try:
            await self._drop_writer()
            writer = await self._sound_writer()
            accepted = [entry for entry, outcome in pairs if isinstance(outcome, int)]
            if await writer.run(partial(_read_stored, entries=accepted, cause=failure.cause)):
                self._failed = False
                return outcomes
        except Exception as second:  # noqa: BLE001 - whatever it was, the outcome is unknown, and the callers must know
            error = CommitUnknown
            reason = f"{reason}; reading back: {_reason(second)}"
            await self._drop_writer()
        self._failed = True
        return [
            error(self._path, f"append to run {entry.run_id!r}", reason) if isinstance(outcome, int) else outcome
            for entry, outcome in pairs
        ]

    # Writing besides

    async def _transact(self, attempted: str, work: Callable[[sqlite3.Connection], T]) -> T:
        self._check_writable(attempted)
        async with self._writing:
            self._check_writable(attempted)
            return await self._transacted(attempted, work)

    async def _transacted(self, attempted: str, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            writer = await self._sound_writer()
            return await writer.run(partial(transact, work=work, subject=attempted))
        except GeartrainError:
            raise
        except CommitFailed as failure:
            await self._drop_writer()
            raise CommitUnknown(self._path, attempted, _reason(failure.cause)) from failure
        except Exception as error:
            await self._drop_writer()
            raise StoreFailed(self._path, attempted, _reason(error)) from error

    async def claim(self, owner: str, *, now: float, lease_seconds: float) -> Claim:
        """Become the one owner of this store; see `Journal.claim`. A claim ends with the handle it was made on."""
        check_id("owner", owner)
        _check_lease(lease_seconds)
        return await self._transact(
            "claim",
            partial(
                _writes.claim,
                path=self._path,
                pid=self._pid,
                owner=owner,
                now=now,
                lease_seconds=lease_seconds,
            ),
        )

    async def renew(self, claim: Claim, *, now: float, lease_seconds: float) -> Claim:
        """Extend a claim; see `Journal.renew`."""
        _check_lease(lease_seconds)
        return await self._transact("renew", partial(_writes.renew, old=claim, now=now, lease_seconds=lease_seconds))

    async def release(self, claim: Claim) -> None:
        """Give a claim back; releasing one that is lost changes nothing."""
        await self._transact("release", partial(_writes.release, epoch=claim.epoch))

    async def mark(self, run_id: str, reason: str | None, *, now: float) -> None:
        """Set a run apart with a reason beside its journal, or (None) take it back in."""
        check_id("run_id", run_id)
        check_text("reason", reason or "")
        await self._transact("mark", partial(_writes.mark, run_id=run_id, reason=reason, now=now))

    async def note_refused(self, refused: Mapping[str, Sequence[RefusedEvent]]) -> None:
        """Keep what runs have refused, beside their journals; see `Journal.note_refused`."""
        check_refused(refused)
        await self._transact("note what was refused", partial(_writes.note_refused, refused=refused))

    async def delete(self, run_id: str) -> bool:
        """Delete an ended run with all that is its own; return whether there was one."""
        return await self._transact("delete", partial(_writes.delete, run_id=run_id))

    async def prune(self, *, before: float, limit: int = 1_000) -> int:
        """Delete runs that ended before that time, oldest first; see `Journal.prune`."""
        return await self._transact("prune", partial(_writes.prune, before=before, limit=limit))

    # Reading

    async def _of_run(self, attempted: str, run_id: str, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._read(self._run_reader, attempted, run_id, work)

    async def _of_many(self, attempted: str, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._read(self._list_reader, attempted, None, work)

    async def _read(
        self,
        reader: ConnectionThread,
        attempted: str,
        run_id: str | None,
        work: Callable[[sqlite3.Connection], T],
    ) -> T:
        self._check_open(attempted)
        try:
            return await reader.run(partial(_reading, run_id or "", work))
        except GeartrainError:
            raise
        except Exception as error:
            if self._closed:
                raise StoreClosed(self._path, attempted) from error
            if run_id is not None and type(error) is sqlite3.DatabaseError:  # what SQLite says of damaged pages
                raise RunCorrupt(run_id, _reason(error)) from error
            raise StoreFailed(self._path, attempted, _reason(error)) from error

    async def load(self, run_id: str) -> LoadedRun | None:
        """Return what is needed to go on with a run, or None if there is no such run."""
        return await self._of_run("load", run_id, partial(_reads.load, run_id=run_id))

    async def head(self, run_id: str) -> RunRow | None:
        """Return one run's line, or None."""
        return await self._of_run("head", run_id, partial(_reads.head, run_id=run_id))

    async def read(self, run_id: str, *, after: int = 0, limit: int = 1_000) -> Sequence[StoredEvent]:
        """Return events numbered above *after*, in order, at most *limit*."""
        return await self._of_run("read", run_id, partial(_reads.events, run_id=run_id, after=after, limit=limit))

    async def find(self, run_id: str, event_id: str) -> StoredEvent | None:
        """Return the outside event of that id, or None."""
        return await self._of_run("find", run_id, partial(_reads.find, run_id=run_id, event_id=event_id))

    async def refused(self, run_id: str) -> Sequence[RefusedEvent]:
        """Return the newest events that a run has refused, oldest first."""
        return await self._of_run("refused", run_id, partial(_reads.refused, run_id=run_id))

    async def inbox(self, run_id: str, *, limit: int = 1_000) -> Sequence[InboxItem]:
        """Return what waits for a run, oldest first. The run need not exist yet."""
        return await self._of_run("inbox", run_id, partial(_reads.inbox, run_id=run_id, limit=limit))

    async def list(
        self,
        *,
        after: tuple[float, str] | None = None,
        limit: int = 100,
        states: Sequence[str] = (),
        agent: str | None = None,
        parent: str | None = None,
        root: str | None = None,
        live: bool | None = None,
        held: Collection[str] = (),
        marked: bool | None = None,
    ) -> Sequence[RunRow]:
        """Return runs newest first, beginning behind the cursor *after*; see `Journal.list`."""
        asked: dict[str, Any] = {"agent": agent, "parent": parent, "root": root, "live": live}
        equal = {column: value for column, value in asked.items() if value is not None}
        return await self._of_many(
            "list",
            partial(_reads.runs, after=after, limit=limit, states=states, equal=equal, held=held, marked=marked),
        )

    async def runnable(self, *, after: str = "", limit: int = 100) -> Sequence[str]:
        """Return ids of unmarked runs that are live or have inbox items, ordered by id, above *after*."""
        return await self._of_many("runnable", partial(_reads.runnable, after=after, limit=limit))

    async def due(self, now: float, *, limit: int = 100) -> Sequence[str]:
        """Return ids of unmarked runs, not ended, whose `wake_at` is at or before *now*, earliest first."""
        return await self._of_many("due", partial(_reads.due, now=now, limit=limit))

    async def next_wake(self, after: float | None = None) -> float | None:
        """Return the earliest `wake_at` (above *after*) of the unmarked runs that have not ended, or None."""
        return await self._of_many("next_wake", partial(_reads.next_wake, after=after))

    async def artifact(self, digest: str) -> bytes | None:
        """Return the bytes stored under *digest*, or None; what fails its checksum is not there."""
        return await self._of_many("artifact", partial(_reads.blob, table="artifacts", digest=digest))

    async def spec(self, digest: str) -> bytes | None:
        """Return the spec stored under *digest*, or None; what fails its checksum is not there."""
        return await self._of_many("spec", partial(_reads.blob, table="specs", digest=digest))

    async def ended(self, *, before: float) -> int:
        """Return how many runs ended before that time."""
        return await self._of_many("ended", partial(_census.ended, before=before))

    async def statistics(self, *, sums: Sequence[str] = (), tallies: Sequence[str] = ()) -> StoreStatistics:
        """Return how the store is doing; see `Journal.statistics`."""
        census = await self._of_many("statistics", partial(_census.census, sums=sums, tallies=tallies))
        committer = self._committer
        return StoreStatistics(
            kind="sqlite",
            runs=sum(census.by_state.values()),
            runs_by_state=census.by_state,
            bytes=sum(_size(self._path + suffix) for suffix in ("", "-wal")),
            updated_at=census.updated_at,
            marked=census.marked,
            sums=census.totals.sums,
            tallies=census.totals.tallies,
            appends=committer.appends,
            batches=committer.batches,
            batch_entries_peak=committer.batch_entries_peak,
            waiting=committer.waiting,
            failed=self._failed,
            schema_version=SCHEMA_VERSION,
            durability=durability(sqlite3.sqlite_version_info),
        )

    async def aclose(self) -> None:
        """Write what waits, then let go of the store. Closing twice changes nothing."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        try:
            await self._committer.wait_idle()
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        # The writer last: it takes the log into the file when nobody else has it open.
        threads = [thread for thread in (self._run_reader, self._list_reader, self._writer) if thread is not None]
        try:
            for thread in threads:
                await thread.close()
        finally:
            self._gone = True
            for thread in threads:
                thread.stop()
            self._use.end()


def durability(version: tuple[int, int, int]) -> str:
    """Return a word on what an append survives with that SQLite."""
    text = f"SQLite {'.'.join(map(str, version))}, write-ahead log, synchronous=FULL: survives a crash of the machine"
    if has_reset_race(version):
        text += "; safe mode for the WAL-reset bug of this version (one connection writes and checkpoints)"
    return text


def _reading(subject: str, work: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection) -> T:
    faults.reach("store.read", subject)
    return work(connection)


def _read_stored(connection: sqlite3.Connection, entries: Sequence[Entry], cause: BaseException) -> bool:
    faults.reach("store.read", entries[0].run_id)
    return settle(connection, entries, cause)


def _reason(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _check_lease(lease_seconds: float) -> None:
    if not lease_seconds > 0:
        raise InvalidValue("lease_seconds", "more than 0", lease_seconds)
