"""How an actor ends: stopped, failed, abandoned; and how its owner may start it again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from actor_world import Doer, Failures, Waiter, group_of

from geartrain.actors import (
    Actor,
    ActorFailed,
    ActorFailure,
    ActorGroup,
    ActorLife,
    ActorNotBroken,
    ActorState,
    ActorStopped,
    AskedItself,
    GroupClosed,
)
from geartrain.errors import InvalidValue, UsageError
from geartrain.testing import settle

GRACE = 5.0


class Tidy(Waiter):
    """Notes when its hooks are called."""

    hook_seconds = 0.0

    async def started(self) -> None:
        self.calls.append("started")

    async def stopping(self) -> None:
        self.calls.append(f"stopping at {asyncio.get_running_loop().time() - self.made:g}")
        await asyncio.sleep(self.hook_seconds)
        self.calls.append("stopped")

    def __init__(self) -> None:
        super().__init__()
        self.made = asyncio.get_running_loop().time()


class Stubborn(Waiter):
    """Swallows every cancellation."""

    async def sleep(self, seconds: float) -> str:
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        return "slept"


def why(group: ActorGroup) -> list[tuple[Any, str]]:
    return [(letter.message, letter.why) for letter in group.dead_letters]


# Stopping


async def test_a_stop_lets_the_message_in_hand_finish_and_the_rest_become_dead_letters() -> None:
    async with group_of() as group:
        actor = Tidy()
        ref = group.spawn(actor)
        asker = asyncio.create_task(ref.ask(("sleep", 2), 100))
        await settle()
        ref.send_nowait("left")
        waiting = asyncio.create_task(ref.ask("asked", 100))
        await settle()

        ref.stop()
        ref.stop()

        with pytest.raises(ActorStopped, match="asked to stop"):
            await waiting
        with pytest.raises(ActorStopped):
            ref.send_nowait("late")
        assert await asker == "slept"
        await ref.wait_stopped()
        assert actor.calls == ["started", "stopping at 2", "stopped"]
        assert why(group) == [("left", "stopped")]
        told = ref.statistics()
        assert (told.state, told.reason, told.failure) == (ActorState.STOPPED, "asked to stop", None)
        assert group.statistics().actors == 0


async def test_a_message_in_hand_that_takes_too_long_is_cancelled_at_half_of_the_grace() -> None:
    async with group_of(grace_seconds=GRACE) as group:
        actor = Tidy()
        ref = group.spawn(actor)
        asker = asyncio.create_task(ref.ask(("sleep", 60), 100))
        await settle()

        ref.stop()
        await ref.wait_stopped()

        with pytest.raises(ActorStopped):
            await asker
        assert actor.calls == ["started", "stopping at 2.5", "stopped"]
        assert ref.statistics().failure is None


async def test_a_message_that_swallows_its_cancellation_is_abandoned_and_named_until_it_ends() -> None:
    failures = Failures()
    async with group_of(failures, grace_seconds=GRACE) as group:
        actor = Stubborn()
        ref = group.spawn(actor, name="stubborn")
        ref.send_nowait(("sleep", 60))
        asker = asyncio.create_task(ref.ask("never", 1_000))
        await settle()

        ref.stop()
        await ref.wait_stopped()

        assert asyncio.get_running_loop().time() <= GRACE
        assert ref.statistics().state is ActorState.STOPPED
        assert why(group) == [(("sleep", 60), "stopped")]
        with pytest.raises(ActorStopped):
            await asker
        assert group.statistics().abandoned == ("stubborn",)
        gc.collect()
        await asyncio.sleep(60)
        assert group.statistics().abandoned == ()
        assert ref.statistics().handled == 0
    assert failures == []


@pytest.mark.parametrize("grace_seconds", [0, 4])
async def test_work_is_cancelled_before_it_is_abandoned_also_without_grace_or_by_a_loop_that_was_held_up(
    grace_seconds: float,
) -> None:
    async with group_of() as group:
        actor = Tidy()
        actor.hook_seconds = grace_seconds / 8
        life = group.begin(actor, owner=Restarter())
        life.ref.send_nowait(("sleep", 60))
        await settle()

        life.stop("quickly", grace_seconds)
        asyncio.get_running_loop().call_later(grace_seconds / 4, hold_up, 30)
        await life.wait_stopped()

        assert group.statistics().abandoned == ()
        assert asyncio.get_running_loop().time() < 60
        assert "stopping at" in actor.calls[1]
        assert actor.calls[2:] == ["stopped"]


def hold_up(seconds: float) -> None:
    asyncio.get_running_loop()._now += seconds


async def test_abandoned_work_that_fails_in_the_end_is_nobodys_business() -> None:
    class Late(Stubborn):
        async def sleep(self, seconds: float) -> str:
            await super().sleep(seconds)
            raise ValueError("late")

    failures = Failures()
    async with group_of(failures, grace_seconds=GRACE) as group:
        ref = group.spawn(Late())
        ref.send_nowait(("sleep", 60))
        await settle()
        ref.stop()
        await asyncio.sleep(100)

    assert failures == []
    assert ref.statistics().failures == 0


@pytest.mark.parametrize(("hook_seconds", "ended"), [(4.0, 4.0), (60.0, 4.5)])
async def test_stopping_has_the_rest_of_the_grace(hook_seconds: float, ended: float) -> None:
    failures = Failures()
    async with group_of(failures, grace_seconds=GRACE) as group:
        actor = Tidy()
        actor.hook_seconds = hook_seconds
        ref = group.spawn(actor)
        await ref.wait_started()

        ref.stop()
        await ref.wait_stopped()

        assert asyncio.get_running_loop().time() == pytest.approx(ended)
        await settle()
    assert [failure.during for failure in failures] == (["stopping"] if hook_seconds > GRACE else [])


async def test_a_stopping_that_swallows_its_cancellation_is_abandoned_within_the_grace() -> None:
    class Clings(Stubborn):
        async def stopping(self) -> None:
            await self.sleep(60)

    failures = Failures()
    async with group_of(failures, grace_seconds=GRACE) as group:
        ref = group.spawn(Clings(), name="clings")
        ref.stop()
        await ref.wait_stopped()

        assert asyncio.get_running_loop().time() == pytest.approx(GRACE)
        assert group.statistics().abandoned == ("clings (stopping)",)
        await settle()
        assert isinstance(failures[0].error, TimeoutError)
        await asyncio.sleep(60)
        assert group.statistics().abandoned == ()


@pytest.mark.parametrize("waits", [False, True])
async def test_a_stopping_that_raises_is_reported_and_the_actor_stopped(waits: bool) -> None:
    class Careless(Doer):
        async def stopping(self) -> None:
            if waits:
                await asyncio.sleep(1)
            raise OSError("busy")

    failures = Failures()
    async with group_of(failures) as group:
        ref = group.spawn(Careless(), name="c")

    await settle()
    [failure] = failures
    assert (failure.actor, failure.during, str(failure.error)) == ("c", "stopping", "busy")
    assert ref.statistics().state is ActorState.STOPPED
    assert ref.statistics().reason == "its group was closed"


@pytest.mark.parametrize("kind", [Doer, Waiter])
async def test_an_actor_may_stop_itself_and_still_answers_the_message_in_hand(kind: type[Doer]) -> None:
    def stop(actor: Doer) -> str:
        actor.ref.stop()
        return "last words"

    async with group_of() as group:
        ref = group.spawn(kind())
        asker = asyncio.create_task(ref.ask(stop, 1))
        await asyncio.sleep(0)
        ref.send_nowait("left")

        assert await asker == "last words"
        await ref.wait_stopped()
        assert why(group) == [("left", "stopped")]


async def test_an_actor_that_stops_itself_before_its_first_wait_is_hurried_too() -> None:
    async def stop(actor: Doer) -> None:
        actor.ref.stop()
        await asyncio.sleep(60)

    async with group_of(grace_seconds=GRACE) as group:
        ref = group.spawn(Doer())
        ref.send_nowait(stop)

        await ref.wait_stopped()

        assert asyncio.get_running_loop().time() == pytest.approx(GRACE / 2)


async def test_an_actor_that_is_stopped_before_it_has_started_calls_no_hook() -> None:
    async with group_of() as group:
        actor = Tidy()
        ref = group.spawn(actor)
        ref.send_nowait("left")

        ref.stop()
        await ref.wait_stopped()
        with pytest.raises(ActorStopped, match="asked to stop"):
            await ref.wait_started()

        assert actor.calls == []
        assert why(group) == [("left", "stopped")]


async def test_an_actor_that_is_stopped_while_it_starts_cleans_up() -> None:
    class Slow(Tidy):
        async def started(self) -> None:
            await asyncio.sleep(1)
            self.calls.append("started")

    async with group_of() as group:
        actor = Slow()
        ref = group.spawn(actor)
        await settle()

        ref.stop()
        await ref.wait_stopped()

        assert actor.calls == ["started", "stopping at 1", "stopped"]


async def test_a_group_stops_all_its_actors_at_once_within_the_grace() -> None:
    async with group_of(grace_seconds=GRACE) as group:
        refs = [group.spawn(kind()) for kind in (Doer, Waiter, Stubborn, Tidy) for _ in range(5)]
        for ref in refs:
            ref.send_nowait(("sleep", 60))
        await settle()

    assert asyncio.get_running_loop().time() <= GRACE
    assert {ref.statistics().state for ref in refs} == {ActorState.STOPPED}


async def test_closing_goes_on_when_the_call_is_cancelled() -> None:
    group = group_of(grace_seconds=GRACE)
    ref = group.spawn(Stubborn())
    ref.send_nowait(("sleep", 60))
    await settle()

    closing = asyncio.create_task(group.aclose())
    await settle()
    closing.cancel()
    await ref.wait_stopped()
    await group.aclose()

    assert closing.cancelled()


async def test_waiting_for_the_end_leaves_nothing_behind_when_it_is_cancelled() -> None:
    async with group_of() as group:
        ref = group.spawn(Doer())
        for _ in range(10):
            waiter = asyncio.create_task(ref.wait_stopped())
            await settle()
            waiter.cancel()
            await settle()

        assert not ref._life._waiters


# Failing


@pytest.mark.parametrize("kind", [Doer, Waiter])
async def test_an_actor_that_raises_is_stopped_with_its_reason_and_the_others_go_on(kind: type[Doer]) -> None:
    failures = Failures()
    async with group_of(failures) as group:
        ref, other = group.spawn(kind(), name="bad"), group.spawn(kind())
        error = ValueError("poison")
        ref.send_nowait(("raise", error))
        ref.send_nowait("left")
        asker = asyncio.create_task(ref.ask("asked", 100))

        with pytest.raises(ActorStopped, match=r"'bad' has stopped \(failed: ValueError\('poison'\)\)"):
            await asker
        await ref.wait_stopped()

        told = ref.statistics()
        assert (told.state, told.failures, told.reason) == (ActorState.STOPPED, 1, "failed: ValueError('poison')")
        assert told.failure == ActorFailure("bad", "receive", error, ("raise", error))
        assert failures == [told.failure]
        assert why(group) == [(("raise", error), "failed"), ("left", "stopped")]
        assert group.statistics().failures == 1
        assert await other.ask("still there", 1) == "still there"


async def test_whoever_asked_is_told_what_the_actor_raised() -> None:
    async with group_of() as group:
        ref = group.spawn(Doer(), name="bad")
        error = ValueError("poison")

        with pytest.raises(ActorFailed, match=r"'bad' failed before it answered: ValueError\('poison'\)") as raised:
            await ref.ask(("raise", error), 1)

        assert raised.value.__cause__ is error
        assert why(group) == []  # somebody was told


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), BaseException("own"), asyncio.CancelledError()])
@pytest.mark.parametrize("kind", [Doer, Waiter])
async def test_nothing_that_an_actor_raises_ends_the_loop(kind: type[Doer], error: BaseException) -> None:
    failures = Failures()
    async with group_of(failures) as group:
        ref = group.spawn(kind())

        with pytest.raises(ActorFailed):
            await ref.ask(("raise", error), 1)

        await ref.wait_stopped()
        await settle()
    assert len(failures) == 1


class Unspeakable(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __str__ = __repr__


class Lethal(Exception):
    def __repr__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize("error", [Unspeakable(), Lethal(), ValueError("x" * 1_000_000)])
async def test_an_error_that_cannot_be_shown_or_is_endless_is_told_all_the_same(error: Exception) -> None:
    failures = Failures()
    async with group_of(failures) as group:
        ref = group.spawn(Doer())
        with pytest.raises(ActorFailed) as raised:
            await ref.ask(("raise", error), 1)
        await ref.wait_stopped()
        await settle()

    assert len(str(raised.value)) < 2_000
    assert type(error).__name__ in failures[0].reason
    assert type(error).__name__ in ref.statistics().reason


@pytest.mark.parametrize("waits", [False, True])
async def test_a_failed_start_is_told_to_whoever_waits_asks_or_looks(waits: bool) -> None:
    class Unlucky(Tidy):
        async def started(self) -> None:
            if waits:
                await asyncio.sleep(1)
            raise OSError("no disk")

    async with group_of() as group:
        actor = Unlucky()
        ref = group.spawn(actor, name="unlucky")
        asker = asyncio.create_task(ref.ask("asked", 100))
        ref.send_nowait("left")

        with pytest.raises(ActorFailed, match="no disk") as raised:
            await ref.wait_started()
        with pytest.raises(ActorStopped, match="no disk"):
            await asker

        assert isinstance(raised.value.__cause__, OSError)
        failure = ref.statistics().failure
        assert failure is not None
        assert (failure.during, failure.message) == ("started", None)
        assert why(group) == [("left", "stopped")]
        assert actor.calls == []  # it was never up, so nothing is cleaned up


async def test_a_failed_actor_cleans_up_before_its_failure_is_told() -> None:
    failures = Failures()
    async with group_of(failures) as group:
        actor = Tidy()
        actor.hook_seconds = 1
        ref = group.spawn(actor)
        ref.send_nowait(("raise", ValueError()))
        await settle()
        assert ref.statistics().state is ActorState.FAILED
        assert failures == []

        await ref.wait_stopped()

        assert actor.calls == ["started", "stopping at 0", "stopped"]
        await settle()
        assert len(failures) == 1


async def test_an_error_while_cleaning_up_after_a_failure_is_told_with_it() -> None:
    class Worse(Doer):
        def stopping(self) -> None:
            raise OSError("worse")

    failures = Failures()
    async with group_of(failures) as group:
        group.spawn(Worse()).send_nowait(("raise", ValueError("bad")))
        await settle()
        await settle()

    [failure] = failures
    assert (str(failure.error), str(failure.stopping_error)) == ("bad", "worse")


async def test_a_failure_after_a_stop_is_told_and_changes_nothing() -> None:
    failures = Failures()

    async def fail(actor: Doer) -> None:
        await asyncio.sleep(1)
        raise ValueError

    async with group_of(failures) as group:
        ref = group.spawn(Waiter())
        ref.send_nowait(fail)
        await settle()
        ref.stop()
        await ref.wait_stopped()
        await settle()

    assert len(failures) == 1
    assert ref.statistics().reason == "asked to stop"


async def test_a_stop_while_a_failed_actor_cleans_up_is_obeyed() -> None:
    failures = Failures()
    async with group_of(failures) as group:
        actor = Tidy()
        actor.hook_seconds = 1
        ref = group.spawn(actor)
        ref.send_nowait(("raise", ValueError()))
        await settle()

        ref.stop()
        await ref.wait_stopped()

        assert actor.calls == ["started", "stopping at 0", "stopped"]
        assert ref.statistics().reason == "asked to stop"
        await settle()
        assert len(failures) == 1


async def test_a_handler_whose_task_is_cancelled_by_a_stranger_has_failed() -> None:
    failures = Failures()
    async with group_of(failures) as group:
        ref = group.spawn(Waiter(), name="victim")
        ref.send_nowait(("sleep", 60))
        await settle()

        for task in asyncio.all_tasks():
            if task.get_name() == "victim":
                task.cancel()
        await ref.wait_stopped()
        await settle()

    assert isinstance(failures[0].error, asyncio.CancelledError)


async def test_a_failure_that_nobody_listens_to_goes_to_the_loops_exception_handler() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reported.append(report))
    async with ActorGroup() as group:
        group.spawn(Doer(), name="bad").send_nowait(("raise", ValueError("poison")))
        await settle()

    [report] = reported
    assert report["message"] == "actor 'bad' failed in receive() and was stopped"
    assert str(report["exception"]) == "poison"


async def test_a_listener_of_failures_that_raises_stops_nothing() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reported.append(report["exception"]))

    def deaf(failure: ActorFailure) -> None:
        raise RuntimeError("deaf")

    async with ActorGroup(on_failure=deaf) as group:
        ref = group.spawn(Doer())
        ref.send_nowait(("raise", ValueError("poison")))
        await ref.wait_stopped()
        await settle()

    assert [str(error) for error in reported] == ["deaf"]


# An owner that starts again


class Restarter:
    """An owner that does with a failed actor what it is told."""

    def __init__(self, decide: Callable[[ActorLife], None] | None = None) -> None:
        self.failures: list[ActorFailure] = []
        self.gone: list[str] = []
        self._decide = decide

    def failed(self, life: ActorLife, failure: ActorFailure) -> None:
        self.failures.append(failure)
        if self._decide is not None and life.state is ActorState.FAILED:
            self._decide(life)

    def stopped(self, life: ActorLife) -> None:
        self.gone.append(life.name)


@pytest.mark.parametrize("kind", [Doer, Waiter, Tidy])
async def test_a_restarted_actor_finds_all_messages_but_the_one_that_was_in_hand(kind: type[Doer]) -> None:
    async with group_of() as group:
        successors: list[Doer] = []

        def again(life: ActorLife) -> None:
            successors.append(kind())
            life.restart(successors[-1])

        owner = Restarter(again)
        first = kind()
        life = group.begin(first, owner=owner, name="again")
        for number in range(3):
            life.ref.send_nowait(number)
        life.ref.send_nowait(("raise", ValueError()))
        for number in range(3, 6):
            life.ref.send_nowait(number)

        assert await life.ref.ask("asked", 5) == "asked"

        [successor] = successors
        assert first.handled[:3] == [0, 1, 2]
        assert successor.handled == [3, 4, 5, "asked"]
        assert successor.ref is first.ref is life.ref
        told = life.ref.statistics()
        assert (told.state, told.restarts, told.failures, told.handled) == (ActorState.RUNNING, 1, 1, 7)
        assert why(group)[0][1] == "failed"
    assert owner.gone == ["again"]
    if kind is Tidy:
        assert first.calls == ["started", "stopping at 0", "stopped"]
        assert successor.calls == first.calls


async def test_an_owner_may_take_its_time() -> None:
    async with group_of() as group:
        life = group.begin(Doer(), owner=Restarter())
        life.ref.send_nowait(("raise", ValueError()))
        asker = asyncio.create_task(life.ref.ask("asked", 100))
        await asyncio.sleep(10)
        assert life.state is ActorState.FAILED

        life.restart(Doer())

        assert await asker == "asked"


async def test_an_actor_that_an_owner_leaves_failed_is_stopped_with_its_group() -> None:
    owner = Restarter()
    async with group_of() as group:
        life = group.begin(Doer(), owner=owner)
        life.ref.send_nowait(("raise", ValueError()))
        life.ref.send_nowait("left")
        await settle()

    assert life.state is ActorState.STOPPED
    assert why(group)[1] == ("left", "stopped")


async def test_only_a_failed_actor_can_be_restarted_and_only_by_a_new_instance() -> None:
    async with group_of() as group:
        life = group.begin(Doer(), owner=Restarter())
        with pytest.raises(ActorNotBroken, match="this one is running"):
            life.restart(Doer())
        life.ref.send_nowait(("raise", ValueError()))
        await settle()
        with pytest.raises(InvalidValue, match="not spawned before"):
            life.restart(life._actor)
        life.stop("enough")
        with pytest.raises(ActorNotBroken, match="this one is stopped"):
            life.restart(Doer())
    assert life.ref.statistics().reason == "enough"


async def test_an_owner_may_give_a_stop_a_grace_of_its_own() -> None:
    async with group_of(grace_seconds=100) as group:
        life = group.begin(Waiter(), owner=Restarter())
        life.ref.send_nowait(("sleep", 1_000))
        await settle()

        life.stop("quickly", grace_seconds=1)
        await life.ref.wait_stopped()

        assert asyncio.get_running_loop().time() == pytest.approx(0.5)


async def test_a_stop_hurries_also_the_cleaning_up_that_a_failure_began() -> None:
    async with group_of(grace_seconds=100) as group:
        actor = Tidy()
        actor.hook_seconds = 1_000
        life = group.begin(actor, owner=Restarter())
        life.ref.send_nowait(("raise", ValueError()))
        await settle()

        life.stop("quickly", grace_seconds=1)
        await life.ref.wait_stopped()

        assert asyncio.get_running_loop().time() == pytest.approx(0.9)


async def test_an_owner_that_raises_does_not_come_between_an_actor_and_its_end() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reported.append(report["exception"]))

    class Broken(Restarter):
        def failed(self, life: ActorLife, failure: ActorFailure) -> None:
            raise RuntimeError("the owner")

    async with group_of() as group:
        life = group.begin(Waiter(), owner=Broken())
        life.ref.send_nowait(("raise", ValueError()))
        await asyncio.sleep(0)
        life.stop()
        await life.ref.wait_stopped()

    assert [str(error) for error in reported] == ["the owner"]


async def test_an_owner_that_raises_when_its_actor_has_stopped_keeps_no_other_from_stopping() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reported.append(report["exception"]))

    class Eternal(Restarter):
        def stopped(self, life: ActorLife) -> None:
            group.begin(Doer(), owner=self, name=life.name)

    async with group_of() as group:
        group.spawn(Doer())
        life = group.begin(Doer(), owner=Eternal(), name="eternal")
        life.stop()
        await settle()
        assert group.statistics().actors == 2  # begun again under its name

    assert group.statistics().actors == 0
    await settle()
    assert [type(error) for error in reported] == [GroupClosed]


@pytest.mark.parametrize("seconds", [-1, float("nan")])
async def test_a_stop_with_a_grace_that_is_no_time_is_refused(seconds: float) -> None:
    async with group_of() as group:
        life = group.begin(Doer(), owner=Restarter())
        with pytest.raises(InvalidValue):
            life.stop("quickly", seconds)
        assert life.state is ActorState.RUNNING


async def test_a_restarted_actor_that_runs_has_started_although_an_earlier_start_failed() -> None:
    class Second(Actor):
        starts = 0

        def started(self) -> None:
            Second.starts += 1
            if Second.starts == 1:
                raise ValueError("not yet")

        def receive(self, message: Any) -> Any:
            return message

    async with group_of() as group:
        life = group.begin(Second(), owner=Restarter(lambda life: life.restart(Second())))
        await life.ref.wait_started()

        assert life.state is ActorState.RUNNING


async def test_an_actor_that_cleans_up_after_a_failure_and_asks_itself_is_told_at_once() -> None:
    told: list[type] = []

    class Asking(Doer):
        async def stopping(self) -> None:
            try:
                await self.ref.ask("and now?", 1)
            except UsageError as error:
                told.append(type(error))

    async with group_of() as group:
        ref = group.spawn(Asking())
        ref.send_nowait(("raise", ValueError()))
        await ref.wait_stopped()

    assert told == [AskedItself]
    assert asyncio.get_running_loop().time() == 0


async def test_a_stopping_actor_that_finds_another_stopped_has_not_failed() -> None:
    failures = Failures()
    async with group_of(failures) as group:
        last = group.spawn(Waiter(), name="last", capacity=1)

        class First(Actor):
            async def receive(self, message: Any) -> None:
                await last.send(message)

        first = group.spawn(First(), name="first")
        last.send_nowait(("sleep", 1))
        await settle()
        last.send_nowait("fills the mailbox")
        first.send_nowait("waits for room")
        await settle()

    assert failures == []
    assert sorted(why(group)) == [("fills the mailbox", "stopped"), ("waits for room", "stopped")]


async def test_a_grace_may_be_endless() -> None:
    async with group_of(grace_seconds=float("inf")) as group:
        ref = group.spawn(Tidy())
        asker = asyncio.create_task(ref.ask(("sleep", 1_000_000), 2_000_000))
        await settle()
        ref.stop()

        assert await asker == "slept"


async def test_a_restarted_actor_that_cannot_start_fails_again() -> None:
    class Unlucky(Doer):
        def started(self) -> None:
            raise OSError("no disk")

    owner = Restarter()
    async with group_of() as group:
        life = group.begin(Doer(), owner=owner)
        life.ref.send_nowait(("raise", ValueError()))
        life.ref.send_nowait("waits")
        await settle()
        life.restart(Unlucky())
        await settle()
        assert [failure.during for failure in owner.failures] == ["receive", "started"]

        successor = Doer()
        life.restart(successor)
        await settle()
        assert successor.handled == ["waits"]


class Plain(Actor):
    def receive(self, message: Any) -> Any:
        return message


async def test_an_idle_actor_is_a_small_object() -> None:
    async with group_of() as group:
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            refs = [group.spawn(Plain()) for _ in range(1_000)]
            for ref in refs:
                ref.send_nowait(1)
            await settle()
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert (after - before - sys.getsizeof(refs)) / 1_000 < 1_500
