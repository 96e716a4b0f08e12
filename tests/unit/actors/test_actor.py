from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from actor_world import Doer, Failures, Waiter, group_of

from geartrain.actors import (
    Actor,
    ActorElsewhere,
    ActorFailed,
    ActorGroup,
    ActorRef,
    ActorState,
    ActorStopped,
    AskedItself,
    GroupClosed,
    NotSpawned,
    TooManyActors,
)
from geartrain.errors import InvalidValue, MailboxFull, TimedOut, UsageError
from geartrain.testing import settle


class Counter(Actor):
    def __init__(self) -> None:
        self.count = 0

    def receive(self, message: int) -> int:
        self.count += message
        return self.count


class Echo(Actor):
    async def receive(self, message: Any) -> Any:
        return message


@pytest.mark.parametrize("kind", [Doer, Waiter])
async def test_messages_are_handled_in_the_order_of_sending(kind: type[Doer]) -> None:
    async with group_of() as group:
        actor = kind()
        ref = group.spawn(actor)

        ref.send_nowait("first")
        await ref.send("second")
        answer = await ref.ask("third", 1)

    assert actor.handled == ["first", "second", "third"]
    assert answer == "third"


async def test_a_message_is_handled_to_its_end_before_the_next_is_begun() -> None:
    class Racer(Actor):
        def __init__(self) -> None:
            self.count = 0

        async def receive(self, message: int) -> int:
            before = self.count
            await asyncio.sleep(message)
            self.count = before + 1
            return self.count

    async with group_of() as group:
        ref = group.spawn(Racer())

        answers = await asyncio.gather(*(ref.ask(10 - number, 100) for number in range(10)))

    assert answers == list(range(1, 11))


async def test_a_message_is_never_handled_within_its_send() -> None:
    async with group_of() as group:
        actor = Doer()
        ref = group.spawn(actor)

        ref.send_nowait("message")

        assert actor.handled == []


@pytest.mark.parametrize("kind", [Counter, Echo])
async def test_neither_an_idle_actor_nor_a_handler_that_does_not_wait_costs_a_task(kind: type[Actor]) -> None:
    async with group_of() as group:
        warm = group.spawn(kind())
        await warm.ask(1, 1)
        before = asyncio.all_tasks()
        refs = [group.spawn(kind()) for _ in range(100)]

        for _ in range(10):
            for ref in refs:
                ref.send_nowait(1)
            await settle()

        assert asyncio.all_tasks() == before
        assert {ref.statistics().handled for ref in refs} == {10}


async def test_a_handler_that_waits_is_one_task_named_after_its_actor() -> None:
    async with group_of() as group:
        before = asyncio.all_tasks()
        ref = group.spawn(Waiter(), name="slow")
        ref.send_nowait(("sleep", 5))
        await settle()

        [task] = [task for task in asyncio.all_tasks() - before if task.get_name() != "geartrain-spare-hand"]

        assert task.get_name() == "slow"
        await task
        await settle()
        assert {task.get_name() for task in asyncio.all_tasks() - before} <= {"geartrain-spare-hand"}


async def test_others_get_their_turn_while_an_actor_has_much_to_do() -> None:
    async with group_of(messages_per_turn=5) as group:
        busy = group.spawn(Counter())
        for _ in range(100):
            busy.send_nowait(1)
        await asyncio.sleep(0)

        await asyncio.sleep(0)

        assert 0 < busy.statistics().handled < 100


async def test_an_actor_sees_nothing_that_its_sender_had_bound() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")

    class Looker(Actor):
        async def receive(self, message: Any) -> str:
            return user.get()

    async with group_of() as group:
        user.set("alice")

        assert await group.spawn(Looker()).ask("who", 1) == "nobody"


async def test_an_ask_that_gets_no_answer_in_time_says_so_and_the_message_is_handled_all_the_same() -> None:
    async with group_of() as group:
        actor = Waiter()
        ref = group.spawn(actor, name="slow")

        with pytest.raises(TimedOut, match=r"ask of actor 'slow': not done within 1 s"):
            await ref.ask(("sleep", 5), 1)

        assert await ref.ask("next", 10) == "next"
        assert ref.statistics().handled == 2


async def test_two_actors_that_ask_each_other_end_with_their_time() -> None:
    class Asker(Actor):
        other: Any = None

        async def receive(self, message: str) -> Any:
            return await self.other.ask(message, 5)

    async with group_of() as group:
        one, two = Asker(), Asker()
        first, second = group.spawn(one), group.spawn(two)
        one.other, two.other = second, first

        with pytest.raises(TimedOut):
            await first.ask("?", 1)


async def test_an_actor_that_asks_itself_is_told_at_once() -> None:
    async def ask_itself(actor: Doer) -> str:
        with pytest.raises(AskedItself):
            await actor.ref.ask("?", 1)
        await asyncio.sleep(0)
        with pytest.raises(AskedItself, match=r"'me.*' asked itself"):
            await actor.ref.ask("?", 1)
        return "told"

    async with group_of() as group:
        assert await group.spawn(Waiter(), name="me").ask(ask_itself, 5) == "told"
        assert await group.spawn(Doer(), name="me too").ask(ask_itself, 5) == "told"


async def test_an_actor_that_sends_to_itself_does_not_wait_for_room_that_only_it_could_make() -> None:
    async def fill(actor: Doer) -> str:
        await actor.ref.send("one")
        with pytest.raises(MailboxFull):
            await actor.ref.send("two")
        return "told"

    async with group_of() as group:
        actor = Waiter()
        ref = group.spawn(actor, capacity=1)

        assert await ref.ask(fill, 5) == "told"
        await settle()
        assert actor.handled[1:] == ["one"]


async def test_started_is_called_before_the_first_message() -> None:
    class Ready(Doer):
        async def started(self) -> None:
            await asyncio.sleep(3)
            self.calls.append("started")

        def receive(self, message: Any) -> Any:
            self.calls.append(message)
            return message

    async with group_of() as group:
        actor = Ready()
        ref = group.spawn(actor)
        ref.send_nowait("message")
        assert ref.statistics().state is ActorState.STARTING

        await ref.wait_started()
        assert ref.statistics().state is ActorState.RUNNING
        await settle()

    assert actor.calls == ["started", "message"]
    assert ref.statistics().handled == 1


async def test_an_actor_without_started_has_started_at_once() -> None:
    async with group_of() as group:
        await group.spawn(Counter()).wait_started()


async def test_an_actor_has_no_reference_before_it_is_spawned() -> None:
    actor = Counter()
    with pytest.raises(NotSpawned, match="Counter: has no ref before it is spawned"):
        _ = actor.ref

    async with group_of() as group:
        assert group.spawn(actor) is actor.ref


async def test_names_are_given_or_made_and_one_living_actor_has_each() -> None:
    async with group_of() as group:
        assert [group.spawn(Counter()).name for _ in range(2)] == ["Counter-1", "Counter-2"]
        ref = group.spawn(Counter(), name="mine")
        with pytest.raises(InvalidValue, match="name must be one that no living actor of the group has, got 'mine'"):
            group.spawn(Counter(), name="mine")
        assert repr(ref) == "<ActorRef 'mine' running>"

        ref.stop()
        assert group.spawn(Counter(), name="mine") is not ref


class Nothing(Actor):
    pass


class Yields(Actor):
    def receive(self, message: Any) -> Iterator[Any]:
        yield message


class AsyncYields(Actor):
    async def receive(self, message: Any) -> AsyncIterator[Any]:
        yield message


@pytest.mark.parametrize("actor", [Counter, None, Nothing(), Yields(), AsyncYields()])
async def test_what_cannot_be_an_actor_is_refused(actor: Any) -> None:
    async with group_of() as group:
        with pytest.raises(InvalidValue, match="actor must be"):
            group.spawn(actor)

        assert group.statistics().actors == 0


async def test_an_instance_lives_once() -> None:
    async with group_of() as group:
        actor = Counter()
        group.spawn(actor).stop()

        with pytest.raises(InvalidValue, match="not spawned before"):
            group.spawn(actor)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "two\nlines"},
        {"name": "n" * 201},
        {"name": 7},
        {"capacity": 0},
        {"overflow": "drop_newest"},
        {"capacity": -1},
        {"overflow": None},
    ],
)
async def test_wrong_settings_are_refused_and_nothing_is_spawned(wrong: dict[str, Any]) -> None:
    async with group_of() as group:
        actor = Counter()
        with pytest.raises(InvalidValue):
            group.spawn(actor, **wrong)

        assert group.statistics().actors == 0
        group.spawn(actor)  # it is still good


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
async def test_a_message_that_expires_before_it_is_sent_is_refused(seconds: float) -> None:
    async with group_of() as group:
        ref = group.spawn(Counter())

        with pytest.raises(InvalidValue, match="expires_seconds must be more than 0"):
            ref.send_nowait(1, expires_seconds=seconds)
        with pytest.raises(InvalidValue):
            ref.send_threadsafe(1, expires_seconds=seconds)


async def test_a_group_holds_no_more_actors_than_its_limit() -> None:
    async with group_of(actors=2) as group:
        first = group.spawn(Counter())
        group.spawn(Counter())
        with pytest.raises(TooManyActors, match=r"full \(2 actors\)"):
            group.spawn(Counter())

        first.stop()
        group.spawn(Counter())


async def test_a_closed_group_spawns_nothing_and_its_actors_take_nothing() -> None:
    async with group_of() as group:
        ref = group.spawn(Counter(), name="count")

    with pytest.raises(GroupClosed, match="'Counter-1': not spawned"):
        group.spawn(Counter())
    with pytest.raises(ActorStopped, match=r"'count' has stopped \(its group was closed\)"):
        ref.send_nowait(1)
    with pytest.raises(ActorStopped):
        await ref.send(1)
    with pytest.raises(ActorStopped, match="its group was closed"):
        await ref.ask(1, 1)
    with pytest.raises(ActorStopped):
        ref.send_threadsafe(1)
    await group.aclose()


async def test_actors_of_a_group_can_be_spawned_by_actors() -> None:
    async with group_of() as group:

        def spawn_one(actor: Doer) -> Any:
            return group.spawn(Counter())

        child = await group.spawn(Doer()).ask(spawn_one, 1)

        assert await child.ask(2, 1) == 2


@pytest.mark.real_time
async def test_another_thread_is_refused_and_told_what_to_use() -> None:
    async with group_of(messages_from_threads=4_000) as group:
        ref = group.spawn(Counter(), name="count")
        for call in (ref.send_nowait, lambda _: ref.stop(), lambda _: group.spawn(Counter())):
            with pytest.raises(ActorElsewhere, match="only send_threadsafe may be called"):
                await asyncio.to_thread(call, 1)

        def send() -> None:
            for _ in range(1_000):
                ref.send_threadsafe(1)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)

        await asyncio.sleep(0.01)
        handled = await ref.ask(0, 10)
        assert handled > 0
        assert handled + group.dead_letters.statistics().total == 4_000
        assert {letter.why for letter in group.dead_letters} <= {"refused"}


@pytest.mark.real_time
async def test_messages_from_threads_are_bounded_while_the_loop_is_busy() -> None:
    async with group_of(messages_from_threads=3) as group:
        ref = group.spawn(Counter())
        refused: list[int] = []

        def send() -> None:
            for number in range(5):
                try:
                    ref.send_threadsafe(1)
                except MailboxFull:
                    refused.append(number)

        thread = threading.Thread(target=send)
        thread.start()
        thread.join()  # the loop stands still meanwhile
        await asyncio.sleep(0)

        assert refused == [3, 4]
        assert await ref.ask(0, 1) == 3


@pytest.mark.real_time
async def test_a_message_from_a_thread_that_finds_no_room_is_a_dead_letter() -> None:
    async with group_of() as group:
        full = group.spawn(Doer(), name="full", capacity=1)
        gone = group.spawn(Doer(), name="gone")

        def send() -> None:
            for ref in (full, full, gone):
                ref.send_threadsafe("late")

        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
        gone.stop()
        await asyncio.sleep(0.01)

        assert [(letter.actor, letter.why) for letter in group.dead_letters] == [
            ("full", "refused"),
            ("gone", "stopped"),
        ]
        assert full.statistics().handled == 1


@pytest.mark.real_time
async def test_a_message_from_a_thread_expires_by_the_time_of_its_sending_however_long_the_loop_is_busy() -> None:
    async with group_of() as group:
        ref = group.spawn(Counter())
        thread = threading.Thread(target=lambda: ref.send_threadsafe(1, expires_seconds=0.001))
        thread.start()
        thread.join()
        time.sleep(0.005)  # noqa: ASYNC251 - the loop stands still meanwhile

        assert await ref.ask(0, 1) == 0
        assert ref.statistics().expired == 1


def test_whoever_sends_outside_of_the_actors_loop_is_refused_and_the_actor_lives_on() -> None:
    async def spawn() -> tuple[ActorGroup, ActorRef]:
        group = group_of()
        return group, group.spawn(Counter())

    with asyncio.Runner() as runner:
        group, ref = runner.run(spawn())

        with pytest.raises(ActorElsewhere):  # its loop stands still
            ref.send_nowait(1)
        with asyncio.Runner() as other, pytest.raises(ActorElsewhere):
            other.run(ref.ask(1, 1))

        assert runner.run(ref.ask(2, 1)) == 2
        runner.run(group.aclose())


def test_a_group_outside_of_an_event_loop_is_refused() -> None:
    with pytest.raises(UsageError, match="lives in a running asyncio event loop"):
        ActorGroup()


@pytest.mark.parametrize("kind", [Doer, Waiter])
def test_a_ctrl_c_within_an_actor_is_the_process_s_own(kind: type[Doer]) -> None:
    async def main() -> None:
        async with group_of() as group:
            group.spawn(kind()).send_nowait(("raise", KeyboardInterrupt()))
            await asyncio.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


async def test_a_receive_that_only_calls_that_of_the_class_above_fails() -> None:
    class Forgetful(Actor):
        def receive(self, message: Any) -> Any:
            return super().receive(message)

    async with group_of() as group:
        with pytest.raises(ActorFailed, match="NotImplementedError"):
            await group.spawn(Forgetful()).ask(1, 1)


def test_a_thread_is_told_that_the_loop_is_closed() -> None:
    refs: list[Any] = []

    async def main() -> None:
        refs.append(ActorGroup(on_failure=Failures()).spawn(Counter()))

    asyncio.run(main())

    with pytest.raises(ActorStopped, match="its event loop is closed"):
        refs[0].send_threadsafe(1)


async def test_statistics_tell_what_an_actor_has_done_and_does() -> None:
    async with group_of() as group:
        ref = group.spawn(Waiter(), name="w", capacity=5)
        for _ in range(3):
            ref.send_nowait(("sleep", 4))
        await asyncio.sleep(5)
        told = ref.statistics()

        assert (told.name, told.state, told.handled, told.waiting, told.capacity) == ("w", "running", 1, 1, 5)
        assert told.in_hand_seconds == pytest.approx(1)
        assert group.statistics().waiting == 1
        await asyncio.sleep(10)
        assert ref.statistics().in_hand_seconds is None
