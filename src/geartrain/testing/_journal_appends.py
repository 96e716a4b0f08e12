"""The half of the journal's conformance suite that appends."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geartrain.errors import InvalidValue
from geartrain.persistence import (
    DuplicateEvent,
    Entry,
    Journal,
    JournalConflict,
    OwnershipLost,
    StoreClosed,
    StoredEvent,
)
from geartrain.testing._journal_samples import (
    RESTING,
    START,
    a_head,
    a_message,
    an_entry,
    an_event,
    epoch_of,
    outcomes_of,
)

_fresh: Final = count(1)


class _ModelRun:
    """What a run should be after some appends, as plainly as it can be said."""

    def __init__(self) -> None:
        self.events: list[StoredEvent] = []
        self.checkpoint_seq = 0

    def outcome(self, entry: Entry) -> int | str:
        stored = {event.id for event in self.events if event.outside}
        if any(event.outside and event.id in stored for event in entry.events):
            return "DuplicateEvent"
        if entry.expected != len(self.events):
            return "JournalConflict"
        self.events += entry.events
        if entry.checkpoint is not None:
            self.checkpoint_seq = len(self.events)
        return len(self.events)


_STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from("abc"),  # the run
        st.sampled_from((0, 0, 0, 0, 1, -1)),  # by how much `expected` is wrong
        st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=3),  # outside?, which id
        st.booleans(),  # a checkpoint?
        st.booleans(),  # wait before the next one?
    ),
    max_size=30,
)


class AppendConformance:
    """What appending and loading promise."""

    # Appending and loading

    async def test_an_appended_entry_is_loaded_as_it_was(self, journal: Journal) -> None:
        """Every field comes back, every byte and every character that is allowed."""
        head = a_head(
            holds=("approval(t1.c1)", "paused"),
            parent="p",
            root="p",
            wake_at=START + 9,
            counters={"turns": 2, "cost": 0.5},
            labels={"team": "läsesaal 📚"},
        )
        events = (an_event(1, outside=True), an_event(2, checkpointed=True, body=b"", digest="", path=""))
        entry = an_entry("r", await epoch_of(journal), events=events, head=head, specs={"s1": b"spec"})

        assert await journal.append(entry) == 2

        loaded = await journal.load("r")
        assert loaded is not None
        assert (loaded.head, loaded.last_seq, loaded.events) == (head, 2, events)
        assert (loaded.checkpoint, loaded.checkpoint_seq) == (None, 0)
        assert (dict(loaded.specs), loaded.inbox, loaded.mark) == ({"s1": b"spec"}, (), None)

    async def test_a_run_that_was_never_written_is_not_there(self, journal: Journal) -> None:
        """Asking for what is not there is answered with nothing, by every method."""
        assert await journal.load("r") is None
        assert await journal.head("r") is None
        assert await journal.find("r", "e1") is None
        assert await journal.artifact("d") is None
        assert await journal.spec("d") is None
        assert await journal.next_wake() is None
        assert await journal.delete("r") is False
        assert [*await journal.read("r"), *await journal.inbox("r"), *await journal.list()] == []

    async def test_loading_begins_behind_the_newest_checkpoint(self, journal: Journal) -> None:
        """A checkpoint replaces the one before and everything up to its own number."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("r", epoch, 0, checkpoint=b"one"))
        await journal.append(an_entry("r", epoch, 1, checkpoint=b"two", checkpoint_version=7))
        await journal.append(an_entry("r", epoch, 2))

        loaded = await journal.load("r")

        assert loaded is not None
        assert (loaded.checkpoint, loaded.checkpoint_version, loaded.checkpoint_seq) == (b"two", 7, 2)
        assert [event.seq for event in loaded.events] == [3]
        assert [event.seq for event in await journal.read("r")] == [1, 2, 3]

    async def test_events_are_read_in_order_from_any_number_on(self, journal: Journal) -> None:
        """A page begins above `after` and has at most `limit` events."""
        await journal.append(an_entry("r", await epoch_of(journal), events=tuple(map(an_event, range(1, 8)))))

        assert [event.seq for event in await journal.read("r", after=2, limit=3)] == [3, 4, 5]
        assert [event.seq for event in await journal.read("r", after=5, limit=3)] == [6, 7]
        assert [*await journal.read("r", after=7)] == []

    async def test_a_head_keeps_what_the_first_entry_said_of_the_runs_birth(self, journal: Journal) -> None:
        """Creation, parent and root never change; the rest is the newest."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("r", epoch, head=a_head(parent="p", root="q")))
        await journal.append(an_entry("r", epoch, 1, head=a_head(created_at=START + 5, state="OBSERVE", agent="b")))

        row = await journal.head("r")

        assert row is not None
        assert row.head == a_head(parent="p", root="q", state="OBSERVE", agent="b")

    async def test_what_a_caller_does_to_its_mappings_later_changes_nothing(self, journal: Journal) -> None:
        """The journal keeps its own copies, and gives copies out."""
        labels = {"team": "red"}
        await journal.append(an_entry("r", await epoch_of(journal), head=a_head(labels=labels)))
        labels["team"] = "blue"
        row = await journal.head("r")
        assert row is not None

        assert row.head.labels == {"team": "red"}
        dict.update(row.head.labels, {"team": "green"})  # a reader that misbehaves
        again = await journal.head("r")
        assert again is not None
        assert again.head.labels == {"team": "red"}

    async def test_an_entry_without_events_changes_the_head_alone(self, journal: Journal) -> None:
        """So that inbox items which nothing can answer may be dropped."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("r", epoch))

        assert await journal.append(an_entry("r", epoch, 1, events=(), head=RESTING)) == 1

        row = await journal.head("r")
        assert row is not None
        assert (row.head.state, row.last_seq) == ("SUSPENDED", 1)

    # Refusing

    async def test_an_append_after_another_number_writes_nothing(self, journal: Journal) -> None:
        """JR-7: of two writers who read the same state, the second is told so."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("r", epoch))

        for wrong in (0, 2, 7):
            with pytest.raises(JournalConflict) as refusal:
                await journal.append(an_entry("r", epoch, wrong, specs={"s": b""}, outgoing=(a_message("x"),)))
            assert (refusal.value.expected, refusal.value.found) == (wrong, 1)

        assert [event.seq for event in await journal.read("r")] == [1]
        assert (await journal.spec("s"), [*await journal.inbox("x")]) == (None, [])

    async def test_two_writers_never_interleave_their_events(self, journal: Journal) -> None:
        """JR-7: a thousand races for one run give one winner each, and numbers without gaps."""
        epoch = await epoch_of(journal)
        for expected in range(1_000):
            entry = an_entry("r", epoch, expected)
            outcomes = await outcomes_of([journal.append(entry), journal.append(entry)])
            assert outcomes == [expected + 1, "JournalConflict"]

        assert [event.seq for event in await journal.read("r", limit=2_000)] == [*range(1, 1_001)]

    async def test_an_append_under_a_lost_ownership_writes_nothing(self, journal: Journal) -> None:
        """A later claim ends the right to append, for a run that is there and for a new one."""
        old = await epoch_of(journal)
        await journal.append(an_entry("r", old))
        new = await epoch_of(journal)

        for entry in (an_entry("r", old, 1), an_entry("s", old), an_entry("r", new + 1, 1)):
            with pytest.raises(OwnershipLost) as refusal:
                await journal.append(entry)
            assert refusal.value.newest == new

        assert await journal.append(an_entry("r", new, 1)) == 2
        assert await journal.head("s") is None

    async def test_an_unclaimed_store_takes_nothing_in(self, journal: Journal) -> None:
        """Neither before the first claim nor after the last was given back."""
        with pytest.raises(OwnershipLost):
            await journal.append(an_entry("r", 0))
        claim = await journal.claim("a", now=START, lease_seconds=30)
        await journal.release(claim)
        with pytest.raises(OwnershipLost):
            await journal.append(an_entry("r", claim.epoch))

        assert [*await journal.list()] == []

    async def test_an_outside_event_that_is_stored_already_is_refused_with_its_digest(self, journal: Journal) -> None:
        """Whatever number it is to have, so that a repeated delivery is known as one."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("r", epoch, events=(an_event(1, "x", outside=True, digest="first"),)))

        for expected in (0, 1):
            again = an_event(expected + 1, "x", outside=True, digest="second")
            with pytest.raises(DuplicateEvent) as refusal:
                await journal.append(an_entry("r", epoch, expected, events=(again,)))
            assert (refusal.value.event_id, refusal.value.stored_digest) == ("x", "first")

        found = await journal.find("r", "x")
        assert found is not None
        assert (found.seq, found.digest) == (1, "first")

    async def test_only_outside_events_are_unique_and_found_by_id(self, journal: Journal) -> None:
        """And only within their run."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("r", epoch, events=(an_event(1, "x"), an_event(2, "x"))))
        await journal.append(an_entry("s", epoch, events=(an_event(1, "x", outside=True),)))

        assert await journal.find("r", "x") is None
        assert await journal.append(an_entry("r", epoch, 2, events=(an_event(3, "x", outside=True),))) == 3

    async def test_one_entry_with_an_outside_event_twice_is_refused(self, journal: Journal) -> None:
        """As a duplicate of itself."""
        twice = (an_event(1, "x", outside=True), an_event(2, "x", outside=True))

        with pytest.raises(DuplicateEvent):
            await journal.append(an_entry("r", await epoch_of(journal), events=twice))

        assert await journal.head("r") is None

    @pytest.mark.parametrize("text", ["", "x" * 201, "a\x00b", "a\ud800"])
    async def test_an_id_that_some_store_could_not_hold_is_refused_at_once(self, journal: Journal, text: str) -> None:
        """ST-9: at the edge and by every store alike, before anything is written."""
        epoch = await epoch_of(journal)
        for entry in (
            an_entry(text, epoch),
            an_entry("r", epoch, events=(an_event(1, "e"), msgspec.structs.replace(an_event(2), id=text))),
            an_entry("r", epoch, outgoing=(a_message(text),)),
            an_entry("r", epoch, head=a_head(parent=text)),
            an_entry("r", epoch, artifacts={text: b""}),
        ):
            with pytest.raises(InvalidValue):
                journal.append(entry)

        assert [*await journal.list()] == []

    @pytest.mark.parametrize("text", ["a\x00b", "a\udfff"])
    async def test_text_that_some_store_could_not_hold_is_refused_at_once(self, journal: Journal, text: str) -> None:
        """ST-9: also in labels, counters, holds, states and paths."""
        epoch = await epoch_of(journal)
        heads = [
            a_head(state=text),
            a_head(agent=text),
            a_head(holds=(text,)),
            a_head(labels={"a": text}),
            a_head(labels={text: "a"}),
            a_head(counters={"a": text}),
        ]
        entries = [an_entry("r", epoch, head=head) for head in heads]
        entries += [an_entry("r", epoch, events=(an_event(1, **{name: text}),)) for name in ("type", "path", "digest")]
        for entry in entries:
            with pytest.raises(InvalidValue):
                journal.append(entry)

    async def test_events_with_wrong_numbers_are_refused_at_once(self, journal: Journal) -> None:
        """And so is a run that begins with nothing."""
        epoch = await epoch_of(journal)
        for events in ((an_event(2),), (an_event(1), an_event(3)), (an_event(1), an_event(1)), ()):
            with pytest.raises(InvalidValue):
                journal.append(an_entry("r", epoch, events=events))

    # Group commit

    async def test_a_refused_entry_leaves_the_others_of_its_batch_alone(self, journal: Journal) -> None:
        """Each kind of refusal, in the middle of entries that wait at the same time."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("old", epoch, events=(an_event(1, "x", outside=True),)))
        futures = [journal.append(an_entry(f"a{number}", epoch)) for number in range(20)]
        futures += [
            journal.append(an_entry("old", epoch)),
            journal.append(an_entry("old", epoch, 1, events=(an_event(2, "x", outside=True),))),
            journal.append(an_entry("lost", epoch - 1)),
            journal.append(an_entry("missing", epoch, 4)),
        ]
        futures += [journal.append(an_entry(f"b{number}", epoch)) for number in range(20)]

        outcomes = await outcomes_of(futures)

        refusals = ["JournalConflict", "DuplicateEvent", "OwnershipLost", "JournalConflict"]
        assert outcomes == [1] * 20 + refusals + [1] * 20
        assert {row.run_id for row in await journal.list()} == {"old"} | {f"{x}{n}" for x in "ab" for n in range(20)}

    async def test_entries_of_one_run_that_wait_at_once_are_written_in_order(self, journal: Journal) -> None:
        """Also when the first of them makes the run, and behind a refused one each is judged anew."""
        epoch = await epoch_of(journal)
        futures = [journal.append(an_entry("r", epoch, expected)) for expected in (0, 1, 2, 2, 3, 5)]

        assert await outcomes_of(futures) == [1, 2, 3, "JournalConflict", 4, "JournalConflict"]

    async def test_an_entry_that_comes_too_early_is_not_helped_by_the_next_one(self, journal: Journal) -> None:
        """JR-7: what is judged is the run as it was when the entry's turn came, for new runs and old ones."""
        epoch = await epoch_of(journal)
        new = [journal.append(an_entry("r", epoch, expected)) for expected in (1, 0)]
        assert await outcomes_of(new) == ["JournalConflict", 1]

        old = [journal.append(an_entry("r", epoch, expected)) for expected in (2, 1)]
        assert await outcomes_of(old) == ["JournalConflict", 2]

    async def test_a_cancelled_append_is_whole_or_not_there(self, journal: Journal) -> None:
        """And the ones beside it are written."""
        epoch = await epoch_of(journal)
        events = (an_event(1), an_event(2))
        cancelled = [journal.append(an_entry(f"c{number}", epoch, events=events)) for number in range(20)]
        beside = journal.append(an_entry("beside", epoch))
        for future in cancelled:
            future.cancel()

        assert await beside == 1
        assert await journal.append(an_entry("behind", epoch)) == 1
        assert {row.last_seq for row in await journal.list() if row.run_id.startswith("c")} <= {2}

    async def test_closing_writes_what_waits(self, journal: Journal) -> None:
        """Twice is as good as once, and afterwards nothing is taken in."""
        epoch = await epoch_of(journal)
        futures = [journal.append(an_entry(f"r{number}", epoch)) for number in range(100)]

        await journal.aclose()
        await journal.aclose()

        assert await outcomes_of(futures) == [1] * 100
        with pytest.raises(StoreClosed):
            journal.append(an_entry("late", epoch))

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(steps=_STEPS)
    async def test_any_sequence_of_appends_gives_what_the_model_says(self, journal: Journal, steps: Any) -> None:
        """Right and wrong numbers, new and repeated ids, one by one and at once."""
        epoch, prefix = await epoch_of(journal), f"p{next(_fresh)}-"
        model = {run: _ModelRun() for run in "abc"}
        expected: list[int | str] = []
        futures: list[asyncio.Future[int]] = []
        for run, wrong, kinds, checkpoint, wait in steps:
            after = max(0, len(model[run].events) + wrong)
            entry = an_entry(
                prefix + run,
                epoch,
                after,
                events=tuple(
                    an_event(seq, f"o{seq}-{name}" if not outside else f"x{name}-{seq % 3}", outside=outside)
                    for seq, (outside, name) in enumerate(kinds, after + 1)
                ),
                checkpoint=b"checkpoint" if checkpoint else None,
            )
            ids = [event.id for event in entry.events if event.outside]
            if len(ids) > len(set(ids)):
                continue
            expected.append(model[run].outcome(entry))
            futures.append(journal.append(entry))
            if wait:
                await asyncio.wait(futures)

        assert await outcomes_of(futures) == expected
        for run, wanted in model.items():
            loaded = await journal.load(prefix + run)
            assert (loaded is None) == (not wanted.events)
            if loaded is not None:
                assert loaded.checkpoint_seq == wanted.checkpoint_seq
                assert loaded.events == tuple(wanted.events[wanted.checkpoint_seq :])
