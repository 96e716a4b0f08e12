from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from geartrain.actors import ActorFailed, ActorStopped, Cell, CellState, Reply
from geartrain.errors import InvalidValue, TimedOut
from geartrain.testing import settle


class Question(NamedTuple):
    number: int
    reply: Reply[int]


class Answering:
    """Doubles each number, or does to a batch what it is told."""

    def __init__(self, act: Callable[[Sequence[Question]], asyncio.Future[None] | None] | None = None) -> None:
        self.seen: list[Question] = []
        self._act = act

    def receive(self, batch: Sequence[Question]) -> asyncio.Future[None] | None:
        self.seen.extend(batch)
        if self._act is not None:
            return self._act(batch)
        for question in batch:
            question.reply.answer(2 * question.number)
        return None


def cell_of(behaviour: Answering, *, capacity: int = 100, messages_per_turn: int = 10) -> Cell[Question]:
    return Cell(
        "planner",
        behaviour,
        on_failure=lambda error, batch: None,
        capacity=capacity,
        messages_per_turn=messages_per_turn,
    )


def silent(batch: Sequence[Question]) -> None:
    """Answer nobody."""


def fail(batch: Sequence[Question]) -> None:
    raise ZeroDivisionError


async def ask(cell: Cell[Question], number: int, timeout_seconds: float = 60) -> int:
    return await cell.ask(lambda reply: Question(number, reply), timeout_seconds=timeout_seconds)


async def test_an_ask_returns_the_answer() -> None:
    cell = cell_of(Answering())

    assert await ask(cell, 21) == 42

    assert cell.idle
    assert cell.statistics().asks_open == 0


async def test_only_the_first_answer_counts() -> None:
    told: list[bool] = []

    def answer_thrice(batch: Sequence[Question]) -> None:
        told.append(batch[0].reply.answer(1))
        told.append(batch[0].reply.answer(2))
        told.append(batch[0].reply.fail(OSError()))

    assert await ask(cell_of(Answering(answer_thrice)), 0) == 1

    assert told == [True, False, False]


async def test_an_answer_may_be_an_error_even_a_time_out_of_its_own() -> None:
    cell = cell_of(Answering(lambda batch: batch[0].reply.fail(TimeoutError("inner")) and None))

    with pytest.raises(TimeoutError, match="inner"):
        await ask(cell, 0)


async def test_an_ask_ends_when_its_time_is_over_and_a_late_answer_reaches_nobody() -> None:
    behaviour = Answering(silent)
    cell = cell_of(behaviour)
    start = asyncio.get_running_loop().time()

    with pytest.raises(TimedOut, match="ask of actor 'planner': not done within 60 s"):
        await ask(cell, 1)

    assert asyncio.get_running_loop().time() - start == pytest.approx(60)
    assert not behaviour.seen[0].reply.open
    assert not behaviour.seen[0].reply.answer(2)
    assert cell.idle


async def test_the_time_of_an_ask_includes_the_wait_for_room() -> None:
    cell = cell_of(Answering(fail), capacity=1)
    with pytest.raises(ActorFailed):
        await ask(cell, 1)
    async with asyncio.TaskGroup() as tasks:
        queued = tasks.create_task(ask(cell, 2, timeout_seconds=120))
        await settle()

        with pytest.raises(TimedOut):
            await ask(cell, 3, timeout_seconds=1)

        assert cell.statistics().mailbox.senders_waiting == 0
        cell.restart(Answering())
    assert queued.result() == 4


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
async def test_an_ask_without_a_finite_limit_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidValue, match="timeout_seconds"):
        await ask(cell_of(Answering()), 1, timeout_seconds=seconds)


async def test_one_message_cannot_be_asked_twice() -> None:
    cell = cell_of(Answering())
    question = Question(4, Reply())
    first = asyncio.create_task(cell.ask(lambda reply: question, timeout_seconds=1))
    await asyncio.sleep(0)

    with pytest.raises(InvalidValue, match="one new message for each reply"):
        await cell.ask(lambda reply: question, timeout_seconds=1)
    with pytest.raises(TimedOut):
        await first


async def test_an_ask_of_a_stopped_actor_is_refused_at_once() -> None:
    cell = cell_of(Answering())
    cell.stop()

    with pytest.raises(ActorStopped):
        await ask(cell, 1)

    assert cell.statistics().asks_open == 0


@pytest.mark.parametrize("ticks", range(1, 16))
async def test_a_hundred_asks_in_a_stopping_actor_are_answered_or_told_at_once(ticks: int) -> None:
    # AC-1: at whatever tick it stops, nobody waits on; a part of the asks still waits for room.
    cell = cell_of(Answering(), capacity=60)
    asks = [asyncio.create_task(ask(cell, number)) for number in range(100)]
    for _ in range(ticks):
        await asyncio.sleep(0)
    start = asyncio.get_running_loop().time()

    left = cell.stop()
    results = await asyncio.gather(*asks, return_exceptions=True)

    assert asyncio.get_running_loop().time() == start
    answered = cell.statistics().mailbox.taken - len(left)
    assert results[:answered] == [2 * number for number in range(answered)]
    assert {type(result) for result in results[answered:]} <= {ActorStopped}
    assert (0 < answered < 100) == (1 < ticks < 11), "the stop must come before, within and after the answers"


async def test_an_ask_whose_answer_is_not_durable_yet_is_told_when_the_actor_stops() -> None:
    writing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cell = cell_of(Answering(lambda batch: writing))
    asking = asyncio.create_task(ask(cell, 1))
    await settle()
    assert cell.statistics().asks_open == 1

    cell.stop()
    writing.set_result(None)

    with pytest.raises(ActorStopped):
        await asking


@pytest.mark.parametrize("k", range(10))
async def test_asks_in_a_failing_actor_fail_if_in_hand_and_are_served_after_the_restart_if_not(
    k: int,
) -> None:
    def fail_at_k(batch: Sequence[Question]) -> None:
        for question in batch:
            if question.number == k:
                raise ZeroDivisionError
            question.reply.answer(question.number)

    cell = cell_of(Answering(fail_at_k), messages_per_turn=3)
    asks = [asyncio.create_task(ask(cell, number)) for number in range(10)]
    await settle()

    in_hand = [asking for asking in asks[k:] if asking.done()]
    assert [type(asking.exception()) for asking in in_hand] == [ActorFailed] * (min(3 * (k // 3) + 3, 10) - k)
    assert isinstance(in_hand[0].exception().__cause__, ZeroDivisionError)
    cell.restart(Answering())
    results = await asyncio.gather(*asks, return_exceptions=True)

    assert results[:k] == list(range(k))
    served = results[k + len(in_hand) :]
    assert served == [2 * number for number in range(k + len(in_hand), 10)]


async def test_an_answer_owed_from_an_earlier_batch_fails_with_the_behaviour_that_owed_it() -> None:
    kept: list[Question] = []

    def keep_then_fail(batch: Sequence[Question]) -> None:
        if kept:
            raise ZeroDivisionError
        kept.extend(batch)

    cell = cell_of(Answering(keep_then_fail))
    early = asyncio.create_task(ask(cell, 1))
    await settle()
    assert not cell.idle

    late = asyncio.create_task(ask(cell, 2))
    await settle()

    assert [type(asking.exception()) for asking in (early, late)] == [ActorFailed, ActorFailed]


async def test_an_owner_may_answer_for_its_broken_actor() -> None:
    cell: Cell[Question] = Cell(
        "planner",
        Answering(fail),
        on_failure=lambda error, batch: [question.reply.answer(-1) for question in batch] and None,
        capacity=1,
        messages_per_turn=1,
    )

    assert await ask(cell, 1) == -1

    assert cell.state is CellState.BROKEN


async def test_asks_cancelled_at_every_tick_leave_nothing_behind() -> None:
    behaviour = Answering()
    cell = cell_of(behaviour, capacity=2, messages_per_turn=1)
    asks = []
    for number in range(1_000):
        asks.append(asyncio.create_task(ask(cell, number)))
        if number >= 5:
            asks[number - number % 6].cancel()
        await asyncio.sleep(0)
    results = await asyncio.gather(*asks, return_exceptions=True)
    await settle()

    answered = [number for number, result in enumerate(results) if result == 2 * number]
    cancelled = sum(isinstance(result, asyncio.CancelledError) for result in results)
    seen = [question.number for question in behaviour.seen]
    assert len(answered) + cancelled == 1_000
    assert cancelled > 100
    assert set(answered) <= set(seen)
    assert seen == sorted(set(seen))
    assert cell.idle
    assert cell.statistics().mailbox.senders_waiting == 0


async def test_an_ask_that_was_refused_while_it_waited_for_room_leaves_no_unseen_error() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, complaint: complaints.append(complaint))

    async def ends_of_asks_at_a_stop() -> list[type[BaseException]]:
        cell = cell_of(Answering(fail), capacity=1)
        asks = [asyncio.create_task(ask(cell, number)) for number in range(3)]
        await settle()
        cell.stop()
        await asyncio.wait(asks)
        return [type(asking.exception()) for asking in asks]

    assert await ends_of_asks_at_a_stop() == [ActorFailed, ActorStopped, ActorStopped]
    gc.collect()
    assert complaints == []
