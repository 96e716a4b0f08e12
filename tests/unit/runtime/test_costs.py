"""What runs cost: prices, attempts that were lost, and budgets of cost that nothing could keep."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, journal_of

from geartrain.errors import InvalidValue
from geartrain.limits import UNLIMITED
from geartrain.machine import Budget, HandoffFailed, ModelReplied, Price, SubAgentEnded, Usage, estimate_tokens
from geartrain.models import ModelReply, ModelUnavailable
from geartrain.models._scripted import Attempts, Delay, ScriptedModel
from geartrain.runtime import Agent

CALL = Price(per_call=1.0)


class Silent(ScriptedModel):
    """A model whose replies say nothing of their cost."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(replies)
        self.reports_cost = False


async def told(run: Any, runtime: Any, kind: type[Any]) -> list[Any]:
    return [entry.event for entry in await journal_of(run, runtime) if isinstance(entry.event, kind)]


async def test_a_run_costs_its_calls_by_the_agents_price(store: Store) -> None:
    ledger = Ledger()
    agent = an_agent([[calling("read")], "done"], ledger.read(), price=Price(per_call=0.25))

    async with store.runtime(agent) as runtime:
        end = await (await runtime.start(agent, "go")).wait_ended()

        assert end.usage.cost == 0.5
        assert (await runtime.totals()).cost == 0.5


class Flaky:
    """A model whose first attempts end in the ways that are given."""

    name = "flaky"

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)

    async def reply(self, _request: Any, _emit: Any, /) -> ModelReply:
        end = self.ends.pop(0) if self.ends else None
        if end == "hang":
            await asyncio.sleep(10_000)
        if isinstance(end, BaseException):
            raise end
        return ModelReply(text="done", usage=Usage(input_tokens=1))


@pytest.mark.parametrize(
    ("ends", "lost"),
    [
        ((), 0),
        (("hang",), 1),
        (("hang", "hang"), 2),
        ((ConnectionError("reset"),), 1),
        ((ModelUnavailable("flaky", "429"),), 0),
        ((ModelUnavailable("flaky", "429"), "hang"), 1),
    ],
)
async def test_attempts_that_end_without_a_word_of_the_provider_are_charged(
    memory: Store, ends: tuple[Any, ...], lost: int
) -> None:
    agent = Agent("worker", model=Flaky(*ends), price=CALL, budget=Budget(max_seconds=UNLIMITED))

    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        end = await run.wait_ended()

        assert (end.state, end.usage.cost) == ("FINISHED", 1.0 + lost)
        (reply,) = await told(run, runtime, ModelReplied)
        assert reply.lost_attempts == lost
        assert end.usage.estimated is (lost > 0)


async def test_attempts_of_a_call_that_fails_for_good_are_charged(memory: Store) -> None:
    agent = Agent("worker", model=Flaky("hang", "hang", "hang"), price=CALL, budget=Budget(max_seconds=UNLIMITED))

    async with memory.runtime(agent) as runtime:
        end = await (await runtime.start(agent, "go")).wait_ended()

    assert end.error is not None
    assert (end.error["code"], end.usage.cost) == ("model_failed", 3.0)


async def test_lost_attempts_can_use_the_budget_of_cost_up_and_the_answer_still_counts(memory: Store) -> None:
    agent = Agent("worker", model=Flaky("hang", "hang"), price=CALL, budget=Budget(max_seconds=UNLIMITED, max_cost=2.0))

    async with memory.runtime(agent) as runtime:
        assert (await (await runtime.start(agent, "go")).wait_ended()).state == "FINISHED"


async def test_a_call_that_was_lost_with_its_process_costs_its_input(memory: Store) -> None:
    agent = an_agent([Attempts(Delay(60.0, "late"), ModelReply(text="done", usage=Usage()))], price=CALL)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        left = memory.journal.as_killed()

    memory.journal = left
    async with memory.runtime(agent) as runtime:
        end = await (await runtime.get(run.id)).wait_ended()

    assert (end.state, end.usage.cost) == ("FINISHED", 2.0)
    assert end.usage.input_tokens >= estimate_tokens(2)


# -- a limit that could not be kept


def test_a_limit_of_cost_without_anything_that_tells_the_cost_is_refused_when_the_agent_is_made() -> None:
    with pytest.raises(InvalidValue, match=r"max_cost for agent 'worker' must be given together with Agent\(price="):
        Agent("worker", model=Silent("done"), budget=Budget(max_cost=1.0))


@pytest.mark.parametrize("model", ["offline", "external", ScriptedModel(["done"])])
def test_a_limit_of_cost_is_taken_where_the_model_tells_its_cost(model: Any) -> None:
    assert Agent("worker", model=model, budget=Budget(max_cost=1.0)).tells_cost


@pytest.mark.parametrize(
    ("price", "summariser_price", "summariser", "told"),
    [
        (None, None, Silent("short"), False),
        (None, None, ScriptedModel(["short"]), True),
        (None, CALL, Silent("short"), True),
        (CALL, None, Silent("short"), True),
    ],
)
def test_a_limit_of_cost_needs_what_tells_the_cost_of_a_summariser_too(
    price: Price | None, summariser_price: Price | None, summariser: Any, told: bool
) -> None:
    """Else its summaries would be free, however many of them there are."""
    agent = Agent(
        "worker",
        model=ScriptedModel(["done"]),
        summariser=summariser,
        price=price,
        summariser_price=summariser_price,
    )

    assert agent.tells_cost is told


async def test_a_limit_of_cost_that_could_not_be_kept_is_refused_when_a_run_starts(memory: Store) -> None:
    silent, priced = Agent("silent", model=Silent("x")), Agent("priced", model=Silent("x"), price=CALL)

    async with memory.runtime(silent, priced) as runtime:
        with pytest.raises(InvalidValue, match="max_cost for agent 'silent'"):
            await runtime.start(silent, "go", budget=Budget(max_cost=1.0))
        assert (await (await runtime.start(priced, "go", budget=Budget(max_cost=9.0))).wait_ended()).usage.cost == 1.0


async def test_a_limit_of_cost_that_could_not_be_kept_is_refused_when_a_budget_is_raised(memory: Store) -> None:
    silent = Agent("silent", model=Silent(Delay(5.0, "x")))

    async with memory.runtime(silent) as runtime:
        run = await runtime.start(silent, "go")
        with pytest.raises(InvalidValue, match="max_cost for agent 'silent'"):
            await run.raise_budget(Budget(max_cost=1.0))
        await run.raise_budget(Budget(max_turns=3))
        assert (await run.wait_ended()).state == "FINISHED"


async def test_a_run_of_limited_cost_is_not_handed_to_an_agent_whose_cost_nothing_tells(memory: Store) -> None:
    silent = Agent("silent", model=Silent("never"))
    agent = an_agent(
        [[calling("hand_off_to_silent")], "I did it"], price=CALL, handoffs=[silent], budget=Budget(max_cost=9.0)
    )

    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        end = await run.wait_ended()

        assert (end.agent, end.answer) == ("worker", "I did it")
        (failed,) = await told(run, runtime, HandoffFailed)
        assert "nothing tells what a call of agent 'silent' costs" in failed.message


async def test_a_sub_agent_whose_cost_nothing_tells_is_not_started_for_a_run_of_limited_cost(memory: Store) -> None:
    silent = Agent("silent", model=Silent("never"))
    called = [calling("silent", '{"input": "go"}')]
    agent = an_agent([called, "I did it"], price=CALL, sub_agents=[silent], budget=Budget(max_cost=9.0))

    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        assert (await run.wait_ended()).answer == "I did it"

        (ended,) = await told(run, runtime, SubAgentEnded)
        assert ended.error.code == "cost_budget_exceeded"
        assert "nothing tells what a call of agent 'silent' costs" in ended.error.message
        assert [each.id for each in await runtime.list()] == [run.id]


def test_the_cost_of_an_agent_with_sub_agents_is_not_limited_unless_its_own_is_told() -> None:
    with pytest.raises(InvalidValue, match="max_cost for agent 'team'"):
        Agent("team", model=Silent("done"), sub_agents=["worker"], budget=Budget(max_cost=1.0))


async def test_each_agent_of_a_run_charges_its_own_calls(memory: Store) -> None:
    cheap = an_agent(["never", "done by the other"], name="cheap", price=Price(per_call=0.25))
    agent = an_agent([[calling("hand_off_to_cheap")]], price=CALL, handoffs=[cheap])

    async with memory.runtime(agent) as runtime:
        end = await (await runtime.start(agent, "go")).wait_ended()

    assert (end.agent, end.usage.cost) == ("cheap", 1.25)
