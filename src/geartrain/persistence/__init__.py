"""Where the events of runs are kept: one protocol, a store in memory, a store in an SQLite file.

`SqliteJournal` lives in `geartrain.persistence.sqlite`, so that importing this package loads no database.
"""

from geartrain.persistence._errors import (
    CommitUnknown,
    DuplicateEvent,
    JournalConflict,
    OwnershipLost,
    RunCorrupt,
    RunNotEnded,
    StoreBusy,
    StoreClosed,
    StoreFailed,
    StoreReadOnly,
    StoreUnusable,
)
from geartrain.persistence._group import GroupCommitter, Outcome
from geartrain.persistence._memory import MemoryJournal
from geartrain.persistence._protocol import (
    REFUSALS_KEPT,
    Claim,
    Entry,
    Head,
    InboxItem,
    Journal,
    LoadedRun,
    Mark,
    Outgoing,
    RefusedEvent,
    RunRow,
    StoredEvent,
    StoreStatistics,
)

__all__ = [
    "REFUSALS_KEPT",
    "Claim",
    "CommitUnknown",
    "DuplicateEvent",
    "Entry",
    "GroupCommitter",
    "Head",
    "InboxItem",
    "Journal",
    "JournalConflict",
    "LoadedRun",
    "Mark",
    "MemoryJournal",
    "Outcome",
    "Outgoing",
    "OwnershipLost",
    "RefusedEvent",
    "RunCorrupt",
    "RunNotEnded",
    "RunRow",
    "StoreBusy",
    "StoreClosed",
    "StoreFailed",
    "StoreReadOnly",
    "StoreStatistics",
    "StoreUnusable",
    "StoredEvent",
]
