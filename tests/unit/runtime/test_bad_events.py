"""Events that cannot be: refused with state, event and what is possible; nothing is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, names_of

from geartrain.errors import EventConflict, EventRefused, GeartrainError, InvalidValue, RunNotFound
from geartrain.machine import (
    ApprovalDecided,
    BudgetRaised,
    CallAnswered,
    CancelRequested,
    InputReceived,
    PauseRequested,
    ResultStatus,
    RunResumed,
    ToolFinished,
    TurnTaken,
)
from geartrain.models import Delay
from geartrain.runtime import Ask, RunHandle


async def test_an_event_for_an_ended_run_is_refused_by_name_and_stores_nothing(store: Store) -> None:
    async with store.runtime(an_agent(["done"])) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        before = await names_of(run, runtime)

        acts = (run.cancel, run.pause, run.resume, lambda: run.send("more"), lambda: run.approve("t1.c1", by="me"))
        for act in acts:
            with pytest.raises(EventRefused) as refused:
                await act()
            assert refused.value.state == "FINISHED"
            assert refused.value.possible == ()
            assert "ended at event" in str(refused.value)

        assert await names_of(run, runtime) == before


async def test_a_refusal_says_what_is_wrong_with_an_event_whose_type_is_possible(memory: Store) -> None:
    ledger = Ledger()
    calls = [calling("write", f'{{"text":"{text}"}}') for text in "ab"]
    agent = an_agent([calls, "done"], ledger.write(), on_denied="tell")
    async with memory.runtime(agent, policy=lambda call, run: Ask("sure?")) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await run.deny("t1.c1", by="ops")
        with pytest.raises(EventRefused) as refused:
            await run.approve("t1.c1", by="desk")
        assert str(refused.value) == (
            f"run '{run.id}': ApprovalDecided is refused in SUSPENDED: call 't1.c1' is already decided: denied by ops"
        )


async def test_an_event_that_the_state_does_not_take_names_what_is_possible(memory: Store) -> None:
    async with memory.runtime(an_agent([Delay(10, "done")])) as runtime:
        run = await runtime.start("worker", "go")
        with pytest.raises(EventRefused) as refused:
            await run.approve("t1.c1", by="me")
        assert refused.value.state == "MODEL_THINKING"
        assert "InputReceived" in refused.value.possible
        assert "ModelReplied" not in refused.value.possible, "no caller may bring it"
        assert refused.value.last_seq == 1
        with pytest.raises(EventRefused):
            await run.resume()


async def test_a_forged_result_is_refused_from_outside(memory: Store) -> None:
    async with memory.runtime(an_agent([Delay(10, "done")])) as runtime:
        run = await runtime.start("worker", "go")
        forged = ToolFinished(id="x", time=0.0, call_id="t1.c1", attempt=1, status=ResultStatus.OK, text="")
        with pytest.raises(EventRefused, match="only the runtime"):
            await runtime.deliver(run.id, forged)


async def test_the_same_event_twice_is_acknowledged_under_its_number_and_changes_nothing(store: Store) -> None:
    agent = an_agent([Delay(10, "done")])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        first = await run.send("a", event_id="one")
        await run.send("b")
        assert await run.send("a", event_id="one") == first
        with pytest.raises(EventConflict):
            await run.send("other", event_id="one")
        count = len(await names_of(run, runtime))
    async with store.runtime(agent) as runtime:
        run = await runtime.get(run.id)
        assert await run.send("a", event_id="one") == first
        with pytest.raises(EventConflict):
            await run.send("other", event_id="one")
        assert (await names_of(run, runtime)).count("InputReceived") == count - 1


async def test_equal_events_at_once_are_one_and_another_body_at_once_is_refused(store: Store) -> None:
    async with store.runtime(an_agent([Delay(10, "done")])) as runtime:
        run = await runtime.start("worker", "go")
        sent = [run.send("a", event_id="one") for _ in range(20)]
        sent += [run.send("b", event_id="one") for _ in range(20)]
        got = await asyncio.gather(*sent, return_exceptions=True)
        assert (await names_of(run, runtime)).count("InputReceived") == 1
        assert len({type(each) for each in got[:20]}) == 1
        assert set(map(type, got)) == {int, EventConflict}
        assert {each for each in got if isinstance(each, int)} == {2}


async def test_an_event_is_dated_by_the_runtime_and_not_by_who_sends_it(memory: Store) -> None:
    """A caller's clock must not use a run's active seconds up, nor date its journal."""
    async with memory.runtime(an_agent([Delay(10, "done")])) as runtime:
        run = await runtime.start("worker", "go")
        await runtime.deliver(run.id, InputReceived(id="one", time=9e15, text="hello"))
        snapshot = await run.snapshot()
        assert snapshot.updated_at < 2e9
        assert snapshot.active_seconds < 1


@pytest.mark.parametrize("event_id", ["", "x" * 201, "a\x00b", "\ud800", "line\nfeed"])
async def test_an_id_that_no_store_could_hold_is_refused_at_the_edge(memory: Store, event_id: str) -> None:
    async with memory.runtime(an_agent([Delay(10, "done")])) as runtime:
        run = await runtime.start("worker", "go")
        with pytest.raises(InvalidValue):
            await run.send("a", event_id=event_id)
        assert await names_of(run, runtime) == ["RunStarted"]


@pytest.mark.parametrize(
    "event",
    [
        InputReceived(id="e", time=0.0, text=5),  # type: ignore[arg-type]
        InputReceived(id="e", time=float("nan"), text="x", by=7),  # type: ignore[arg-type]
        InputReceived(id=5, time=0.0, text="x"),  # type: ignore[arg-type]
        PauseRequested(id="e", time=0.0, reason=b"x"),  # type: ignore[arg-type]
        CancelRequested(id="e", time=0.0, code="for fun"),  # type: ignore[arg-type]
        ApprovalDecided(id="e", time=0.0, call_id="t1.c1", approved="yes"),  # type: ignore[arg-type]
        CallAnswered(id="e", time=0.0, call_id="t1.c1", text="x", status="great"),  # type: ignore[arg-type]
        TurnTaken(id="e", time=0.0, text="x", calls=({"tool": 5},)),  # type: ignore[arg-type]
        BudgetRaised(id="e", time=0.0, budget={"max_turns": 1.5}),  # type: ignore[arg-type]
        BudgetRaised(id="e", time=0.0, budget=None),  # type: ignore[arg-type]
        InputReceived(id="e", time=0.0, text="x" * 3_000_000),
    ],
)
async def test_an_event_with_values_that_could_not_be_read_back_is_refused(store: Store, event: Any) -> None:
    agent = an_agent([Delay(10, "done")])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        with pytest.raises((InvalidValue, EventRefused)):
            await runtime.deliver(run.id, event)
        assert await names_of(run, runtime) == ["RunStarted"]
    async with store.runtime(agent) as runtime:
        await (await runtime.get(run.id)).wait_ended()


@pytest.mark.parametrize(
    ("act", "arguments"),
    [
        ("pause", {"reason": 5}),
        ("pause", {"by": 5}),
        ("cancel", {"reason": b"bytes"}),
        ("send", {"text": 5}),
        ("send", {"text": "x", "event_id": 5}),
        ("raise_budget", {"budget": "a lot"}),
        ("raise_budget", {"budget": {"max_turn": 9}}),
        ("approve", {"call_id": "t1.c1", "by": "me", "remember": "for ever"}),
        ("approve", {"call_id": "t1.c1", "by": "me", "arguments_digest": 5}),
        ("approve", {"call_id": "t1.c1", "by": "me", "arguments": {"text": "x"}}),
        ("approve", {"call_id": 5, "by": "me"}),
        ("approve", {"call_id": "t1.c1", "by": "me", "reason": "x" * 3_000_000}),
        ("deny", {"call_id": "t1.c1", "by": None}),
        ("settle", {"call_id": "t1.c1", "by": "me", "done": "yes"}),
        ("settle", {"call_id": "t1.c1", "by": "me", "not_done": "perhaps"}),
    ],
)
async def test_an_act_with_values_of_the_wrong_kind_never_harms_the_run(
    store: Store, ledger: Ledger, act: str, arguments: dict[str, Any]
) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write())
    async with store.runtime(agent, policy=lambda *_: Ask()) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        with pytest.raises(GeartrainError):
            await getattr(run, act)(**arguments)
    async with store.runtime(agent, policy=lambda *_: Ask()) as runtime:
        run = await runtime.get(run.id)
        await run.approve("t1.c1", by="me")
        assert (await run.wait_ended()).answer == "done"


@pytest.mark.parametrize(
    "arguments",
    [
        {"run_id": ""},
        {"run_id": "x" * 201},
        {"run_id": "a\x00"},
        {"run_id": "\udc80"},
        {"run_id": 5},
        {"idempotency_key": 5},
        {"input": 5},
        {"input": "x" * 3_000_000},
        {"principal": 5},
        {"permissions": "admin"},
        {"permissions": [1]},
        {"labels": {"a": 1}},
        {"labels": {1: "a"}},
        {"labels": [1]},
        {"context": {"a": float("nan")}},
        {"context": {"a": object()}},
        {"context": {"a": 10**30}},
        {"context": 5},
        {"deadline": float("inf")},
        {"deadline": "tomorrow"},
        {"deadline": True},
        {"budget": {"max_turns": 3}},
        {"run_id": "a", "idempotency_key": "b"},
    ],
)
async def test_a_start_with_a_wrong_value_is_refused_as_the_callers_fault(
    memory: Store, arguments: dict[str, Any]
) -> None:
    async with memory.runtime(an_agent(["done"])) as runtime:
        arguments = {"input": "go", **arguments}
        with pytest.raises(InvalidValue):
            await runtime.start("worker", **arguments)
        assert (await runtime.statistics()).runs_loaded == 0
        assert (await runtime.statistics()).store.runs == 0


async def test_an_unknown_run_is_not_found_whatever_is_asked_of_it(store: Store) -> None:
    async with store.runtime(an_agent(["done"])) as runtime:
        with pytest.raises(RunNotFound):
            await runtime.get("nobody")
        with pytest.raises(RunNotFound):
            await runtime.deliver("nobody", RunResumed(id="e", time=0.0))
        with pytest.raises(RunNotFound):
            await runtime.snapshot("nobody")
        with pytest.raises(RunNotFound):
            await RunHandle(runtime._access, "nobody").wait_at_rest()
        with pytest.raises(RunNotFound):
            await anext(RunHandle(runtime._access, "nobody").events())
        with pytest.raises(RunNotFound):
            await anext(runtime.watch("nobody"))
        with pytest.raises(RunNotFound):
            await runtime.replay("nobody")
