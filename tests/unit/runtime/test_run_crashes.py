"""Actors of runs that crash: read back, restarted after a back-off, set apart past the limit; nobody else notices."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from typing import Any

import msgspec
import pytest
from runtime_world import Gated, Ledger, Store, an_agent, calling, journal_of, names_of, quick, results_of, settle

from geartrain.errors import InternalError, InvalidValue, RunSetApart
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import ActorRestarted, Budget, Run, RunQuarantined
from geartrain.models import Delay
from geartrain.persistence import InboxItem, StoreFailed
from geartrain.runtime import LiveExecutor
from geartrain.runtime._effects._executor import CallOutcome
from geartrain.runtime._run_supervisor import ASIDE_CHARACTERS, BACKOFF, wait_before_restart


class Picky(Gated):
    """A store that refuses entries with an event of one kind as impossible to store, so many times."""

    def __init__(self, journal: Any, kind: str = "", times: int = 0) -> None:
        super().__init__(journal)
        self.kind = kind
        self.times = times
        self.refused = 0

    def append(self, entry: Any) -> Any:
        if self.refused < self.times and any(event.type == self.kind for event in entry.events):
            self.refused += 1
            raise InvalidValue("entry", "of values that can be stored", self.kind)
        return super().append(entry)


# -- the rule


@pytest.mark.parametrize(
    ("before", "restarts", "allowed"),
    [
        ((), 0, True),
        ((100.0, 101.0), 2, True),
        ((100.0, 101.0, 102.0), 3, False),
        ((30.0, 40.0, 102.0), 3, True),
        ((), 19, True),
        ((), 20, False),
    ],
)
def test_three_restarts_in_a_minute_and_twenty_in_all_are_allowed(
    before: tuple[float, ...], restarts: int, allowed: bool
) -> None:
    run = Run(id="r", restarted_at=before, restarts=restarts)

    assert (wait_before_restart(run, quick(), 103.0, 0.0) is not None) is allowed


def test_each_restart_waits_longer_than_the_one_before() -> None:
    waits = [
        wait_before_restart(Run(id="r", restarted_at=tuple([99.0] * n), restarts=n), quick(), 100.0, 0.0)
        for n in range(3)
    ]

    assert waits == [BACKOFF.wait_seconds(n, 0.0) for n in (1, 2, 3)] == sorted(waits)  # type: ignore[type-var]


@pytest.mark.parametrize("restarts", [65, math.inf, 2.5])
def test_a_limit_of_restarts_that_could_not_be_kept_is_refused(restarts: Any) -> None:
    """A run remembers so many of them: a higher limit would never be reached."""
    with pytest.raises(InvalidValue, match="restarts_per_window"):
        Limits(restarts_per_window=restarts)

    assert Limits(restarts_per_window=64).restarts_per_window == 64


# -- restarts


@pytest.mark.parametrize("kind", ["ModelReplied", "ToolStarted", "ToolFinished", "PermissionsEvaluated"])
@pytest.mark.parametrize("times", [1, 3])
async def test_an_actor_that_crashes_is_restarted_and_nothing_is_done_twice(
    memory: Store, ledger: Ledger, kind: str, times: int
) -> None:
    agent = an_agent([[calling("write"), calling("read")], "done"], ledger.write(2.0), ledger.read(0.5))
    gated = Picky(memory.journal, kind, times)
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")

        assert (await run.wait_ended()).answer == "done"

        restarts = [entry.event for entry in await journal_of(run, runtime) if isinstance(entry.event, ActorRestarted)]
        assert [event.restarts for event in restarts] == list(range(1, times + 1))
        assert all(event.aside for event in restarts)
        assert set(ledger.done.values()) == {1}
        assert sum(ledger.begun.values()) == 1
        assert (await runtime.replay(run.id)).difference is None


async def test_effects_live_on_while_their_runs_actor_is_restarted(memory: Store, ledger: Ledger) -> None:
    """A write that is at work is neither lost nor begun once more; what it brings meanwhile is taken afterwards."""
    agent = an_agent([[calling("write")], "done", "done"], ledger.write(0.15))
    gated = Picky(memory.journal, "InputReceived", 3)
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
        await asyncio.gather(run.send("hear this"))

        assert (await run.wait_ended()).answer == "done"

        names = await names_of(run, runtime)
        assert names.count("ActorRestarted") == 3
        assert names.count("ToolStarted") == 1
        assert "WriteInDoubt" not in names
        assert list(ledger.begun.values()) == [1]


async def test_whoever_sent_what_crashed_the_actor_waits_and_then_gets_the_error(memory: Store) -> None:
    gated = Picky(memory.journal, "InputReceived", 99)
    async with memory.runtime(an_agent([Delay(30, "done")]), target=gated) as runtime:
        run = await runtime.start("worker", "go")
        sent = asyncio.ensure_future(run.send("poison"))
        await asyncio.sleep(0.05)
        assert not sent.done()

        with pytest.raises(InternalError, match="InputReceived could not be handled"):
            await sent

        rest = await run.wait_at_rest()
        assert rest.holds == ("quarantined",)


async def test_past_the_limit_the_run_is_set_apart_with_its_crash_and_the_event_set_aside(memory: Store) -> None:
    gated = Picky(memory.journal, "InputReceived", 99)
    async with memory.runtime(an_agent([Delay(30, "done"), "done"]), target=gated) as runtime:
        run = await runtime.start("worker", "go")
        with pytest.raises(InternalError):
            await run.send("poison " * 2_000, event_id="mine")

        (event,) = [e.event for e in await journal_of(run, runtime) if isinstance(e.event, RunQuarantined)]
        assert (event.aside, event.aside_id, event.restarts) == ("InputReceived", "mine", 3)
        assert "entry must be" in event.reason
        assert "InvalidValue" in event.traceback
        assert '"poison poison' in event.aside_body
        assert len(event.aside_body) == ASIDE_CHARACTERS


async def test_a_person_who_resumes_lets_the_count_begin_anew(memory: Store) -> None:
    gated = Picky(memory.journal, "InputReceived", 6)
    async with memory.runtime(an_agent(["early", "done"]), target=gated) as runtime:
        run = await runtime.start("worker", "go", run_id="r")
        await run.wait_ended()
    gated = Picky(memory.journal.opened(), "InputReceived", 6)
    async with memory.runtime(an_agent([Delay(30, "done"), "done"]), target=gated) as runtime:
        run = await runtime.start("worker", "go")
        with pytest.raises(InternalError):
            await run.send("poison")
        await run.resume(by="ops")

        await run.send("poison")

        assert (await run.wait_ended()).answer == "done"
        assert [e.event.restarts for e in await journal_of(run, runtime) if isinstance(e.event, ActorRestarted)] == [
            1,
            2,
            3,
            1,
            2,
        ]


async def test_a_run_that_was_set_apart_can_be_cancelled(memory: Store) -> None:
    gated = Picky(memory.journal, "InputReceived", 99)
    async with memory.runtime(an_agent([Delay(30, "done")]), target=gated) as runtime:
        run = await runtime.start("worker", "go")
        with pytest.raises(InternalError):
            await run.send("poison")
        await run.cancel("enough", by="ops")

        assert (await run.wait_ended()).state == "CANCELLED"


async def test_five_reads_at_work_when_their_run_is_set_apart_leave_nothing_behind(
    memory: Store, ledger: Ledger
) -> None:
    """PT-2: no task of theirs goes on, and each has one result once the run is ended."""
    gated = Picky(memory.journal, "InputReceived", 99)
    agent = an_agent([[calling("read")] * 5, "done"], ledger.read(20.0))
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
        assert ledger.at_once == 5
        with pytest.raises(InternalError):
            await run.send("poison")
        assert (await run.wait_at_rest()).holds == ("quarantined",)
        await asyncio.sleep(0.01)
        assert ledger.at_once == 0
        assert (await runtime.statistics()).effect_tasks == 0
        await run.cancel()
        ended = await run.wait_ended()

        assert ended.state == "CANCELLED"
        results = await results_of(run, runtime)
        assert [str(status) for status, _ in results] == ["not_started"] * 5


async def test_a_run_that_cannot_be_loaded_once_is_loaded_later(memory: Store, ledger: Ledger) -> None:
    """A fault in the store's code, as against damage: it is tried again, after a back-off, and others go on."""
    agent = an_agent([[calling("read")], "done"], ledger.read(5.0))
    async with memory.runtime(agent) as runtime:
        runs = [await runtime.start("worker", "go", run_id=f"r-{n}") for n in range(3)]
        await asyncio.sleep(1)

    class Faulty(Gated):
        left = 2

        async def load(self, run_id: str) -> Any:
            if run_id == "r-1" and self.left:
                self.left -= 1
                raise ZeroDivisionError("a bug in a driver")
            return await self.journal.load(run_id)

    async with memory.runtime(agent, target=Faulty(memory.journal.opened())) as runtime:
        await runtime.wait_at_rest()
        for run in runs:
            assert (await runtime.snapshot(run.id)).answer == "done"


async def test_a_run_that_is_to_be_loaded_once_more_waits_for_a_store_that_cannot_be_read(
    memory: Store, ledger: Ledger
) -> None:
    """Nothing else would come back to it: it wants to be woken at no time."""
    agent = an_agent([[calling("read")], "done"], ledger.read(5.0), stuck=None, budget=Budget(max_seconds=UNLIMITED))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)

    class Faulty(Gated):
        errors = [ZeroDivisionError("a bug in a driver"), *[StoreFailed("runs.db", "load", "no disk")] * 5]

        async def load(self, run_id: str) -> Any:
            if self.errors:
                raise self.errors.pop(0)
            return await self.journal.load(run_id)

    async with memory.runtime(agent, target=Faulty(memory.journal.opened())) as runtime:
        await runtime.wait_at_rest()
        assert (await runtime.snapshot(run.id)).answer == "done"


async def test_what_a_newer_version_has_sent_to_a_run_keeps_it_from_moving_here(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(5.0))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
    item = InboxItem(number=1, run_id=run.id, id="i", type="InputReceived", version=99, body=b"{}")
    memory.journal._inbox[run.id] = {"i": item}
    before = await memory.rows(run.id)

    async with memory.runtime(agent) as runtime:
        await runtime.wait_at_rest()
        with pytest.raises(RunSetApart, match="99"):
            await (await runtime.get(run.id)).wait_ended()

    assert await memory.rows(run.id) == before


async def test_a_run_that_can_never_be_loaded_is_given_up_here(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(5.0))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)

    class Broken(Gated):
        async def load(self, run_id: str) -> Any:
            raise ZeroDivisionError("a bug in a driver")

    async with memory.runtime(agent, target=Broken(memory.journal.opened())) as runtime:
        await runtime.wait_at_rest()
        with pytest.raises(RunSetApart, match="a bug in a driver"):
            await (await runtime.get(run.id)).wait_ended()


async def test_the_count_of_restarts_survives_the_process(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(1.0))
    async with memory.runtime(agent, target=Picky(memory.journal, "ToolFinished", 2)) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1.25)
        killed = Store()
        killed.journal = memory.journal.as_killed()
    gated = Picky(killed.journal, "ToolFinished", 99)
    async with killed.runtime(agent, target=gated) as runtime:
        rest = await (await runtime.get(run.id)).wait_at_rest()

        assert rest.holds == ("quarantined",)
        assert gated.refused < 4


async def test_what_others_send_to_a_crashing_run_is_handled_afterwards_once(memory: Store) -> None:
    gated = Picky(memory.journal, "PauseRequested", 2)
    async with memory.runtime(an_agent([Delay(30, "early"), "done"]), target=gated) as runtime:
        run = await runtime.start("worker", "go")
        acts = [run.send("a"), run.pause(), run.send("b"), run.send("c")]
        got = await asyncio.gather(*acts)
        await run.resume()

        assert len(set(got)) == 4
        names = await names_of(run, runtime)
        assert (names.count("InputReceived"), names.count("PauseRequested")) == (3, 1)
        assert (await run.wait_ended()).answer == "done"


@pytest.mark.parametrize("seed", range(12))
async def test_a_run_whose_actor_crashes_anywhere_comes_to_the_same_end(
    memory: Store, ledger: Ledger, seed: int
) -> None:
    """JR-9: as a clean run but for its restarts; what came meanwhile is handled once."""
    rng = random.Random(seed)
    crashes = {rng.randrange(2, 14) for _ in range(4)}
    calls = [[calling("read"), calling("write")], [calling("write")], [calling("read")]]
    agent = an_agent([*calls, *["done"] * 6], ledger.write(0.3), ledger.read(0.2))
    counter = itertools.count(1)

    class Crashing(Gated):
        def append(self, entry: Any) -> Any:
            restart = any(event.type == "ActorRestarted" for event in entry.events)
            if not restart and next(counter) in crashes:
                raise InvalidValue("entry", "storable", seed)
            return super().append(entry)

    limits = quick(restarts_per_window=60, restarts_per_run=60)
    async with memory.runtime(agent, target=Crashing(memory.journal), limits=limits) as runtime:
        run = await runtime.start("worker", "go")
        words = [asyncio.ensure_future(run.send(f"word {n}")) for n in range(5)]
        await asyncio.gather(*words, return_exceptions=True)

        assert (await run.wait_ended()).answer == "done"

        names = await names_of(run, runtime)
        assert names.count("InputReceived") == 5
        assert set(ledger.done.values()) == {1}
        assert len(ledger.done) == 4
        assert (await runtime.replay(run.id)).difference is None
        restarts = names.count("ActorRestarted")
        assert restarts >= 1


async def test_other_runs_go_on_while_one_crashes(memory: Store, ledger: Ledger) -> None:
    class Odd(LiveExecutor):
        async def run_tool(self, tool: Any, command: Any, context: Any, *more: Any, **hooks: Any) -> Any:
            outcome = await super().run_tool(tool, command, context, *more, **hooks)
            return CallOutcome(outcome.status, outcome.text, tries=object()) if context.run_id == "bad" else outcome  # type: ignore[arg-type]

    agent = an_agent([[calling("read")], "done"], ledger.read(0.5))
    async with memory.runtime(agent, executor=Odd) as runtime:
        runs = [await runtime.start("worker", "go") for _ in range(5)]
        bad = await runtime.start("worker", "go", run_id="bad")
        began = asyncio.get_running_loop().time()

        assert {(await run.wait_ended()).answer for run in runs} == {"done"}

        assert asyncio.get_running_loop().time() - began == pytest.approx(0.5)
        assert (await bad.wait_at_rest()).holds == ("quarantined",)
        events = [entry.event for entry in await journal_of(bad, runtime)]
        quarantine = next(event for event in events if isinstance(event, RunQuarantined))
        assert quarantine.aside == "ToolFinished"
        assert "object" in quarantine.aside_body
        for run in runs:
            assert "ActorRestarted" not in await names_of(run, runtime)


async def test_a_run_that_cannot_even_be_set_apart_in_its_journal_is_given_up_here(memory: Store) -> None:
    class Hopeless(Gated):
        def append(self, entry: Any) -> Any:
            if entry.expected:
                raise InvalidValue("entry", "storable", entry.run_id)
            return super().append(entry)

    async with memory.runtime(an_agent([Delay(1, "done")]), target=Hopeless(memory.journal)) as runtime:
        run = await runtime.start("worker", "go")

        with pytest.raises(RunSetApart, match="storable"):
            await run.wait_ended()


async def test_closing_while_an_actor_waits_to_be_restarted_tells_its_senders(memory: Store) -> None:
    gated = Picky(memory.journal, "InputReceived", 99)
    async with memory.runtime(an_agent([Delay(30, "done")]), target=gated, limits=quick(grace_seconds=0.01)) as runtime:
        run = await runtime.start("worker", "go")
        sent = asyncio.ensure_future(run.send("poison"))
        await asyncio.sleep(0.05)
    with pytest.raises(Exception, match=r"closed|could not be handled"):
        await sent


class Unlucky(Gated):
    """A store that meets a fault of ours at the first append of an input, and cannot write at the second."""

    def __init__(self, journal: Any) -> None:
        super().__init__(journal)
        self.errors: list[Exception] = [
            InvalidValue("entry", "of values that can be stored", 0),
            StoreFailed("runs.db", "append", "disk full"),
        ]

    def append(self, entry: Any) -> Any:
        if self.errors and any(event.type == "InputReceived" for event in entry.events):
            raise self.errors.pop(0)
        return super().append(entry)


async def test_what_the_store_could_not_write_while_an_actor_restarted_is_stored_when_it_is_sent_again(
    memory: Store,
) -> None:
    async with memory.runtime(an_agent([Delay(30, "done"), "done"]), target=Unlucky(memory.journal)) as runtime:
        run = await runtime.start("worker", "go")
        with pytest.raises(StoreFailed):
            await run.send("hear this", event_id="mine")
        assert "InputReceived" not in await names_of(run, runtime)

        await run.send("hear this", event_id="mine")

        assert (await names_of(run, runtime)).count("InputReceived") == 1


async def test_what_fails_after_a_step_was_stored_keeps_nobody_waiting(memory: Store, ledger: Ledger) -> None:
    """A hook that is called on the way of an actor: the step counts, its run goes on and the crash is counted."""
    agent = an_agent([[calling("read")], "done"], ledger.read(0.5))
    async with memory.runtime(agent) as runtime:
        node = runtime._host.node
        note, left = node.on_wake_at, [2]

        def faulty(time: float | None, run_id: str) -> None:
            if left[0]:
                left[0] -= 1
                raise KeyError("a hook")
            note(time, run_id)

        node.on_wake_at = faulty
        run = await runtime.start("worker", "go")

        assert (await run.wait_ended()).answer == "done"
        assert (await names_of(run, runtime)).count("ActorRestarted") == 2


def test_an_event_set_aside_is_stored_as_text_whatever_it_holds() -> None:
    from geartrain.machine import ResultStatus, ToolFinished  # noqa: PLC0415
    from geartrain.runtime._run_supervisor import quarantined, report_of  # noqa: PLC0415

    odd = ToolFinished(
        id="e",
        time=1.0,
        call_id="t1.c1",
        attempt=1,
        status=ResultStatus.OK,
        text="\ud800",
        tries=object(),  # type: ignore[arg-type]
    )
    event = quarantined(Run(id="r", seq=3), report_of(Run(id="r"), KeyError("\ud800")), odd, 9.0)

    assert msgspec.json.decode(msgspec.json.encode(event), type=RunQuarantined) == event
