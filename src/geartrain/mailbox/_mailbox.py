"""The mailbox: many senders put in, one owner takes out, all on one event loop.

Rule 1: a sender that waits holds its message itself; the mailbox only ever grants it room. So a cancelled
`send` has sent nothing, at whatever moment the cancellation comes.
Rule 2: room that was granted and is not used is granted to the next in line.
Rule 3: an idle mailbox is small: lanes exist while they hold messages, waiting lines while somebody waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from geartrain.errors import InternalError, InvalidValue, MailboxFull, UsageError
from geartrain.mailbox._lanes import LANES, RESULTS, Lane

T = TypeVar("T")


@dataclass(eq=False)
class MailboxClosed(UsageError):
    """A mailbox is closed and takes nothing more in."""

    owner: str

    def __str__(self) -> str:
        return f"mailbox of {self.owner!r} is closed; its owner has stopped"


@dataclass(eq=False)
class ReservedRoomExceeded(InternalError):
    """More results came back than the owner has reserved room for."""

    owner: str
    reserved_capacity: int

    def __str__(self) -> str:
        return (
            f"mailbox of {self.owner!r}: more than {self.reserved_capacity} results waiting; "
            "its owner started more effects than it reserved room for"
        )


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """A mailbox at one moment. Counts are since it was made; `capacity` is that of each lane."""

    waiting: int
    waiting_peak: int
    senders_waiting: int
    capacity: int
    reserved_capacity: int
    sent: int
    taken: int
    refused: int


class _Line:
    """Senders that wait for room in one lane, and room granted to some that have not used it yet."""

    __slots__ = ("granted", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.granted = 0


class Mailbox(Generic[T]):
    """A bounded queue with lanes. For one event loop: no method may be called from another thread.

    Args:
        owner: Whose mailbox it is; named in errors.
        capacity: How many messages each lane holds, at least 1.
        reserved_capacity: How many results of the owner's own effects it holds beside those.
        on_arrival: Called within the send that makes an empty mailbox non-empty; what it raises reaches
            that sender.

    Raises:
        InvalidValue: A capacity is out of range.
    """

    __slots__ = (
        "_capacity",
        "_closed",
        "_lanes",
        "_lines",
        "_on_arrival",
        "_owner",
        "_refused",
        "_reserved_capacity",
        "_taken",
        "_waiting",
        "_waiting_peak",
    )

    def __init__(
        self,
        owner: str,
        *,
        capacity: int,
        reserved_capacity: int = 0,
        on_arrival: Callable[[], None] | None = None,
    ) -> None:
        if capacity < 1:
            raise InvalidValue("capacity", "at least 1", capacity)
        if reserved_capacity < 0:
            raise InvalidValue("reserved_capacity", "at least 0", reserved_capacity)
        self._owner = owner
        self._capacity = capacity
        self._reserved_capacity = reserved_capacity
        self._on_arrival = on_arrival
        self._lanes: list[deque[T] | None] = [None] * LANES
        self._lines: dict[int, _Line] | None = None
        self._closed = False
        self._waiting = 0
        self._waiting_peak = 0
        self._taken = 0
        self._refused = 0

    @property
    def waiting(self) -> int:
        """How many messages wait to be taken."""
        return self._waiting

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def has_room(self, lane: Lane = Lane.WORK) -> bool:
        """Return whether a message would be taken into *lane* at once."""
        return not self._closed and self._has_room(lane)

    def send_nowait(self, message: T, lane: Lane = Lane.WORK) -> None:
        """Put *message* into *lane*.

        Raises:
            MailboxFull: The lane has no room. Nothing was sent.
            MailboxClosed: The owner has stopped. Nothing was sent.
        """
        if self._closed:
            raise MailboxClosed(self._owner)
        if not self._has_room(lane):
            self._refused += 1
            raise MailboxFull(self._owner, self._capacity)
        self._put(message, lane)

    async def send(self, message: T, lane: Lane = Lane.WORK) -> None:
        """Put *message* into *lane*, after waiting for room if there is none.

        Senders get room in the order they came; two sends of one sender to one lane keep theirs.
        If the call is cancelled, nothing was sent.

        Raises:
            MailboxClosed: The owner has stopped. Nothing was sent.
        """
        if self._closed:
            raise MailboxClosed(self._owner)
        if not self._has_room(lane):
            await self._wait_for_room(lane)
        self._put(message, lane)

    def put_result(self, result: T) -> None:
        """Put what an effect of the owner brought back into the room reserved for it.

        Results keep their order, and are served after `STEERING` and before `WORK`.

        Raises:
            ReservedRoomExceeded: The owner has more effects out than it reserved room for.
            MailboxClosed: The owner has stopped. Nothing was put in.
        """
        if self._closed:
            raise MailboxClosed(self._owner)
        results = self._lanes[RESULTS]
        if (len(results) if results is not None else 0) >= self._reserved_capacity:
            raise ReservedRoomExceeded(self._owner, self._reserved_capacity)
        self._put(result, RESULTS)

    def take_nowait(self) -> T | None:
        """Take the message that is served next; None if nothing waits."""
        for lane, queue in enumerate(self._lanes):
            if queue is not None:
                return self._take(lane, queue)
        return None

    def take_batch(self, limit: int) -> list[T]:
        """Take up to *limit* messages in the order they are served; an empty list if nothing waits.

        Raises:
            InvalidValue: *limit* is less than 1.
        """
        if limit < 1:
            raise InvalidValue("limit", "at least 1", limit)
        self._waiting_peak = max(self._waiting_peak, self._waiting)  # what waits only shrinks here
        batch: list[T] = []
        for lane, queue in enumerate(self._lanes):
            if queue is None:
                continue
            room = limit - len(batch)
            if len(queue) <= room:
                batch.extend(queue)
                self._lanes[lane] = None
            else:
                batch.extend([queue.popleft() for _ in range(room)])
            if self._lines is not None:
                self._grant_room(lane)
            if len(batch) == limit:
                break
        self._waiting -= len(batch)
        self._taken += len(batch)
        return batch

    def take_oldest(self, lane: Lane = Lane.WORK) -> T | None:
        """Take the message that has waited longest in *lane*, whatever waits in others; None if none does.

        For owners that would rather lose an old message than a new one; those of runs never do.
        """
        queue = self._lanes[lane]
        return None if queue is None else self._take(lane, queue)

    def close(self) -> list[T]:
        """Refuse whatever comes from now on, waiting senders included, and return what is left.

        What is left is in the order it would have been served. Closing again returns nothing.
        """
        self._closed = True
        # The callback belongs to the owner, which holds this mailbox: without it no cycle keeps both alive.
        self._on_arrival = None
        lines, self._lines = self._lines, None
        left = self.take_batch(max(1, self._waiting))
        for line in (lines or {}).values():
            for turn in line.waiting:
                if not turn.done():
                    turn.set_result(None)  # it wakes, sees that the mailbox is closed, and says so
        return left

    def statistics(self) -> MailboxStatistics:
        """Return what this mailbox holds and has seen."""
        lines = (self._lines or {}).values()
        return MailboxStatistics(
            waiting=self._waiting,
            waiting_peak=max(self._waiting_peak, self._waiting),
            senders_waiting=sum(not turn.done() for line in lines for turn in line.waiting),
            capacity=self._capacity,
            reserved_capacity=self._reserved_capacity,
            sent=self._taken + self._waiting,
            taken=self._taken,
            refused=self._refused,
        )

    def _put(self, message: T, lane: int) -> None:
        queue = self._lanes[lane]
        if queue is None:
            queue = self._lanes[lane] = deque()
        queue.append(message)
        self._waiting += 1
        if self._waiting == 1 and self._on_arrival is not None:
            self._on_arrival()

    def _take(self, lane: int, queue: deque[T]) -> T:
        self._waiting_peak = max(self._waiting_peak, self._waiting)  # what waits only shrinks where something is taken
        message = queue.popleft()
        if not queue:
            self._lanes[lane] = None
        self._waiting -= 1
        self._taken += 1
        if self._lines is not None:
            self._grant_room(lane)
        return message

    def _has_room(self, lane: int) -> bool:
        queue = self._lanes[lane]
        taken = 0 if queue is None else len(queue)
        if self._lines is not None and lane in self._lines:
            taken += self._lines[lane].granted
        return taken < self._capacity

    async def _wait_for_room(self, lane: int) -> None:
        if self._lines is None:
            self._lines = {}
        line = self._lines.setdefault(lane, _Line())
        turn = asyncio.get_running_loop().create_future()
        line.waiting.append(turn)
        try:
            await turn
        except BaseException:
            self._leave(line, lane, turn)
            raise
        line.granted -= 1
        self._forget_if_empty(line, lane)
        if self._closed:
            raise MailboxClosed(self._owner)

    def _leave(self, line: _Line, lane: int, turn: asyncio.Future[None]) -> None:
        """Take a sender that gave up out of its line; room already granted to it goes to the next."""
        if turn in line.waiting:
            line.waiting.remove(turn)
        elif not turn.cancelled():
            line.granted -= 1
        if self._lines is not None:
            self._grant_room(lane)

    def _grant_room(self, lane: int) -> None:
        line = self._lines.get(lane) if self._lines is not None else None
        if line is None:
            return
        while line.waiting and self._has_room(lane):
            turn = line.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                line.granted += 1
        self._forget_if_empty(line, lane)

    def _forget_if_empty(self, line: _Line, lane: int) -> None:
        if self._lines is not None and not line.waiting and not line.granted:
            self._lines.pop(lane, None)
            if not self._lines:
                self._lines = None
