"""Which files can serve as a store, and how connections to one are made.

Everything here blocks and runs in a connection's thread. A file that cannot serve is refused with its reason and
is left as it is: it is judged by its first bytes before SQLite, which repairs what it opens, may touch it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from geartrain import faults
from geartrain.errors import FormatUnknown
from geartrain.persistence._errors import StoreUnusable
from geartrain.persistence.sqlite._batch import CommitFailed, transact
from geartrain.persistence.sqlite._lock import FileUse
from geartrain.persistence.sqlite._schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION, statements
from geartrain.persistence.sqlite._writes import note_lost

BUSY_SECONDS: Final = 5.0
SQLITE_LEAST: Final = (3, 37, 0)
CONNECTION_CLASS: type[sqlite3.Connection] = sqlite3.Connection  # a test puts one here that fails at statement k

_MAGIC: Final = b"SQLite format 3\x00"
_HEADER_BYTES: Final = 100


def has_reset_race(version: tuple[int, int, int]) -> bool:
    """Say whether that SQLite may corrupt a file when two connections write and checkpoint its log.

    See https://sqlite.org/wal.html, "The WAL-reset bug": 3.7.0 to 3.51.2, mended in 3.44.6, 3.50.7 and 3.51.3.
    """
    if version[:2] == (3, 44):
        return version < (3, 44, 6)
    if version[:2] == (3, 50):
        return version < (3, 50, 7)
    return (3, 7, 0) <= version < (3, 51, 3)


def check_version(path: str, version: tuple[int, int, int]) -> None:
    """Refuse an SQLite that is too old.

    Raises:
        StoreUnusable: It is.
    """
    if version < SQLITE_LEAST:
        found, least = (".".join(map(str, numbers)) for numbers in (version, SQLITE_LEAST))
        raise StoreUnusable(path, f"this Python is linked to SQLite {found}; {least} or newer is needed")


def check_place(path: str, *, read_only: bool) -> None:
    """Refuse a path where no store is or could be.

    Raises:
        StoreUnusable: It is one.
    """
    place = Path(path)
    if place.is_dir():
        raise StoreUnusable(path, "is a folder; give the path of a file in it")
    folder = place.resolve().parent
    if not folder.is_dir():
        raise StoreUnusable(path, f"the folder {str(folder)!r} does not exist; make it first")
    if not place.exists():
        if read_only:
            raise StoreUnusable(path, "does not exist")
    elif not place.is_file():
        raise StoreUnusable(path, "is not a regular file")
    elif not os.access(place, os.R_OK):
        raise StoreUnusable(path, "may not be read by this user")
    elif not read_only and not os.access(place, os.W_OK):
        raise StoreUnusable(path, "may not be written by this user; make it writable, or open it for reading only")
    if not read_only and place.exists() and place.stat().st_nlink > 1:
        # The lock lies beside a name, so a second name would have a second owner.
        raise StoreUnusable(path, "has several names (hard links); leave it one, or copy it")
    if not read_only and not os.access(folder, os.W_OK):
        raise StoreUnusable(path, f"the folder {str(folder)!r} may not be written by this user")


def check_header(path: str) -> None:
    """Refuse a file that is not a store of ours, by its first bytes; an empty or missing one may become one.

    Raises:
        StoreUnusable: It is something else.
        FormatUnknown: Its schema is newer.
    """
    place = Path(path)
    if not place.exists():
        return
    with place.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header:
        return
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise StoreUnusable(path, "is not an SQLite file")
    application = int.from_bytes(header[68:72])
    if application != APPLICATION_ID:
        raise _foreign(path, application)
    _check_schema(path, int.from_bytes(header[60:64]))


def _foreign(path: str, application: int) -> StoreUnusable:
    return StoreUnusable(
        path, f"is another program's SQLite file (application id {application:#x}, not {APPLICATION_ID:#x})"
    )


def _check_schema(path: str, found: int) -> None:
    if not 0 <= found <= SCHEMA_VERSION:
        raise FormatUnknown(f"store {path!r}: schema", str(found), f"1 to {SCHEMA_VERSION}")


def open_writer(path: str, use: FileUse, now: float) -> sqlite3.Connection:
    """Take a store file over and return the connection that writes it; a new file becomes a store.

    Raises:
        StoreBusy: Somebody else owns it.
        StoreUnusable: It cannot serve as a store.
        FormatUnknown: Its schema is newer.
    """
    check_version(path, sqlite3.sqlite_version_info)
    check_place(path, read_only=False)
    use.begin(lambda: check_header(path))
    use.lock(now)
    faults.reach("store.open", path)
    with _translated(path):
        if not os.path.exists(path):
            _make(path)
        connection = connect_writer(path)
        with _closed_on_error(connection):
            _prepare(path, connection)
    return connection


def _make(path: str) -> None:
    """Make a store where no file is, under another name first, so that nobody ever comes upon half of one."""
    whole = os.path.realpath(path)
    made = f"{whole}.new"
    for left_over in (made, f"{made}-journal"):
        Path(left_over).unlink(missing_ok=True)
    connection = _connect(made, "rwc")
    with _closed_on_error(connection):
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _migrate_to_newest(path, connection)
    connection.close()
    os.rename(made, whole)
    folder = os.open(os.path.dirname(whole), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, CommitFailed, OSError, UnicodeError) as error:
        raise StoreUnusable(path, f"cannot be opened: {error}") from error


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _prepare(path: str, connection: sqlite3.Connection) -> None:
    _migrate_to_newest(path, connection)
    # Whoever held the claim is no more: this process has the lock.
    transact(connection, note_lost)


def _migrate_to_newest(path: str, connection: sqlite3.Connection) -> None:
    found = _schema_version(path, connection)
    for number, script in enumerate(MIGRATIONS[found:], found + 1):
        transact(connection, partial(_migrate, number=number, script=script))


def _schema_version(path: str, connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    _check_schema(path, found)
    return found


def _migrate(connection: sqlite3.Connection, number: int, script: str) -> None:
    for statement in statements(script):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {number}")


def connect_writer(path: str) -> sqlite3.Connection:
    """Connect to write. Of all connections only this one checkpoints the log."""
    connection = _connect(path, "rwc")
    with _closed_on_error(connection):
        if not connection.execute("PRAGMA page_count").fetchone()[0]:
            # Before the log is switched on, so that it stands in the file itself from its first byte.
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        if application != APPLICATION_ID:
            raise _foreign(path, application)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnusable(path, f"cannot use a write-ahead log here (SQLite chose {mode!r})")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -16000")
        # Taken into the file at 16 MB and not at 4: pages that many batches touch are written there once.
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute("PRAGMA journal_size_limit = 67108864")
    return connection


def open_reader(path: str, use: FileUse) -> sqlite3.Connection:
    """Connect to read a store that anybody may own.

    Raises:
        StoreUnusable: It is no store.
        FormatUnknown: Its schema is newer.
    """
    check_version(path, sqlite3.sqlite_version_info)
    check_place(path, read_only=True)
    use.begin(lambda: check_header(path))
    faults.reach("store.open", path)
    with _translated(path):
        connection = connect_reader(path)
        with _closed_on_error(connection):
            if not _schema_version(path, connection):
                raise StoreUnusable(path, "has no schema yet; open it for writing first")
    return connection


def connect_reader(path: str) -> sqlite3.Connection:
    """Connect to read; this connection never writes or checkpoints."""
    connection = _connect(path, "ro")
    # A flipped bit may make text undecodable; its checksum says so, the decoder must not.
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def _connect(path: str, mode: str) -> sqlite3.Connection:
    uri = f"{Path(path).resolve().as_uri()}?mode={mode}"
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        factory=CONNECTION_CLASS,
        check_same_thread=False,  # used by its own thread, but closed by another if that one has ended early
    )
