"""What a store can answer instead of yes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from geartrain.errors import ResourceError, UsageError


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


@dataclass(eq=False)
class JournalConflict(ResourceError):
    """Somebody else has appended to the run since it was read. Nothing was written."""

    run_id: str
    expected: int
    found: int

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r}: append after event {self.expected}, but the last one is {self.found}; "
            "read the run again"
        )


@dataclass(eq=False)
class DuplicateEvent(UsageError):
    """An outside event of that id is stored already. Nothing was written.

    `stored_digest` tells a repeated delivery (the same) from another event under the same id; `stored_seq` is the
    number under which it is stored.
    """

    run_id: str
    event_id: str
    stored_digest: str
    stored_seq: int

    def __str__(self) -> str:
        return f"run {self.run_id!r}: event id {self.event_id!r} is stored already (digest {self.stored_digest!r})"


@dataclass(eq=False)
class OwnershipLost(ResourceError):
    """The claim is not in force: a later one was made, or it was given back. Nothing was written."""

    epoch: int
    newest: int

    def __str__(self) -> str:
        return (
            f"claim of epoch {self.epoch}: not in force (newest epoch of this store: {self.newest}); "
            "claim the store again and read the runs again"
        )


@dataclass(eq=False)
class StoreFailed(ResourceError):
    """The store could not do it (disk full, I/O error). Of what was asked for, nothing is written."""

    path: str
    attempted: str
    reason: str

    def __str__(self) -> str:
        return f"store {self.path!r}: {self.attempted} failed: {self.reason}"


@dataclass(eq=False)
class CommitUnknown(ResourceError):
    """A commit failed and could not be read back: what was asked for may have been written, or not."""

    path: str
    attempted: str
    reason: str

    def __str__(self) -> str:
        return (
            f"store {self.path!r}: {self.attempted} has an unknown outcome: {self.reason}; "
            "read what is stored before doing anything else"
        )


@dataclass(eq=False)
class StoreBusy(ResourceError):
    """Somebody else owns the store: process `pid` (None if it did not say) since `since`, in seconds since 1970."""

    path: str
    pid: int | None
    since: float | None

    def __str__(self) -> str:
        owner = "another owner" if self.pid is None else f"process {self.pid}"
        since = "" if self.since is None else f" since {_when(self.since)}"
        return f"store {self.path!r}: owned by {owner}{since}; close it there, or open it here for reading only"


@dataclass(eq=False)
class StoreUnusable(UsageError):
    """The file (or handle) cannot serve as a store. Nothing was written to it."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"store {self.path!r}: {self.reason}"


@dataclass(eq=False)
class StoreReadOnly(UsageError):
    """The store was opened for reading only."""

    path: str
    attempted: str

    def __str__(self) -> str:
        return f"{self.attempted}: store {self.path!r} is open for reading only; open it without read_only"


@dataclass(eq=False)
class StoreClosed(UsageError):
    """The store's handle is closed or closing."""

    path: str
    attempted: str

    def __str__(self) -> str:
        return f"{self.attempted}: store {self.path!r} is closed; open it again"


@dataclass(eq=False)
class RunCorrupt(ResourceError):
    """What is stored of a run is damaged. Its rows were left as they are, and other runs are not touched."""

    run_id: str
    reason: str

    def __str__(self) -> str:
        return f"run {self.run_id!r}: damaged in the store: {self.reason}"


@dataclass(eq=False)
class RunNotEnded(UsageError):
    """A run that has not ended cannot be deleted. Nothing was deleted."""

    run_id: str
    state: str

    def __str__(self) -> str:
        return f"delete run {self.run_id!r}: it is in {self.state}; cancel it and wait for its end"
