"""Group commit: entries of many runs that wait at the same time share one commit.

There is no timer. While one batch is being written the next one gathers; when the first is done the next is
handed over at once, and only then are the futures of the first resolved, so that the store works while the loop
wakes those who waited.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from geartrain.errors import GeartrainError
from geartrain.limits import Limits
from geartrain.persistence._protocol import Entry

Outcome = int | GeartrainError
"""What became of one entry: the number of the run's last event, or why it was refused."""

WriteBatch = Callable[[Sequence[Entry]], Awaitable[Sequence[Outcome]]]


class GroupCommitter:
    """The one writer of a store: hands it batches, one at a time, in the order of arrival.

    *write* is called with a batch and answers with one outcome per entry, in order; it answers for everything
    that may go wrong in the store, so what it raises is a defect and reaches every entry of the batch.
    """

    __slots__ = (
        "_appends",
        "_batches",
        "_entries",
        "_entries_peak",
        "_limits",
        "_loop",
        "_task",
        "_waiting",
        "_write",
    )

    def __init__(self, write: WriteBatch, limits: Limits) -> None:
        self._write: Final = write
        self._limits: Final = limits
        self._loop: Final = asyncio.get_running_loop()
        self._waiting: deque[tuple[Entry, asyncio.Future[int]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._entries = 0
        self._appends = 0
        self._batches = 0
        self._entries_peak = 0

    @property
    def waiting(self) -> int:
        """How many entries have no outcome yet."""
        return len(self._waiting) + self._entries

    @property
    def appends(self) -> int:
        """How many entries were written."""
        return self._appends

    @property
    def batches(self) -> int:
        """How many batches were handed to the store."""
        return self._batches

    @property
    def batch_entries_peak(self) -> int:
        """How many entries the largest batch had."""
        return self._entries_peak

    def add(self, entry: Entry) -> asyncio.Future[int]:
        """Put *entry* into the next batch that has room for it, and return the future of its outcome.

        Entries are written in the order of their adding. Cancelling the future leaves the entry where it is.
        """
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((entry, future))
        if self._task is None:
            self._start()
        return future

    async def wait_idle(self) -> None:
        """Wait until nothing waits and nothing is being written."""
        while self._task is not None:
            # Shielded: whoever is cancelled while waiting must not take the batch with it.
            await asyncio.wait([self._task])

    def _start(self) -> None:
        # A task per batch and not one for ever: it exists only while there is work, so a journal at rest owns
        # nothing that the end of the loop would have to cancel.
        self._task = self._loop.create_task(self._commit(), name="geartrain group commit")

    def _gathered(self) -> list[tuple[Entry, asyncio.Future[int]]]:
        batch: list[tuple[Entry, asyncio.Future[int]]] = []
        size = 0
        waiting, entries_most, bytes_most = (
            self._waiting,
            self._limits.batch_entries,
            self._limits.batch_bytes,
        )
        while waiting and len(batch) < entries_most:
            size += waiting[0][0].size()
            if batch and size > bytes_most:
                break
            batch.append(waiting.popleft())
        return batch

    async def _commit(self) -> None:
        batch = self._gathered()
        self._entries = len(batch)
        self._batches += 1
        self._entries_peak = max(self._entries_peak, len(batch))
        outcomes: Sequence[Outcome | BaseException]
        try:
            outcomes = await self._write([entry for entry, _ in batch])
        except asyncio.CancelledError:
            # Only the end of the loop cancels this task: nobody will write what waits.
            for _, future in (*batch, *self._waiting):
                future.cancel()
            self._waiting.clear()
            self._task = None
            raise
        except Exception as error:  # noqa: BLE001 - a defect of the store must reach the callers, not this task
            outcomes = [error] * len(batch)
        self._entries = 0
        self._task = None
        if self._waiting:
            self._start()
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, int):
                self._appends += 1
                if not future.done():
                    future.set_result(outcome)
            elif not future.done():
                future.set_exception(outcome)
