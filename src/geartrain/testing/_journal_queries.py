"""The half of the journal's conformance suite that asks, claims, marks and deletes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from geartrain.errors import InvalidValue
from geartrain.persistence import (
    REFUSALS_KEPT,
    Journal,
    Mark,
    OwnershipLost,
    RefusedEvent,
    RunNotEnded,
    RunRow,
    StoreBusy,
)
from geartrain.testing._journal_samples import (
    ENDED,
    RESTING,
    START,
    a_head,
    a_message,
    an_entry,
    an_event,
    epoch_of,
)


class QueryConformance:
    """What the other methods promise."""

    # What was refused

    async def test_of_refused_events_the_newest_few_of_each_run_are_kept(self, journal: Journal) -> None:
        """Beside the journal, in the order in which they came, and gone with the run."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("a", epoch, head=ENDED))
        events = [_refused(number) for number in range(REFUSALS_KEPT + 3)]

        await journal.note_refused({"a": events[:4], "nobody": events[:1]})
        await journal.note_refused({"a": events[4:]})

        assert list(await journal.refused("a")) == events[-REFUSALS_KEPT:]
        assert list(await journal.refused("nobody")) == []
        await journal.delete("a")
        assert list(await journal.refused("a")) == []

    async def test_a_refused_event_whose_texts_no_store_could_hold_is_not_taken(self, journal: Journal) -> None:
        """As everywhere at the edge of a store."""
        with pytest.raises(InvalidValue):
            await journal.note_refused({"a": [_refused(1, reason="\x00")]})

    # The inbox

    async def test_an_outgoing_event_waits_for_its_receiver(self, journal: Journal) -> None:
        """In the order of sending, with numbers that only grow, whether the receiver exists or not."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("a", epoch, outgoing=(a_message("b", "m1"), a_message("c", "m2"))))
        await journal.append(an_entry("a", epoch, 1, outgoing=(a_message("b", "m3"),)))

        items = await journal.inbox("b")

        assert [(item.id, item.type, item.version, item.body) for item in items] == [
            ("m1", "SubAgentEnded", 1, b"body of m1"),
            ("m3", "SubAgentEnded", 1, b"body of m3"),
        ]
        assert items[0].number < items[1].number
        assert [*await journal.inbox("b", limit=1)] == [items[0]]
        await journal.append(an_entry("b", epoch))
        loaded = await journal.load("b")
        assert loaded is not None
        assert loaded.inbox == tuple(items)

    async def test_consumed_items_go_with_the_entry_that_answers_them(self, journal: Journal) -> None:
        """Not those of another run, and not if the entry is refused."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("a", epoch, outgoing=(a_message("b", "m1"), a_message("b", "m2"))))
        first, second = await journal.inbox("b")

        await journal.append(an_entry("c", epoch, consumed=(first.number,)))
        refused = journal.append(an_entry("b", epoch, 5, consumed=(first.number,)))
        await journal.append(an_entry("b", epoch, consumed=(second.number, 999)))

        assert refused.exception() is not None
        assert [*await journal.inbox("b")] == [first]

    async def test_sending_the_same_event_again_changes_nothing(self, journal: Journal) -> None:
        """Neither while it waits nor after its receiver has appended it."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("a", epoch, outgoing=(a_message("b"),)))
        await journal.append(an_entry("a", epoch, 1, outgoing=(a_message("b", body=b"other"), a_message("b"))))
        (item,) = await journal.inbox("b")
        assert item.body == b"body of m"

        answer = (an_event(1, item.id, outside=True),)
        await journal.append(an_entry("b", epoch, events=answer, consumed=(item.number,)))
        await journal.append(an_entry("a", epoch, 2, outgoing=(a_message("b"),)))

        assert [*await journal.inbox("b")] == []

    # What is to be moved

    async def test_runnable_names_unmarked_runs_that_are_live_or_have_mail(self, journal: Journal) -> None:
        """Ordered by id, a page at a time; also a receiver that does not exist yet."""
        epoch = await epoch_of(journal)
        for run_id, head in (
            ("live", a_head()),
            ("rest", RESTING),
            ("mail", RESTING),
            ("over", ENDED),
            ("set", a_head()),
        ):
            await journal.append(an_entry(run_id, epoch, head=head))
        sent = (a_message("mail"), a_message("new"), a_message("apart"))
        await journal.append(an_entry("over", epoch, 1, head=ENDED, outgoing=sent))
        for run_id in ("set", "apart"):
            await journal.mark(run_id, "broken", now=START)

        assert [*await journal.runnable()] == ["live", "mail", "new"]
        assert [*await journal.runnable(after="live", limit=1)] == ["mail"]
        await journal.mark("apart", None, now=START)
        assert [*await journal.runnable(after="a", limit=1)] == ["apart"]

    async def test_due_names_runs_whose_time_has_come_earliest_first(self, journal: Journal) -> None:
        """Suspended ones too, ended and marked ones not."""
        epoch = await epoch_of(journal)
        wakes = {"b": 5.0, "a": 5.0, "soon": 1.0, "later": 9.0, "set": 1.0}
        for run_id, seconds in wakes.items():
            head = a_head(live=False, wake_at=START + seconds)
            await journal.append(an_entry(run_id, epoch, head=head))
        await journal.append(an_entry("over", epoch, head=a_head(live=False, ended=True, wake_at=START)))
        await journal.append(an_entry("never", epoch))
        await journal.mark("set", "broken", now=START)

        assert [*await journal.due(START + 5)] == ["soon", "a", "b"]
        assert [*await journal.due(START + 5, limit=2)] == ["soon", "a"]
        assert [*await journal.due(START)] == []
        assert await journal.next_wake() == START + 1
        assert await journal.next_wake(START + 1) == START + 5
        assert await journal.next_wake(START + 9) is None

    async def test_a_run_that_moves_on_is_woken_at_its_new_time(self, journal: Journal) -> None:
        """The old one is forgotten."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("r", epoch, head=a_head(wake_at=START + 1)))
        await journal.append(an_entry("r", epoch, 1, head=a_head(wake_at=START + 2, live=False)))
        assert (await journal.next_wake(), [*await journal.runnable()]) == (START + 2, [])

        await journal.append(an_entry("r", epoch, 2, head=ENDED))

        assert (await journal.next_wake(), [*await journal.due(START + 9)]) == (None, [])

    # Listing

    async def test_a_listing_is_newest_first_and_its_pages_join(self, journal: Journal) -> None:
        """By creation, then by id; each page begins behind the last row of the one before."""
        epoch = await epoch_of(journal)
        created = {"a": 2.0, "b": 3.0, "c": 2.0, "d": 1.0, "e": 2.0}
        for run_id, seconds in created.items():
            await journal.append(an_entry(run_id, epoch, head=a_head(created_at=START + seconds)))

        found: list[str] = []
        cursor = None
        while rows := await journal.list(after=cursor, limit=2):
            found += [row.run_id for row in rows]
            cursor = (rows[-1].head.created_at, rows[-1].run_id)

        assert found == ["b", "a", "c", "e", "d"]

    async def test_a_listing_shows_what_every_filter_lets_through(self, journal: Journal) -> None:
        """One filter at a time, and several at once."""
        epoch = await epoch_of(journal)
        held = a_head(state="SUSPENDED", live=False, holds=("approval(t1.c1)", "paused"), parent="p", root="q")
        await journal.append(an_entry("held", epoch, head=held))
        await journal.append(an_entry("live", epoch, head=a_head(agent="writer", parent="p")))
        await journal.append(an_entry("over", epoch, head=ENDED))
        await journal.mark("over", "broken", now=START)

        assert await _ids(journal, states=["SUSPENDED", "FINISHED"]) == ["held", "over"]
        assert await _ids(journal, agent="writer") == ["live"]
        assert await _ids(journal, parent="p") == ["held", "live"]
        assert await _ids(journal, root="q") == ["held"]
        assert await _ids(journal, live=False) == ["held", "over"]
        assert await _ids(journal, live=True) == ["live"]
        assert await _ids(journal, held=["approval"]) == ["held"]
        assert await _ids(journal, held=["paused"], limit=1) == ["held"]
        assert await _ids(journal, held=["reply", "paused", "answer"]) == ["held"]
        assert await _ids(journal, held=["approval(t1.c1)", "appro"]) == []
        assert await _ids(journal, marked=True) == ["over"]
        assert await _ids(journal, marked=False, parent="p", states=["SUSPENDED"]) == ["held"]

    async def test_statistics_count_runs_by_state(self, journal: Journal) -> None:
        """And appends, as they are now."""
        epoch = await epoch_of(journal)
        for run_id, head in (("a", a_head()), ("b", RESTING), ("c", RESTING)):
            await journal.append(an_entry(run_id, epoch, head=head))

        found = await journal.statistics()

        assert (found.runs, dict(found.runs_by_state)) == (3, {"MODEL_THINKING": 1, "SUSPENDED": 2})
        assert (found.appends, found.waiting, found.failed) == (3, 0, False)
        assert found.kind
        assert found.durability
        assert found.bytes > 0

    async def test_statistics_add_up_the_counters_that_are_asked_for(self, journal: Journal) -> None:
        """Of all runs, also where some have none; and say when one was moved last, and how many are set apart."""
        assert (await journal.statistics(sums=["turns"])).sums == {"turns": 0}
        assert (await journal.statistics()).updated_at is None
        epoch = await epoch_of(journal)
        for number, counters in enumerate(
            ({"turns": 2, "seconds": 0.5, "error": "late"}, {"turns": 3, "error": "late"}, {"error": "lost"}, {})
        ):
            head = a_head(counters=counters, updated_at=START + number)
            await journal.append(an_entry(f"r{number}", epoch, head=head))
        await journal.mark("r1", "odd", now=START)

        found = await journal.statistics(sums=["turns", "seconds", "none"], tallies=["error", "turns"])
        plain = await journal.statistics()

        assert dict(found.sums) == {"turns": 5, "seconds": 0.5, "none": 0}
        assert {name: dict(tally) for name, tally in found.tallies.items()} == {
            "error": {"late": 2, "lost": 1},
            "turns": {},
        }
        assert (found.updated_at, found.marked) == (START + 3, 1)
        assert (dict(plain.sums), dict(plain.tallies)) == ({}, {})

    # Claims

    async def test_a_claim_is_refused_while_another_owners_is_in_force(self, journal: Journal) -> None:
        """It may be taken when it has expired or was given back; each claim has a higher epoch."""
        first = await journal.claim("a", now=START, lease_seconds=10)
        with pytest.raises(StoreBusy):
            await journal.claim("b", now=START + 9, lease_seconds=10)

        second = await journal.claim("b", now=START + 10, lease_seconds=10)
        third = await journal.claim("b", now=START + 11, lease_seconds=10)
        await journal.release(third)
        fourth = await journal.claim("c", now=START + 12, lease_seconds=10)

        assert first.epoch < second.epoch < third.epoch < fourth.epoch
        assert (second.owner, second.expires_at) == ("b", START + 20)

    async def test_a_claim_knows_the_earlier_ones_that_were_never_given_back(self, journal: Journal) -> None:
        """For ever, whatever orderly claims come in between; renewing one does not forget them."""
        first = await journal.claim("a", now=START, lease_seconds=10)
        second = await journal.claim("b", now=START + 10, lease_seconds=10)
        await journal.release(second)
        third = await journal.claim("c", now=START + 11, lease_seconds=10)
        await journal.release(third)

        fourth = await journal.claim("d", now=START + 12, lease_seconds=10)
        renewed = await journal.renew(fourth, now=START + 13, lease_seconds=10)

        assert first.lost == frozenset()
        assert second.lost == third.lost == fourth.lost == renewed.lost == {first.epoch}

    async def test_a_renewed_claim_lasts_longer(self, journal: Journal) -> None:
        """Under the same epoch; a lost one cannot be renewed, and giving it back takes nothing from the new owner."""
        first = await journal.claim("a", now=START, lease_seconds=10)
        renewed = await journal.renew(first, now=START + 9, lease_seconds=10)
        assert (renewed.epoch, renewed.expires_at) == (first.epoch, START + 19)
        with pytest.raises(StoreBusy):
            await journal.claim("b", now=START + 18, lease_seconds=10)
        second = await journal.claim("b", now=START + 19, lease_seconds=10)

        with pytest.raises(OwnershipLost):
            await journal.renew(first, now=START + 20, lease_seconds=10)
        await journal.release(first)

        assert await journal.append(an_entry("r", second.epoch)) == 1

    @pytest.mark.parametrize("lease_seconds", [0, -1, float("nan")])
    async def test_a_lease_must_last(self, journal: Journal, lease_seconds: float) -> None:
        """A claim that is over when it begins is a mistake."""
        with pytest.raises(InvalidValue):
            await journal.claim("a", now=START, lease_seconds=lease_seconds)

    # Marks

    async def test_a_mark_sets_a_run_apart_and_leaves_its_journal_as_it_is(self, journal: Journal) -> None:
        """The newest reason stays until it is taken back; a run may be marked before it exists."""
        epoch = await epoch_of(journal)
        await journal.mark("r", "odd", now=START)
        await journal.append(an_entry("r", epoch))
        assert await _ids(journal, marked=True) == ["r"]
        await journal.mark("r", "broken", now=START + 1)

        loaded, row = await journal.load("r"), await journal.head("r")

        assert loaded is not None
        assert row is not None
        assert loaded.mark == row.mark == Mark(reason="broken", time=START + 1)
        assert (loaded.head, loaded.events) == (a_head(), (an_event(1),))
        assert await journal.append(an_entry("r", epoch, 1)) == 2
        assert await _ids(journal, marked=True) == ["r"]
        await journal.mark("r", None, now=START + 2)
        assert await _ids(journal, marked=False) == ["r"]

    # Deleting

    async def test_only_an_ended_run_can_be_deleted(self, journal: Journal) -> None:
        """With all that is its own: then an id of that name may begin anew."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("other", epoch, outgoing=(a_message("r"),)))
        await journal.append(an_entry("r", epoch, events=(an_event(1, "x", outside=True),), checkpoint=b"c"))
        with pytest.raises(RunNotEnded):
            await journal.delete("r")
        await journal.append(an_entry("r", epoch, 1, head=ENDED))
        await journal.mark("r", "odd", now=START)

        assert await journal.delete("r") is True

        assert (await journal.load("r"), [*await journal.inbox("r")]) == (None, [])
        assert await journal.append(an_entry("r", epoch, events=(an_event(1, "x", outside=True),))) == 1
        loaded = await journal.load("r")
        assert loaded is not None
        assert (loaded.checkpoint, loaded.mark) == (None, None)
        assert await _ids(journal, marked=None) == ["other", "r"]

    async def test_shared_artifacts_and_specs_stay_until_their_last_run_goes(self, journal: Journal) -> None:
        """And are stored once, as they were first written."""
        epoch = await epoch_of(journal)
        await journal.append(an_entry("a", epoch, head=ENDED, specs={"s": b"spec"}, artifacts={"d": b"data"}))
        await journal.append(an_entry("b", epoch, head=ENDED, specs={"s": b"?"}, artifacts={"d": b"?", "own": b"own"}))
        await journal.delete("a")
        assert (await journal.spec("s"), await journal.artifact("d")) == (b"spec", b"data")
        assert await journal.artifact("own") == b"own"

        await journal.delete("b")

        assert (await journal.spec("s"), await journal.artifact("d"), await journal.artifact("own")) == (
            None,
            None,
            None,
        )

    async def test_pruning_deletes_old_ended_runs_oldest_first(self, journal: Journal) -> None:
        """Up to its limit, and what only they referred to."""
        epoch = await epoch_of(journal)
        for number in range(5):
            head = a_head(live=False, ended=True, updated_at=START + number)
            await journal.append(an_entry(f"r{number}", epoch, head=head, artifacts={f"d{number}": b"x"}))
        await journal.append(an_entry("old but not over", epoch, head=RESTING))

        assert (await journal.ended(before=START), await journal.ended(before=START + 4)) == (0, 4)
        assert await journal.prune(before=START + 4, limit=3) == 3
        assert await _ids(journal) == ["old but not over", "r3", "r4"]
        assert await journal.artifact("d2") is None
        assert await journal.artifact("d3") == b"x"
        assert await journal.prune(before=START + 4) == 1
        assert await journal.prune(before=START + 4) == 0

    async def test_pruning_leaves_all_runs_below_which_one_has_not_ended(self, journal: Journal) -> None:
        """Begun anew under its id, a root would meet that run; without those between, nobody would find it."""
        epoch = await epoch_of(journal)
        over = a_head(live=False, ended=True, updated_at=START)
        await journal.append(an_entry("root", epoch, head=over))
        for run_id, parent in (("ended", "root"), ("middle", "root"), ("ended too", "middle")):
            await journal.append(an_entry(run_id, epoch, head=replace(over, parent=parent, root="root")))
        await journal.append(an_entry("going on", epoch, head=replace(RESTING, parent="middle", root="root")))

        assert await journal.ended(before=START + 1) == 2
        assert await journal.prune(before=START + 1) == 2
        assert await _ids(journal) == ["going on", "middle", "root"]

        await journal.append(an_entry("going on", epoch, expected=1, head=replace(over, parent="middle", root="root")))
        assert await journal.prune(before=START + 1) == 3


async def _ids(journal: Journal, **filters: object) -> list[str]:
    rows: list[RunRow] = [*await journal.list(**filters)]  # type: ignore[arg-type]  # each test gives what is allowed
    return [row.run_id for row in rows]


def _refused(number: int, reason: str = "it is not paused") -> RefusedEvent:
    return RefusedEvent(id=f"e{number}", type="RunResumed", state="MODEL_THINKING", reason=reason, time=float(number))
