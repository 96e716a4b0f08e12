"""Runs whose turns are taken, and whose calls are answered, by somebody outside."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, names_of, results_of

from geartrain.errors import EventRefused, InvalidValue
from geartrain.limits import Limits
from geartrain.machine import Budget, StuckRules
from geartrain.models import ExternalModel, ModelRejected, answer
from geartrain.runtime import Agent, Ask, Deny, Runtime
from geartrain.tools import NotDone, ask_user, tool

DAY = 86_400.0
ran: Counter[str] = Counter()


@tool(external=True, read_only=True)
async def look_up(key: str) -> str:
    """Have somebody look something up."""
    ran["look_up"] += 1
    return key


@tool(external=True)
async def ship(parcel: str) -> str:
    """Have somebody ship a parcel."""
    ran["ship"] += 1
    return parcel


def by_hand(*tools: Any, **options: Any) -> Agent:
    return Agent("by_hand", model="external", tools=tools, **options)


async def rested(runtime: Runtime) -> int:
    """Return how many runs are in memory once everything has had its turn."""
    await asyncio.sleep(0.1)
    return (await runtime.statistics()).runs_loaded


async def test_a_run_is_driven_by_hand_from_its_first_turn_to_its_answer(store: Store) -> None:
    agent = by_hand(look_up, ship)
    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "send it")
        rest = await run.wait_at_rest()
        assert (rest.state, rest.awaits_reply, rest.at_rest) == ("MODEL_THINKING", True, True)

        await run.reply("let me see", calls=[calling("look_up", '{"key":"a"}')], by="ops")
        (open_call,) = (await run.wait_at_rest()).waiting
        assert (open_call.waits_for, open_call.tool, open_call.id) == ("answer", "look_up", f"{run.id}/t1.c1")
        await run.answer_call("t1.c1", "it is 7", by="desk")
        await run.reply(calls=[calling("ship", '{"parcel":"7"}')], by="ops")
        await run.answer_call("t2.c1", "the lorry is broken", status="error", by="desk")
        await run.reply("It could not be sent.", by="ops")
        end = await run.wait_ended()

        assert (end.state, end.answer) == ("FINISHED", "It could not be sent.")
        assert [status for status, _ in await results_of(run, runtime)] == ["ok", "error"]
        assert (end.usage.total_tokens, end.turn_count, ran) == (0, 3, Counter())


async def test_a_run_that_waits_outside_leaves_memory_and_is_not_recovered(store: Store) -> None:
    agent = by_hand(look_up)
    async with store.runtime(agent) as runtime:
        waiting = await runtime.start(agent, "one")
        answering = await runtime.start(agent, "two")
        await answering.reply(calls=[calling("look_up", '{"key":"a"}')], by="ops")
        await answering.wait_at_rest()
        assert await rested(runtime) == 0

    async with store.runtime(agent) as runtime:
        assert await rested(runtime) == 0
        for run_id in (waiting.id, answering.id):
            run = await runtime.get(run_id)
            assert (await run.wait_at_rest()).at_rest
            assert "RunRecovered" not in await names_of(run, runtime)
        await (await runtime.get(answering.id)).answer_call("t1.c1", "b", by="desk")
        await (await runtime.get(answering.id)).reply("done", by="ops")
        assert (await (await runtime.get(answering.id)).wait_ended()).answer == "done"


async def test_time_waiting_outside_is_not_active_time(memory: Store) -> None:
    agent = by_hand(look_up, budget=Budget(max_seconds=60.0))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(DAY)
        await run.reply(calls=[calling("look_up", '{"key":"a"}')], by="ops")
        await asyncio.sleep(DAY)
        await run.answer_call("t1.c1", "b", by="desk")
        await run.reply("done", by="ops")

        assert (await run.wait_ended()).active_seconds < 1.0


async def test_a_turn_that_nobody_takes_ends_the_run_when_its_time_is_over(store: Store) -> None:
    agent = by_hand()
    async with store.runtime(agent, limits=Limits(external_seconds=2 * DAY)) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(DAY)
    async with store.runtime(agent) as runtime:
        run = await runtime.get(run.id)
        assert not (await run.snapshot()).ended
        await asyncio.sleep(DAY + 60.0)

        end = await run.snapshot()
        assert (end.state, end.error and end.error["code"]) == ("FAILED", "model_failed")


async def test_an_external_tools_own_time_out_comes_first_and_a_write_is_then_in_doubt(memory: Store) -> None:
    @tool(external=True, timeout_seconds=100.0)
    def post(text: str) -> str:
        """Have somebody post it."""
        return text

    @tool(external=True, read_only=True, timeout_seconds=50.0)
    def find(text: str) -> str:
        """Have somebody find it."""
        return text

    agent = an_agent([[calling("find", '{"text":"a"}'), calling("post", '{"text":"a"}')], answer("done")], post, find)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(51.0)
        (open_call,) = (await run.snapshot()).waiting
        assert (open_call.tool, open_call.expires_at) == ("post", open_call.since + 100.0)
        await asyncio.sleep(101.0)

        assert (await run.snapshot()).holds == ("in_doubt(t1.c2)",)
        await run.settle("t1.c2", by="ops", done=True, text="it is there")
        assert (await run.wait_ended()).state == "FINISHED"


async def test_a_write_outside_over_its_time_is_verified_by_the_tool(memory: Store) -> None:
    asked: list[str] = []

    def look(arguments: Any, _context: Any) -> NotDone:
        asked.append(arguments["parcel"])
        return NotDone()

    @tool(external=True, timeout_seconds=10.0, verify=look, name="ship")
    def ship_checked(parcel: str) -> str:
        """Have somebody ship a parcel."""
        return parcel

    agent = an_agent([[calling("ship", '{"parcel":"7"}')], answer("done")], ship_checked)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(11.0)

        assert asked == ["7"]
        assert [call.waits_for for call in (await run.snapshot()).waiting] == ["answer"]


async def test_a_verification_that_hangs_leaves_a_write_outside_to_a_person_as_soon_as_any_call_is_over(
    memory: Store,
) -> None:
    async def look(_arguments: Any, _context: Any) -> NotDone:
        await asyncio.sleep(DAY)
        return NotDone()

    @tool(external=True, timeout_seconds=DAY, verify=look, name="ship")
    def ship_checked(parcel: str) -> str:
        """Have somebody ship a parcel."""
        return parcel

    agent = an_agent([[calling("ship", '{"parcel":"7"}')], answer("done")], ship_checked)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(DAY + Limits().tool_call_seconds + 1.0)

        assert (await run.snapshot()).holds == ("in_doubt(t1.c1)",)


async def test_of_two_people_who_reply_to_one_turn_the_slower_one_is_refused(memory: Store) -> None:
    agent = by_hand()
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        seen = (await run.wait_at_rest()).turn_count
        await run.reply(calls=[calling("no_such_tool")], by="ops", turn=seen + 1)

        with pytest.raises(EventRefused, match=r"turn 1 is not awaited \(turn 2 is\)"):
            await run.reply("done", by="desk", turn=seen + 1)
        with pytest.raises(InvalidValue):
            await run.reply("done", by="desk", turn=0)

        await run.reply("done", by="desk", turn=seen + 2)
        assert (await run.wait_ended()).answer == "done"


async def test_arguments_are_checked_and_the_policy_is_asked_before_an_external_call_is_open(memory: Store) -> None:
    def policy(call: Any, _run: Any) -> Any:
        return Deny("not that") if call.arguments["parcel"] == "bomb" else Ask()

    agent = by_hand(ship, on_denied="tell")
    async with memory.runtime(agent, policy=policy) as runtime:
        run = await runtime.start(agent, "go")
        calls = [calling("ship", a) for a in ('{"parcel":1}', '{"parcel":"bomb"}', '{"parcel":"book"}')]
        await run.reply(calls=calls, by="ops")
        (asked,) = (await run.wait_at_rest()).waiting
        assert (asked.call_id, asked.waits_for) == ("t1.c3", "approval")

        await run.approve("t1.c3", by="desk")
        (open_call,) = (await run.wait_at_rest()).waiting
        assert (open_call.call_id, open_call.waits_for) == ("t1.c3", "answer")
        await run.answer_call("t1.c3", "sent", by="desk")

        assert [status for status, _ in await results_of(run, runtime)] == ["error", "denied", "ok"]


async def test_what_nobody_waits_for_is_not_answered(memory: Store) -> None:
    agent = by_hand(look_up)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        with pytest.raises(EventRefused, match="is not open"):
            await run.answer_call("t1.c1", "x", by="desk")
        await run.reply(calls=[calling("look_up", '{"key":"a"}')], by="ops")
        with pytest.raises(EventRefused, match="not awaited"):
            await run.reply("too early", by="ops")
        with pytest.raises(InvalidValue, match="status"):
            await run.answer_call("t1.c1", "x", by="desk", status="maybe")  # type: ignore[arg-type]
        await run.answer_call("t1.c1", "x", by="desk", event_id="mine")
        assert await run.answer_call("t1.c1", "x", by="desk", event_id="mine") > 0
        with pytest.raises(EventRefused):
            await run.answer_call("t1.c1", "y", by="audit")


async def test_cancelling_a_run_that_waits_outside_ends_it_at_once(store: Store) -> None:
    agent = by_hand(look_up)
    async with store.runtime(agent) as runtime:
        runs = [await runtime.start(agent, "go") for _ in range(2)]
        await runs[1].reply(calls=[calling("look_up", '{"key":"a"}')], by="ops")
        await runs[1].wait_at_rest()
        began = asyncio.get_running_loop().time()
        for run in runs:
            await run.cancel("no use", by="ops")
            assert (await run.wait_ended()).state == "CANCELLED"

        assert asyncio.get_running_loop().time() - began < 1.0


async def test_an_external_write_of_a_cancelled_run_is_in_doubt_unless_it_is_answered_in_time(memory: Store) -> None:
    agent = by_hand(ship)
    async with memory.runtime(agent) as runtime:
        for text in ("sent", ""):
            run = await runtime.start(agent, "go")
            await run.reply(calls=[calling("ship", '{"parcel":"7"}')], by="ops")
            await run.wait_at_rest()
            await run.cancel("no use", by="ops")
            assert not (await run.snapshot()).at_rest
            if text:
                await run.answer_call("t1.c1", text, by="desk")
            assert (await run.wait_ended()).state == "CANCELLED"
            status = "ok" if text else "in_doubt"
            assert [found for found, _ in await results_of(run, runtime)] == [status]


async def test_a_read_beside_an_outside_call_works_on_and_then_the_run_rests(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read"), calling("look_up", '{"key":"a"}')], answer("x")], ledger.read(2.0), look_up)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(1.0)
        assert not (await run.snapshot()).at_rest

        rest = await run.wait_at_rest()

        assert sum(ledger.done.values()) == 1
        assert rest.at_rest
        assert await rested(runtime) == 0
        await run.answer_call("t1.c2", "b", by="desk")
        assert (await run.wait_ended()).state == "FINISHED"


async def test_listings_find_what_waits_for_somebody_and_nothing_else(store: Store, ledger: Ledger) -> None:
    hand = by_hand(look_up)
    asking = an_agent([[calling("ask_user", '{"question":"which?"}')], answer("x")], ask_user, name="asking")
    done = an_agent([answer("x")], name="done")
    slow = an_agent([[calling("read")], answer("x")], ledger.read(50.0, timeout_seconds=60.0), name="slow")
    poor = an_agent([[calling("read")] * 2], ledger.read(), name="poor", on_budget="suspend")
    held = an_agent([[calling("write")]], ledger.write(), name="held")
    rules = StuckRules(repeats=2, on_no_progress="suspend")
    going_round = an_agent([[calling("read")]] * 3, ledger.read(), name="round", stuck=rules)

    def policy(call: Any, _run: Any) -> Any:
        return Ask() if call.tool == "write" else None or _allow()

    async with store.runtime(hand, asking, done, slow, poor, held, going_round, policy=policy) as runtime:
        replies = await runtime.start(hand, "reply")
        answers = await runtime.start(hand, "answer")
        await answers.reply(calls=[calling("look_up", '{"key":"a"}')], by="ops")
        runs = [await runtime.start(name, "go") for name in ("asking", "done", "held")]
        broke = await runtime.start(poor, "go", budget=Budget(max_tokens=1))
        await runtime.start(slow, "go")
        paused = await runtime.start(slow, "go")
        await paused.pause()
        stuck = await runtime.start(going_round, "go")
        await asyncio.sleep(1.0)

        found = {row.id: row.holds for row in await runtime.list(waiting=True)}

    assert found == {
        replies.id: ("reply",),
        answers.id: ("answer(t1.c1)",),
        runs[0].id: ("input(t1.c1)",),
        runs[2].id: ("approval(t1.c1)",),
        broke.id: ("budget",),
        paused.id: ("paused",),
        stuck.id: ("stuck",),
    }


def _allow() -> Any:
    from geartrain.runtime import Allow  # noqa: PLC0415

    return Allow()


async def test_the_agents_question_is_answered_by_what_is_sent(store: Store) -> None:
    agent = an_agent([[calling("ask_user", '{"question":"which one?"}')], answer("the red one")], ask_user)
    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("input(t1.c1)",)
        assert rest.waiting[0].arguments == '{"question":"which one?"}'
        assert rest.waiting[0].expires_at is not None
    async with store.runtime(agent) as runtime:
        run = await runtime.get(run.id)

        await run.send("red", by="ops")

        assert (await run.wait_ended()).answer == "the red one"
        assert await results_of(run, runtime) == [("ok", "red")]


async def test_a_question_that_nobody_answers_is_timed_out_with_the_approvals_time(store: Store) -> None:
    agent = an_agent([[calling("ask_user", '{"question":"which one?"}')], answer("I chose")], ask_user)
    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(7 * DAY + 60.0)

        assert (await run.snapshot()).answer == "I chose"
        assert [status for status, _ in await results_of(run, runtime)] == ["timed_out"]


async def test_a_person_says_something_while_the_run_waits_outside(memory: Store) -> None:
    agent = by_hand()
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await run.send("hurry", by="desk")
        await run.pause(by="desk")
        assert (await run.wait_at_rest()).awaits_reply
        await run.reply("done", by="ops")
        rest = await run.wait_at_rest()

        assert rest.holds == ("paused",)
        await run.resume(by="desk")
        assert (await run.wait_at_rest()).awaits_reply
        await run.reply("really done", by="ops")
        assert (await run.wait_ended()).answer == "really done"


async def test_the_external_model_itself_answers_nothing(memory: Store) -> None:
    model = ExternalModel()
    with pytest.raises(ModelRejected, match="this one is none"):
        await model.reply(_Request(), lambda _text: None)  # type: ignore[arg-type]


class _Request:
    run_id = "r-1"


async def test_a_run_outside_of_an_agent_that_is_gone_is_quarantined_when_it_is_to_go_on(memory: Store) -> None:
    agent = by_hand(look_up)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
    async with memory.runtime() as runtime:
        run = await runtime.get(run.id)
        await run.reply(calls=[calling("look_up", '{"key":"a"}')], by="ops")

        assert (await run.wait_at_rest()).holds == ("quarantined",)
