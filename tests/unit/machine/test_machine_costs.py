"""What a run is charged: by which price, for which attempts, and by which agent."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from machine_bench import Bench

from geartrain.errors import InvalidValue
from geartrain.limits import UNLIMITED
from geartrain.machine import (
    AgentSpec,
    Budget,
    CompactionFailed,
    ContextCompacted,
    ContextRules,
    HandedOff,
    ModelFailed,
    Price,
    RunRecovered,
    RunState,
    StepLimits,
    SubAgentEnded,
    SubAgentSpec,
    TimerFired,
    TurnTaken,
    Usage,
    decode_spec,
    encode_spec,
    estimate_tokens,
    spec_digest,
)

OPEN = Budget(max_turns=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED, max_tokens=UNLIMITED)
# A token in costs 1, one out 10, a call 100.
PRICE = Price(input_per_million=1_000_000, output_per_million=10_000_000, per_call=100)


def priced(**spec: Any) -> Bench:
    return Bench(**{"budget": OPEN, "price": PRICE, **spec}).starts()


def cost(bench: Bench) -> float:
    return bench.run.token_count.cost


def context_tokens(bench: Bench) -> int:
    return estimate_tokens(bench.run.messages_size)


def summarising(**spec: Any) -> Bench:
    bench = priced(context=ContextRules(summarise=True, summarise_turns=1), **spec)
    for turn in (1, 2, 3):
        bench.replies("", "look", usage=Usage()).verdicts("allow").finishes(f"t{turn}.c1", text="long " * 50)
    assert bench.run.compacting
    return bench


def test_a_reply_costs_its_tokens_and_its_call_whatever_the_model_says_of_its_cost() -> None:
    bench = priced().replies("", "look", usage=Usage(input_tokens=7, output_tokens=3, cost=0.5))

    assert cost(bench) == 7 + 30 + 100


def test_without_a_price_the_model_says_what_a_reply_costs() -> None:
    bench = priced(price=None).replies("", "look", usage=Usage(input_tokens=7, output_tokens=3, cost=0.5))

    assert cost(bench) == 0.5


def test_a_reply_without_figures_costs_its_estimate() -> None:
    bench = priced()
    before = context_tokens(bench)

    bench.replies("a" * 40, "look:{}", usage=None)

    assert cost(bench) == before + 10 * estimate_tokens(42) + 100


def test_attempts_that_nobody_saw_the_end_of_are_charged_with_the_reply() -> None:
    bench = priced()
    before = context_tokens(bench)

    bench.replies("", "look", usage=Usage(input_tokens=7), lost_attempts=2)

    assert cost(bench) == 2 * (before + 100) + 7 + 100
    assert bench.run.turn_count == 1


def test_attempts_that_nobody_saw_the_end_of_are_charged_with_the_failure() -> None:
    bench = priced()
    before = context_tokens(bench)

    bench.does(ModelFailed, turn=1, attempt=1, code="model_failed", message="no", lost_attempts=3)

    assert (bench.code, cost(bench)) == ("model_failed", 3 * (before + 100))


@pytest.mark.parametrize(("summary_price", "call"), [(None, 100), (Price(per_call=1_000), 1_000)])
def test_a_summary_costs_by_its_summarisers_price_or_else_by_the_models(summary_price: Any, call: float) -> None:
    bench = summarising(summary_price=summary_price)
    before = cost(bench)

    bench.does(ContextCompacted, summary="short", replaced=bench.run.compacting, usage=Usage())

    assert cost(bench) - before == call


@pytest.mark.parametrize("usage", [None, Usage()])
def test_a_summary_that_failed_costs_what_was_lost_and_what_was_told(usage: Usage | None) -> None:
    bench = summarising(summary_price=Price(per_call=1_000))
    before = cost(bench)

    bench.does(CompactionFailed, message="no", usage=usage, lost_attempts=2)

    assert cost(bench) - before == (3_000 if usage else 2_000)


@pytest.mark.parametrize(
    "lose",
    [
        lambda b: b.does(RunRecovered, attempt=1),
        lambda b: b.does(TimerFired, kind="dwell", time=9_999.0),
        lambda b: b.does(TurnTaken, text="I say so"),
    ],
    ids=["in a process that is gone", "no reply in time", "a person took the turn"],
)
def test_a_call_whose_reply_is_lost_costs_its_input(lose: Any) -> None:
    bench = priced()
    before = context_tokens(bench)

    lose(bench)

    assert cost(bench) == before + 100
    assert bench.run.token_count.estimated


@pytest.mark.parametrize(
    "lose", [lambda b: b.does(RunRecovered, attempt=1), lambda b: b.does(TimerFired, kind="dwell", time=9_999.0)]
)
def test_a_summary_that_is_lost_costs_by_its_own_price(lose: Any) -> None:
    bench = summarising(summary_price=Price(per_call=1_000))
    before = cost(bench)

    lose(bench)

    assert cost(bench) - before == 1_000


def test_what_a_sub_agent_has_cost_is_not_priced_once_more() -> None:
    bench = priced(sub_agents=(SubAgentSpec(name="helper"),)).replies("", "helper", usage=Usage()).verdicts("allow")
    before = cost(bench)

    used = Usage(input_tokens=50, cost=3.0)
    bench.does(SubAgentEnded, call_id="t1.c1", run_id="r-2", state=RunState.FINISHED, usage=used)

    assert cost(bench) - before == 3.0
    assert bench.run.token_count.input_tokens == 50


def test_a_run_that_is_handed_over_is_charged_by_the_agent_that_made_the_call() -> None:
    bench = priced(handoffs=("other",))
    other = AgentSpec(name="other", price=Price(per_call=1.0))
    bench.specs[spec_digest(other)] = other

    bench.replies("", "hand_off_to_other", usage=Usage())
    assert cost(bench) == 100
    bench.does(HandedOff, agent="other", spec=spec_digest(other)).replies("the answer", usage=Usage())

    assert cost(bench) == 101


@pytest.mark.parametrize(("rules", "more"), [(1, 0.0), (2, 0.5)])
def test_without_a_price_an_estimate_costs_what_tokens_have_cost_so_far(rules: int, more: float) -> None:
    bench = priced(price=None, rules_version=rules, limits=StepLimits(model_attempts=9))
    bench.replies("", "look", usage=Usage(input_tokens=100, cost=1.0)).verdicts("allow").finishes("t1.c1")
    tokens = context_tokens(bench)

    bench.does(RunRecovered, attempt=1)

    assert cost(bench) == pytest.approx(1.0 + (tokens / 100 if more else 0.0))


@pytest.mark.parametrize("on_budget", ["fail", "wrap_up", "suspend"])
def test_the_cost_of_a_lost_attempt_can_use_the_budget_up(on_budget: str) -> None:
    bench = priced(budget=msgspec.structs.replace(OPEN, max_cost=100.0), on_budget=on_budget)

    bench.does(RunRecovered, attempt=1)

    assert (bench.code, bench.run.wrapping_up, bench.holds) == {
        "fail": ("cost_budget_exceeded", "", []),
        "wrap_up": ("", "cost_budget_exceeded", []),
        "suspend": ("", "", ["budget"]),
    }[on_budget]


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "1"])
@pytest.mark.parametrize("name", ["input_per_million", "output_per_million", "per_call"])
def test_a_price_that_is_none_is_refused_when_it_is_made(name: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=name):
        Price(**{name: value})


def test_a_price_is_stored_with_the_spec_and_old_specs_have_none() -> None:
    spec = AgentSpec(name="a", price=PRICE, summary_price=Price(per_call=2))

    assert decode_spec(encode_spec(spec)) == spec
    assert decode_spec(b'{"name": "a", "rules_version": 1}').price is None
