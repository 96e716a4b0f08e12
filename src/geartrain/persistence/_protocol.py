"""What a journal must do, for every store alike.

The journal knows no states and no events: it keeps names, versions and bytes. A run's events are numbered
1..n without gaps; an `Entry` is what one run wants written, all of it or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event as it is stored.

    `path` holds the states that the event led through, joined by `>`, so that a replay which goes another way
    is seen at its first step. `outside` events (from people, callers, other runs) are kept in a unique index by
    (run, id); events that answer a run's own effects carry derived ids and are told apart by the run itself.
    `digest` identifies the body without its time, so that a repeated delivery can be told from another event
    that has the same id.
    """

    seq: int
    id: str
    type: str
    version: int
    time: float
    body: bytes
    digest: str = ""
    path: str = ""
    outside: bool = False
    checkpointed: bool = False


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What can be asked of many runs at once without reading their journals.

    `live` runs are moved by the runtime as soon as it opens; the others rest (suspended) or are over (`ended`).
    `wake_at` is the earliest time at which the run wants to be woken, in seconds since 1970.
    `counters` is small, flat JSON data shown in listings (turn count, tokens, …).
    `created_at`, `parent` and `root` are those of the run's first entry, whatever later ones say.
    """

    state: str
    agent: str
    live: bool
    ended: bool
    holds: tuple[str, ...] = ()
    parent: str | None = None
    root: str | None = None
    wake_at: float | None = None
    created_at: float
    updated_at: float
    counters: Mapping[str, Any] = {}
    labels: Mapping[str, str] = {}


class Outgoing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event for another run, written with the entry that causes it and kept until that run has appended it.

    `id` is the event's own id: sending the same one to the same run again changes nothing, whether it still waits
    or was appended as an outside event of that id.
    """

    run_id: str
    id: str
    type: str
    version: int
    body: bytes


class InboxItem(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An `Outgoing` event waiting for its receiver, by the number the store gave it."""

    number: int
    run_id: str
    id: str
    type: str
    version: int
    body: bytes


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one run wants written: events `expected + 1 …`, the head they lead to, and what goes with them.

    `expected` is the number of the run's last event (0 for a new run). `specs` and `artifacts` are stored once by
    their digest; writing one that is there already changes nothing. `checkpoint` is the whole run as of the last
    event of this entry; the store keeps only the newest. `consumed` are numbers of inbox items that this
    entry's events answer: they are deleted in the same transaction.

    A run refers to the specs and artifacts of all its entries. When no run refers to one any more it may be deleted:
    so an entry that relies on what another run has stored brings it again. An entry may have no events (to drop
    inbox items that nothing can answer), but not the first of a run.
    """

    run_id: str
    epoch: int
    expected: int
    events: tuple[StoredEvent, ...]
    head: Head
    checkpoint: bytes | None = None
    checkpoint_version: int = 1
    specs: Mapping[str, bytes] = {}
    artifacts: Mapping[str, bytes] = {}
    outgoing: tuple[Outgoing, ...] = ()
    consumed: tuple[int, ...] = ()

    def size(self) -> int:
        """Return about how many bytes this entry writes."""
        size = 256 + len(self.checkpoint or b"")
        for event in self.events:
            size += len(event.body) + 128
        for item in self.outgoing:
            size += len(item.body) + 64
        for blobs in (self.specs, self.artifacts):
            if blobs:
                size += sum(map(len, blobs.values()))
        return size


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to append, until `expires_at`: every entry carries its `epoch`; a later claim ends it.

    `lost` are the epochs of the newest earlier claims that were never given back: their owners died, or were cut off.
    """

    owner: str
    epoch: int
    expires_at: float
    lost: frozenset[int] = frozenset()


# So many lost claims are known at most.
LOST_CLAIMS_KEPT: Final = 1_000


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A note beside a journal that this run is set apart: its journal is untouched and nothing moves it."""

    reason: str
    time: float


class RefusedEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event that could not move its run: which, when it came, in which state, and why. It is in no journal."""

    id: str
    type: str
    state: str
    reason: str
    time: float


# How many refused events are kept of a run: the newest.
REFUSALS_KEPT: Final = 8


class LoadedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is needed to go on with a run: its newest checkpoint, the events after it, and what waits for it.

    Without a usable checkpoint `checkpoint` is None and `events` begin with number 1.
    """

    run_id: str
    head: Head
    last_seq: int
    checkpoint: bytes | None
    checkpoint_version: int
    checkpoint_seq: int
    events: tuple[StoredEvent, ...]
    specs: Mapping[str, bytes]
    inbox: tuple[InboxItem, ...]
    mark: Mark | None


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a listing."""

    run_id: str
    head: Head
    last_seq: int
    mark: Mark | None


class StoreStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is doing, as of the moment of asking.

    `updated_at` is when a run was last moved (None: there is none), `marked` how many are set apart. `sums` and
    `tallies` are about counters that were asked for: what they come to, and how many runs have each of their texts.
    """

    kind: str
    runs: int
    runs_by_state: Mapping[str, int]
    bytes: int
    updated_at: float | None = None
    marked: int = 0
    sums: Mapping[str, int | float] = {}
    tallies: Mapping[str, Mapping[str, int]] = {}
    appends: int = 0
    batches: int = 0
    batch_entries_peak: int = 0
    waiting: int = 0
    failed: bool = False
    schema_version: int = 1
    durability: str = ""


class Journal(Protocol):
    """Where the events of runs are kept. Used from one event loop; every method may be awaited concurrently."""

    def append(self, entry: Entry) -> asyncio.Future[int]:
        """Write what one run wants written, and return a future of the number of its last event.

        Two entries of one run never interleave; entries of many runs that wait at the same time share a commit.
        If whoever awaits the future is cancelled, the entry may or may not be written: read the run again.
        When the future is done, the entry survives a crash of this process and (SQLite with its defaults) of
        the machine.

        Raises:
            InvalidValue: At once: an id or text that some store could not hold, or events with wrong numbers.
            StoreFailed: At once: far too many entries wait already.

        The future raises:
            JournalConflict: `expected` is not the run's last number. Nothing was written.
            DuplicateEvent: An outside event's id is stored already (its `digest` is attached). Nothing was written.
            OwnershipLost: `epoch` is not the epoch of the newest claim, or that was given back. Nothing was written.
            StoreFailed: The store could not write (disk full, I/O error), and it was read back that nothing
                was written.
            CommitUnknown: The commit failed and could not be read back: it may have been written.
        """
        ...

    async def load(self, run_id: str) -> LoadedRun | None:
        """Return what is needed to go on with a run, or None if there is no such run.

        A checkpoint that fails its checksum is passed over.

        Raises:
            RunCorrupt: An event's row fails its checksum or a number is missing.
        """
        ...

    async def head(self, run_id: str) -> RunRow | None:
        """Return one run's line, or None."""
        ...

    async def read(self, run_id: str, *, after: int = 0, limit: int = 1_000) -> Sequence[StoredEvent]:
        """Return events numbered above *after*, in order, at most *limit*.

        Raises:
            RunCorrupt: A row among them fails its checksum or a number is missing.
        """
        ...

    async def find(self, run_id: str, event_id: str) -> StoredEvent | None:
        """Return the outside event of that id, or None."""
        ...

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
        """Return runs newest first (by creation, then id), beginning behind the cursor *after*.

        The cursor of the next page is `(created_at, run_id)` of the last row. *held* keeps runs with a hold of one of
        these kinds (the part before its bracket).
        """
        ...

    async def runnable(self, *, after: str = "", limit: int = 100) -> Sequence[str]:
        """Return ids of unmarked runs that are live or have inbox items, ordered by id, above *after*."""
        ...

    async def due(self, now: float, *, limit: int = 100) -> Sequence[str]:
        """Return ids of unmarked runs, not ended, whose `wake_at` is at or before *now*, earliest first."""
        ...

    async def next_wake(self, after: float | None = None) -> float | None:
        """Return the earliest `wake_at` (above *after*) of the unmarked runs that have not ended, or None."""
        ...

    async def inbox(self, run_id: str, *, limit: int = 1_000) -> Sequence[InboxItem]:
        """Return what waits for a run, oldest first. The run need not exist yet."""
        ...

    async def artifact(self, digest: str) -> bytes | None:
        """Return the bytes stored under *digest*, or None; what fails its checksum is not there."""
        ...

    async def spec(self, digest: str) -> bytes | None:
        """Return the spec stored under *digest*, or None; what fails its checksum is not there."""
        ...

    async def claim(self, owner: str, *, now: float, lease_seconds: float) -> Claim:
        """Become the one owner of this store: a new epoch, higher than all before.

        A claim does not outlive the process that made it, where the store can tell (SQLite can). Claims that were never
        given back stay known as `Claim.lost`, whatever comes in between.

        Raises:
            StoreBusy: Another owner's claim has not expired.
        """
        ...

    async def renew(self, claim: Claim, *, now: float, lease_seconds: float) -> Claim:
        """Extend a claim.

        Raises:
            OwnershipLost: A later claim was made.
        """
        ...

    async def release(self, claim: Claim) -> None:
        """Give a claim back: its epoch appends nothing more. Releasing one that is lost changes nothing."""
        ...

    async def mark(self, run_id: str, reason: str | None, *, now: float) -> None:
        """Set a run apart with a reason beside its journal, or (None) take it back in. The journal stays as it is."""
        ...

    async def note_refused(self, refused: Mapping[str, Sequence[RefusedEvent]]) -> None:
        """Keep what runs have refused, by run, oldest first, beside their journals: of each run the newest few.

        It tells people why a run does not go on, and nothing else: events of runs that are not there are left out.
        """
        ...

    async def refused(self, run_id: str) -> Sequence[RefusedEvent]:
        """Return the newest events that a run has refused, oldest first, at most `REFUSALS_KEPT`."""
        ...

    async def delete(self, run_id: str) -> bool:
        """Delete an ended run with all that is its own; return whether there was one.

        Raises:
            RunNotEnded: The run has not ended. Nothing was deleted.
        """
        ...

    async def ended(self, *, before: float) -> int:
        """Return how many runs ended before that time: those that `prune` would delete."""
        ...

    async def prune(self, *, before: float, limit: int = 1_000) -> int:
        """Delete up to *limit* runs that ended before that time, oldest first, and return how many went.

        A run ended at its last `updated_at`. One stays as long as a run below it has not ended. With the runs go
        artifacts and specs that no run refers to any more.
        """
        ...

    async def statistics(self, *, sums: Sequence[str] = (), tallies: Sequence[str] = ()) -> StoreStatistics:
        """Return how the store is doing.

        Args:
            sums: Names of counters whose numbers are added up over all runs; one that no run has comes to 0.
            tallies: Names of counters whose texts are counted.
        """
        ...

    async def aclose(self) -> None:
        """Write what waits, then let go of the store. Closing twice changes nothing."""
        ...
