"""How entries become rows and rows become what the protocol speaks of, with their checksums.

A checksum covers every column that is read back, and the run that the row belongs to. CRC-32 finds each error of
up to 32 neighbouring bits, which is what a failing disk or a stray write leaves; it is no defence against people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec

from geartrain.persistence._errors import RunCorrupt
from geartrain.persistence._protocol import Head, InboxItem, Mark, Outgoing, RunRow, StoredEvent

Row = tuple[Any, ...]
T = TypeVar("T")

EVENT_COLUMNS: Final = "seq, id, type, version, time, digest, path, outside, checkpointed, checksum, body"
RUN_COLUMNS: Final = (
    "runs.run_id, created_at, parent, root, birth_checksum, "
    "last_seq, state, agent, live, ended, wake_at, updated_at, holds, counters, labels, checksum"
)
INBOX_COLUMNS: Final = "number, run_id, id, type, version, checksum, body"

_encode: Final = msgspec.json.Encoder().encode
_SEPARATED: Final = ["%s\x1f" * count for count in range(16)]

UNREADABLE: Final = "what is stored as its head fails its checksum"


def checksum(parts: Row, body: bytes = b"") -> int:
    """Return the checksum of the values *parts* and of *body*."""
    # Not their repr(): that of text depends on which characters the Python at hand holds to be printable.
    return crc32(body, crc32((_SEPARATED[len(parts)] % parts).encode()))


def event_row(run_id: str, event: StoredEvent) -> Row:
    """Return the values of an `events` row: the run id, then `EVENT_COLUMNS`."""
    parts = (
        run_id,
        event.seq,
        event.id,
        event.type,
        event.version,
        float(event.time),
        event.digest,
        event.path,
        int(event.outside),
        int(event.checkpointed),
    )
    return (*parts, checksum(parts, event.body), event.body)


def event_of(run_id: str, row: Row) -> StoredEvent:
    """Return the event of a row of `EVENT_COLUMNS`.

    Raises:
        RunCorrupt: The row fails its checksum.
    """
    *parts, found, body = row
    _verify(run_id, f"the row of event {row[0]}", (run_id, *parts), found, body)
    seq, id_, type_, version, time, digest, path, outside, checkpointed = parts
    return StoredEvent(
        seq=seq,
        id=id_,
        type=type_,
        version=version,
        time=time,
        body=body,
        digest=digest,
        path=path,
        outside=bool(outside),
        checkpointed=bool(checkpointed),
    )


def birth_values(run_id: str, head: Head) -> Row:
    """Return what is written once of a run: created_at, parent, root and their checksum."""
    parts = (float(head.created_at), head.parent, head.root)
    return (*parts, checksum((run_id, *parts)))


def head_values(run_id: str, last_seq: int, head: Head) -> Row:
    """Return what changes of a run: last_seq, …, labels and their checksum."""
    parts = (
        last_seq,
        head.state,
        head.agent,
        int(head.live),
        int(head.ended),
        None if head.wake_at is None else float(head.wake_at),
        float(head.updated_at),
        _json(head.holds),
        _json(head.counters),
        _json(head.labels),
    )
    return (*parts, checksum((run_id, *parts)))


def _json(value: Any) -> str:
    return _encode(value).decode() if value else ""


def run_row_of(row: Row, mark: Mark | None) -> RunRow:
    """Return the listing line of a row of `RUN_COLUMNS`.

    Raises:
        RunCorrupt: The row fails a checksum.
    """
    run_id = row[0]
    if checksum((run_id, *row[1:4])) != row[4] or checksum((run_id, *row[5:15])) != row[15]:
        raise RunCorrupt(run_id, UNREADABLE)
    state, agent, live, ended, wake_at, updated_at, holds, counters, labels = row[6:15]
    head = Head(
        state=state,
        agent=agent,
        live=bool(live),
        ended=bool(ended),
        holds=tuple(msgspec.json.decode(holds)) if holds else (),
        parent=row[2],
        root=row[3],
        wake_at=wake_at,
        created_at=row[1],
        updated_at=updated_at,
        counters=msgspec.json.decode(counters) if counters else {},
        labels=msgspec.json.decode(labels) if labels else {},
    )
    return RunRow(run_id=run_id, head=head, last_seq=row[5], mark=mark)


def damaged_run_row(row: Row) -> RunRow:
    """Return a listing line for a row that fails its checksum: marked, so that one bad row hides no other."""
    head = Head(
        state=str(row[6]),
        agent=str(row[7]),
        live=False,
        ended=False,
        created_at=_number(row[1]),
        updated_at=0.0,
    )
    return RunRow(run_id=str(row[0]), head=head, last_seq=0, mark=Mark(reason=UNREADABLE, time=0.0))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def outgoing_row(item: Outgoing) -> Row:
    """Return the values of an `inbox` row: `INBOX_COLUMNS` without the number."""
    parts = (item.run_id, item.id, item.type, item.version)
    return (*parts, checksum(parts, item.body), item.body)


def inbox_item_of(row: Row) -> InboxItem:
    """Return the item of a row of `INBOX_COLUMNS`.

    Raises:
        RunCorrupt: The row fails its checksum.
    """
    number, run_id, id_, type_, version, found, body = row
    _verify(run_id, f"inbox item {number}", (run_id, id_, type_, version), found, body)
    return InboxItem(number=number, run_id=run_id, id=id_, type=type_, version=version, body=body)


def checkpoint_row(run_id: str, seq: int, version: int, body: bytes) -> Row:
    """Return the values of a `checkpoints` row."""
    return (run_id, seq, version, checksum((run_id, seq, version), body), body)


def blob_rows(blobs: Mapping[str, bytes]) -> list[Row]:
    """Return the values of rows of `specs` or `artifacts`."""
    return [(digest, checksum((digest,), body), body) for digest, body in blobs.items()]


def intact(parts: Row, found: Any, body: Any) -> bool:
    """Say whether *parts* and *body* have the checksum *found*."""
    return isinstance(body, bytes) and checksum(parts, body) == found


def _verify(run_id: str, what: str, parts: Row, found: Any, body: Any) -> None:
    if not intact(parts, found, body):
        raise RunCorrupt(run_id, f"{what} fails its checksum")
