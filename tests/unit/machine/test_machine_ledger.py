"""One budget for a tree: shares are reserved before a sub-agent starts, and what it does not use goes back."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_bench import Bench

from geartrain.ids import sub_agent_run_id
from geartrain.limits import UNLIMITED
from geartrain.machine import (
    Budget,
    BudgetRaised,
    CallAnswered,
    CancelRequested,
    GraceElapsed,
    PauseRequested,
    ResultStatus,
    RunQuarantined,
    RunRecovered,
    RunResumed,
    RunState,
    ShareRaised,
    StepLimits,
    SubAgentEnded,
    SubAgentSpec,
    Usage,
    rests,
    sub_agents_at_work,
    wake_at,
)

FREE: dict[str, Any] = {
    "max_turns": UNLIMITED,
    "max_seconds": UNLIMITED,
    "max_tool_failures": UNLIMITED,
    "max_tokens": UNLIMITED,
}
UNITS = ("max_turns", "max_seconds", "max_tool_failures", "max_tokens", "max_cost", "max_tool_calls")
CODES = (
    "max_turns_exceeded",
    "timeout",
    "too_many_tool_failures",
    "token_budget_exceeded",
    "cost_budget_exceeded",
    "tool_call_budget_exceeded",
)


def only(**limits: Any) -> Budget:
    """A budget with these limits, and no others."""
    return Budget(**{**FREE, **limits})


def delegating(count: int, budget: Budget, own: Budget | None = None, **spec: Any) -> Bench:
    """A run that has called *count* sub-agents, with that budget: one turn and 10 tokens of it are used."""
    limits = spec.pop("limits", {})
    weights = spec.pop("weights", [1.0] * count)
    helpers = tuple(SubAgentSpec(name=f"s{n}", budget=own, weight=weights[n]) for n in range(count))
    bench = Bench(budget=budget, sub_agents=helpers, limits=StepLimits(**{"sub_agents_at_once": 50, **limits}), **spec)
    return bench.starts().replies("", *[f"s{n}" for n in range(count)]).verdicts(*["allow"] * count)


def ends(bench: Bench, call_id: str, state: str = "FINISHED", **used: Any) -> Bench:
    return bench.does(SubAgentEnded, call_id=call_id, run_id="r-2", state=RunState(state), text="found", **used)


def shares(bench: Bench, unit: str) -> list[Any]:
    return [getattr(call.share, unit) if call.share else None for call in bench.run.calls]


def refusals(bench: Bench) -> list[str]:
    return [
        call.result.text.split(":")[0] for call in bench.run.calls if call.result and call.result.status == "refused"
    ]


# -- how shares are cut


@pytest.mark.parametrize(
    ("unit", "limit", "count", "cut"),
    [
        # One turn is used, and one the run keeps to itself.
        ("max_turns", 20, 4, [4, 4, 5, 5]),
        ("max_turns", 12, 4, [2, 2, 3, 3]),
        ("max_turns", 6, 4, [1, 1, 1, 1]),
        ("max_tool_failures", 9, 4, [2, 2, 2, 3]),
        # Ten tokens are used.
        ("max_tokens", 110, 4, [25, 25, 25, 25]),
        ("max_cost", 8.0, 4, [2.0, 2.0, 2.0, 2.0]),
        # Four calls were let through, and are calls themselves.
        ("max_tool_calls", 12, 4, [2, 2, 2, 2]),
    ],
)
def test_what_is_left_is_cut_equally_among_those_that_start(unit: str, limit: Any, count: int, cut: list[Any]) -> None:
    bench = delegating(count, only(**{unit: limit}))

    assert shares(bench, unit) == cut
    assert all(shares(bench, other) == [UNLIMITED] * count for other in UNITS if other != unit)


def test_active_seconds_are_cut_from_what_is_left_of_them() -> None:
    bench = delegating(2, only(max_seconds=100.0))

    assert shares(bench, "max_seconds") == [49.0, 49.0]  # two seconds went by until they started


def test_shares_are_cut_by_weight() -> None:
    bench = delegating(3, only(max_tokens=1_010), weights=[5.0, 3.0, 2.0])

    assert shares(bench, "max_tokens") == [500, 300, 200]


def test_a_share_is_never_more_than_the_sub_agents_own_budget() -> None:
    bench = delegating(2, only(max_tokens=1_010), own=only(max_tokens=70, max_turns=3))

    assert shares(bench, "max_tokens") == [70, 70]
    assert shares(bench, "max_turns") == [3, 3]


def test_on_demand_gives_all_that_is_left_up_to_the_own_budget() -> None:
    bench = delegating(4, only(max_tokens=170), own=only(max_tokens=70), shares="on_demand")

    assert shares(bench, "max_tokens") == [70, 70, 20, None]
    assert bench.status == ["running", "running", "running", "allowed"]


def test_only_as_many_share_as_can_be_at_work_at_once() -> None:
    bench = delegating(6, only(max_tokens=1_010), limits={"sub_agents_at_once": 2})

    assert shares(bench, "max_tokens") == [500, 500, None, None, None, None]
    ends(bench, "t1.c2", usage=Usage(input_tokens=100))
    assert shares(bench, "max_tokens") == [500, 500, 400, None, None, None]


# -- used up


@pytest.mark.parametrize(("unit", "code"), list(zip(UNITS, CODES, strict=True)))
def test_a_call_waits_while_a_sibling_may_give_something_back_and_then_is_refused_with_the_code(
    unit: str, code: str
) -> None:
    """The sibling uses all that there is, in each unit."""
    limit: Any = {"max_turns": 3, "max_seconds": 10.0, "max_cost": 1.0, "max_tokens": 60, "max_tool_calls": 4}.get(
        unit, 2
    )
    bench = delegating(2, only(**{unit: limit}), shares="on_demand", on_budget="wrap_up")
    assert bench.status == ["running", "allowed"]
    (share, _) = shares(bench, unit)
    used: dict[str, Any] = {
        "max_turns": {"turns": share},
        "max_seconds": {"seconds": share},
        "max_tool_failures": {"tool_failures": share},
        "max_tokens": {"usage": Usage(input_tokens=share if unit == "max_tokens" else 0)},
        "max_cost": {"usage": Usage(cost=share if unit == "max_cost" else 0)},
        "max_tool_calls": {"tool_calls": share},
    }[unit]

    ends(bench, "t1.c1", **used)

    if unit in ("max_turns", "max_tool_calls"):
        assert bench.results == [("t1.c1", "ok"), ("t1.c2", "refused")]
        assert code in bench.run.messages[-1].text or code in bench.run.wrapping_up
    else:  # the limit itself is reached: the run wraps up, and starts nothing
        assert bench.run.wrapping_up == code


@pytest.mark.parametrize("unit", UNITS)
def test_what_a_sibling_gives_back_starts_the_one_that_waits(unit: str) -> None:
    limit: Any = {"max_turns": 3, "max_seconds": 10.0, "max_cost": 1.0, "max_tokens": 60, "max_tool_calls": 4}.get(
        unit, 2
    )
    bench = delegating(2, only(**{unit: limit}), shares="on_demand")
    assert bench.status == ["running", "allowed"]

    ends(bench, "t1.c1")

    assert bench.status == ["done", "running"]


def test_a_call_for_which_nothing_was_ever_left_is_refused_at_once_and_the_rest_goes_on() -> None:
    """Also what had to wait behind it: a write runs when all before it is done."""
    bench = Bench(
        budget=only(max_turns=2), sub_agents=(SubAgentSpec(name="s0"),), limits=StepLimits(sub_agents_at_once=50)
    )
    bench.starts().replies("", "s0", "write").verdicts("allow", "allow")

    assert refusals(bench) == ["max_turns_exceeded"]
    assert bench.status == ["done", "running"]


def test_a_run_at_the_greatest_depth_has_its_sub_agents_refused() -> None:
    bench = Bench(sub_agents=(SubAgentSpec(name="s0"),), limits=StepLimits(sub_agents_at_once=50, sub_agent_depth=2))
    bench.starts(depth=2).replies("", "s0").verdicts("allow")

    assert bench.results == [("t1.c1", "refused")]


# -- charged


def test_what_sub_agents_used_counts_toward_every_limit_and_is_kept_apart_from_the_runs_own() -> None:
    bench = delegating(1, Budget())

    ends(
        bench,
        "t1.c1",
        turns=3,
        seconds=7.0,
        tool_calls=2,
        tool_failures=1,
        usage=Usage(input_tokens=50, output_tokens=5, cost=0.25),
    )

    run, whole = bench.run, bench.run.whole
    assert (run.turn_count, run.tool_calls, run.tool_failures, run.token_count.total_tokens) == (1, 1, 0, 10)
    assert (whole.turn_count, whole.tool_calls, whole.tool_failures) == (4, 3, 1)
    assert (whole.token_count.total_tokens, whole.token_count.cost) == (65, 0.25)
    assert whole.active_seconds == pytest.approx(run.active_seconds + 7.0)
    assert bench.keys == ["t2.model.a1"]


@pytest.mark.parametrize(
    ("limit", "used", "code"),
    [
        ({"max_turns": 20}, {"turns": 19}, "max_turns_exceeded"),
        ({"max_seconds": 100.0}, {"seconds": 99.0}, "timeout"),
        ({"max_tool_failures": 3}, {"tool_failures": 3}, "too_many_tool_failures"),
        ({"max_tokens": 100}, {"usage": Usage(input_tokens=90)}, "token_budget_exceeded"),
        ({"max_cost": 1.0}, {"usage": Usage(cost=1.0)}, "cost_budget_exceeded"),
        ({"max_tool_calls": 3}, {"tool_calls": 2}, "tool_call_budget_exceeded"),
    ],
)
def test_a_limit_that_a_sub_agent_reaches_ends_the_run(limit: Any, used: Any, code: str) -> None:
    assert ends(delegating(1, only(**limit)), "t1.c1", **used).code == code


def test_figures_that_cannot_be_lower_nothing() -> None:
    bench = delegating(1, Budget())

    ends(bench, "t1.c1", turns=-5, seconds=-1.0, tool_calls=-2, usage=Usage(input_tokens=-9, cost=-1.0))

    whole = bench.run.whole
    assert (whole.turn_count, whole.tool_calls, whole.token_count.total_tokens, whole.token_count.cost) == (
        1,
        1,
        10,
        0.0,
    )
    assert whole.active_seconds == bench.run.active_seconds


def test_a_second_report_of_the_same_end_is_refused_as_known() -> None:
    bench = ends(delegating(2, Budget()), "t1.c1", turns=2)
    before = bench.run

    result: Any = bench.offer(SubAgentEnded, call_id="t1.c1", run_id="r-2", state=RunState.FINISHED, turns=2)

    assert result.duplicate
    assert bench.run is before


def test_a_plan_keeps_a_turn_for_each_call_that_is_open() -> None:
    """Consulted after each result, it must not wait for all of its sub-agents."""
    bench = delegating(3, only(max_turns=20), consult="each_result")

    assert sum(shares(bench, "max_turns")) == 15  # one is used, one is for the answer, three are for what comes back


def test_a_plan_takes_no_turn_that_a_sub_agent_has_reserved() -> None:
    """Each result of its own tools would have it consulted once more; it waits until a sub-agent gives turns back."""
    bench = Bench(
        budget=only(max_turns=6),
        consult="each_result",
        sub_agents=(SubAgentSpec(name="s0"),),
        limits=StepLimits(sub_agents_at_once=50),
    )
    bench.starts().replies("", "s0", "look").verdicts("allow", "allow")
    assert shares(bench, "max_turns") == [2, None]  # one is used, one is for the answer, two for what comes back

    bench.finishes("t1.c2").replies("", "look").verdicts("allow")
    bench.finishes("t2.c1").replies("", "look").verdicts("allow")
    bench.finishes("t3.c1").replies("", "look").verdicts("allow")
    bench.finishes("t4.c1")

    assert bench.run.state == "EXECUTE_TOOL"
    assert rests(bench.run, bench.spec)
    ends(bench, "t1.c1", turns=1)
    assert bench.run.state == "MODEL_THINKING"
    assert bench.replies("done").run.state == "FINISHED"
    assert bench.run.whole.turn_count == 6


def test_a_plan_that_hears_of_a_refused_sub_agent_out_of_turns_starts_nothing_beside() -> None:
    bench = Bench(
        budget=only(max_turns=1),
        consult="each_result",
        on_budget="suspend",
        sub_agents=(SubAgentSpec(name="s0"),),
        limits=StepLimits(sub_agents_at_once=50),
    )
    bench.starts().replies("", "look", "s0").verdicts("allow", "allow")

    assert (bench.run.state, bench.holds, bench.status) == ("SUSPENDED", ["budget"], ["allowed", "done"])


def test_no_tool_call_is_let_through_that_a_sub_agent_has_reserved() -> None:
    bench = Bench(
        budget=only(max_tool_calls=4), sub_agents=(SubAgentSpec(name="s0"),), limits=StepLimits(sub_agents_at_once=50)
    )
    bench.starts().replies("", "s0", "write").verdicts("allow", "ask")
    assert shares(bench, "max_tool_calls") == [3, None]

    from geartrain.machine import ApprovalDecided  # noqa: PLC0415

    bench.does(ApprovalDecided, call_id="t1.c2", approved=True).verdicts("allow")

    assert refusals(bench) == ["tool_call_budget_exceeded"]


# -- waiting, holding, ending


def test_a_run_whose_sub_agents_alone_are_at_work_rests_and_uses_no_time() -> None:
    bench = delegating(1, only(max_seconds=100.0))

    assert rests(bench.run, bench.spec)
    assert wake_at(bench.run, bench.spec) is None
    ends(bench, "t1.c1", time=bench.now + 500.0)
    assert bench.run.active_seconds == 2.0
    assert bench.run.state == "MODEL_THINKING"


def test_a_run_with_a_tool_at_work_beside_its_sub_agents_does_not_rest() -> None:
    bench = Bench(sub_agents=(SubAgentSpec(name="s0"),), limits=StepLimits(sub_agents_at_once=50))
    bench.starts().replies("", "s0", "look").verdicts("allow", "allow")

    assert not rests(bench.run, bench.spec)
    assert rests(bench.finishes("t1.c2").run, bench.spec)


def test_a_paused_run_whose_sub_agents_are_at_work_is_suspended_and_takes_their_ends() -> None:
    bench = delegating(3, Budget(), limits={"sub_agents_at_once": 2}).does(PauseRequested)
    assert bench.run.state == "SUSPENDED"

    ends(bench, "t1.c1")
    assert (bench.run.state, bench.status) == ("SUSPENDED", ["done", "running", "allowed"])

    bench.does(RunResumed)
    assert bench.run.state in ("EXECUTE_TOOL", "WAIT_APPROVAL")
    assert bench.status[1] == "running"


def test_a_sub_agent_that_is_at_work_cannot_be_answered_for() -> None:
    bench = delegating(1, Budget())

    assert "cancel that" in bench.refuses(CallAnswered, call_id="t1.c1", text="mine")


def test_an_ending_run_waits_for_its_sub_agents_a_little_longer_than_its_grace() -> None:
    bench = delegating(2, Budget()).does(CancelRequested)
    ending = bench.run.ending
    assert ending is not None

    bench.does(GraceElapsed, time=ending.grace_until)
    assert bench.run.state == "EXECUTE_TOOL"
    ends(bench, "t1.c1", "CANCELLED", turns=2)
    ends(bench, "t1.c2", "CANCELLED", turns=3)

    assert bench.run.state == "CANCELLED"
    assert bench.run.whole.turn_count == 6


def test_the_deeper_a_run_the_sooner_it_gives_up_on_its_sub_agents() -> None:
    """So that none outlives the one that waits for it, though one at the bottom cannot end."""
    waits = []
    for depth in range(8):
        bench = Bench(sub_agents=(SubAgentSpec(name="s0"),), limits=StepLimits(sub_agents_at_once=50))
        bench.starts(depth=depth).replies("", "s0").verdicts("allow").does(CancelRequested)
        assert bench.run.ending is not None
        first = bench.run.ending.grace_until
        bench.does(GraceElapsed, time=first)
        waits.append(bench.run.ending.grace_until - first)

    assert waits[0] == 30.0
    assert all(later < sooner - 0.5 for sooner, later in itertools.pairwise(waits))


def test_that_its_parent_goes_on_lifts_a_pause_and_nothing_else() -> None:
    bench = Bench().starts().does(PauseRequested).does(RunQuarantined, reason="it crashed")
    assert [str(hold) for hold in bench.run.holds] == ["paused", "quarantined"]

    bench.does(RunResumed, source="parent")
    assert [str(hold) for hold in bench.run.holds] == ["quarantined"]
    assert "quarantined" in bench.refuses(RunResumed, source="parent")
    assert bench.does(RunResumed, source="user").run.holds == ()


def test_a_wait_for_sub_agents_begins_anew_in_another_process() -> None:
    bench = delegating(1, Budget()).does(CancelRequested)
    assert bench.run.ending is not None
    bench.does(GraceElapsed, time=bench.run.ending.grace_until)
    bench.does(RunRecovered, attempt=1, time=bench.now + 4_000.0)
    assert bench.run.ending.grace_until == bench.now + StepLimits().dwell_seconds

    ends(bench, "t1.c1", "CANCELLED")

    assert bench.run.state == "CANCELLED"


def test_an_ended_run_names_the_sub_agents_that_did_not_end() -> None:
    bench = delegating(2, Budget()).does(CancelRequested)
    for _ in range(2):
        assert bench.run.ending is not None
        bench.does(GraceElapsed, time=bench.run.ending.grace_until)

    assert bench.run.state == "CANCELLED"
    assert bench.run.error is not None
    assert sub_agent_run_id("r-1", "t1.c2") in bench.run.error.message


def test_a_raised_budget_lets_the_waiting_ones_start() -> None:
    bench = delegating(2, only(max_turns=3), shares="on_demand")
    assert bench.status == ["running", "allowed"]

    bench.does(BudgetRaised, budget=only(max_turns=10))

    assert bench.status == ["running", "running"]


# -- any tree


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**32))
def test_used_and_reserved_together_never_exceed_the_budget(seed: int) -> None:
    """Whatever is called, ends and is raised, in whatever order; sub-agents keep within their shares."""
    rng = random.Random(seed)
    count = rng.randint(1, 12)
    budget = Budget(
        max_turns=rng.choice((2, 5, 20, UNLIMITED)),
        max_seconds=rng.choice((8.0, 300.0, UNLIMITED)),
        max_tool_failures=rng.choice((1, 3, UNLIMITED)),
        max_tokens=rng.choice((11, 30, 5_000, UNLIMITED)),
        max_cost=rng.choice((0.5, UNLIMITED)),
        max_tool_calls=rng.choice((count, count + 3, UNLIMITED)),
    )
    own = rng.choice((None, Budget(max_turns=2, max_tokens=50)))
    bench = delegating(
        count,
        budget,
        own,
        shares=rng.choice(("weights", "on_demand")),
        weights=[rng.choice((0.5, 1.0, 4.0)) for _ in range(count)],
        limits={"sub_agents_at_once": rng.choice((1, 3, 50))},
        consult=rng.choice(("all_results", "each_result")),
    )
    while at_work := sub_agents_at_work(bench.run):
        assert len(at_work) <= (bench.spec.limits.sub_agents_at_once or 0)
        for unit in UNITS:
            limit = getattr(bench.run.budget, unit)
            if limit is not UNLIMITED:
                assert _used(bench, unit) + bench.run.reserved()[unit] <= limit + 1e-6, unit
        call = rng.choice(at_work)
        ends(bench, call.id, rng.choice(("FINISHED", "FAILED")), time=bench.now, **_some_use(rng, call.share))
        if bench.run.state == "MODEL_THINKING" and bench.run.calls:
            bench.replies("", tokens=0, time=bench.now)  # a plan uses nothing but turns
    assert bench.run.state in ("MODEL_THINKING", "FAILED")
    assert all(call.status == "done" for call in bench.run.calls)


def _used(bench: Bench, unit: str) -> float:
    whole = bench.run.whole
    return {
        "max_turns": whole.turn_count,
        "max_seconds": whole.active_seconds,
        "max_tool_failures": whole.tool_failures,
        "max_tokens": whole.token_count.total_tokens,
        "max_cost": whole.token_count.cost,
        "max_tool_calls": whole.tool_calls,
    }[unit]


def _some_use(rng: random.Random, share: Budget | None) -> dict[str, Any]:
    assert share is not None

    def part(unit: str, most: float) -> Any:
        limit = getattr(share, unit)
        most = most if limit is UNLIMITED else min(most, limit)
        return rng.randint(0, int(most)) if isinstance(most, int) else rng.random() * most

    usage = Usage(input_tokens=part("max_tokens", 100), cost=part("max_cost", 0.1))
    return {
        "turns": part("max_turns", 5),
        "seconds": part("max_seconds", 20.0),
        "tool_failures": 0,
        "tool_calls": part("max_tool_calls", 3),
        "usage": usage,
    }


def test_the_status_of_a_refused_call_is_no_failure() -> None:
    bench = delegating(3, only(max_turns=2, max_tool_failures=1))

    assert bench.run.tool_failures == 0
    assert all(status == ResultStatus.REFUSED for _, status in bench.results)


# -- a raised share


def test_a_share_is_raised_out_of_what_is_left() -> None:
    bench = delegating(1, only(max_tokens=1_000), own=only(max_tokens=100))

    bench.does(ShareRaised, call_id="t1.c1", budget=only(max_tokens=990))

    assert shares(bench, "max_tokens") == [990]
    assert "max_tokens can be raised to 990" in bench.refuses(ShareRaised, call_id="t1.c1", budget=only(max_tokens=991))
    assert "max_tokens can be raised to 990" in bench.refuses(ShareRaised, call_id="t1.c1", budget=only())


def test_a_lowered_share_lets_a_sibling_start() -> None:
    bench = delegating(2, only(max_turns=6), shares="on_demand")
    assert bench.status == ["running", "allowed"]

    bench.does(ShareRaised, call_id="t1.c1", budget=only(max_turns=2))

    assert shares(bench, "max_turns") == [2, 2]


def test_only_a_sub_agent_at_work_has_a_share_to_raise() -> None:
    bench = Bench(sub_agents=(SubAgentSpec(name="s0"),), limits=StepLimits(sub_agents_at_once=50))
    bench.starts().replies("", "s0", "look").verdicts("allow", "allow")

    assert "no share" in bench.refuses(ShareRaised, call_id="t1.c2", budget=Budget())
    assert "not open" in bench.refuses(ShareRaised, call_id="t1.c9", budget=Budget())


def test_a_budget_without_limits_gives_whatever_is_wanted() -> None:
    bench = delegating(1, only(), own=only(max_tokens=100))

    assert shares(bench.does(ShareRaised, call_id="t1.c1", budget=only()), "max_tokens") == [UNLIMITED]
