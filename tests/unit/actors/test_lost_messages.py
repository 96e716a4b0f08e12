"""CASES AC-1, AC-4 and AC-9 for actors: nobody asks in vain, no message is lost between two ticks, no task vanishes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from actor_world import Doer, Failures, Waiter, group_of

from geartrain.actors import ActorFailed, ActorFailure, ActorLife, ActorState, ActorStopped
from geartrain.errors import TimedOut
from geartrain.testing import settle

ASKS = 100


class Again:
    """An owner that restarts whatever fails, at once."""

    def __init__(self, make: Callable[[], Doer]) -> None:
        self.actors: list[Doer] = []
        self._make = make

    def failed(self, life: ActorLife, failure: ActorFailure) -> None:
        if life.state is ActorState.FAILED:
            self.actors.append(self._make())
            life.restart(self.actors[-1])

    def stopped(self, life: ActorLife) -> None:
        pass


def fate(task: asyncio.Task[Any]) -> str:
    error = task.exception()
    return "answered" if error is None else type(error).__name__


@pytest.mark.parametrize("ends", ["stops", "fails", "is cancelled", "is restarted"])
@pytest.mark.parametrize("kind", [Doer, Waiter])
async def test_each_of_a_hundred_asks_is_answered_or_told_whenever_the_actor_ends(kind: type[Doer], ends: str) -> None:
    for k in range(0, ASKS, 7):
        async with group_of(Failures()) as group:
            life = group.begin(kind(), owner=Again(kind) if ends == "is restarted" else group._owner, name="a")
            asks = [asyncio.create_task(life.ref.ask(number, 1_000)) for number in range(k)]
            await asyncio.sleep(0)
            if ends in {"fails", "is restarted"}:
                life.ref.send_nowait(("raise", ValueError()))
            elif ends == "is cancelled":
                life.ref.send_nowait(("sleep", 60))
            asks += [asyncio.create_task(life.ref.ask(number, 1_000)) for number in range(k, ASKS)]
            if ends == "stops":
                for _ in range(k % 20):
                    await asyncio.sleep(0)
                life.ref.stop()
            elif ends == "is cancelled":
                await settle()
                for task in asyncio.all_tasks():
                    if task.get_name() == "a":
                        task.cancel()
            begun = asyncio.get_running_loop().time()

            await asyncio.wait(asks)

            assert asyncio.get_running_loop().time() - begun <= (60 if kind is Doer and ends == "is cancelled" else 1)
            fates = [fate(task) for task in asks]
            assert set(fates) <= {"answered", "ActorStopped"}
            assert fates[:k] == ["answered"] * k or ends == "stops"
            assert "answered" not in fates[fates.count("answered") :], "none is passed over"
            if ends == "is restarted":
                assert fates == ["answered"] * ASKS
            assert life.ref.statistics().asks_open == 0


async def test_whoever_asks_with_the_message_that_fails_is_told_and_the_rest_is_answered_after_the_restart() -> None:
    async with group_of() as group:
        owner = Again(Doer)
        life = group.begin(Doer(), owner=owner)
        messages: list[Any] = [("raise", ValueError()) if number % 10 == 3 else number for number in range(ASKS)]

        asks = [asyncio.create_task(life.ref.ask(message, 10)) for message in messages]
        await asyncio.wait(asks)

        for message, ask in zip(messages, asks, strict=True):
            assert fate(ask) == ("answered" if isinstance(message, int) else "ActorFailed")
        assert len(owner.actors) == 10


async def test_a_receive_cancelled_at_every_tick_loses_no_message() -> None:
    """Ten thousand cancels: of the handler's task, at every tick around each delivery."""
    owner = Again(Waiter)
    cancels = 0
    async with group_of(dead_letters=20_000) as group:
        first = Waiter()
        life = group.begin(first, owner=owner, name="target")
        sent = 0
        while cancels < 10_000:
            while life.ref.statistics().waiting < 4:
                life.ref.send_nowait(sent)
                sent += 1
            for _ in range(cancels % 7):
                await asyncio.sleep(0)
            task = life._task
            if task is not None:
                task.cancel()
                cancels += 1
            else:
                await asyncio.sleep(0)
        waiting = life.ref.statistics().waiting
        in_hand = life._task is not None or life.state is not ActorState.RUNNING
        dead = [letter.message for letter in group.dead_letters]
        handled = life.ref.statistics().handled

        assert sent == handled + len(dead) + waiting + in_hand
        life.stop()
        await life.ref.wait_stopped()

    dead = [letter.message for letter in group.dead_letters]
    assert life.ref.statistics().handled + len(dead) == sent
    assert len(set(dead)) == len(dead)
    assert all(letter.why in {"failed", "stopped"} for letter in group.dead_letters)


async def test_an_ask_cancelled_at_every_tick_leaves_nothing_open_and_hurts_nobody() -> None:
    async with group_of() as group:
        actor = Waiter()
        ref = group.spawn(actor, capacity=3)
        for round_ in range(2_000):
            asks = [asyncio.create_task(ref.ask(number, 100)) for number in range(5)]
            for _ in range(round_ % 23):
                await asyncio.sleep(0)
            asks[round_ % 5].cancel()
            results = await asyncio.gather(*asks, return_exceptions=True)

            for number, result in enumerate(results):
                assert result == number or (number == round_ % 5 and isinstance(result, asyncio.CancelledError))
        await settle()

        told = ref.statistics()
        assert (told.asks_open, told.senders_waiting, told.waiting) == (0, 0, 0)


async def test_an_ask_that_waits_for_room_when_the_actor_stops_is_told_without_a_trace_of_its_reply() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reported.append(report))
    async with group_of() as group:
        ref = group.spawn(Waiter(), capacity=1)
        asks = [asyncio.create_task(ref.ask(("sleep", 9), 100)) for _ in range(3)]
        await settle()
        ref.stop()
        results = await asyncio.gather(*asks, return_exceptions=True)
    assert [type(result) for result in results] == [ActorStopped] * 3
    del asks, results
    gc.collect()

    assert reported == []


async def test_collecting_garbage_at_every_tick_loses_no_work() -> None:
    async with group_of() as group:
        refs = [group.spawn(Waiter()) for _ in range(5)]
        asks = [asyncio.create_task(ref.ask(("sleep", 1), 100)) for ref in refs for _ in range(3)]

        while not all(ask.done() for ask in asks):
            gc.collect()
            await asyncio.sleep(0.5)

        assert {ask.result() for ask in asks} == {"slept"}


@pytest.mark.parametrize("ticks", range(8))
async def test_a_stop_at_any_tick_answers_or_tells(ticks: int) -> None:
    async with group_of() as group:
        ref = group.spawn(Waiter())
        asks = [asyncio.create_task(ref.ask(number, 100)) for number in range(3)]
        for _ in range(ticks):
            await asyncio.sleep(0)

        ref.stop()
        results = await asyncio.gather(*asks, return_exceptions=True)

        assert [result for result in results if not isinstance(result, int | ActorStopped)] == []


async def test_an_answer_that_is_a_time_out_of_the_actors_own_is_told_apart_from_the_askers() -> None:
    async with group_of() as group:
        ref = group.spawn(Waiter())

        with pytest.raises(ActorFailed) as raised:
            await ref.ask(("raise", TimeoutError("inner")), 5)
        assert isinstance(raised.value.__cause__, TimeoutError)

        ref = group.spawn(Waiter())
        with pytest.raises(TimedOut):
            await ref.ask(("sleep", 60), 5)
