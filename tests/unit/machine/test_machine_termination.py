"""When a run must end: each limit around its n-th unit, each `on_budget`, and conditions put together."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from machine_bench import Bench

from geartrain.errors import InvalidValue
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import (
    AgentSpec,
    AllOf,
    AnyOf,
    Budget,
    BudgetRaised,
    CallAnswered,
    CancelRequested,
    CostReached,
    InputReceived,
    Measured,
    PauseRequested,
    ReasonCode,
    RequestedCall,
    ResultStatus,
    RunResumed,
    RunState,
    SecondsReached,
    StepLimits,
    SubAgentEnded,
    SubAgentSpec,
    TimerFired,
    TokensReached,
    ToolCalled,
    ToolCallsReached,
    ToolFailuresReached,
    ToolSpec,
    TurnsReached,
    TurnTaken,
    Usage,
    decode_spec,
    encode_spec,
)
from geartrain.machine._draft import Draft
from geartrain.machine._ending import end
from geartrain.machine._reached import budget_reached

OPEN = Budget(max_turns=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED, max_tokens=UNLIMITED)
# What is measured, the limit's name, its condition, its code, and whether it is looked at before a model call only.
LIMITS = (
    ("turns", "max_turns", TurnsReached, "max_turns_exceeded", True),
    ("seconds", "max_seconds", SecondsReached, "timeout", False),
    ("tool_failures", "max_tool_failures", ToolFailuresReached, "too_many_tool_failures", False),
    ("tokens", "max_tokens", TokensReached, "token_budget_exceeded", False),
    ("cost", "max_cost", CostReached, "cost_budget_exceeded", False),
    ("tool_calls", "max_tool_calls", ToolCallsReached, "tool_call_budget_exceeded", True),
)


def budget(**limits: Any) -> Budget:
    return msgspec.structs.replace(OPEN, **limits)


def using(what: str, amount: int, **spec: Any) -> Bench:
    """Return a run that has used *amount* of *what* and is about to ask the model again."""
    bench = Bench(**spec).starts()
    if what in ("turns", "tool_calls"):
        amount = min(amount, getattr(bench.spec.budget, f"max_{what}"))  # the next one is not to be had
    match what:
        case "turns" | "tool_calls":
            for _ in range(amount):
                turn = bench.replies("", "look").run.turn_count
                bench.verdicts("allow").finishes(f"t{turn}.c1")
        case "tool_failures":
            bench.replies("", *["look"] * amount).verdicts(*["allow"] * amount)
            for position in range(1, amount + 1):
                if bench.run.error is None:
                    bench.finishes(f"t1.c{position}", status=ResultStatus.ERROR)
        case "tokens":
            bench.replies("", "look", tokens=amount)
        case "cost":
            bench.replies("", "look", usage=Usage(cost=float(amount)))
        case "seconds":
            bench.does(InputReceived, text="wait", time=bench.now + amount)
    return bench


@pytest.mark.parametrize(("what", "name", "condition", "code", "before"), LIMITS)
@pytest.mark.parametrize("away", [-1, 0, 1])
def test_a_limit_is_reached_by_its_nth_unit(
    what: str, name: str, condition: Any, code: str, before: bool, away: int
) -> None:
    used = 4 if away >= 0 or what in ("tokens", "cost", "seconds") else 3
    limit = used - away

    bench = using(what, used, budget=budget(**{name: limit}))

    assert (bench.code == code) is (away >= 0)


@pytest.mark.parametrize(("what", "name", "condition", "code", "before"), LIMITS)
@pytest.mark.parametrize("before_call", [True, False])
@pytest.mark.parametrize("used", [3, 4, 5])
def test_a_budget_and_its_condition_agree(
    what: str, name: str, condition: Any, code: str, before: bool, before_call: bool, used: int
) -> None:
    bench = Bench().starts()
    fields: dict[str, Any] = {
        "turns": {"turn_count": used},
        "seconds": {"active_seconds": float(used)},
        "tool_failures": {"tool_failures": used},
        "tokens": {"token_count": Usage(output_tokens=used)},
        "cost": {"token_count": Usage(cost=float(used))},
        "tool_calls": {"tool_calls": used},
    }[what]
    run = msgspec.structs.replace(bench.run, active_seconds=0.0)
    run = msgspec.structs.replace(run, budget=budget(**{name: 4}), **fields)

    found = budget_reached(run, before_call=before_call)

    assert found == condition(4).met(run.measure(before_call=before_call))
    assert (found == code) is (used >= 4 and (before_call or not before))


@pytest.mark.parametrize(("what", "name", "condition", "code", "before"), LIMITS)
def test_a_limit_that_suspends_holds_the_run_until_the_budget_is_raised(
    what: str, name: str, condition: Any, code: str, before: bool
) -> None:
    bench = using(what, 4, budget=budget(**{name: 4}), on_budget="suspend")
    if what == "seconds":
        bench.replies("", "look").verdicts("allow") if "SUSPENDED" not in bench.path else None

    assert "budget" in bench.holds
    assert "it waits for" in bench.refuses(RunResumed)
    bench.does(BudgetRaised, budget=OPEN)
    assert bench.holds == []
    assert bench.run.state != "SUSPENDED"


@pytest.mark.parametrize(("what", "name", "condition", "code", "before"), LIMITS[1:])
def test_a_limit_that_wraps_up_leaves_one_turn_without_tools(
    what: str, name: str, condition: Any, code: str, before: bool
) -> None:
    bench = using(what, 4, budget=budget(**{name: 4}), on_budget="wrap_up")
    if bench.run.wrap_up_turn == 0 and bench.run.state == "MODEL_THINKING":
        bench.replies("", "look")  # the time was over while the model thought: its calls come too late

    command = bench.keys[-1]
    assert command == f"t{bench.run.turn_count + 1}.model.a1"
    assert bench.run.wrapping_up == code
    assert bench.run.wrap_up_turn == bench.run.turn_count + 1
    assert bench.replies("what there is").run.state == "FINISHED"


def test_calls_that_come_once_the_budget_is_used_up_are_refused_and_the_model_may_answer() -> None:
    """BU-2: the reason is named, and the model may answer once if so configured."""
    bench = Bench(budget=budget(max_tokens=100), on_budget="wrap_up").starts().replies("", "look", "write", tokens=200)

    assert bench.results == [("t1.c1", "refused"), ("t1.c2", "refused")]
    assert "token_budget_exceeded" in bench.run.messages[-1].text
    assert bench.replies("so far").run.final_answer == "so far"


@pytest.mark.parametrize("reply", [("", "look"), ("",)])
def test_a_last_turn_that_brings_no_answer_ends_the_run(reply: tuple[str, ...]) -> None:
    bench = Bench(budget=budget(max_turns=2), on_budget="wrap_up").starts().replies("", "nothing")
    assert bench.run.wrap_up_turn == 2

    bench.replies(*reply)

    assert bench.code == "max_turns_exceeded"
    assert bench.run.turn_count == 2


def test_with_one_turn_in_all_that_turn_is_without_tools() -> None:
    bench = Bench(budget=budget(max_turns=1), on_budget="wrap_up").starts()

    assert bench.run.wrap_up_turn == 1


def test_a_persons_turns_may_leave_no_turn_to_wrap_up_in() -> None:
    bench = Bench(budget=budget(max_turns=2, max_seconds=5.0), on_budget="wrap_up").starts().replies("", "look")
    bench.verdicts("allow").does(PauseRequested).finishes("t1.c1", time=bench.now + 60)
    assert bench.run.wrapping_up == "timeout"
    bench.does(TurnTaken, text="hm", calls=(RequestedCall(tool="look"),))

    bench.does(RunResumed)

    assert bench.code == "timeout"


def test_a_budget_raised_while_wrapping_up_lets_the_run_go_on() -> None:
    bench = Bench(budget=budget(max_turns=2), on_budget="wrap_up").starts().replies("", "nothing")

    bench.does(BudgetRaised, budget=budget(max_turns=4)).replies("", "nothing")

    assert bench.run.wrapping_up == ""
    bench.replies("", "nothing")
    assert bench.run.wrap_up_turn == 4


@pytest.mark.parametrize("over", [{"max_tokens": 100}, {"max_seconds": 5.0}, {"max_cost": 1.0}, {"max_turns": 1}])
@pytest.mark.parametrize("on_budget", ["fail", "suspend", "wrap_up"])
def test_an_answer_always_finishes(over: dict[str, Any], on_budget: str) -> None:
    bench = Bench(budget=budget(**over), on_budget=on_budget).starts()

    bench.replies("the answer", usage=Usage(input_tokens=500, cost=9.0), time=bench.now + 60)

    assert bench.run.state == "FINISHED"
    assert bench.run.final_answer == bench.run.messages[-1].text == "the answer"


def test_an_answer_finishes_also_while_paused() -> None:
    assert Bench().starts().does(PauseRequested).replies("so").run.state == "FINISHED"


def test_an_answer_that_has_not_heard_what_was_said_meanwhile_is_no_end() -> None:
    bench = Bench().starts().does(InputReceived, text="and the other?").replies("the first")

    assert bench.run.state == "MODEL_THINKING"
    assert [message.text for message in bench.run.messages[-2:]] == ["the first", "and the other?"]


def test_the_last_turns_answer_finishes_though_something_was_said_meanwhile() -> None:
    bench = Bench(budget=budget(max_turns=1)).starts().does(InputReceived, text="more").replies("done")

    assert bench.run.state == "FINISHED"
    assert bench.run.queued_input == ("more",)


def test_when_several_limits_are_reached_the_first_in_order_names_the_code() -> None:
    every = dict.fromkeys([name for _, name, *_ in LIMITS], 1)
    bench = Bench().starts()
    run = msgspec.structs.replace(
        bench.run,
        turn_count=9,
        active_seconds=9.0,
        tool_failures=9,
        tool_calls=9,
        token_count=Usage(input_tokens=9, cost=9.0),
    )
    found = []
    for _, name, *_ in LIMITS:
        found.append(str(budget_reached(msgspec.structs.replace(run, budget=budget(**every)), before_call=True)))
        every[name] = UNLIMITED

    assert found == [code for *_, code, _ in LIMITS]


def test_a_cancellation_comes_before_every_limit() -> None:
    bench = Bench(budget=budget(max_seconds=5.0)).starts().does(CancelRequested, time=5_000.0)

    assert bench.code == "cancelled_by_user"


@pytest.mark.parametrize(
    ("condition", "used", "code"),
    [
        (TurnsReached(2) | TokensReached(5), Measured(turns=2), "max_turns_exceeded"),
        (TurnsReached(2) | TokensReached(5), Measured(tokens=5), "token_budget_exceeded"),
        (TurnsReached(2) | TokensReached(5), Measured(turns=1, tokens=4), None),
        (TurnsReached(2) & TokensReached(5), Measured(turns=2, tokens=5), "max_turns_exceeded"),
        (TurnsReached(2) & TokensReached(5), Measured(turns=2), None),
        (TurnsReached(2) & TokensReached(5) | ToolCalled("x"), Measured(called=("x",)), "condition_met"),
        (CostReached(1.0) | SecondsReached(3.0), Measured(seconds=3.0), "timeout"),
        (
            ToolFailuresReached(1) & ToolCallsReached(1),
            Measured(tool_failures=1, tool_calls=1),
            "too_many_tool_failures",
        ),
        (ToolCallsReached(1), Measured(tool_calls=1, before_call=False), None),
    ],
)
def test_conditions_are_joined_by_or_and_by_and(condition: Any, used: Measured, code: str | None) -> None:
    assert condition.met(used) == code
    stored = decode_spec(encode_spec(AgentSpec(name="a", stop_when=condition)))
    assert stored.stop_when == condition


def test_an_empty_conjunction_never_holds() -> None:
    assert AllOf(()).met(Measured()) is None
    assert AnyOf(()).met(Measured()) is None


@pytest.mark.parametrize("status", [ResultStatus.OK, ResultStatus.ERROR])
@pytest.mark.parametrize("others", [(), ("look",)])
def test_a_run_stops_when_a_tool_it_waits_for_was_called_and_went_well(status: ResultStatus, others: Any) -> None:
    bench = Bench(stop_when=ToolCalled("write")).starts().replies("", "write", *others)
    bench.verdicts(*["allow"] * (1 + len(others))).begins("t1.c1").finishes("t1.c1", status=status)

    assert (bench.code == "condition_met") is (status is ResultStatus.OK)


@pytest.mark.parametrize("on_budget", ["fail", "suspend", "wrap_up"])
def test_a_condition_of_the_agents_own_ends_the_run_since_no_budget_lifts_it(on_budget: str) -> None:
    bench = Bench(stop_when=TurnsReached(1), on_budget=on_budget, budget=OPEN).starts().replies("", "look")
    bench.verdicts("allow").finishes("t1.c1")

    assert bench.code == "max_turns_exceeded"


def test_at_most_the_limit_of_tool_calls_runs_and_every_call_has_a_result() -> None:
    """BU-2: limit 3 and a reply with five calls."""
    bench = Bench(budget=budget(max_tool_calls=3)).starts().replies("", *["look"] * 5).verdicts(*["allow"] * 5)

    assert bench.status == ["running"] * 3 + ["done"] * 2
    for position in (1, 2, 3):
        bench.finishes(f"t1.c{position}")
    assert [status for _, status in bench.results] == ["ok"] * 3 + ["refused"] * 2
    assert bench.code == ReasonCode.TOOL_CALL_BUDGET_EXCEEDED


def test_tool_calls_of_sub_agents_count() -> None:
    bench = Bench(budget=budget(max_tool_calls=3), sub_agents=(SubAgentSpec(name="helper"),)).starts()
    bench.replies("", "helper").verdicts("allow")

    bench.does(SubAgentEnded, call_id="t1.c1", run_id="r-2", state=RunState.FINISHED, text="x", tool_calls=2)

    assert bench.run.tool_calls == 3
    assert bench.code == "tool_call_budget_exceeded"


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        (None, None),
        (Usage(input_tokens=-5, output_tokens=3), (0, 3, 0.0)),
        (Usage(input_tokens=3, cost=-1.0), (3, 0, 0.0)),
        (Usage(input_tokens=3, cost=math.nan), (3, 0, 0.0)),
        (Usage(input_tokens=3, cost=math.inf), (3, 0, 0.0)),
        (Usage(input_tokens=10**30), (10**9, 0, 0.0)),
    ],
)
def test_a_figure_that_is_missing_or_impossible_is_estimated_and_lowers_nothing(usage: Any, charged: Any) -> None:
    """IN-8."""
    bench = Bench(budget=OPEN).starts().replies("", "look", usage=Usage(input_tokens=7, cost=0.5))
    before = bench.verdicts("allow").finishes("t1.c1").run.token_count

    after = bench.replies("", "look", usage=usage).run.token_count

    assert after.estimated
    assert after.total_tokens >= before.total_tokens
    assert after.cost >= before.cost
    if charged is not None:
        delta = (
            after.input_tokens - before.input_tokens,
            after.output_tokens - before.output_tokens,
            after.cost - before.cost,
        )
        assert delta == charged
    else:
        assert after.input_tokens > before.input_tokens


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["max_turns", "max_seconds", "max_cost"])
def test_a_limit_that_is_none_is_refused_when_it_is_made(name: str, value: float) -> None:
    with pytest.raises(InvalidValue, match=name):
        Budget(**{name: value})


@pytest.mark.parametrize("name", ["max_turns", "max_tool_failures", "max_tokens", "max_tool_calls"])
def test_what_is_counted_has_a_whole_limit(name: str) -> None:
    with pytest.raises(InvalidValue, match="a whole number"):
        Budget(**{name: 2.5})


@pytest.mark.parametrize("value", [0.0, math.inf, math.nan])
def test_a_time_that_json_cannot_hold_is_refused_in_a_spec(value: float) -> None:
    with pytest.raises(InvalidValue, match="timeout_seconds"):
        ToolSpec(name="t", timeout_seconds=value)
    with pytest.raises(InvalidValue, match="grace_seconds"):
        StepLimits(grace_seconds=value)


def test_the_active_seconds_are_used_up_at_the_very_moment_their_alarm_names() -> None:
    """No hair's breadth of rounding sets the alarm again for the same moment."""
    bench = Bench(budget=budget(max_seconds=0.3))
    bench.starts(time=1_799_999_999.7000003)

    bench.does(TimerFired, kind="active_seconds", time=1_799_999_999.7000003 + 0.3)

    assert bench.code == "timeout"


def test_a_persons_answer_that_is_an_error_counts_as_a_failure() -> None:
    bench = Bench(budget=budget(max_tool_failures=1)).starts().replies("", "look")

    bench.does(CallAnswered, call_id="t1.c1", text="cannot", status=ResultStatus.ERROR)

    assert bench.code == "too_many_tool_failures"


def test_the_limits_of_a_runtime_go_into_the_spec() -> None:
    limits = StepLimits.of(Limits(grace_seconds=2.0, anomalies_per_run=7, sub_agent_width=9))

    assert (limits.grace_seconds, limits.anomalies, limits.open_calls) == (2.0, 7, 9)


def test_the_first_cause_of_an_end_is_kept() -> None:
    bench = Bench().starts().replies("", "look").verdicts("allow").does(CancelRequested)
    draft = Draft(bench.run, bench.spec, bench.now, [])

    end(draft, RunState.FINISHED, None)

    assert draft.run.ending == bench.run.ending


def test_what_a_run_has_used_is_measured_as_before_a_model_call() -> None:
    run = Bench().starts().replies("", "look").verdicts("allow").finishes("t1.c1").run

    assert run.measured == run.measure(before_call=True)
    assert (run.measured.turns, run.measured.tool_calls, run.measured.called) == (1, 1, ("look",))
