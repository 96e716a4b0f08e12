"""Going through a run event by event: each frame is what the step did, in whatever order one looks."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from runtime_world import Ledger, Store, an_agent, calling

from geartrain.errors import FormatUnknown, InvalidValue
from geartrain.machine import Run, RunState, decode_spec, step
from geartrain.runtime import Ask, Frame, Stepper
from geartrain.runtime._reading._runs import journal_entry, stepper_of
from geartrain.runtime._reading._shortenings import seen as seen_by


async def a_run(store: Store, ledger: Ledger, turns: int = 2) -> tuple[str, Stepper]:
    replies: list[Any] = [[calling("read", '{"text": "a"}'), calling("read", '{"text": "b"}')] for _ in range(turns)]
    async with store.runtime(an_agent([*replies, "done"], ledger.read())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        return run.id, await stepper_of(runtime._host.node.journal, run.id)


async def test_each_frame_is_what_the_step_did(store: Store, ledger: Ledger) -> None:
    run_id, stepper = await a_run(store, ledger)
    async with store.opened() as journal:
        loaded = await journal.load(run_id)
        assert loaded is not None
        specs = {name: decode_spec(data) for name, data in loaded.specs.items()}
        rows = [journal_entry(row) for row in await journal.read(run_id)]

    run = Run(id=run_id)
    for row in rows:
        frame, result = stepper.frame(row.seq), step(run, row.event, specs)
        assert (frame.before, frame.event, frame.recorded) == (run, row.event, row.path)
        assert (frame.after, frame.commands) == (result.run, result.commands)  # type: ignore[union-attr]
        assert frame.path == row.path
        assert not frame.differs
        run = frame.after
    assert len(stepper) == len(rows)
    assert stepper.problem == ""


async def test_looking_back_and_forth_shows_the_same_each_time(memory: Store, ledger: Ledger) -> None:
    _, stepper = await a_run(memory, ledger, turns=19)
    order = [*range(1, len(stepper) + 1)] * 2
    random.Random(7).shuffle(order)
    seen: dict[int, Frame] = {}

    for seq in order:
        assert seen.setdefault(seq, stepper.frame(seq)) == stepper.frame(seq)

    assert len(stepper) > 64  # so that more than one run is kept
    assert all(seen[seq].after == seen[seq + 1].before for seq in range(1, len(stepper)))


async def test_a_frame_shows_what_the_model_saw_exactly_where_it_was_asked(memory: Store, ledger: Ledger) -> None:
    run_id, stepper = await a_run(memory, ledger)
    async with memory.runtime() as runtime:
        records = [record async for record in runtime.timeline(run_id, full=True)]
    asked = {record.seq: record.payload["saw"] for record in records if record.event == "llm_call_started"}

    shown = {seq: stepper.frame(seq).saw for seq in range(1, len(stepper) + 1)}

    assert {seq: seen_by(saw) for seq, saw in shown.items() if saw is not None} == asked


async def test_what_is_pushed_moves_a_copy(memory: Store, ledger: Ledger) -> None:
    _, stepper = await a_run(memory, ledger)
    before = [stepper.frame(seq) for seq in range(1, len(stepper) + 1)]

    pushed = stepper.push(stepper.run(3), "PauseRequested", {"reason": "look"})
    further = stepper.push(pushed.after, "RunResumed")

    assert (pushed.seq, pushed.refusal, pushed.after.held_by("paused")) == (4, None, True)
    assert (further.seq, further.after.held_by("paused")) == (5, False)
    assert [stepper.frame(seq) for seq in range(1, len(stepper) + 1)] == before


async def test_an_event_that_cannot_follow_gives_its_refusal(memory: Store, ledger: Ledger) -> None:
    _, stepper = await a_run(memory, ledger)

    frame = stepper.push(stepper.run(len(stepper)), "PauseRequested")

    assert frame.refusal is not None
    assert (frame.refusal.state, frame.refusal.event) == (RunState.FINISHED, "PauseRequested")
    assert (frame.after, frame.path, frame.differs) == (frame.before, (), True)
    assert frame.commands == frame.commands_before


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Daydreamed", {}),
        ("PauseRequested", {"reason": 3}),
        ("ApprovalDecided", {}),
        ("BudgetRaised", {"budget": {"max_turns": -1}}),
    ],
)
async def test_what_is_no_event_is_refused(kind: str, fields: dict[str, Any], memory: Store, ledger: Ledger) -> None:
    _, stepper = await a_run(memory, ledger)

    with pytest.raises((FormatUnknown, InvalidValue)):
        stepper.push(stepper.run(1), kind, fields)


async def test_a_push_before_the_first_event_comes_to_a_run_that_has_not_started(memory: Store, ledger: Ledger) -> None:
    _, stepper = await a_run(memory, ledger)
    started = msgspec.to_builtins(stepper.frame(1).event)

    frame = stepper.push(stepper.run(0), "RunStarted", {**started, "input": "something else"})
    refused = stepper.push(stepper.run(0), "InputReceived", {"text": "hello"})

    assert frame.after.user_input == "something else"
    assert refused.refusal is not None
    assert refused.commands == ()


async def test_a_decision_can_be_tried_both_ways(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write())
    async with memory.runtime(agent, policy=lambda _call, _run: Ask("?")) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        stepper = await stepper_of(runtime._host.node.journal, run.id)
    suspended = stepper.run(len(stepper))

    states = [
        stepper.push(suspended, "ApprovalDecided", {"call_id": "t1.c1", "approved": approved}).after.state
        for approved in (True, False)
    ]

    assert states == [RunState.WAIT_APPROVAL, RunState.FAILED]
    assert ledger.done.total() == 0


@pytest.mark.parametrize("seq", [-1, 0, 1_000])
async def test_a_number_that_no_event_has_is_refused(seq: int, memory: Store, ledger: Ledger) -> None:
    _, stepper = await a_run(memory, ledger)

    with pytest.raises(InvalidValue):
        stepper.frame(seq)
    with pytest.raises(InvalidValue):
        stepper.run(seq if seq else -1)


async def test_a_run_whose_journal_breaks_off_is_gone_through_up_to_there(memory: Store, ledger: Ledger) -> None:
    run_id, whole = await a_run(memory, ledger)
    rows = memory.journal._runs[run_id].events
    specs = {name: decode_spec(data) for name, data in memory.journal._specs.items()}

    stepper = Stepper(run_id, [*rows[:3], *rows[4:]], specs)

    assert 3 <= len(stepper) < len(whole)
    assert "cannot follow" in stepper.problem
