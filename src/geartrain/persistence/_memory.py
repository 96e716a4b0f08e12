"""The store in memory: what the protocol means, in dicts.

It forgets everything when the process ends. Every other store is compared with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from geartrain.errors import InvalidValue
from geartrain.persistence._edge import check_entry, check_id, check_refused, check_text, hold_kind
from geartrain.persistence._errors import (
    DuplicateEvent,
    JournalConflict,
    OwnershipLost,
    RunNotEnded,
    StoreBusy,
    StoreClosed,
)
from geartrain.persistence._protocol import (
    LOST_CLAIMS_KEPT,
    REFUSALS_KEPT,
    Claim,
    Entry,
    Head,
    InboxItem,
    LoadedRun,
    Mark,
    RefusedEvent,
    RunRow,
    StoredEvent,
    StoreStatistics,
)
from geartrain.persistence._totals import Totals

PATH: Final = ":memory:"


class _Run:
    __slots__ = (
        "artifacts",
        "checkpoint",
        "checkpoint_seq",
        "checkpoint_version",
        "events",
        "head",
        "outside",
        "specs",
    )

    def __init__(self) -> None:
        self.head: Head
        self.events: list[StoredEvent] = []
        self.outside: dict[str, StoredEvent] = {}
        self.checkpoint: bytes | None = None
        self.checkpoint_version = 1
        self.checkpoint_seq = 0
        self.specs: set[str] = set()
        self.artifacts: set[str] = set()


def _copied(head: Head, first: Head | None = None) -> Head:
    # The mappings are the caller's: neither side may change what the other holds.
    first = first or head
    return msgspec.structs.replace(
        head,
        counters=dict(head.counters),
        labels=dict(head.labels),
        created_at=first.created_at,
        parent=first.parent,
        root=first.root,
    )


class MemoryJournal:
    """A `Journal` in this process's memory, for tests and for runs that need no durability."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._inbox: dict[str, dict[str, InboxItem]] = {}
        self._last_number = 0
        self._specs: dict[str, bytes] = {}
        self._artifacts: dict[str, bytes] = {}
        self._marks: dict[str, Mark] = {}
        self._refused: dict[str, list[RefusedEvent]] = {}
        self._claim = Claim(owner="", epoch=0, expires_at=0.0)
        self._claimed = False
        self._waiting: list[tuple[Entry, asyncio.Future[int]]] = []
        self._appends = 0
        self._batches = 0
        self._entries_peak = 0
        self._closed = False

    def append(self, entry: Entry) -> asyncio.Future[int]:
        """Write what one run wants written; see `Journal.append`."""
        self._check_open("append")
        check_entry(entry)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._waiting.append((entry, future))
        if len(self._waiting) == 1:
            # Not at once: with every other store an append has not happened yet when it returns.
            loop.call_soon(self._write_waiting)
        return future

    def _check_open(self, attempted: str) -> None:
        if self._closed:
            raise StoreClosed(PATH, attempted)

    def _write_waiting(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        self._batches += 1
        self._entries_peak = max(self._entries_peak, len(batch))
        for entry, future in batch:
            refusal = self._refusal(entry)
            if refusal is None:
                self._write(entry)
                self._appends += 1
            if future.done():
                continue
            if refusal is None:
                future.set_result(entry.expected + len(entry.events))
            else:
                future.set_exception(refusal)

    def _refusal(self, entry: Entry) -> OwnershipLost | DuplicateEvent | JournalConflict | None:
        if not self._claimed or entry.epoch != self._claim.epoch:
            return OwnershipLost(entry.epoch, self._claim.epoch)
        run = self._runs.get(entry.run_id)
        coming: dict[str, StoredEvent] = {}
        for event in entry.events:
            if event.outside:
                known = (run.outside.get(event.id) if run else None) or coming.get(event.id)
                if known is not None:
                    return DuplicateEvent(entry.run_id, event.id, known.digest, known.seq)
                coming[event.id] = event
        last = len(run.events) if run else 0
        return None if last == entry.expected else JournalConflict(entry.run_id, entry.expected, last)

    def _write(self, entry: Entry) -> None:
        run = self._runs.get(entry.run_id)
        if run is None:
            run = self._runs[entry.run_id] = _Run()
            run.head = _copied(entry.head)
        else:
            run.head = _copied(entry.head, run.head)
        run.events += entry.events
        run.outside.update((event.id, event) for event in entry.events if event.outside)
        if entry.checkpoint is not None:
            run.checkpoint, run.checkpoint_version = entry.checkpoint, entry.checkpoint_version
            run.checkpoint_seq = len(run.events)
        for own, shared, given in (
            (run.specs, self._specs, entry.specs),
            (run.artifacts, self._artifacts, entry.artifacts),
        ):
            own.update(given)
            for digest, data in given.items():
                shared.setdefault(digest, data)
        for item in self._inbox_of(entry.run_id) if entry.consumed else ():
            if item.number in entry.consumed:
                del self._inbox[entry.run_id][item.id]
        if not self._inbox.get(entry.run_id, True):
            del self._inbox[entry.run_id]
        for sent in entry.outgoing:
            receiver = self._runs.get(sent.run_id)
            known = receiver is not None and sent.id in receiver.outside
            if not known and sent.id not in self._inbox.get(sent.run_id, {}):
                self._last_number += 1
                item = InboxItem(number=self._last_number, **msgspec.structs.asdict(sent))
                self._inbox.setdefault(sent.run_id, {})[sent.id] = item

    async def load(self, run_id: str) -> LoadedRun | None:
        """Return what is needed to go on with a run, or None if there is no such run."""
        self._check_open("load")
        run = self._runs.get(run_id)
        if run is None:
            return None
        return LoadedRun(
            run_id=run_id,
            head=_copied(run.head),
            last_seq=len(run.events),
            checkpoint=run.checkpoint,
            checkpoint_version=run.checkpoint_version,
            checkpoint_seq=run.checkpoint_seq,
            events=tuple(run.events[run.checkpoint_seq :]),
            specs={digest: self._specs[digest] for digest in run.specs},
            inbox=self._inbox_of(run_id),
            mark=self._marks.get(run_id),
        )

    def _inbox_of(self, run_id: str) -> tuple[InboxItem, ...]:
        return tuple(self._inbox.get(run_id, {}).values())

    def _row(self, run_id: str, run: _Run) -> RunRow:
        return RunRow(run_id=run_id, head=_copied(run.head), last_seq=len(run.events), mark=self._marks.get(run_id))

    async def head(self, run_id: str) -> RunRow | None:
        """Return one run's line, or None."""
        self._check_open("head")
        run = self._runs.get(run_id)
        return None if run is None else self._row(run_id, run)

    async def read(self, run_id: str, *, after: int = 0, limit: int = 1_000) -> Sequence[StoredEvent]:
        """Return events numbered above *after*, in order, at most *limit*."""
        self._check_open("read")
        run = self._runs.get(run_id)
        return run.events[after : after + limit] if run else []

    async def find(self, run_id: str, event_id: str) -> StoredEvent | None:
        """Return the outside event of that id, or None."""
        self._check_open("find")
        run = self._runs.get(run_id)
        return run.outside.get(event_id) if run else None

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
        self._check_open("list")
        wanted = {"agent": agent, "parent": parent, "root": root, "live": live}
        rows = [
            self._row(run_id, run)
            for run_id, run in self._runs.items()
            if (after is None or (-run.head.created_at, run_id) > (-after[0], after[1]))
            and (not states or run.head.state in states)
            and all(value is None or getattr(run.head, name) == value for name, value in wanted.items())
            and (not held or not set(held).isdisjoint(map(hold_kind, run.head.holds)))
            and (marked is None or (run_id in self._marks) == marked)
        ]
        rows.sort(key=lambda row: (-row.head.created_at, row.run_id))
        return rows[:limit]

    async def runnable(self, *, after: str = "", limit: int = 100) -> Sequence[str]:
        """Return ids of unmarked runs that are live or have inbox items, ordered by id, above *after*."""
        self._check_open("runnable")
        ids = {run_id for run_id, run in self._runs.items() if run.head.live}
        ids.update(self._inbox)
        return sorted(run_id for run_id in ids - self._marks.keys() if run_id > after)[:limit]

    def _wakes(self) -> Iterator[tuple[float, str]]:
        for run_id, run in self._runs.items():
            if run.head.wake_at is not None and not run.head.ended and run_id not in self._marks:
                yield run.head.wake_at, run_id

    async def due(self, now: float, *, limit: int = 100) -> Sequence[str]:
        """Return ids of unmarked runs, not ended, whose `wake_at` is at or before *now*, earliest first."""
        self._check_open("due")
        return [run_id for _, run_id in sorted(wake for wake in self._wakes() if wake[0] <= now)[:limit]]

    async def next_wake(self, after: float | None = None) -> float | None:
        """Return the earliest `wake_at` (above *after*) of the unmarked runs that have not ended, or None."""
        self._check_open("next_wake")
        return min((at for at, _ in self._wakes() if after is None or at > after), default=None)

    async def inbox(self, run_id: str, *, limit: int = 1_000) -> Sequence[InboxItem]:
        """Return what waits for a run, oldest first. The run need not exist yet."""
        self._check_open("inbox")
        return self._inbox_of(run_id)[:limit]

    async def artifact(self, digest: str) -> bytes | None:
        """Return the bytes stored under *digest*, or None."""
        self._check_open("artifact")
        return self._artifacts.get(digest)

    async def spec(self, digest: str) -> bytes | None:
        """Return the spec stored under *digest*, or None."""
        self._check_open("spec")
        return self._specs.get(digest)

    async def claim(self, owner: str, *, now: float, lease_seconds: float) -> Claim:
        """Become the one owner of this store; see `Journal.claim`."""
        self._check_open("claim")
        _check_lease(lease_seconds)
        if self._claimed and self._claim.owner != owner and self._claim.expires_at > now:
            raise StoreBusy(PATH, None, None)
        lost = self._claim.lost
        if self._claimed:
            lost = frozenset(sorted({*lost, self._claim.epoch})[-LOST_CLAIMS_KEPT:])
        self._claim = Claim(owner=owner, epoch=self._claim.epoch + 1, expires_at=now + lease_seconds, lost=lost)
        self._claimed = True
        return self._claim

    async def renew(self, claim: Claim, *, now: float, lease_seconds: float) -> Claim:
        """Extend a claim; see `Journal.renew`."""
        self._check_open("renew")
        _check_lease(lease_seconds)
        if not self._claimed or claim.epoch != self._claim.epoch:
            raise OwnershipLost(claim.epoch, self._claim.epoch)
        self._claim = msgspec.structs.replace(self._claim, expires_at=now + lease_seconds)
        return self._claim

    async def release(self, claim: Claim) -> None:
        """Give a claim back; releasing one that is lost changes nothing."""
        self._check_open("release")
        if claim.epoch == self._claim.epoch:
            self._claimed = False

    async def mark(self, run_id: str, reason: str | None, *, now: float) -> None:
        """Set a run apart with a reason beside its journal, or (None) take it back in."""
        self._check_open("mark")
        check_id("run_id", run_id)
        if reason is None:
            self._marks.pop(run_id, None)
        else:
            check_text("reason", reason)
            self._marks[run_id] = Mark(reason=reason, time=now)

    async def note_refused(self, refused: Mapping[str, Sequence[RefusedEvent]]) -> None:
        """Keep what runs have refused, of each the newest few."""
        self._check_open("note what was refused")
        check_refused(refused)
        for run_id, events in refused.items():
            if run_id in self._runs:
                self._refused[run_id] = [*self._refused.get(run_id, ()), *events][-REFUSALS_KEPT:]

    async def refused(self, run_id: str) -> Sequence[RefusedEvent]:
        """Return the newest events that a run has refused, oldest first."""
        self._check_open("refused")
        return list(self._refused.get(run_id, ()))

    async def delete(self, run_id: str) -> bool:
        """Delete an ended run with all that is its own; return whether there was one."""
        self._check_open("delete")
        run = self._runs.get(run_id)
        if run is None:
            return False
        if not run.head.ended:
            raise RunNotEnded(run_id, run.head.state)
        self._forget(run_id)
        self._forget_unreferred()
        return True

    async def ended(self, *, before: float) -> int:
        """Return how many runs ended before that time."""
        self._check_open("ended")
        return len(self._over(before))

    def _over(self, before: float) -> Sequence[tuple[float, str]]:
        """Return the runs that ended before that time, with all below them, oldest first."""
        needed: set[str] = set()
        for run in self._runs.values():
            above = None if run.head.ended else run.head.parent
            while above is not None and above not in needed:
                needed.add(above)
                above = self._runs[above].head.parent if above in self._runs else None
        return sorted(
            (run.head.updated_at, run_id)
            for run_id, run in self._runs.items()
            if run.head.ended and run.head.updated_at < before and run_id not in needed
        )

    async def prune(self, *, before: float, limit: int = 1_000) -> int:
        """Delete runs that ended before that time, oldest first; see `Journal.prune`."""
        self._check_open("prune")
        going = self._over(before)[:limit]
        for _, run_id in going:
            self._forget(run_id)
        self._forget_unreferred()
        return len(going)

    def _forget(self, run_id: str) -> None:
        del self._runs[run_id]
        self._marks.pop(run_id, None)
        self._refused.pop(run_id, None)
        self._inbox.pop(run_id, None)

    def _forget_unreferred(self) -> None:
        specs = set().union(*(run.specs for run in self._runs.values()))
        artifacts = set().union(*(run.artifacts for run in self._runs.values()))
        self._specs = {digest: data for digest, data in self._specs.items() if digest in specs}
        self._artifacts = {digest: data for digest, data in self._artifacts.items() if digest in artifacts}

    async def statistics(self, *, sums: Sequence[str] = (), tallies: Sequence[str] = ()) -> StoreStatistics:
        """Return how the store is doing; see `Journal.statistics`."""
        self._check_open("statistics")
        heads = [run.head for run in self._runs.values()]
        totals = Totals(sums, tallies)
        for head in heads:
            totals.add(head.counters)
        return StoreStatistics(
            kind="memory",
            runs=len(self._runs),
            runs_by_state=Counter(head.state for head in heads),
            bytes=sum(len(event.body) for run in self._runs.values() for event in run.events)
            + _bytes(self._specs)
            + _bytes(self._artifacts),
            updated_at=max((head.updated_at for head in heads), default=None),
            marked=len(self._marks.keys() & self._runs.keys()),
            sums=totals.sums,
            tallies=totals.tallies,
            appends=self._appends,
            batches=self._batches,
            batch_entries_peak=self._entries_peak,
            waiting=len(self._waiting),
            durability="none: everything is gone when this process ends",
        )

    async def aclose(self) -> None:
        """Write what waits, then let go of the store. Closing twice changes nothing."""
        self._closed = True
        self._write_waiting()


def _bytes(stored: Mapping[Any, bytes]) -> int:
    return sum(map(len, stored.values()))


def _check_lease(lease_seconds: float) -> None:
    if not lease_seconds > 0:
        raise InvalidValue("lease_seconds", "more than 0", lease_seconds)
