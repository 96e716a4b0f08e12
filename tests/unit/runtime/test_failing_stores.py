"""Disk full, I/O errors, unknown commits: effects stop, nothing acknowledged is missing, all goes on afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
import structlog
from runtime_world import Gated, LastingJournal, Ledger, Store, an_agent, calling, names_of, settle

from geartrain.errors import RunSetApart, RuntimeClosed
from geartrain.limits import Limits
from geartrain.models import Delay
from geartrain.persistence import CommitUnknown, StoreFailed
from geartrain.runtime import Ask

FULL = StoreFailed("runs.db", "append", "disk full")


@pytest.fixture
def gated(memory: Store) -> Gated:
    return Gated(memory.journal)


@pytest.mark.parametrize("how", ["later", "at once"])
async def test_a_full_disk_stops_effects_and_nothing_is_lost_when_there_is_room_again(
    memory: Store, ledger: Ledger, gated: Gated, how: str
) -> None:
    agent = an_agent([[calling("write")], Delay(1, [calling("write")]), "done"], ledger.write(2.0))
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        _fail(gated, how, FULL)
        await asyncio.sleep(100)
        assert (await runtime.statistics()).store_failing
        assert sum(ledger.begun.values()) == 1
        for act in (run.pause, lambda: run.send("x"), lambda: runtime.start("worker", "go")):
            with pytest.raises(StoreFailed):
                await act()
        _fail(gated, how, None)
        assert (await run.wait_ended()).answer == "done"
        assert not (await runtime.statistics()).store_failing
        assert set(ledger.done.values()) == {1}
        assert len(ledger.done) == 2
        assert "InputReceived" not in await names_of(run, runtime)
        assert (await runtime.replay(run.id)).difference is None


def _fail(gated: Gated, how: str, error: Exception | None) -> None:
    if how == "later":
        gated.error = error
    else:
        gated.at_once = error


async def test_a_write_waits_for_its_start_to_be_stored_and_its_time_begins_then(
    memory: Store, ledger: Ledger, gated: Gated
) -> None:
    """However long the disk is full, what never began is not in doubt."""
    agent = an_agent([Delay(1, [calling("write")]), "done"], ledger.write(2.0, timeout_seconds=5))
    async with memory.runtime(agent, target=gated, policy=lambda *_: Ask()) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        append, starts = gated.journal.append, 0

        def failing(entry: Any) -> Any:
            nonlocal starts
            if any(event.type == "ToolStarted" for event in entry.events) and starts < 6:
                starts += 1
                future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
                future.set_exception(FULL)
                return future
            return append(entry)

        gated.append = failing  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        await run.approve("t1.c1", by="me")
        assert (await run.wait_ended()).answer == "done"
        assert asyncio.get_running_loop().time() - began > 6
        assert list(ledger.begun.values()) == [1]


async def test_a_failing_store_ends_no_run_at_closing(memory: Store, ledger: Ledger, gated: Gated) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(1.0))
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")
        wait = asyncio.ensure_future(run.wait_ended())
        await settle()
        gated.error = FULL
        await asyncio.sleep(2)
        sending = asyncio.ensure_future(run.send("x"))
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 12
    with pytest.raises((RuntimeClosed, StoreFailed)):
        await sending
    with pytest.raises(RuntimeClosed):
        await wait
    async with memory.runtime(agent) as runtime:
        assert (await (await runtime.get(run.id)).wait_ended()).answer == "done"


@pytest.mark.parametrize("written", [False, True])
async def test_a_commit_with_an_unknown_outcome_is_read_back_before_anything_else(
    memory: Store, ledger: Ledger, gated: Gated, written: bool
) -> None:
    agent = an_agent([[calling("read")], Delay(3, [calling("write")]), "done"], ledger.read(2.0), ledger.write())
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        append = gated.journal.append

        def unknown(entry: Any) -> Any:
            gated.__dict__.pop("append")
            if written:
                append(entry)
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.5, future.set_exception, CommitUnknown("runs.db", "append", "I/O"))
            return future

        gated.append = unknown  # type: ignore[method-assign]
        assert (await run.wait_ended()).answer == "done"
        assert ledger.done[f"{run.id}/t2.c1"] == 1
        assert (await runtime.replay(run.id)).difference is None


async def test_a_store_that_cannot_be_read_at_open_is_waited_for(memory: Store) -> None:
    agent = an_agent([Delay(5, "done")])
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")

    class Unreadable(Gated):
        failing = 5

        async def runnable(self, **options: Any) -> Any:
            self.failing -= 1
            if self.failing > 0:
                raise StoreFailed("runs.db", "read", "I/O error")
            return await self.journal.runnable(**options)

        async def due(self, now: float, **options: Any) -> Any:
            if self.failing > 0:
                raise RuntimeError("a fault that nobody has thought of")
            return await self.journal.due(now, **options)

    async with memory.runtime(agent, target=Unreadable(memory.journal.opened())) as runtime:
        await asyncio.sleep(60)
        assert (await runtime.snapshot(run.id)).answer == "done"


async def test_a_step_that_cannot_be_made_sets_its_event_aside_and_the_run_apart(
    memory: Store, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of our own: told to whoever sent the event; others are handled; a person resumes the run."""
    from geartrain.runtime import _actor, _delivery  # noqa: PLC0415

    step = _actor.step

    def faulty(run: Any, event: Any, specs: Any) -> Any:
        if getattr(event, "text", "") == "poison":
            raise KeyError("\ud800")
        return step(run, event, specs)

    for module in (_actor, _delivery):
        monkeypatch.setattr(module, "step", faulty)
    agent = an_agent([Delay(10, "early"), "done"])
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        acts = [asyncio.ensure_future(run.send(text)) for text in ("a", "poison", "b")]
        got = await asyncio.gather(*acts, return_exceptions=True)
        assert [type(each).__name__ for each in got] == ["int", "InternalError", "int"]
        rest = await run.wait_at_rest()
        assert rest.holds == ("quarantined",)
        await run.resume(by="me")
        assert (await run.wait_ended()).answer == "early"
        heard = agent.model.requests[-1].messages  # type: ignore[attr-defined]
        assert [message.text for message in heard[1:]] == ["go", "a", "b"]


async def test_starts_that_fail_together_are_all_told(memory: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from geartrain.runtime import _actor  # noqa: PLC0415

    def faulty(run: Any, event: Any, specs: Any) -> Any:
        raise KeyError("broken")

    async with memory.runtime(an_agent(["done"])) as runtime:
        with monkeypatch.context() as patched:
            patched.setattr(_actor, "step", faulty)
            starts = [asyncio.ensure_future(runtime.start("worker", "go", run_id="r")) for _ in range(5)]
            got = await asyncio.wait_for(asyncio.gather(*starts, return_exceptions=True), 5)
        assert all(isinstance(each, Exception) for each in got)
        assert (await (await runtime.start("worker", "go", run_id="r")).wait_ended()).answer == "done"


async def test_an_executor_that_cannot_begin_sets_its_run_apart(memory: Store, ledger: Ledger) -> None:
    class Broken:
        def __init__(self, *_: Any) -> None:
            pass

        def call_model(self, model: Any, request: Any, emit: Any) -> Any:
            raise RuntimeError("no line")

        async def run_tool(self, *_: Any, **_hooks: Any) -> Any:
            return None

    agent = an_agent([[calling("read")], "done"], ledger.read())
    async with memory.runtime(agent, executor=Broken) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("quarantined",)
    async with memory.runtime(agent) as runtime:
        run = await runtime.get(run.id)
        with contextlib.suppress(RunSetApart):
            await run.resume(by="me")
        assert (await run.wait_ended()).answer == "done"


async def test_an_outcome_that_is_none_sets_its_run_apart(memory: Store, ledger: Ledger) -> None:
    from geartrain.runtime import LiveExecutor  # noqa: PLC0415

    class Silent(LiveExecutor):
        async def run_tool(self, *_: Any, **_hooks: Any) -> Any:
            return None

    agent = an_agent([[calling("write")], "done"], ledger.write())
    async with memory.runtime(agent, executor=Silent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert "quarantined" in rest.holds
        assert "in_doubt(t1.c1)" in rest.holds


async def test_many_runs_go_on_after_a_failure_that_met_them_all(memory: Store, ledger: Ledger, gated: Gated) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write(1.0))
    async with memory.runtime(agent, target=gated, limits=Limits(task_calls_at_once=20)) as runtime:
        runs = [await runtime.start("worker", "go") for _ in range(50)]
        for _ in range(5):
            gated.error = FULL
            await asyncio.sleep(3)
            gated.error = None
            await asyncio.sleep(3)
        assert {(await run.wait_ended()).answer for run in runs} == {"done"}
        assert set(ledger.done.values()) == {1}
        assert len(ledger.done) == 50


@pytest.mark.parametrize("how", ["later", "at once"])
async def test_what_a_store_raises_that_nobody_thought_of_counts_against_the_store(
    memory: Store, ledger: Ledger, gated: Gated, how: str
) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(1.0))
    async with memory.runtime(agent, target=gated) as runtime:
        runs = [await runtime.start("worker", "go") for _ in range(3)]
        _fail(gated, how, ZeroDivisionError("a bug in a driver"))
        await asyncio.sleep(100)
        assert (await runtime.statistics()).store_failing
        with pytest.raises(StoreFailed, match="a bug in a driver"):
            await runs[0].send("x")
        _fail(gated, how, None)

        assert {(await run.wait_ended()).answer for run in runs} == {"done"}
        assert (await runtime.statistics()).store_failing_since is None


async def test_what_a_store_raises_about_one_run_alone_counts_against_that_run(memory: Store, ledger: Ledger) -> None:
    """It is told from an outage by what the store writes for others meanwhile."""

    class Odd(Gated):
        def append(self, entry: Any) -> Any:
            if entry.run_id == "bad" and any(event.type == "ToolFinished" for event in entry.events):
                raise ZeroDivisionError("a bug in a driver")
            return super().append(entry)

    agent = an_agent([*[[calling("read")]] * 15, "done"], ledger.read(1.0))
    async with memory.runtime(agent, target=Odd(memory.journal)) as runtime:
        bad = await runtime.start("worker", "go", run_id="bad")
        good = await runtime.start("worker", "go")

        assert (await bad.wait_at_rest()).holds == ("quarantined",)
        assert (await good.wait_ended()).answer == "done"


async def test_since_when_the_store_cannot_write_is_told_and_such_time_is_no_active_time(
    memory: Store, ledger: Ledger, gated: Gated
) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(2.0))
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        gated.error = FULL
        began = runtime._host.node.clock.now()
        await asyncio.sleep(40)
        statistics = await runtime.statistics()
        assert statistics.store_failing_since == pytest.approx(began + 1.0)
        gated.error = None

        ended = await run.wait_ended()

        assert ended.answer == "done"
        assert ended.active_seconds == pytest.approx(2.0)
        assert (await runtime.replay(run.id)).difference is None


async def test_nothing_starts_while_the_store_cannot_write_and_all_goes_on_by_itself(
    memory: Store, ledger: Ledger, gated: Gated
) -> None:
    """Also where nothing else tries to write: reads that get their place meanwhile wait for the store."""
    agent = an_agent([[calling("read")], "done"], ledger.read(3.0))
    async with memory.runtime(agent, target=gated, limits=Limits(task_calls_at_once=1)) as runtime:
        runs = [await runtime.start("worker", "go") for _ in range(3)]
        await asyncio.sleep(1)
        gated.error = FULL
        await asyncio.sleep(30)
        assert len(ledger.order) == 2  # the second began before anybody knew
        gated.error = None
        ended = asyncio.get_running_loop().time()

        assert {(await run.wait_ended()).answer for run in runs} == {"done"}
        assert asyncio.get_running_loop().time() - ended < 5 + 3 * 3.1
        assert set(ledger.done.values()) == {1}


@pytest.mark.parametrize("at", [0.5, 1.5], ids=["while a model thinks", "while a tool works"])
async def test_an_outage_of_hours_is_outlasted_like_one_of_seconds(
    memory: Store, ledger: Ledger, gated: Gated, at: float
) -> None:
    """Waits that double leave all floats behind after a thousand tries, and alarms ring again and again."""
    agent = an_agent([Delay(1, [calling("write")]), Delay(1, "done")], ledger.write(2.0))
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(at)
        gated.error = FULL
        await asyncio.sleep(2 * 3600)
        gated.error = None
        went_on_at = asyncio.get_running_loop().time()

        rest = await run.wait_at_rest()

        assert rest.answer == "done"
        assert rest.active_seconds < 10
        assert asyncio.get_running_loop().time() - went_on_at < 15
        assert list(ledger.begun.values()) == [1]
        assert (await runtime.replay(run.id)).difference is None


async def test_a_verdict_that_follows_at_once_is_charged_no_time_in_which_the_store_could_not_write(
    memory: Store, ledger: Ledger, gated: Gated
) -> None:
    """The reply came while the store failed, and the policy is asked again each time that is tried to be stored."""
    agent = an_agent([Delay(1, [calling("read")]), "done"], ledger.read())
    async with memory.runtime(agent, target=gated) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(0.5)
        gated.error = FULL
        await asyncio.sleep(600)
        gated.error = None

        rest = await run.wait_at_rest()

        assert rest.answer == "done"
        assert rest.active_seconds < 10


async def test_an_effect_that_waits_for_the_store_is_let_go_at_closing(
    memory: Store, ledger: Ledger, gated: Gated
) -> None:
    agent = an_agent([[calling("read")], "done"], ledger.read(3.0))
    async with memory.runtime(agent, target=gated, limits=Limits(task_calls_at_once=1)) as runtime:
        runs = [await runtime.start("worker", "go") for _ in range(3)]
        await asyncio.sleep(1)
        gated.error = FULL
        await asyncio.sleep(8)
    assert len(ledger.order) == 2
    gated.error = None
    async with memory.runtime(agent) as runtime:
        for run in runs:
            assert (await (await runtime.get(run.id)).wait_ended()).answer == "done"


async def test_a_log_that_cannot_be_written_stops_no_run(memory: Store, ledger: Ledger, gated: Gated) -> None:
    """It is on the same full disk."""

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    agent = an_agent([[calling("read")], "done"], ledger.read(1.0))
    before = structlog.get_config()
    structlog.configure(processors=[full])
    try:
        async with memory.runtime(agent, target=gated) as runtime:
            run = await runtime.start("worker", "go")
            gated.error = FULL
            await asyncio.sleep(10)
            gated.error = None
            assert (await run.wait_ended()).answer == "done"
    finally:
        structlog.configure(**before)


def test_the_lasting_journal_of_these_tests_is_a_memory_journal() -> None:
    assert LastingJournal().opened().as_killed()._runs == {}
