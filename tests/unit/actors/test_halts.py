"""How the instance of a supervised actor ends and another takes its place, while ref and mailbox stay."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from actor_world import Doer, Waiter, group_of

from geartrain.actors import (
    ActorFailed,
    ActorFailure,
    ActorGroup,
    ActorLife,
    ActorNotBroken,
    ActorState,
    ActorStopped,
    Stopped,
)
from geartrain.errors import InvalidValue
from geartrain.testing import settle

GRACE = 4.0


class Keeper:
    """A supervisor that notes what it is told, and decides nothing by itself."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.failures: list[ActorFailure] = []

    def started(self, life: ActorLife) -> None:
        self.told.append(f"started, {life.state}")

    def halted(self, life: ActorLife) -> None:
        self.told.append(f"halted, {life.state}")

    def failed(self, life: ActorLife, failure: ActorFailure) -> None:
        self.told.append(f"failed in {failure.during}, {life.state}")
        self.failures.append(failure)

    def stopped(self, life: ActorLife) -> None:
        self.told.append("stopped")


class Tidy(Waiter):
    """Starts and stops in a second each."""

    async def started(self) -> None:
        await asyncio.sleep(1)
        self.calls.append("started")

    async def stopping(self) -> None:
        await asyncio.sleep(1)
        self.calls.append("stopping")


class Stubborn(Waiter):
    """Swallows every cancellation."""

    async def sleep(self, seconds: float) -> str:
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        return "slept"


def kept(group: ActorGroup, actor: Doer, **settings: Any) -> tuple[Keeper, ActorLife]:
    keeper = Keeper()
    return keeper, group.begin(actor, supervisor=keeper, name="kept", **settings)


async def test_a_halted_actor_keeps_its_ref_and_its_messages_for_the_next_instance() -> None:
    async with group_of() as group:
        first, second = Doer(), Doer()
        keeper, life = kept(group, first)
        life.ref.send_nowait("one")
        life.halt("restarted")
        life.ref.send_nowait("two")
        asking = asyncio.create_task(life.ref.ask("three", 60))
        await settle()
        assert (life.state, first.handled) == (ActorState.HALTED, [])
        assert life.ref.statistics().reason == "restarted"

        life.restart(second)

        assert await asking == "three"
        assert second.handled == ["one", "two", "three"]
        assert second.ref is first.ref is life.ref
        assert (life.statistics().reason, life.statistics().restarts) == ("", 1)
        assert keeper.told == ["started, halted", "halted, halted", "started, running"]


@pytest.mark.parametrize("during", ["idle", "in hand", "starting", "not begun", "failing", "failed"])
async def test_whatever_it_was_doing_it_is_halted_within_its_grace_and_can_come_back(during: str) -> None:
    async with group_of(grace_seconds=60) as group:
        keeper, life = kept(group, Tidy(), grace_seconds=GRACE, capacity=1)
        if during not in ("not begun", "starting"):
            await life.ref.wait_started()
            message = {"in hand": ("sleep", 99)}.get(during, ("raise", ValueError()))
            if during != "idle":
                life.ref.send_nowait(message)
        await asyncio.sleep({"failed": 10, "not begun": 0}.get(during, 0.1))
        since = asyncio.get_running_loop().time()

        life.halt()
        life.ref.send_nowait("waits")
        await life._wait_until(lambda state: state is ActorState.HALTED)

        assert asyncio.get_running_loop().time() - since <= GRACE
        assert [failure.during for failure in keeper.failures] == (["receive"] if during[:4] == "fail" else [])
        successor = Tidy()
        life.restart(successor)
        assert await life.ref.ask("asked", 60) == "asked"
        assert (successor.handled, successor.calls) == (["waits", "asked"], ["started"])


@pytest.mark.parametrize(("seconds", "answer"), [(1, "slept"), (99, ActorFailed)])
async def test_the_message_in_hand_may_finish_within_half_of_the_grace(seconds: float, answer: object) -> None:
    async with group_of() as group:
        keeper, life = kept(group, Waiter())
        asking = asyncio.create_task(life.ref.ask(("sleep", seconds), 60))
        await settle()

        life.halt("restarted with 'db'", GRACE)
        [told] = await asyncio.gather(asking, return_exceptions=True)

        assert (type(told) if isinstance(told, Exception) else told) == answer
        assert answer == "slept" or str(told) == "actor 'kept' failed before it answered: restarted with 'db'"
        assert asyncio.get_running_loop().time() == min(seconds, GRACE / 2)
        await settle()
        assert (keeper.failures, life.state) == ([], ActorState.HALTED)


async def test_what_an_abandoned_message_does_later_reaches_nobody() -> None:
    async with group_of(grace_seconds=GRACE) as group:
        _, life = kept(group, Stubborn())
        asking = asyncio.create_task(life.ref.ask(("sleep", 60), 1_000))
        await settle()
        life.halt("restarted")
        with pytest.raises(ActorFailed):
            await asking
        await settle()
        assert (life.abandoned, life.state) == (True, ActorState.HALTED)
        assert group.statistics().abandoned == ("kept",)

        successor = Waiter()
        life.restart(successor)
        long = asyncio.create_task(life.ref.ask(("sleep", 100), 1_000))
        await asyncio.sleep(70)

        assert group.statistics().abandoned == ()
        assert not life.abandoned
        assert life.statistics().handled == 0  # the successor's message is still in hand
        assert life.ref.statistics().in_hand_seconds == pytest.approx(70)
        assert await long == "slept"
        assert await life.ref.ask("next", 1) == "next"


async def test_an_abandoned_message_that_fails_later_breaks_no_successor() -> None:
    class Late(Stubborn):
        async def sleep(self, seconds: float) -> str:
            await super().sleep(seconds)
            raise ValueError("late")

    async with group_of(grace_seconds=GRACE) as group:
        keeper, life = kept(group, Late())
        life.ref.send_nowait(("sleep", 60))
        await settle()
        life.halt()
        await asyncio.sleep(GRACE)
        life.restart(Doer())
        await asyncio.sleep(100)

        assert await life.ref.ask("alive", 1) == "alive"
        assert keeper.failures == []


async def test_an_error_of_the_message_in_hand_is_told_before_the_halt() -> None:
    async def fail(actor: Doer) -> None:
        await asyncio.sleep(1)
        raise ValueError("late")

    async with group_of() as group:
        keeper, life = kept(group, Waiter())
        life.ref.send_nowait(fail)
        await settle()
        life.halt()
        await asyncio.sleep(2)

    assert keeper.told[1:3] == ["failed in receive, halting", "halted, halted"]


async def test_an_error_while_cleaning_up_is_told_before_the_halt() -> None:
    class Careless(Doer):
        def stopping(self) -> None:
            raise OSError("busy")

    async with group_of() as group:
        keeper, life = kept(group, Careless())
        life.halt()
        await settle()

        assert keeper.told == ["started, halting", "failed in stopping, halting", "halted, halted"]


@pytest.mark.parametrize("kind", [Doer, Waiter])
async def test_a_supervised_actor_that_stops_itself_is_halted_after_its_message(kind: type[Doer]) -> None:
    def leave(actor: Doer) -> str:
        actor.ref.stop()
        return "last words"

    async with group_of() as group:
        keeper, life = kept(group, kind())
        asking = asyncio.create_task(life.ref.ask(leave, 1))
        await asyncio.sleep(0)
        life.ref.send_nowait("waits")

        assert await asking == "last words"
        await settle()
        assert (life.state, keeper.told[-1]) == (ActorState.HALTED, "halted, halted")
        life.restart(Doer())
        assert await life.ref.ask("asked", 1) == "asked"
        assert life.statistics().handled == 3


async def test_a_stop_ends_a_halted_actor_for_good() -> None:
    async with group_of() as group:
        keeper, life = kept(group, Doer())
        life.ref.send_nowait("waits")
        life.halt()
        await settle()

        life.stop("enough")
        await life.ref.wait_stopped()

        assert [(letter.message, letter.why) for letter in group.dead_letters] == [("waits", "stopped")]
        with pytest.raises(ActorStopped, match="enough"):
            life.ref.send_nowait("late")
        with pytest.raises(ActorNotBroken):
            life.restart(Doer())
        await settle()
        assert keeper.told[-1] == "stopped"


async def test_a_shorter_grace_counts_although_the_halt_has_begun() -> None:
    async with group_of(grace_seconds=1_000) as group:
        _, life = kept(group, Waiter())
        life.ref.send_nowait(("sleep", 10_000))
        await settle()
        life.halt()
        await asyncio.sleep(1)

        life.halt("killed", 0)
        await settle()

        assert life.state is ActorState.HALTED
        assert asyncio.get_running_loop().time() == 1


async def test_whoever_waits_for_a_start_waits_through_a_halt() -> None:
    async with group_of() as group:
        _, life = kept(group, Tidy())
        waiting = asyncio.create_task(life.ref.wait_started())
        await settle()
        life.halt()
        await asyncio.sleep(50)
        assert not waiting.done()

        life.restart(Tidy())
        await waiting
        assert life.state is ActorState.RUNNING


@pytest.mark.parametrize("kind", [Doer, Waiter])
@pytest.mark.parametrize("end", ["stop", "fail", "cancel", "halt", "halt and stop", "restart"])
@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 8, 13, 50, 98, 99])
async def test_a_hundred_asks_are_answered_or_told_whatever_happens_to_the_actor_at_the_kth(
    kind: type[Doer], end: str, k: int
) -> None:
    """AC-1: nobody waits on, and what waits in the mailbox is still there after a restart."""
    loop = asyncio.get_running_loop()
    async with group_of() as group:
        _, life = kept(group, kind(), capacity=60)

        def act(actor: Doer) -> str:
            if end == "fail":
                raise ValueError("poison")
            if end == "cancel":
                raise asyncio.CancelledError
            if end == "stop":
                life.stop()
            else:
                life.halt()
            return "acted"

        asks = [asyncio.create_task(life.ref.ask(act if n == k else n, 1_000)) for n in range(100)]
        await settle()
        if end == "halt and stop":
            life.stop()
        elif end != "stop":
            life.restart(kind())
        answers = await asyncio.gather(*asks, return_exceptions=True)

        assert loop.time() == 0
        assert answers[:k] == list(range(k))
        assert answers[k] == "acted" or isinstance(answers[k], ActorFailed)
        rest = answers[k + 1 :]
        if "stop" in end:
            assert {type(answer) for answer in rest} <= {ActorStopped}
        else:
            assert rest == list(range(k + 1, 100))
        assert life.ref.statistics().asks_open == 0


# Watching


class Watcher(Doer):
    def receive(self, message: Any) -> Any:
        if isinstance(message, Stopped):
            message = f"{message.ref.name}: {message.reason}"
        return super().receive(message)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_actor_is_told_once_that_another_has_stopped_also_if_it_had_stopped_before(when: str) -> None:
    async with group_of() as group:
        watcher, other = Watcher(), group.spawn(Doer(), name="other")
        ref = group.spawn(watcher)
        if when == "before":
            other.stop()
            await settle()
        ref.watch(other)
        ref.watch(other) if when == "after" else None
        other.stop()
        await settle()

        assert watcher.handled == ["other: asked to stop"]


async def test_a_notice_comes_before_the_messages_that_wait_and_needs_no_room() -> None:
    async with group_of() as group:
        watcher = Watcher()
        ref = group.spawn(watcher, capacity=1)
        others = [group.spawn(Doer(), name=f"other-{n}") for n in range(50)]
        for other in others:
            ref.watch(other)
        ref.send_nowait("full")
        for other in others:
            other.stop()
        await settle()

        assert watcher.handled == [*(f"other-{n}: asked to stop" for n in range(50)), "full"]


async def test_after_an_unwatch_nothing_is_told_not_even_what_was_on_its_way() -> None:
    async with group_of() as group:
        watcher, one, two = Watcher(), group.spawn(Doer(), name="one"), group.spawn(Doer(), name="two")
        ref = group.spawn(watcher, capacity=1)
        ref.watch(one)
        ref.watch(two)
        one.stop()
        ref.unwatch(one)
        ref.unwatch(two)
        ref.unwatch(two)
        two.stop()
        ref.watch(two)
        await settle()

        assert watcher.handled == ["two: asked to stop"]


async def test_the_end_of_an_actor_that_had_stopped_waits_once_however_often_it_is_watched() -> None:
    async with group_of() as group:
        watcher, other = Watcher(), group.spawn(Doer(), name="other")
        other.stop()
        await settle()
        ref = group.spawn(watcher)
        for _ in range(3):
            ref.watch(other)
        await settle()
        assert watcher.handled == ["other: asked to stop"]

        ref.watch(other)  # whoever asks anew, after it was told, is told anew
        await settle()
        assert watcher.handled == ["other: asked to stop"] * 2


async def test_a_failure_is_told_with_the_end_and_a_restart_is_no_end() -> None:
    async with group_of() as group:
        watcher = Doer()
        ref = group.spawn(watcher)
        _, life = kept(group, Doer())
        ref.watch(life.ref)
        life.ref.send_nowait(("raise", ValueError("first")))
        await settle()
        life.restart(Doer())
        await settle()
        assert watcher.handled == []

        life.ref.send_nowait(("raise", ValueError("second")))
        await settle()
        life.stop("enough")
        await settle()

        [end] = watcher.handled
        assert (end.ref, end.reason, str(end.failure.error)) == (life.ref, "enough", "second")


async def test_a_watch_outlives_a_restart_of_the_watcher_and_ends_with_it() -> None:
    async with group_of() as group:
        _, life = kept(group, Doer())
        others = [group.spawn(Doer(), name=f"other-{n}") for n in range(2)]
        for other in others:
            life.ref.watch(other)
        life.halt()
        others[0].stop()
        await settle()
        successor = Watcher()
        life.restart(successor)
        await settle()
        assert successor.handled == ["other-0: asked to stop"]

        life.stop()
        await settle()

        assert not others[1]._life.watches().watchers  # nothing keeps the watcher in memory
        others[1].stop()
        await settle()
        assert successor.handled == ["other-0: asked to stop"]
        with pytest.raises(ActorStopped):
            life.ref.watch(others[1])


async def test_an_actor_does_not_watch_itself() -> None:
    async with group_of() as group:
        ref = group.spawn(Doer())
        with pytest.raises(InvalidValue, match="another actor"):
            ref.watch(ref)
