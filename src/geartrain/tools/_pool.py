"""Who may run a tool call now: slots, no tasks.

Rule 1: at most so many calls of each kind at once, and so many of one run, whatever their kind.
Rule 2: runs take turns. A run that asks for a thousand calls delays another one's first call by one call, not by a
thousand. Within one run and kind, first come is first served.
Rule 3: no entry of a run outlives its last call, and no operation looks at all runs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from geartrain.limits import Limits

Kind = Literal["task", "thread", "process"]
KINDS: Final[tuple[Kind, ...]] = ("task", "thread", "process")


class KindStatistics(msgspec.Struct, frozen=True):
    """Slots of one kind: how many there are, are in use, were in use at most, and calls that wait for one."""

    capacity: int
    in_use: int
    in_use_peak: int
    waiting: int


class PoolStatistics(msgspec.Struct, frozen=True):
    """A snapshot of a `Pool`; `runs` counts those that hold a slot or wait for one."""

    task: KindStatistics
    thread: KindStatistics
    process: KindStatistics
    runs: int


class ProcessStatistics(msgspec.Struct, frozen=True):
    """A snapshot of a `ProcessPool`.

    `processes` are the workers that there are: idle, `busy`, or `ending` with what they have started. All count
    against `capacity`. `waiting` calls have no worker yet. `busy_peak` is the most that were busy at once; `started`
    and `ended` count all workers there ever were.
    """

    capacity: int
    processes: int = 0
    busy: int = 0
    ending: int = 0
    waiting: int = 0
    busy_peak: int = 0
    started: int = 0
    ended: int = 0


class Ticket:
    """One call's claim to a slot: it waits, then holds, then is over."""

    __slots__ = ("_pool", "grant", "granted", "kind", "over", "run_id")

    def __init__(self, pool: Pool, run_id: str, kind: Kind, grant: Callable[[], None]) -> None:
        self._pool = pool
        self.run_id = run_id
        self.kind = kind
        self.grant = grant
        self.granted = False
        self.over = False

    def release(self) -> None:
        """Give the slot back, or withdraw the claim if it still waits. May be called again."""
        self._pool._give_back(self)  # noqa: SLF001 - the pool and its tickets are one thing in two classes

    def cancel(self) -> None:
        """Do what `release` does: for a call that is not wanted any more, however far it has come."""
        self.release()


class _RunEntry:
    __slots__ = ("held", "waiting")

    def __init__(self) -> None:
        self.held = 0
        self.waiting: Mapping[Kind, OrderedDict[Ticket, None]] = {kind: OrderedDict() for kind in KINDS}


class _Slots:
    """The slots of one kind. `turns` are the runs that wait and may have one more, in the order of their turns."""

    __slots__ = ("capacity", "in_use", "peak", "turns", "waiting")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.in_use = 0
        self.peak = 0
        self.waiting = 0
        self.turns: OrderedDict[str, None] = OrderedDict()


class Pool:
    """The slots of one node. Used from the event loop's thread only; nothing in it waits."""

    def __init__(self, limits: Limits) -> None:
        self._per_run = limits.calls_at_once_per_run
        self._slots: Mapping[Kind, _Slots] = MappingProxyType(
            {
                "task": _Slots(limits.task_calls_at_once),
                "thread": _Slots(limits.thread_calls_at_once),
                "process": _Slots(limits.process_calls_at_once),
            }
        )
        self._runs: dict[str, _RunEntry] = {}
        self._granting = False

    def request(self, run_id: str, kind: Kind, grant: Callable[[], None]) -> Ticket:
        """Claim a slot for a call of a run; *grant* is called once when it is there, perhaps before this returns.

        If *grant* raises, the slot is given back, the other runs get theirs, and then the error is raised to
        whoever made the slot free.
        """
        ticket = Ticket(self, run_id, kind, grant)
        entry = self._runs.setdefault(run_id, _RunEntry())
        entry.waiting[kind][ticket] = None
        self._slots[kind].waiting += 1
        self._queue(run_id, entry, kind)
        self._grant_all()
        return ticket

    def forget(self, run_id: str) -> None:
        """Withdraw all claims of a run that still wait. Slots that it holds stay its own until given back."""
        entry = self._runs.get(run_id)
        if entry is None:
            return
        for kind in KINDS:
            for ticket in list(entry.waiting[kind]):
                self._withdraw(ticket, entry)
        self._settle(run_id, entry)

    def statistics(self) -> PoolStatistics:
        """Return how the slots are used."""
        task, thread, process = (_counted(self._slots[kind]) for kind in KINDS)
        return PoolStatistics(task, thread, process, len(self._runs))

    def _give_back(self, ticket: Ticket) -> None:
        if ticket.over:
            return
        entry = self._runs[ticket.run_id]
        if ticket.granted:
            ticket.over = True
            entry.held -= 1
            self._slots[ticket.kind].in_use -= 1
        else:
            self._withdraw(ticket, entry)
        self._settle(ticket.run_id, entry)
        self._grant_all()

    def _withdraw(self, ticket: Ticket, entry: _RunEntry) -> None:
        ticket.over = True
        del entry.waiting[ticket.kind][ticket]
        self._slots[ticket.kind].waiting -= 1

    def _settle(self, run_id: str, entry: _RunEntry) -> None:
        """Put the run in line wherever it may have one more call, and out of it elsewhere."""
        for kind in KINDS:
            self._queue(run_id, entry, kind)
        if entry.held == 0 and not any(entry.waiting.values()):
            del self._runs[run_id]

    def _queue(self, run_id: str, entry: _RunEntry, kind: Kind) -> None:
        turns = self._slots[kind].turns
        if entry.waiting[kind] and entry.held < self._per_run:
            turns.setdefault(run_id)
        else:
            turns.pop(run_id, None)

    def _grant_all(self) -> None:
        # A grant may claim and give back again; only the outermost call grants, so that the stack stays flat.
        if self._granting:
            return
        self._granting = True
        raised: BaseException | None = None
        try:
            while (ticket := self._next()) is not None:
                try:
                    ticket.grant()
                except BaseException as error:  # noqa: BLE001 - the caller's own; kept until the others have theirs
                    raised = raised or error
                    self._give_back(ticket)
        finally:
            self._granting = False
        if raised is not None:
            raise raised

    def _next(self) -> Ticket | None:
        for kind in KINDS:
            slots = self._slots[kind]
            if slots.in_use < slots.capacity and slots.turns:
                run_id, _ = slots.turns.popitem(last=False)
                entry = self._runs[run_id]
                ticket, _ = entry.waiting[kind].popitem(last=False)
                ticket.granted = True
                slots.waiting -= 1
                slots.in_use += 1
                slots.peak = max(slots.peak, slots.in_use)
                entry.held += 1
                self._settle(run_id, entry)  # at the end of the line, if it may have another one
                return ticket
        return None


def _counted(slots: _Slots) -> KindStatistics:
    return KindStatistics(slots.capacity, slots.in_use, slots.peak, slots.waiting)
