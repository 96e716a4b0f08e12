from __future__ import annotations

import asyncio
import gc
import sys
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.errors import InvalidValue, MailboxFull
from geartrain.mailbox import Lane, Mailbox, MailboxClosed, ReservedRoomExceeded
from geartrain.testing import settle


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_mailbox_without_a_bound_cannot_be_made(capacity: int) -> None:
    with pytest.raises(InvalidValue, match="capacity must be at least 1"):
        Mailbox[int]("planner", capacity=capacity)


def test_a_negative_reserved_capacity_is_refused() -> None:
    with pytest.raises(InvalidValue, match="reserved_capacity must be at least 0, got -1"):
        Mailbox[int]("planner", capacity=1, reserved_capacity=-1)


def test_a_full_mailbox_refuses_a_send_that_must_not_wait() -> None:
    mailbox = Mailbox[int]("planner", capacity=2)
    mailbox.send_nowait(1)
    mailbox.send_nowait(2)

    with pytest.raises(MailboxFull, match=r"mailbox of 'planner' is full \(2 messages\)"):
        mailbox.send_nowait(3)

    assert mailbox.take_batch(10) == [1, 2]
    assert mailbox.statistics().refused == 1


def test_a_flood_of_work_never_keeps_a_cancel_out() -> None:
    mailbox = Mailbox[str]("planner", capacity=1)
    mailbox.send_nowait("work")

    mailbox.send_nowait("cancel", Lane.CONTROL)

    assert mailbox.take_batch(10) == ["cancel", "work"]


def test_lanes_are_served_in_their_order() -> None:
    mailbox = Mailbox[str]("planner", capacity=4, reserved_capacity=1)
    mailbox.send_nowait("work", Lane.WORK)
    mailbox.put_result("result")
    for lane in (Lane.STEERING, Lane.APPROVAL, Lane.CONTROL):
        mailbox.send_nowait(lane.name.lower(), lane)

    assert [mailbox.take_nowait() for _ in range(5)] == ["control", "approval", "steering", "result", "work"]
    assert mailbox.take_nowait() is None


def test_results_have_room_when_senders_have_none() -> None:
    mailbox = Mailbox[str]("planner", capacity=1, reserved_capacity=2)
    mailbox.send_nowait("work")

    mailbox.put_result("first")
    mailbox.put_result("second")

    assert mailbox.take_batch(10) == ["first", "second", "work"]


def test_more_results_than_were_reserved_are_our_fault() -> None:
    mailbox = Mailbox[str]("planner", capacity=1, reserved_capacity=1)
    mailbox.put_result("first")

    with pytest.raises(ReservedRoomExceeded, match="more than 1 results waiting"):
        mailbox.put_result("second")


def test_the_oldest_message_of_a_lane_can_be_taken_out() -> None:
    mailbox = Mailbox[str]("planner", capacity=2)
    mailbox.send_nowait("first")
    mailbox.send_nowait("second")
    mailbox.send_nowait("cancel", Lane.CONTROL)
    assert not mailbox.has_room()

    assert mailbox.take_oldest() == "first"

    assert mailbox.has_room()
    assert mailbox.take_batch(10) == ["cancel", "second"]
    assert mailbox.take_oldest() is None
    told = mailbox.statistics()
    assert (told.sent, told.taken, told.waiting, told.waiting_peak) == (3, 3, 0, 3)


async def test_a_sender_that_waits_gets_the_room_of_a_message_that_was_taken_out() -> None:
    mailbox = Mailbox[int]("planner", capacity=1)
    mailbox.send_nowait(1)
    sender = asyncio.create_task(mailbox.send(2))
    await settle()

    assert mailbox.take_oldest() == 1
    await sender

    assert mailbox.take_nowait() == 2


def test_a_closed_mailbox_has_no_room() -> None:
    mailbox = Mailbox[int]("planner", capacity=1)
    assert mailbox.has_room()

    mailbox.close()

    assert not mailbox.has_room()


def test_a_batch_is_limited_and_keeps_what_it_left() -> None:
    mailbox = Mailbox[int]("planner", capacity=10)
    for number in range(5):
        mailbox.send_nowait(number)

    assert mailbox.take_batch(3) == [0, 1, 2]
    assert mailbox.take_batch(3) == [3, 4]
    with pytest.raises(InvalidValue, match="limit must be at least 1"):
        mailbox.take_batch(0)


def test_arrival_is_told_only_when_the_mailbox_was_empty() -> None:
    told: list[int] = []
    mailbox = Mailbox[int]("planner", capacity=10, reserved_capacity=1, on_arrival=lambda: told.append(1))

    mailbox.send_nowait(1)
    mailbox.send_nowait(2, Lane.CONTROL)
    mailbox.put_result(3)
    assert len(told) == 1

    mailbox.take_batch(10)
    mailbox.put_result(4)
    assert len(told) == 2


def test_closing_returns_what_is_left_in_the_order_of_serving_and_refuses_the_rest() -> None:
    mailbox = Mailbox[str]("planner", capacity=2, reserved_capacity=1)
    mailbox.send_nowait("work")
    mailbox.send_nowait("cancel", Lane.CONTROL)

    assert mailbox.close() == ["cancel", "work"]

    assert mailbox.closed
    assert mailbox.close() == []
    with pytest.raises(MailboxClosed, match="mailbox of 'planner' is closed"):
        mailbox.send_nowait("late")
    with pytest.raises(MailboxClosed):
        mailbox.put_result("late")


async def test_a_send_to_a_closed_mailbox_is_refused() -> None:
    mailbox = Mailbox[str]("planner", capacity=1)
    mailbox.close()

    with pytest.raises(MailboxClosed):
        await mailbox.send("late")


async def test_waiting_senders_get_room_in_the_order_they_came() -> None:
    mailbox = Mailbox[int]("planner", capacity=1)
    mailbox.send_nowait(0)
    senders = [asyncio.create_task(mailbox.send(number)) for number in (1, 2, 3)]
    await settle()
    assert mailbox.statistics().senders_waiting == 3

    taken = []
    for _ in range(4):
        taken.append(mailbox.take_nowait())
        await settle()

    assert taken == [0, 1, 2, 3]
    assert all(sender.done() for sender in senders)


async def test_room_that_was_granted_is_not_given_to_somebody_else() -> None:
    mailbox = Mailbox[str]("planner", capacity=1)
    mailbox.send_nowait("first")
    sender = asyncio.create_task(mailbox.send("patient"))
    await settle()
    assert mailbox.take_nowait() == "first"

    with pytest.raises(MailboxFull):
        mailbox.send_nowait("pushy")
    await sender

    assert mailbox.take_nowait() == "patient"


async def test_a_cancelled_send_leaves_the_mailbox_unchanged() -> None:
    mailbox = Mailbox[str]("planner", capacity=1)
    mailbox.send_nowait("first")
    before = mailbox.statistics()
    sender = asyncio.create_task(mailbox.send("cancelled"))
    await settle()

    sender.cancel()
    await settle()

    assert sender.cancelled()
    assert mailbox.statistics() == before
    assert mailbox.close() == ["first"]


async def test_room_granted_to_a_sender_that_is_then_cancelled_goes_to_the_next() -> None:
    mailbox = Mailbox[str]("planner", capacity=1)
    mailbox.send_nowait("first")
    cancelled = asyncio.create_task(mailbox.send("cancelled"))
    following = asyncio.create_task(mailbox.send("following"))
    await settle()

    mailbox.take_nowait()  # grants room to the sender that is cancelled in the same tick
    cancelled.cancel()
    await settle()

    assert cancelled.cancelled()
    assert following.done()
    assert mailbox.close() == ["following"]


async def test_closing_refuses_the_senders_that_wait_and_those_just_granted_room() -> None:
    mailbox = Mailbox[str]("planner", capacity=1)
    mailbox.send_nowait("first")
    senders = [asyncio.create_task(mailbox.send(name)) for name in ("granted", "waiting", "cancelled")]
    await settle()

    mailbox.take_nowait()
    assert mailbox.close() == []
    senders[2].cancel()
    results = await asyncio.gather(*senders, return_exceptions=True)

    assert [type(result) for result in results] == [MailboxClosed, MailboxClosed, asyncio.CancelledError]
    assert mailbox.statistics().sent == 1


async def test_ten_thousand_sends_cancelled_at_every_tick_lose_and_double_nothing() -> None:
    mailbox = Mailbox[int]("planner", capacity=3)
    sent: set[int] = set()
    taken: deque[int] = deque()
    cancel_in: dict[int, list[asyncio.Task[None]]] = {}

    async def send(number: int) -> None:
        await mailbox.send(number)
        sent.add(number)

    senders = []
    for number in range(10_000):
        sender = asyncio.create_task(send(number))
        senders.append(sender)
        # Cancelled 0 to 6 ticks from now: before it starts, while it waits, in the tick of its grant, after.
        cancel_in.setdefault(number + number % 7, []).append(sender)
        for chosen in cancel_in.pop(number, []):
            chosen.cancel()
        if number % 3 == 0:
            taken.extend(mailbox.take_batch(1 + number % 2))
        await asyncio.sleep(0)
    while mailbox.waiting or mailbox.statistics().senders_waiting:
        taken.extend(mailbox.take_batch(3))
        await settle()

    await asyncio.gather(*senders, return_exceptions=True)
    assert 1_000 < len(sent) < 9_000, "both outcomes must be common, or this test shows nothing"
    assert len(taken) == len(set(taken))
    assert set(taken) == sent
    assert list(taken) == sorted(taken)
    assert mailbox.statistics().sent == mailbox.statistics().taken == len(sent)


SENDS = st.tuples(st.just("send"), st.sampled_from(Lane))
TAKES = st.tuples(st.just("take"), st.integers(1, 5))
RESULTS = st.tuples(st.just("result"), st.none())


@given(st.lists(st.one_of(SENDS, SENDS, RESULTS, TAKES), max_size=60), st.integers(1, 4), st.integers(0, 3))
def test_a_mailbox_behaves_like_five_plain_queues(
    operations: list[tuple[str, int | None]], capacity: int, reserved: int
) -> None:
    mailbox = Mailbox[int]("planner", capacity=capacity, reserved_capacity=reserved)
    queues: dict[float, list[int]] = {
        Lane.CONTROL: [],
        Lane.APPROVAL: [],
        Lane.STEERING: [],
        3: [],
        Lane.WORK: [],
    }
    arrived = 0

    for number, (what, argument) in enumerate(operations):
        if what == "take":
            expected = [message for lane in sorted(queues) for message in queues[lane]][:argument]
            assert mailbox.take_batch(argument or 1) == expected
            for queue in queues.values():
                queue[:] = [message for message in queue if message not in expected]
            continue
        lane = 3 if what == "result" else argument
        room = reserved if what == "result" else capacity
        put = mailbox.put_result if what == "result" else lambda n, lane=lane: mailbox.send_nowait(n, Lane(lane))
        if len(queues[lane]) < room:
            put(number)
            queues[lane].append(number)
            arrived += 1
        else:
            with pytest.raises((MailboxFull, ReservedRoomExceeded)):
                put(number)

    left = [message for lane in sorted(queues) for message in queues[lane]]
    statistics = mailbox.statistics()
    assert (statistics.sent, statistics.waiting) == (arrived, len(left))
    assert mailbox.waiting == len(left)
    assert mailbox.close() == left


@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "cancel", "take", "tick"]), st.integers(0, 9), st.sampled_from(Lane)),
        max_size=80,
    ),
    st.integers(1, 3),
)
async def test_order_is_kept_per_sender_and_lane_and_nothing_is_lost(
    operations: list[tuple[str, int, Lane]], capacity: int
) -> None:
    mailbox = Mailbox[tuple[Lane, int]]("planner", capacity=capacity)
    senders: list[tuple[asyncio.Task[None], Lane, int]] = []
    taken: list[tuple[Lane, int]] = []

    for number, (what, which, lane) in enumerate(operations):
        if what == "send":
            senders.append((asyncio.create_task(mailbox.send((lane, number), lane)), lane, number))
        elif what == "cancel" and senders:
            senders[which % len(senders)][0].cancel()
        elif what == "take":
            taken.extend(mailbox.take_batch(which + 1))
        elif what == "tick":
            await asyncio.sleep(0)
    await settle()
    while batch := mailbox.take_batch(1):
        taken.extend(batch)
        await settle()

    accepted = [(lane, number) for task, lane, number in senders if not task.cancelled()]
    assert all(task.done() for task, _, _ in senders)
    assert sorted(taken) == sorted(accepted)
    for lane in Lane:
        numbers = [number for where, number in taken if where is lane]
        assert numbers == sorted(numbers)


async def test_an_idle_mailbox_holds_no_queue_after_use() -> None:
    mailbox = Mailbox[int]("planner", capacity=1)
    senders = [asyncio.create_task(mailbox.send(number)) for number in range(3)]
    await settle()
    while mailbox.take_batch(1):
        await settle()
    await asyncio.gather(*senders)

    held = [thing for thing in gc.get_referents(mailbox) if not isinstance(thing, type)]
    containers = [thing for thing in held if isinstance(thing, list | dict | deque)]

    assert containers == [[None] * 5]
    assert sys.getsizeof(mailbox) + sum(map(sys.getsizeof, containers)) < 300
