from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.actors import ActorNotBroken, ActorStopped, Cell, CellState
from geartrain.errors import InvalidValue, MailboxFull
from geartrain.mailbox import Lane, ReservedRoomExceeded
from geartrain.testing import settle


class Recorder:
    """Keeps the batches it was given and does to each what it is told."""

    def __init__(self, act: Callable[[Sequence[int]], asyncio.Future[None] | None] = lambda batch: None) -> None:
        self.batches: list[list[int]] = []
        self._act = act

    @property
    def handled(self) -> list[int]:
        return [message for batch in self.batches for message in batch]

    def receive(self, batch: Sequence[int]) -> asyncio.Future[None] | None:
        self.batches.append(list(batch))
        return self._act(batch)


class Failures:
    """The owner's ear: what a cell said about its failures."""

    def __init__(self) -> None:
        self.told: list[tuple[BaseException, list[int]]] = []

    def __call__(self, error: BaseException, batch: Sequence[int]) -> None:
        self.told.append((error, list(batch)))


def cell_of(behaviour: Recorder, failures: Failures | None = None, **kwargs: int) -> Cell[int]:
    settings = {"capacity": 100, "messages_per_turn": 3} | kwargs
    return Cell("planner", behaviour, on_failure=failures or Failures(), **settings)


def fail(batch: Sequence[int]) -> None:
    raise ZeroDivisionError


async def test_messages_are_handled_in_batches_no_larger_than_the_limit() -> None:
    behaviour = Recorder()
    cell = cell_of(behaviour)

    for number in range(7):
        cell.send_nowait(number)
    await settle()

    assert behaviour.batches == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_turn_of_no_messages_cannot_be_asked_for() -> None:
    with pytest.raises(InvalidValue, match="messages_per_turn must be at least 1, got 0"):
        cell_of(Recorder(), messages_per_turn=0)


async def test_a_sender_is_never_handled_within_its_send() -> None:
    behaviour = Recorder()
    cell = cell_of(behaviour)

    cell.send_nowait(1)

    assert behaviour.batches == []
    assert cell.state is CellState.READY
    assert not cell.idle


async def test_others_get_their_turn_between_two_turns_of_a_busy_cell() -> None:
    order: list[str] = []

    def busy(batch: Sequence[int]) -> None:
        order.append("busy")

    def other(batch: Sequence[int]) -> None:
        order.append("other")

    cells = [cell_of(Recorder(busy)), cell_of(Recorder(other))]
    for number in range(6):
        for cell in cells:
            cell.send_nowait(number)
    await settle()

    assert order == ["busy", "other", "busy", "other"]


async def test_an_idle_cell_and_a_handled_message_cost_no_task() -> None:
    tasks: set[int] = set()
    cell = cell_of(Recorder(lambda _: tasks.add(len(asyncio.all_tasks()))))
    before = len(asyncio.all_tasks())

    cell.send_nowait(1)
    await settle()

    assert tasks == {before}
    assert cell.idle
    assert len(asyncio.all_tasks()) == before


async def test_nothing_is_taken_before_the_future_of_the_last_batch_is_done() -> None:
    durable: list[asyncio.Future[None]] = []

    def write(batch: Sequence[int]) -> asyncio.Future[None]:
        durable.append(asyncio.get_running_loop().create_future())
        return durable[-1]

    behaviour = Recorder(write)
    cell = cell_of(behaviour)
    cell.send_nowait(1)
    await settle()

    cell.send_nowait(2)
    await settle()
    assert behaviour.batches == [[1]]
    assert cell.state is CellState.WAITING

    durable[0].set_result(None)
    await settle()
    assert behaviour.batches == [[1], [2]]

    durable[1].set_result(None)
    await settle()
    assert cell.idle


async def test_a_message_a_behaviour_sends_to_its_own_cell_is_handled_in_a_later_turn() -> None:
    behaviour = Recorder(lambda batch: cell.send_nowait(2) if batch == [1] else None)
    cell = cell_of(behaviour)

    cell.send_nowait(1)
    await settle()

    assert behaviour.batches == [[1], [2]]


async def test_results_are_handled_when_senders_find_no_room() -> None:
    behaviour = Recorder()
    cell = cell_of(behaviour, capacity=1, reserved_capacity=1)
    cell.send_nowait(1)

    with pytest.raises(MailboxFull):
        cell.send_nowait(2)
    cell.put_result(3)
    with pytest.raises(ReservedRoomExceeded):
        cell.put_result(4)
    await settle()

    assert behaviour.batches == [[3, 1]]


async def test_a_send_that_waits_for_room_goes_on_when_the_cell_has_taken_a_batch() -> None:
    behaviour = Recorder()
    cell = cell_of(behaviour, capacity=1)

    async with asyncio.TaskGroup() as senders:
        for number in range(5):
            senders.create_task(cell.send(number))
    await settle()

    assert behaviour.handled == [0, 1, 2, 3, 4]


async def test_a_behaviour_that_raises_breaks_the_cell_and_the_owner_is_told_once() -> None:
    failures = Failures()
    behaviour = Recorder(fail)
    cell = cell_of(behaviour, failures)

    for number in range(5):
        cell.send_nowait(number)
    await settle()
    cell.send_nowait(5)
    await settle()

    [(error, batch)] = failures.told
    assert isinstance(error, ZeroDivisionError)
    assert batch == [0, 1, 2]
    assert cell.state is CellState.BROKEN
    assert len(behaviour.batches) == 1
    assert cell.statistics().mailbox.waiting == 3


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
async def test_a_future_that_does_not_succeed_breaks_the_cell(ends: str) -> None:
    failures = Failures()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cell = cell_of(Recorder(lambda _: future), failures)
    cell.send_nowait(1)
    await settle()

    if ends == "fails":
        future.set_exception(OSError("disk full"))
    else:
        future.cancel()
    await settle()

    [(error, batch)] = failures.told
    assert type(error) is (OSError if ends == "fails" else asyncio.CancelledError)
    assert batch == [1]
    assert cell.state is CellState.BROKEN


async def test_a_behaviour_that_raises_cancellation_breaks_the_cell_too() -> None:
    def cancelled(batch: Sequence[int]) -> None:
        raise asyncio.CancelledError

    failures = Failures()
    cell = cell_of(Recorder(cancelled), failures)
    cell.send_nowait(1)
    await settle()

    assert cell.state is CellState.BROKEN
    assert len(failures.told) == 1


async def test_a_restarted_cell_goes_on_with_the_messages_that_gathered() -> None:
    cell = cell_of(Recorder(fail), messages_per_turn=1)
    for number in range(3):
        cell.send_nowait(number)
    await settle()
    cell.send_nowait(3)
    successor = Recorder()

    cell.restart(successor)
    await settle()

    assert successor.handled == [1, 2, 3]
    assert cell.idle
    assert (cell.statistics().failures, cell.statistics().restarts) == (1, 1)


async def test_the_owner_may_restart_while_it_is_told_of_the_failure() -> None:
    successor = Recorder()
    cell: Cell[int] = Cell(
        "planner",
        Recorder(fail),
        on_failure=lambda error, batch: cell.restart(successor),
        capacity=10,
        messages_per_turn=1,
    )

    cell.send_nowait(1)
    cell.send_nowait(2)
    await settle()

    assert successor.handled == [2]


async def test_an_owner_that_fails_is_reported_and_leaves_a_broken_cell_that_can_be_restarted() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, report: reported.append(report["exception"]))

    def deaf(error: BaseException, batch: Sequence[int]) -> None:
        raise RuntimeError("deaf")

    cell: Cell[int] = Cell("planner", Recorder(fail), on_failure=deaf, capacity=10, messages_per_turn=1)
    cell.send_nowait(1)
    await settle()

    assert [str(error) for error in reported] == ["deaf"]
    assert cell.state is CellState.BROKEN
    cell.restart(Recorder())
    assert cell.idle


@pytest.mark.parametrize("state", ["idle", "ready"])
async def test_a_cell_that_is_not_broken_cannot_be_restarted(state: str) -> None:
    cell = cell_of(Recorder())
    if state == "ready":
        cell.send_nowait(1)

    with pytest.raises(ActorNotBroken, match=f"restart needs a broken actor, this one is {state}"):
        cell.restart(Recorder())


async def test_a_stopped_cell_gives_back_what_is_left_and_refuses_the_rest() -> None:
    behaviour = Recorder()
    cell = cell_of(behaviour, reserved_capacity=1)
    cell.send_nowait(1)
    cell.send_nowait(0, Lane.CONTROL)

    assert cell.stop() == [0, 1]

    await settle()
    assert behaviour.batches == []
    assert cell.state is CellState.STOPPED
    assert not cell.idle
    assert cell.stop() == []
    for refused in (cell.send_nowait, cell.put_result):
        with pytest.raises(ActorStopped, match="actor 'planner' has stopped"):
            refused(2)
    with pytest.raises(ActorStopped):
        await cell.send(2)
    with pytest.raises(ActorStopped):
        cell.restart(Recorder())


@pytest.mark.parametrize("state", ["ready", "waiting", "broken", "idle"])
async def test_a_closed_cell_takes_nothing_more_and_finishes_what_it_has_in_hand(state: str) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    behaviour = Recorder({"waiting": lambda batch: future, "broken": fail}.get(state, lambda batch: None))
    cell = cell_of(behaviour, messages_per_turn=1)
    cell.send_nowait(1)
    if state != "ready":
        await settle()
        cell.send_nowait(2)
    if state == "idle":
        await settle()

    left = cell.close("enough")

    assert left == {"ready": [1], "idle": []}.get(state, [2])
    with pytest.raises(ActorStopped):
        cell.send_nowait(3)
    future.set_result(None)
    await settle()
    assert cell.state is (CellState.BROKEN if state == "broken" else CellState.IDLE)
    assert cell.close() == []
    assert cell.stop() == []


async def test_a_cell_that_is_closed_by_its_own_behaviour_is_idle_afterwards() -> None:
    left: list[int] = []
    cell = cell_of(Recorder(lambda batch: left.extend(cell.close())), messages_per_turn=1)
    cell.send_nowait(1)
    cell.send_nowait(2)

    await settle()

    assert left == [2]
    assert cell.state is CellState.IDLE


async def test_a_sender_that_waits_for_room_is_told_when_the_cell_stops() -> None:
    cell = cell_of(Recorder(fail), capacity=1)
    cell.send_nowait(1)
    await settle()
    cell.send_nowait(2)
    sender = asyncio.create_task(cell.send(3))
    await settle()

    assert cell.stop() == [2]

    with pytest.raises(ActorStopped):
        await sender


async def test_a_behaviour_may_stop_its_own_cell() -> None:
    left: list[int] = []
    behaviour = Recorder(lambda batch: left.extend(cell.stop()))
    cell = cell_of(behaviour)
    for number in range(5):
        cell.send_nowait(number)

    await settle()

    assert behaviour.batches == [[0, 1, 2]]
    assert left == [3, 4]
    assert cell.state is CellState.STOPPED


async def test_a_behaviour_may_stop_its_own_cell_and_still_return_a_future() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cell = cell_of(Recorder(lambda _: cell.stop() or future))
    cell.send_nowait(1)

    await settle()

    assert cell.state is CellState.STOPPED
    future.cancel()


@pytest.mark.parametrize("fails", [True, False])
async def test_a_future_that_outlives_the_stop_is_still_reported_if_it_fails(fails: bool) -> None:
    failures = Failures()
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cell = cell_of(Recorder(lambda _: future), failures)
    cell.send_nowait(1)
    await settle()
    cell.stop()

    if fails:
        future.set_exception(OSError())
    else:
        future.set_result(None)
    await settle()

    assert [batch for _, batch in failures.told] == ([[1]] if fails else [])
    assert cell.state is CellState.STOPPED


async def test_a_turn_sees_nothing_that_its_sender_had_bound() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")
    seen: list[str] = []
    cell = cell_of(Recorder(lambda _: seen.append(user.get())))

    user.set("alice")
    cell.send_nowait(1)
    await settle()

    assert seen == ["nobody"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "cancel", "fail", "tick", "write"]),
            st.integers(0, 9),
            st.sampled_from(Lane),
        ),
        max_size=60,
    ),
    st.integers(1, 3),
    st.integers(1, 4),
)
async def test_whatever_happens_each_message_is_handled_once_or_given_back(
    operations: list[tuple[str, int, Lane]], capacity: int, messages_per_turn: int
) -> None:
    handled: list[tuple[Lane, int]] = []
    writes: list[asyncio.Future[None]] = []
    modes: list[str] = []

    class Chance:
        def receive(self, batch: Sequence[tuple[Lane, int]]) -> asyncio.Future[None] | None:
            mode = modes.pop() if modes else "tick"
            if mode == "fail":
                raise ZeroDivisionError
            handled.extend(batch)
            if mode == "write":
                writes.append(asyncio.get_running_loop().create_future())
                return writes[-1]
            return None

    def owner(error: BaseException, batch: Sequence[tuple[Lane, int]]) -> None:
        handled.extend(batch)
        cell.restart(Chance())

    cell: Cell[tuple[Lane, int]] = Cell(
        "planner", Chance(), on_failure=owner, capacity=capacity, messages_per_turn=messages_per_turn
    )
    senders: list[tuple[asyncio.Task[None], Lane, int]] = []
    for number, (what, which, lane) in enumerate(operations):
        if what == "send":
            senders.append((asyncio.create_task(cell.send((lane, number), lane)), lane, number))
        elif what == "cancel" and senders:
            senders[which % len(senders)][0].cancel()
        elif what == "tick":
            await asyncio.sleep(0)
        else:
            modes.append(what)
            if writes:
                writes.pop().set_result(None)
    await settle()
    left = cell.stop()
    await settle()

    results = [(task.cancelled() or isinstance(task.exception(), ActorStopped)) for task, _, _ in senders]
    accepted = [(lane, number) for refused, (_, lane, number) in zip(results, senders, strict=True) if not refused]
    assert sorted(handled + left) == sorted(accepted)
    for lane in Lane:
        numbers = [number for where, number in handled + left if where is lane]
        assert numbers == sorted(numbers)


async def test_an_idle_cell_takes_less_than_a_kilobyte_after_use_too() -> None:
    behaviour, failures = Recorder(), Failures()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        cells = [cell_of(behaviour, failures) for _ in range(1_000)]
        for cell in cells:
            cell.send_nowait(1)
        await settle()
        behaviour.batches.clear()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert all(cell.idle for cell in cells)
    assert (after - before - sys.getsizeof(cells)) / 1_000 < 1_000
