"""The cell: what every actor is made of, whatever it does.

| state   | means                                                | leaves on                              |
|---------|------------------------------------------------------|----------------------------------------|
| IDLE    | nothing to do; no task, no timer, no queue           | a message → READY                      |
| READY   | the loop will give it a turn                         | its turn → WORKING                     |
| WORKING | the behaviour has a batch in hand                    | returned → WAITING, READY or IDLE      |
| WAITING | the batch is handled once a future is done           | done → READY or IDLE; failed → BROKEN  |
| BROKEN  | the behaviour failed, or is on hold; messages gather | `restart` → READY or IDLE              |
| STOPPED | handles and takes nothing more                       | nothing                                |

`stop` leads from each of them to STOPPED.

Rule 1: one batch at a time. Nothing is taken while a batch, or the future it returned, is not done.
Rule 2: between two turns every other callback of the loop gets its own.
Rule 3: a failure is told to the owner once; whether to go on, and with what, is the owner's to decide.
Rule 4: nobody asks in vain: whoever waits for an answer that will not come is told at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from geartrain.actors._errors import ActorFailed, ActorNotBroken, ActorStopped, described
from geartrain.actors._reply import Reply
from geartrain.errors import InvalidValue, TimedOut
from geartrain.mailbox import Lane, Mailbox, MailboxClosed, MailboxStatistics

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")


class CellState(StrEnum):
    """Where a cell is in its life; the table above says what leads from one to the next."""

    IDLE = "idle"
    READY = "ready"
    WORKING = "working"
    WAITING = "waiting"
    BROKEN = "broken"
    STOPPED = "stopped"


# Looking a member up costs ten times as much as a global on 3.11, and each message needs five.
_IDLE: Final = CellState.IDLE
_READY: Final = CellState.READY
_WORKING: Final = CellState.WORKING
_WAITING: Final = CellState.WAITING
_BROKEN: Final = CellState.BROKEN
_STOPPED: Final = CellState.STOPPED


class Behaviour(Protocol[M_contra]):
    """What an actor does with its messages."""

    def receive(self, batch: Sequence[M_contra], /) -> asyncio.Future[Any] | None:
        """Handle *batch*, which is never empty, in its order.

        Called by the cell on the loop, in an empty context, with one batch at a time. If it returns a future,
        the batch is handled once that is done. If it raises, or the future fails or is cancelled, the cell is
        broken and no behaviour is called before a restart.
        """
        ...


@dataclass(frozen=True, slots=True)
class CellStatistics:
    """A cell at one moment. Counts are since it was made."""

    state: CellState
    turns: int
    failures: int
    restarts: int
    asks_open: int
    mailbox: MailboxStatistics


class Cell(Generic[M]):
    """A mailbox, a behaviour and a life. At rest it is a small object: no task, no timer.

    For one event loop: no method may be called from another thread.

    Args:
        name: Named in errors.
        behaviour: What handles the messages.
        on_failure: Told the error and the whole batch in hand, once per failure, in the turn that failed. It
            may call `restart` or `stop`. What it raises goes to the loop's exception handler.
        capacity: How many messages each lane of the mailbox holds.
        reserved_capacity: How many results of this actor's own effects it holds beside those.
        messages_per_turn: How many messages are handled before others get their turn.

    Raises:
        InvalidValue: A capacity or limit is out of range.
    """

    __slots__ = (
        "_asked",
        "_behaviour",
        "_failures",
        "_mailbox",
        "_messages_per_turn",
        "_name",
        "_on_failure",
        "_owed",
        "_restarts",
        "_state",
        "_turns",
        "_under_way",
    )

    def __init__(
        self,
        name: str,
        behaviour: Behaviour[M],
        *,
        on_failure: Callable[[BaseException, Sequence[M]], None],
        capacity: int,
        reserved_capacity: int = 0,
        messages_per_turn: int,
    ) -> None:
        if messages_per_turn < 1:
            raise InvalidValue("messages_per_turn", "at least 1", messages_per_turn)
        self._name = name
        self._behaviour = behaviour
        self._on_failure = on_failure
        self._messages_per_turn = messages_per_turn
        self._mailbox: Mailbox[M] = Mailbox(
            name, capacity=capacity, reserved_capacity=reserved_capacity, on_arrival=self._message_arrived
        )
        self._state = _IDLE
        self._turns = 0
        self._failures = 0
        self._restarts = 0
        # Replies to messages still in the mailbox, by the message's identity; then those to messages taken.
        self._asked: dict[int, Reply[Any]] | None = None
        self._owed: set[Reply[Any]] | None = None
        # What the batch in hand waits for.
        self._under_way: asyncio.Future[Any] | None = None

    @property
    def name(self) -> str:
        """The name given at construction."""
        return self._name

    @property
    def state(self) -> CellState:
        """Where the cell is in its life."""
        return self._state

    @property
    def waiting(self) -> int:
        """How many messages wait to be taken."""
        return self._mailbox.waiting

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do, nothing under way and no answer owed."""
        return self._state is _IDLE and not self._asks_open()

    def send_nowait(self, message: M, lane: Lane = Lane.WORK) -> None:
        """Put *message* into *lane*; messages of one sender in one lane are handled in their order.

        Raises:
            MailboxFull: The lane has no room. Nothing was sent.
            ActorStopped: Nothing was sent.
        """
        try:
            self._mailbox.send_nowait(message, lane)
        except MailboxClosed:
            raise ActorStopped(self._name) from None

    async def send(self, message: M, lane: Lane = Lane.WORK) -> None:
        """Put *message* into *lane*, after waiting for room if there is none.

        Messages of one sender in one lane are handled in their order. If the call is cancelled, nothing was
        sent.

        Raises:
            ActorStopped: Nothing was sent.
        """
        try:
            await self._mailbox.send(message, lane)
        except MailboxClosed:
            raise ActorStopped(self._name) from None

    def put_result(self, result: M) -> None:
        """Put what an effect of this actor brought back into the room reserved for it.

        Raises:
            ReservedRoomExceeded: More effects are out than room was reserved for.
            ActorStopped: Nothing was put in.
        """
        try:
            self._mailbox.put_result(result)
        except MailboxClosed:
            raise ActorStopped(self._name) from None

    async def ask(
        self,
        make_message: Callable[[Reply[R]], M],
        *,
        timeout_seconds: float,
        lane: Lane = Lane.WORK,
        wait_for_room: bool = True,
    ) -> R:
        """Send the message that *make_message* builds around a reply, and wait for the answer.

        If the call is cancelled or times out, the message may still be handled; its answer reaches nobody.

        Args:
            make_message: Called once, with the reply to answer; returns a message of its own for it.
            timeout_seconds: For both waits, that for room and that for the answer.
            lane: Where the message goes.
            wait_for_room: Whether to wait for room if there is none.

        Raises:
            MailboxFull: There is no room, and the call must not wait for it. Nothing was sent.
            TimedOut: No answer within *timeout_seconds*.
            ActorStopped: The actor has stopped, or stopped before it answered.
            ActorFailed: The actor failed with the message in hand.
        """
        if not 0 < timeout_seconds < math.inf:
            raise InvalidValue("timeout_seconds", "more than 0 and finite", timeout_seconds)
        reply: Reply[R] = Reply()
        message = make_message(reply)
        self._expect_answer(message, reply)
        try:
            async with asyncio.timeout(timeout_seconds) as limit:
                if wait_for_room:
                    await self.send(message, lane)
                else:
                    self.send_nowait(message, lane)
                return await reply.wait_answered()
        except TimeoutError:
            if limit.expired():
                raise TimedOut(f"ask of actor {self._name!r}", timeout_seconds) from None
            raise  # the answer itself was a TimeoutError
        finally:
            reply.abandon()
            self._forget_answer(message, reply)

    def restart(self, behaviour: Behaviour[M]) -> None:
        """Go on with *behaviour*, from the messages that gathered while the cell was broken.

        Raises:
            ActorStopped: A stopped cell stays stopped.
            ActorNotBroken: The cell has a behaviour that works.
        """
        if self._state is _STOPPED:
            raise ActorStopped(self._name)
        if self._state is not _BROKEN:
            raise ActorNotBroken(self._name, self._state)
        self._behaviour = behaviour
        self._restarts += 1
        self._go_on()

    def hold(self) -> None:
        """Take no further message until a `restart`, as if the behaviour had failed; the batch in hand is finished."""
        if self._state is not _STOPPED:
            self._state = _BROKEN

    def let_go(self) -> None:
        """Wait no longer for what the batch in hand waits for; its end, whatever it is, is nobody's business."""
        self._under_way = None

    def has_room(self, lane: Lane = Lane.WORK) -> bool:
        """Return whether a message would be taken into *lane* at once."""
        return self._mailbox.has_room(lane)

    def drop_oldest(self, lane: Lane = Lane.WORK) -> M | None:
        """Take out, unhandled, the message that has waited longest in *lane*; None if none waits.

        Whoever asked by it is left to the caller to tell.
        """
        message = self._mailbox.take_oldest(lane)
        if message is not None and self._asked:
            self._asked.pop(id(message), None)
        return message

    def close(self, reason: str = "") -> list[M]:
        """Take nothing more, but finish the batch in hand; return the messages that were left, in the order of serving.

        Whoever waits for room, or for the answer to a message that was left, gets `ActorStopped` with *reason*. The
        cell is at work as long as its batch is; then it is idle, or broken, for good: `stop` it. Closing again returns
        nothing.
        """
        left = self._mailbox.close()
        if self._state is _READY:
            self._state = _IDLE
        asked, self._asked = self._asked, None
        for reply in (asked or {}).values():
            reply.fail(ActorStopped(self._name, reason))
        return left

    def stop(self, reason: str = "") -> list[M]:
        """Handle and take nothing more; return the messages that were left, in the order of serving.

        Whoever waits for room or for an answer gets `ActorStopped` with *reason*. A future that a batch still waits for
        is left alone; if it fails, `on_failure` is told. Stopping again returns nothing.
        """
        self._state = _STOPPED
        left = self.close(reason)
        owed, self._owed = self._owed, None
        for reply in owed or ():
            reply.fail(ActorStopped(self._name, reason))
        return left

    def statistics(self) -> CellStatistics:
        """Return where this cell is and what it has done."""
        return CellStatistics(
            state=self._state,
            turns=self._turns,
            failures=self._failures,
            restarts=self._restarts,
            asks_open=self._asks_open(),
            mailbox=self._mailbox.statistics(),
        )

    def _asks_open(self) -> int:
        replies = (*(self._asked or {}).values(), *(self._owed or ()))
        return sum(reply.open for reply in replies)

    def _message_arrived(self) -> None:
        if self._state is _IDLE:
            self._schedule()

    def _schedule(self) -> None:
        self._state = _READY
        # An empty context: a turn must not see what the sender who happened to wake the cell had bound.
        asyncio.get_running_loop().call_soon(self._turn, context=Context())

    def _turn(self) -> None:
        if self._state is not _READY:  # stopped since
            return
        self._state = _WORKING
        self._turns += 1
        if self._work(self._mailbox.take_batch(self._messages_per_turn)):
            self._go_on()

    def _work(self, batch: Sequence[M]) -> bool:
        """Have *batch* handled; return whether it is, and the cell is still at work."""
        if self._asked:
            self._take_over_asks(batch)
        try:
            under_way = self._behaviour.receive(batch)
        except (KeyboardInterrupt, SystemExit):  # they end the loop
            raise
        except BaseException as error:  # noqa: BLE001 - a stranger's code; no task is cancelled here
            self._fail(error, batch)
            return False
        if under_way is not None:
            if self._state is _WORKING:
                self._state = _WAITING
            self._under_way = under_way
            under_way.add_done_callback(partial(self._finish_turn, batch), context=Context())
            return False
        return self._state is _WORKING  # it may have stopped its own cell

    def _finish_turn(self, batch: Sequence[M], under_way: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if under_way.cancelled() else under_way.exception()
        if under_way is not self._under_way:  # it was let go
            return
        self._under_way = None
        if error is not None:
            self._fail(error, batch)
        elif self._state is _WAITING:
            self._go_on()

    def _go_on(self) -> None:
        if self._mailbox.waiting:
            self._schedule()
        else:
            self._state = _IDLE

    def _fail(self, error: BaseException, batch: Sequence[M]) -> None:
        self._failures += 1
        if self._state is not _STOPPED:
            self._state = _BROKEN
        owed, self._owed = self._owed, None
        try:
            self._on_failure(error, batch)
        finally:
            self._fail_replies(owed or (), error)

    def _fail_replies(self, replies: Iterable[Reply[Any]], cause: BaseException) -> None:
        for reply in replies:
            failed = ActorFailed(self._name, described(cause))
            failed.__cause__ = cause
            reply.fail(failed)

    def _expect_answer(self, message: M, reply: Reply[Any]) -> None:
        if self._asked is None:
            self._asked = {}
        if self._asked.setdefault(id(message), reply) is not reply:
            raise InvalidValue("make_message", "a maker of one new message for each reply", message)

    def _take_over_asks(self, batch: Sequence[M]) -> None:
        assert self._asked is not None
        for message in batch:
            reply = self._asked.pop(id(message), None)
            if reply is not None and reply.open:
                self._owed = self._owed or set()
                self._owed.add(reply)

    def _forget_answer(self, message: M, reply: Reply[Any]) -> None:
        if self._asked and self._asked.get(id(message)) is reply:
            del self._asked[id(message)]
        if self._owed:
            self._owed.discard(reply)
        self._asked = self._asked or None
        self._owed = self._owed or None
