from __future__ import annotations

import asyncio
from typing import Any

import pytest
from actor_world import Doer, Failures, Waiter, group_of
from hypothesis import given
from hypothesis import strategies as st

from geartrain.actors import (
    ActorFailed,
    ActorFailure,
    ActorGroup,
    ActorLife,
    ActorState,
    ActorStopped,
    DeadLetter,
    MessageNotHandled,
    Overflow,
)
from geartrain.clock import LoopClock
from geartrain.errors import InvalidValue, MailboxFull, TimedOut
from geartrain.testing import settle


def reasons(group: ActorGroup) -> list[tuple[Any, str]]:
    return [(letter.message, letter.why) for letter in group.dead_letters]


@pytest.mark.parametrize("overflow", ["wait", Overflow.REFUSE])
async def test_a_full_mailbox_refuses_what_must_not_wait_and_the_sender_keeps_it(overflow: Any) -> None:
    async with group_of() as group:
        actor = Doer()
        ref = group.spawn(actor, name="full", capacity=2, overflow=overflow)
        ref.send_nowait(1)
        ref.send_nowait(2)

        with pytest.raises(MailboxFull, match=r"mailbox of 'full' is full \(2 messages\)"):
            ref.send_nowait(3)

        assert ref.statistics().refused == 1
        await settle()

    assert actor.handled == [1, 2]
    assert reasons(group) == []


async def test_with_wait_a_send_and_an_ask_wait_for_room_in_their_order() -> None:
    async with group_of() as group:
        actor = Waiter()
        ref = group.spawn(actor, capacity=1, overflow="wait")

        senders = [asyncio.create_task(ref.send(number)) for number in range(5)]
        answers = await asyncio.gather(*(ref.ask(number, 5) for number in range(5, 10)))

        await asyncio.gather(*senders)
        assert answers == list(range(5, 10))
        assert actor.handled == list(range(10))


async def test_with_refuse_nobody_waits_for_room() -> None:
    async with group_of() as group:
        ref = group.spawn(Doer(), capacity=1, overflow="refuse")
        ref.send_nowait(1)

        with pytest.raises(MailboxFull):
            await ref.send(2)
        with pytest.raises(MailboxFull):
            await ref.ask(3, 1)

        assert ref.statistics().refused == 2
        assert ref.statistics().asks_open == 0


async def test_with_drop_oldest_the_latest_messages_are_handled() -> None:
    async with group_of() as group:
        actor = Doer()
        ref = group.spawn(actor, name="news", capacity=3, overflow="drop_oldest")

        for number in range(5):
            ref.send_nowait(number)
        await ref.send(5)
        assert await ref.ask(6, 1) == 6

        assert actor.handled == [4, 5, 6]
        assert reasons(group) == [(number, "dropped") for number in range(4)]
        assert ref.statistics().dropped == 4


async def test_a_message_that_is_refused_drops_no_other() -> None:
    async with group_of() as group:
        ref = group.spawn(Doer(), capacity=1, overflow="drop_oldest")
        ref.send_nowait(1)

        with pytest.raises(InvalidValue):
            ref.send_nowait(2, expires_seconds=0)
        with pytest.raises(InvalidValue):
            await ref.ask(3, timeout_seconds=0)

        assert ref.statistics().dropped == 0
        assert reasons(group) == []


async def test_an_asker_whose_message_is_dropped_is_told_at_once_and_it_is_no_dead_letter() -> None:
    async with group_of() as group:
        ref = group.spawn(Waiter(), capacity=1, overflow="drop_oldest")
        ref.send_nowait(("sleep", 60))
        await settle()
        asker = asyncio.create_task(ref.ask("old", 1_000))
        await settle()

        ref.send_nowait("new")

        with pytest.raises(MessageNotHandled, match="it was dropped for a newer one, since the mailbox was full"):
            await asker
        assert reasons(group) == []


async def test_a_message_whose_asker_has_gone_is_a_dead_letter_when_it_is_dropped() -> None:
    async with group_of() as group:
        ref = group.spawn(Waiter(), capacity=1, overflow="drop_oldest")
        ref.send_nowait(("sleep", 60))
        await settle()
        with pytest.raises(TimedOut):
            await ref.ask("old", 1)

        ref.send_nowait("new")

        assert reasons(group) == [("old", "dropped")]


async def test_a_started_that_waits_is_never_dropped() -> None:
    class Ready(Doer):
        async def started(self) -> None:
            self.calls.append("started")
            await asyncio.sleep(1)

    async with group_of() as group:
        actor = Ready()
        ref = group.spawn(actor, capacity=1, overflow="drop_oldest")
        for number in range(5):
            ref.send_nowait(number)

        await asyncio.sleep(2)

        assert actor.calls == ["started"]
        assert actor.handled == [4]


async def test_a_message_that_has_expired_is_not_handled() -> None:
    async with group_of() as group:
        actor = Waiter()
        ref = group.spawn(actor, name="slow")
        ref.send_nowait(("sleep", 10))
        ref.send_nowait("soon", expires_seconds=9)
        await ref.send("late", expires_seconds=11)
        asker = asyncio.create_task(ref.ask("asked", 100, expires_seconds=9))

        with pytest.raises(MessageNotHandled, match="'slow' has not handled the message: it was expired"):
            await asker

        await settle()
        assert actor.handled == [("sleep", 10), "late"]
        assert reasons(group) == [("soon", "expired")]
        assert ref.statistics().expired == 2


async def test_a_dead_letter_says_whose_it_was_what_why_and_when() -> None:
    group = ActorGroup(on_failure=Failures(), clock=LoopClock(epoch=1_000.0))
    await asyncio.sleep(5)
    group.spawn(Doer(), name="d").send_nowait(("raise", ValueError("bad")))
    await settle()

    [letter] = group.dead_letters
    assert (letter.actor, letter.why, letter.at) == ("d", "failed", 1_005.0)
    assert letter.message[0] == "raise"
    assert "ValueError('bad')" in letter.detail
    await group.aclose()


async def test_the_latest_dead_letters_are_kept_and_all_are_counted() -> None:
    async with group_of(dead_letters=3) as group:
        ref = group.spawn(Doer(), capacity=1, overflow="drop_oldest")
        for number in range(10):
            ref.send_nowait(number)

        told = group.dead_letters.statistics()

        assert [letter.message for letter in group.dead_letters] == [6, 7, 8]
        assert (told.total, told.by_reason, told.kept, told.capacity) == (9, {"dropped": 9}, 3, 3)
        assert group.statistics().dead_letters == told


async def test_whoever_wants_to_is_told_of_each_dead_letter_and_may_send() -> None:
    told: list[DeadLetter] = []

    def hear(letter: DeadLetter) -> None:
        told.append(letter)
        if len(told) < 5:
            ref.send_nowait("again")  # which drops the next

    async with ActorGroup(on_failure=Failures(), on_dead_letter=hear) as group:
        ref = group.spawn(Waiter(), capacity=1, overflow="drop_oldest")
        ref.send_nowait(("sleep", 5))
        await settle()
        ref.send_nowait(1)
        ref.send_nowait(2)
        assert told == []  # soon, not within the send
        await settle()

        assert [letter.message for letter in told] == [1, 2, "again", "again", "again"]


async def test_a_listener_of_dead_letters_that_raises_stops_nothing() -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reported.append(report["exception"]))

    def deaf(letter: DeadLetter) -> None:
        raise RuntimeError("deaf")

    async with ActorGroup(on_dead_letter=deaf) as group:
        ref = group.spawn(Doer(), capacity=1, overflow="drop_oldest")
        for number in range(3):
            ref.send_nowait(number)
        assert await ref.ask("still there", 1) == "still there"

    assert [str(error) for error in reported] == ["deaf"] * 3


class Again:
    """An owner that restarts what fails; all instances share what they have handled."""

    def __init__(self, first: Doer) -> None:
        self._first = first

    def failed(self, life: ActorLife, failure: ActorFailure) -> None:
        if life.state is ActorState.FAILED:
            actor = type(self._first)()
            actor.handled = self._first.handled
            life.restart(actor)

    def stopped(self, life: ActorLife) -> None:
        pass


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send_nowait", "ask", "expire", "fail", "sleep", "cancel", "tick", "time"]),
        st.integers(0, 9),
    ),
    max_size=50,
)


@given(STEPS, st.sampled_from(Overflow), st.integers(1, 3), st.sampled_from([Doer, Waiter]), st.booleans())
async def test_whatever_happens_each_message_is_handled_or_told_or_a_dead_letter(
    steps: list[tuple[str, int]], overflow: Overflow, capacity: int, kind: type[Doer], restarted: bool
) -> None:
    async with group_of() as group:
        actor = kind()
        owner = Again(actor) if restarted else group._owner
        ref = group.begin(actor, owner=owner, capacity=capacity, overflow=overflow).ref
        senders: dict[asyncio.Task[Any], Any] = {}
        accepted: list[Any] = []
        for number, (what, which) in enumerate(steps):
            if what == "tick":
                await asyncio.sleep(0)
            elif what == "time":
                await asyncio.sleep(which)
            elif what == "cancel":
                for task in list(senders)[which : which + 1]:
                    task.cancel()
            elif what == "send_nowait":
                try:
                    ref.send_nowait(("return", number))
                    accepted.append(("return", number))
                except (MailboxFull, ActorStopped):
                    pass
            else:
                message: Any = {
                    "fail": ("raise", KeyError(number)),
                    "sleep": ("sleep", which + number / 100),
                }.get(what, ("return", number))
                expires = which + 0.5 if what == "expire" else None
                if what == "ask":
                    sender = asyncio.create_task(ref.ask(message, which + 1))
                else:
                    sender = asyncio.create_task(ref.send(message, expires_seconds=expires))
                senders[sender] = (what, message)
        await asyncio.sleep(200)

    for sender, (what, message) in senders.items():
        error = None if sender.cancelled() else sender.exception()
        if what != "ask" and not sender.cancelled() and error is None:
            accepted.append(message)
        assert sender.done()
        assert error is None or isinstance(
            error, (MailboxFull, ActorStopped, ActorFailed, MessageNotHandled, TimedOut)
        ), error
    failed = [letter.message for letter in group.dead_letters if letter.why == "failed"]
    dead = [letter.message for letter in group.dead_letters if letter.why != "failed"]
    asked = [message for what, message in senders.values() if what == "ask"]
    handled_or_dead = actor.handled + dead
    assert [message for message in accepted if message not in handled_or_dead] == []
    assert [message for message in handled_or_dead if message not in accepted + asked] == []
    assert [message for message in failed if message not in actor.handled] == []
    assert ref.statistics().waiting == ref.statistics().asks_open == ref.statistics().senders_waiting == 0
