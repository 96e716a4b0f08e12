"""Handing a run over: the other agent's instructions, tools, model and guardrails; one conversation, one budget."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, names_of, results_of, settle

from geartrain.errors import InvalidValue
from geartrain.machine import Budget, HandedOff, ResultStatus
from geartrain.models import Delay
from geartrain.runtime import Agent, Change, Runtime
from geartrain.tools import tool


def handing(name: str, *more: Any) -> list[Any]:
    return [calling(f"hand_off_to_{name}"), *more]


def from_turn(turn: int, *replies: Any) -> list[Any]:
    """The script of an agent whose first turn is that one of the run."""
    return ["not its turn"] * (turn - 1) + [*replies]


@tool(name="hand_off_to_billing", read_only=True)
def taken() -> str:
    """Be in the way."""
    return ""


async def test_a_run_goes_on_under_the_other_agent(store: Store, ledger: Ledger) -> None:
    billing = an_agent(
        from_turn(2, [calling("write")], "paid"), ledger.write(), name="billing", instructions="You do bills."
    )
    triage = an_agent([handing("billing")], name="triage", instructions="You sort.", handoffs=[billing])
    async with store.runtime(triage) as runtime:
        run = await runtime.start("triage", "a bill")
        end = await run.wait_ended()
        assert (end.answer, end.agent, end.turn_count, end.input) == ("paid", "billing", 3, "a bill")
        assert sum(ledger.done.values()) == 1
        records = [record async for record in runtime.timeline(run.id, full=True)]
        (handoff,) = [record.payload for record in records if record.event == "handoff"]
        assert (handoff["from"], handoff["to"]) == ("triage", "billing")
        saw = [record.payload["saw"] for record in records if record.event == "llm_call_started"]
        assert [messages[0]["text"] for messages in saw] == ["You sort.", "You do bills.", "You do bills."]
        assert [message["text"] for message in saw[1] if message["role"] == "user"] == ["a bill"]
        assert (await results_of(run, runtime))[0] == (ResultStatus.OK, "handed off to billing")
        assert (await runtime.replay(run.id)).difference is None


async def test_the_spec_of_the_agent_that_takes_over_is_stored(store: Store) -> None:
    billing = an_agent(from_turn(2, "paid"), name="billing", instructions="You do bills.")
    triage = an_agent([handing("billing")], name="triage", handoffs=["billing"])
    async with store.runtime(triage, billing) as runtime:
        run = await runtime.start("triage", "a bill")
        await run.wait_ended()
    async with store.opened() as journal:
        loaded = await journal.load(run.id)
        assert loaded is not None
        assert any(b"You do bills." in spec for spec in loaded.specs.values())
    async with store.runtime() as runtime:
        assert (await runtime.replay(run.id)).difference is None
        assert (await runtime.snapshot(run.id)).agent == "billing"


async def test_calls_beside_a_handoff_come_first(memory: Store, ledger: Ledger) -> None:
    billing = an_agent(from_turn(2, "paid"), name="billing")
    triage = an_agent([handing("billing", calling("write"))], ledger.write(2.0), name="triage", handoffs=[billing])
    async with memory.runtime(triage) as runtime:
        run = await runtime.start("triage", "go")
        await asyncio.sleep(1)
        assert (await run.snapshot()).agent == "triage"
        assert (await run.wait_ended()).agent == "billing"
        assert await results_of(run, runtime) == [
            (ResultStatus.OK, "handed off to billing"),
            (ResultStatus.OK, "wrote "),
        ]


@pytest.mark.parametrize("name", ["gone", "gone-too"])
async def test_a_handoff_to_an_agent_that_is_gone_is_told_to_the_model(store: Store, name: str) -> None:
    triage = an_agent([handing(name), "then I do it myself"], name="triage", handoffs=[name])
    async with store.runtime(triage) as runtime:
        run = await runtime.start("triage", "go")
        end = await run.wait_ended()
        assert (end.answer, end.agent) == ("then I do it myself", "triage")
        records = [record async for record in runtime.timeline(run.id, full=True)]
        assert [record.payload["agent"] for record in records if record.event == "handoff_failed"] == [name]
        saw = [record.payload["saw"] for record in records if record.event == "llm_call_started"]
        assert f"no agent '{name}' is registered here" in saw[-1][-1]["text"]


async def test_a_handoff_that_is_not_listed_is_no_tool(memory: Store) -> None:
    triage = an_agent([handing("other"), "done"], name="triage", handoffs=["billing"])
    async with memory.runtime(triage, an_agent(["no"], name="other")) as runtime:
        run = await runtime.start("triage", "go")
        assert (await run.wait_ended()).agent == "triage"
        ((status, text),) = await results_of(run, runtime)
        assert status is ResultStatus.ERROR
        assert "there is no tool 'hand_off_to_other'" in text


async def test_a_conversation_is_handed_back(store: Store) -> None:
    billing = an_agent(from_turn(2, handing("triage")), name="billing", handoffs=["triage"])
    triage = an_agent([handing("billing"), "not its turn", "welcome back"], name="triage", handoffs=[billing])
    async with store.runtime(triage) as runtime:
        run = await runtime.start("triage", "go")
        end = await run.wait_ended()
        assert (end.answer, end.agent, end.turn_count) == ("welcome back", "triage", 3)
        assert (await names_of(run, runtime)).count("HandedOff") == 2
        assert (await runtime.replay(run.id)).difference is None


async def test_agents_that_hand_over_in_a_circle_end_by_their_turns(memory: Store) -> None:
    billing = an_agent([handing("triage")] * 9, name="billing", handoffs=["triage"])
    triage = an_agent([handing("billing")] * 9, name="triage", handoffs=[billing], budget=Budget(max_turns=7))
    async with memory.runtime(triage) as runtime:
        end = await (await runtime.start("triage", "go")).wait_ended()
        assert end.error is not None
        assert (end.error["code"], end.turn_count) == ("max_turns_exceeded", 7)


async def test_a_restart_in_the_middle_of_a_handoff_hands_over_once(store: Store) -> None:
    """The process dies after the model asked for it, and before the other agent was found."""
    billing = an_agent(from_turn(2, "paid"), name="billing")
    triage = an_agent([Delay(2, handing("billing"))], name="triage", handoffs=["billing"])
    async with store.runtime(triage, billing) as runtime:
        run = await runtime.start("triage", "go")
        await settle()
        await run.pause()
        await asyncio.sleep(3)
    async with store.runtime(triage) as runtime:
        run = await runtime.get(run.id)
        assert (await run.snapshot()).state == "SUSPENDED"
    async with store.runtime(triage, billing) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        assert (await run.wait_ended()).answer == "paid"
        assert (await names_of(run, runtime)).count("HandedOff") == 1


async def test_an_agent_that_is_gone_after_it_took_over_sets_the_run_apart(store: Store) -> None:
    billing = an_agent(from_turn(2, Delay(50, "paid")), name="billing")
    triage = an_agent([handing("billing")], name="triage", handoffs=["billing"])
    async with store.runtime(triage, billing) as runtime:
        run = await runtime.start("triage", "go")
        await asyncio.sleep(1)
        assert (await run.snapshot()).agent == "billing"
    async with store.runtime(triage) as runtime:
        run = await runtime.get(run.id)
        rest = await run.wait_at_rest()
        assert rest.holds == ("quarantined",)
    async with store.runtime(triage, billing) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        assert (await run.wait_ended()).answer == "paid"


async def test_who_takes_over_judges_by_guardrails_of_its_own(memory: Store) -> None:
    def soften(text: str, _run: Any) -> Any:
        return Change(f"{text}, please")

    billing = an_agent(from_turn(2, "pay"), name="billing", output_guardrails=[soften])
    triage = an_agent([handing("billing")], name="triage", handoffs=[billing])
    async with memory.runtime(triage) as runtime:
        assert (await (await runtime.start("triage", "go")).wait_ended()).answer == "pay, please"


async def test_what_is_said_while_a_run_is_handed_over_is_heard_by_the_other(memory: Store) -> None:
    billing = an_agent(from_turn(2, "paid"), name="billing")
    triage = an_agent([Delay(2, handing("billing"))], name="triage", handoffs=[billing])
    async with memory.runtime(triage) as runtime:
        run = await runtime.start("triage", "go")
        await settle()
        await run.send("and quickly")
        await run.wait_ended()
        saw = [r.payload["saw"] async for r in runtime.timeline(run.id, full=True) if r.event == "llm_call_started"]
        assert saw[-1][-1]["text"] == "and quickly"


def test_agents_to_hand_over_to_are_registered_with_the_one_that_may(memory: Store) -> None:
    third = an_agent([], name="third")
    second = an_agent([], name="second", handoffs=[third, "first"])
    first = an_agent([], name="first", handoffs=[second])

    runtime = memory.runtime(first)

    assert list(runtime._host.settings.agents) == ["first", "second", "third"]


def test_two_agents_of_one_name_are_refused_also_by_way_of_a_handoff(memory: Store) -> None:
    first = an_agent([], name="first", handoffs=[an_agent([], name="second")])

    with pytest.raises(InvalidValue, match="one of a name"):
        memory.runtime(first, an_agent([], name="second"))


@pytest.mark.parametrize(
    "wrong",
    ["billing", [5], ["two words"], ["x" * 60], [""], ["worker"], ["billing", "billing"], Agent("billing"), [None]],
)
def test_what_is_no_list_of_agents_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match="handoffs"):
        Agent("worker", handoffs=wrong)


def test_a_tool_with_the_name_of_a_handoff_is_refused() -> None:
    with pytest.raises(InvalidValue, match="handoffs"):
        Agent("worker", handoffs=["billing"], tools=[taken])


async def test_a_forged_handoff_is_refused(memory: Store) -> None:
    async with memory.runtime(an_agent([Delay(9, "done")])) as runtime:
        run = await runtime.start("worker", "go")
        await _refused(runtime, run.id)


async def _refused(runtime: Runtime, run_id: str) -> None:
    with pytest.raises(Exception, match="only the runtime itself"):
        await runtime.deliver(run_id, HandedOff(id="x", time=0.0, agent="evil", spec=""))
