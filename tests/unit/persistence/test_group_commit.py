from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from geartrain.limits import Limits
from geartrain.persistence import Entry, GroupCommitter, JournalConflict, Outcome
from geartrain.testing._journal_samples import an_entry, an_event


class Store:
    """Writes a batch when it is told to, and remembers the batches."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer: Sequence[Outcome] | BaseException | None = None
        self.committer = GroupCommitter(self.write, limits or Limits())

    async def write(self, entries: Sequence[Entry]) -> Sequence[Outcome]:
        self.batches.append([entry.run_id for entry in entries])
        await self.gate.wait()
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer or [1] * len(entries)

    def add(self, *run_ids: str) -> list[asyncio.Future[int]]:
        return [self.committer.add(an_entry(run_id, 1)) for run_id in run_ids]


async def test_entries_that_wait_at_once_share_a_batch_in_the_order_of_their_coming() -> None:
    store = Store()

    assert await asyncio.gather(*store.add("a", "b", "c")) == [1, 1, 1]

    assert store.batches == [["a", "b", "c"]]


async def test_while_a_batch_is_written_the_next_one_gathers() -> None:
    store = Store()
    store.gate.clear()
    first = store.add("a")
    await asyncio.sleep(0)
    second = [*store.add("b"), *store.add("c")]
    await asyncio.sleep(0)
    assert (store.batches, store.committer.waiting) == ([["a"]], 3)

    store.gate.set()
    await asyncio.gather(*first, *second)

    assert store.batches == [["a"], ["b", "c"]]
    assert (store.committer.waiting, store.committer.appends, store.committer.batch_entries_peak) == (0, 3, 2)


async def test_the_next_batch_is_handed_over_before_those_who_waited_are_woken() -> None:
    store = Store()
    store.gate.clear()
    (first,) = store.add("a")
    await asyncio.sleep(0)
    store.add("b")
    seen: list[int] = []
    first.add_done_callback(lambda _: seen.append(len(store.batches)))

    store.gate.set()
    await store.committer.wait_idle()

    assert seen == [2]


async def test_a_batch_is_bounded_in_entries() -> None:
    store = Store(Limits(batch_entries=2))

    await asyncio.gather(*store.add("a", "b", "c", "d", "e"))

    assert store.batches == [["a", "b"], ["c", "d"], ["e"]]


async def test_a_batch_is_bounded_in_bytes_but_takes_a_single_entry_of_any_size() -> None:
    store = Store(Limits(batch_bytes=10_000))
    futures = [
        store.committer.add(an_entry(run_id, 1, events=(an_event(1, body=b"x" * size),)))
        for run_id, size in (("a", 4_000), ("b", 4_000), ("c", 4_000), ("huge", 50_000), ("d", 1))
    ]

    await asyncio.gather(*futures)

    assert store.batches == [["a", "b"], ["c"], ["huge"], ["d"]]


async def test_each_entry_gets_its_own_outcome() -> None:
    store = Store()
    store.answer = [1, JournalConflict("b", 0, 4), 3]

    outcomes = await asyncio.gather(*store.add("a", "b", "c"), return_exceptions=True)

    assert (outcomes[0], outcomes[2]) == (1, 3)
    assert isinstance(outcomes[1], JournalConflict)


async def test_a_defect_of_the_store_reaches_every_entry_and_the_next_batch_is_tried() -> None:
    store = Store()
    store.answer = ZeroDivisionError()
    failed = await asyncio.gather(*store.add("a", "b"), return_exceptions=True)
    store.answer = None

    assert [type(outcome) for outcome in failed] == [ZeroDivisionError] * 2
    assert await asyncio.gather(*store.add("c")) == [1]


async def test_cancelling_a_waiting_append_leaves_its_batch_alone() -> None:
    store = Store()
    store.gate.clear()
    first, second = store.add("a", "b")
    await asyncio.sleep(0)
    first.cancel()

    store.gate.set()

    assert await second == 1
    assert store.batches == [["a", "b"]]


async def test_cancelling_the_wait_for_idleness_does_not_cancel_the_batch() -> None:
    store = Store()
    store.gate.clear()
    (future,) = store.add("a")
    waiting = asyncio.create_task(store.committer.wait_idle())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    store.gate.set()

    assert await future == 1


async def test_the_end_of_the_loop_cancels_what_waits() -> None:
    store = Store()
    store.gate.clear()
    first = store.add("a")
    await asyncio.sleep(0)
    second = store.add("b")
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if task.get_name() == "geartrain group commit":
            task.cancel()

    await asyncio.wait([*first, *second])

    assert all(future.cancelled() for future in (*first, *second))


@pytest.mark.parametrize("count", [1, 1_000])
async def test_an_idle_committer_owns_no_task(count: int) -> None:
    store = Store()
    await asyncio.gather(*store.add(*map(str, range(count))))
    await store.committer.wait_idle()

    assert not any(task.get_name() == "geartrain group commit" for task in asyncio.all_tasks())
