"""Reading an exported run where there is no store: the file becomes a journal in memory, or is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

import anyio.to_thread

from geartrain.errors import InvalidValue
from geartrain.ids import digest
from geartrain.persistence import Entry, Journal, MemoryJournal, StoredEvent
from geartrain.runtime._travel._errors import ExportUnusable
from geartrain.runtime._travel._lines import (
    ArtifactLine,
    BrokenLine,
    EndLine,
    EventLine,
    Header,
    Line,
    Reader,
    SpecLine,
)

_OWNER: Final = "export"
# A store keeps at most 1 GB in one piece, which base64 makes a third longer.
_HEADER_BYTES: Final = 16 * 1024**2
_LINE_BYTES: Final = 1_400_000_000


@dataclass(slots=True)
class Exported:
    """What the lines of an export hold, as far as they have been taken."""

    header: Header | None = None
    specs: dict[str, bytes] = field(default_factory=dict)
    artifacts: dict[str, bytes] = field(default_factory=dict)
    events: list[StoredEvent] = field(default_factory=list)
    ended: bool = False

    def take(self, line: Line) -> None:
        """Take the next line.

        Raises:
            BrokenLine: It cannot come here.
        """
        if self.ended:
            raise BrokenLine("it comes after the end")
        if (self.header is None) != isinstance(line, Header):
            raise BrokenLine("it begins another run" if self.header is not None else "it does not begin a run")
        match line:
            case Header():
                self.header = line
            case SpecLine():
                self.specs[line.digest] = _of_digest(line.digest, bytes(line.body))
            case ArtifactLine():
                self.artifacts[line.digest] = _of_digest(line.digest, line.data)
            case EventLine():
                if line.seq != len(self.events) + 1:
                    raise BrokenLine(f"event {line.seq} follows event {len(self.events)}")
                self.events.append(_event(line))
            case EndLine():
                self._end(line)

    def _end(self, line: EndLine) -> None:
        found = (len(self.events), len(self.specs), len(self.artifacts))
        if found != (line.events, line.specs, line.artifacts):
            raise BrokenLine("there were not as many lines before it as it says")
        self.ended = True


def read_lines(lines: Iterable[bytes], path: str) -> Exported:
    """Return what the *lines* of the export at *path* hold.

    Raises:
        ExportUnusable: They are cut, or not as they were written.
        FormatUnknown: They are newer than this version.
    """
    reader, exported = Reader(), Exported()
    number = 0
    for data in lines:
        number += 1
        try:
            exported.take(reader.line(data))
        except BrokenLine as broken:
            raise ExportUnusable(path, number, str(broken)) from None
    if not exported.ended:
        raise ExportUnusable(path, number + 1, "the file ends before it: it was cut")
    return exported


async def open_export(path: Path) -> Journal:
    """Return a journal in memory that holds the run exported to *path*.

    Raises:
        ExportUnusable: It cannot be read, or is not as it was written.
        FormatUnknown: It is newer than this version.
    """
    return await _journal_of(await anyio.to_thread.run_sync(_load, path), str(path))


def _load(path: Path) -> Exported:
    try:
        with path.open("rb") as file:
            return read_lines(_lines_of(file), str(path))
    except OSError as problem:
        raise ExportUnusable(str(path), 1, f"it cannot be read: {problem.strerror}") from None


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield lines up to the first that is longer than any that is written: of that one, only its beginning."""
    room = _HEADER_BYTES
    while line := file.readline(room + 1):
        yield line
        if len(line) > room:  # its end is missing, so it was refused
            return
        room = _LINE_BYTES


async def _journal_of(exported: Exported, path: str) -> Journal:
    journal = MemoryJournal()
    claim = await journal.claim(_OWNER, now=0.0, lease_seconds=1.0)
    header = exported.header
    assert header is not None, "what has ended has begun"
    try:
        entry = Entry(
            run_id=header.run,
            epoch=claim.epoch,
            expected=0,
            events=tuple(exported.events),
            head=header.head,
            specs=exported.specs,
            artifacts=exported.artifacts,
        )
        await journal.append(entry)
        if header.set_apart:
            await journal.mark(header.run, header.set_apart, now=header.head.updated_at)
    except InvalidValue as problem:
        raise ExportUnusable(path, 1, str(problem)) from None
    await journal.release(claim)
    return journal


def _of_digest(name: str, data: bytes) -> bytes:
    if digest(data) != name:
        raise BrokenLine(f"what it holds does not have the digest {name!r}")
    return data


def _event(line: EventLine) -> StoredEvent:
    return StoredEvent(
        seq=line.seq,
        id=line.id,
        type=line.type,
        version=line.version,
        time=line.time,
        path=line.path,
        outside=line.outside,
        digest=line.digest,
        checkpointed=line.checkpointed,
        body=bytes(line.body),
    )
