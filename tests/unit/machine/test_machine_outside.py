"""Waits for somebody outside: they rest, cost no active time, have a limit, and no outcome of a write is guessed."""

from __future__ import annotations

from typing import Any

import pytest
from machine_bench import TOOLS, Bench

from geartrain.limits import UNLIMITED
from geartrain.machine import (
    EXTERNAL,
    HANDOFF_PREFIX,
    ApprovalDecided,
    ApprovalExpired,
    Budget,
    BudgetRaised,
    CallAnswered,
    CallSettled,
    CancelRequested,
    GraceElapsed,
    InputReceived,
    PauseRequested,
    RequestedCall,
    RunRecovered,
    StepLimits,
    TimerFired,
    ToolSpec,
    ToolStarted,
    TurnTaken,
    alarms,
    awaits_answer,
    awaits_reply,
    is_outside,
    outstanding,
    rests,
    stuck,
    waits_outside,
    wake_at,
)

WEEK = 7 * 86_400.0


def outside(*calls: str, **spec: Any) -> Bench:
    """Return a run whose calls are all allowed, or, without any, whose model is somebody outside."""
    spec.setdefault("limits", StepLimits(external_seconds=WEEK))
    if not calls:
        return Bench(model=EXTERNAL, **spec).starts()
    return Bench(**spec).starts().replies("", *calls).verdicts(*("allow" for _ in calls))


def due(bench: Bench) -> float:
    time = wake_at(bench.run, bench.spec)
    assert time is not None
    return time


def rings(bench: Bench) -> Bench:
    """Bring the run the first alarm that it has set."""
    time = due(bench)
    (event,) = alarms(bench.run, bench.spec, time)
    fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in ("id", "source")}
    return bench.does(type(event), **fields)


# -- what rests


@pytest.mark.parametrize("calls", [(), ("fetch",), ("fetch", "fetch"), ("ship",)])
def test_a_run_that_waits_for_nothing_but_answers_from_outside_rests(calls: tuple[str, ...]) -> None:
    bench = outside(*calls)

    assert waits_outside(bench.run, bench.spec)
    assert rests(bench.run, bench.spec)
    assert awaits_reply(bench.run, bench.spec) is (not calls)
    assert [awaits_answer(call) for call in bench.run.calls] == [True] * len(calls)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Bench().starts(),
        lambda: Bench(providers=("m",), model=EXTERNAL).starts(),
        lambda: Bench().starts().replies("", "fetch"),
        lambda: outside("fetch", "look"),
        lambda: outside("ship").does(CancelRequested),
    ],
)
def test_a_run_for_which_something_is_at_work_here_does_not_rest(build: Any) -> None:
    bench = build()

    assert not waits_outside(bench.run, bench.spec)
    assert not rests(bench.run, bench.spec)


def test_suspended_and_ended_runs_rest() -> None:
    held, ended = Bench().starts().replies("", "write").verdicts("ask"), Bench().starts().replies("done")

    assert rests(held.run, held.spec)
    assert rests(ended.run, ended.spec)
    assert not waits_outside(held.run, held.spec)


def test_a_run_with_an_open_approval_beside_an_answer_from_outside_rests_too() -> None:
    bench = Bench(limits=StepLimits(external_seconds=9.0)).starts().replies("", "fetch", "write")
    bench.verdicts("allow", "ask")

    assert (bench.run.state, bench.holds) == ("EXECUTE_TOOL", ["approval(t1.c2)"])
    assert rests(bench.run, bench.spec)


def test_a_held_run_whose_policy_is_not_asked_meanwhile_rests_beside_its_outside_call() -> None:
    bench = Bench(consult="each_result").starts().replies("", "fetch", "fetch").verdicts("allow", "allow")
    bench.does(CallAnswered, call_id="t1.c1", text="x").replies("", "look")
    assert not waits_outside(bench.run, bench.spec)

    bench.does(PauseRequested)

    assert waits_outside(bench.run, bench.spec)


def test_a_resting_run_is_not_stuck_before_its_limit() -> None:
    bench = outside()

    assert stuck(bench.run, bench.now + WEEK - 5.0, bench.spec) is None
    assert stuck(bench.run, bench.now + WEEK, bench.spec) is not None


# -- active time


@pytest.mark.parametrize("calls", [(), ("fetch",), ("ship",)])
def test_time_spent_waiting_outside_is_not_active_time_and_sets_no_alarm_for_it(calls: tuple[str, ...]) -> None:
    bench = outside(*calls, budget=Budget(max_seconds=60.0))
    used = bench.run.active_seconds

    bench.does(InputReceived, text="still there?", time=bench.now + 5_000.0)

    assert bench.run.active_seconds == used
    assert [getattr(e, "kind", "") for e in alarms(bench.run, bench.spec, 10**9)] == ["dwell"]


def test_time_spent_waiting_outside_is_active_time_for_a_spec_that_recorded_no_limit() -> None:
    bench = outside("fetch", limits=StepLimits(), budget=Budget(max_seconds=60.0))

    bench.does(InputReceived, text="still there?", time=bench.now + 10.0)

    assert bench.run.active_seconds > 10.0


def test_time_in_which_something_is_at_work_here_as_well_is_active_time() -> None:
    bench = outside("fetch", "look")

    bench.finishes("t1.c2", time=bench.now + 10.0)

    assert bench.run.active_seconds >= 10.0


# -- over the limit


def test_a_turn_that_nobody_takes_fails_the_run_once_and_costs_nothing() -> None:
    bench = outside(limits=StepLimits(external_seconds=100.0))
    entered = bench.run.entered_at

    rings(bench)

    assert bench.now == entered + 100.0
    assert (bench.code, bench.run.token_count.total_tokens) == ("model_failed", 0)
    assert "nobody took turn 1 within 100 s" in str(bench.run.error)


def test_an_outside_turn_keeps_its_time_over_a_recovery() -> None:
    bench = outside(limits=StepLimits(external_seconds=100.0))
    before = due(bench)

    bench.does(RunRecovered, attempt=1, time=bench.now + 50.0)

    assert due(bench) == before


def test_a_read_that_nobody_answers_is_timed_out() -> None:
    bench = rings(outside("fetch"))

    assert bench.results == [("t1.c1", "timed_out")]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_write_that_nobody_answers_is_in_doubt_and_not_given_out_again(idempotent: bool) -> None:
    tools = (ToolSpec(name="ship", external=True, idempotent=idempotent, timeout_seconds=60.0),)
    bench = rings(outside("ship", tools=tools))

    assert bench.holds == ["in_doubt(t1.c1)"]


def test_a_write_outside_that_can_be_verified_is_verified_before_anybody_is_asked() -> None:
    tools = (ToolSpec(name="ship", external=True, verify=True, timeout_seconds=60.0),)
    bench = rings(outside("ship", tools=tools))

    assert bench.keys == ["t1.c1.verify.a1"]
    assert not waits_outside(bench.run, bench.spec)


def test_verifying_a_write_outside_has_the_time_of_whatever_runs_here() -> None:
    tools = (ToolSpec(name="ship", external=True, verify=True, timeout_seconds=60.0),)
    bench = rings(outside("ship", tools=tools, budget=Budget(max_seconds=UNLIMITED)))

    assert wake_at(bench.run, bench.spec) is None
    assert stuck(bench.run, bench.now + 60.0, bench.spec) is None
    found = stuck(bench.run, bench.now + 60.0 + bench.spec.limits.dwell_seconds, bench.spec)
    assert found is not None
    assert found.cause == "dead_effect"


def test_a_reply_to_a_turn_that_somebody_else_has_taken_is_refused() -> None:
    bench = outside().does(TurnTaken, calls=(RequestedCall(tool="nothing", arguments="{}"),), turn=1)
    assert (bench.run.state, bench.run.turn_count) == ("MODEL_THINKING", 1)

    assert bench.refuses(TurnTaken, text="done", turn=1) == "turn 1 is not awaited (turn 2 is)"
    assert bench.refuses(TurnTaken, text="done", turn=3) == "turn 3 is not awaited (turn 2 is)"
    assert bench.does(TurnTaken, text="done", turn=2).run.state == "FINISHED"


def test_a_reply_that_names_no_turn_is_for_whichever_is_awaited() -> None:
    bench = outside().does(TurnTaken, calls=(RequestedCall(tool="nothing", arguments="{}"),))

    assert bench.does(TurnTaken, text="done").run.state == "FINISHED"


# -- writes outside


def test_an_external_write_is_started_as_soon_as_it_is_open() -> None:
    bench = outside("ship")

    assert bench.status == ["started"]
    assert "is started" in bench.refuses(ToolStarted, call_id="t1.c1", attempt=1)
    assert bench.does(PauseRequested).status == ["started"]
    assert bench.does(CallAnswered, call_id="t1.c1", text="sent", by="ops").results == [("t1.c1", "ok")]


def test_an_ending_run_takes_the_answer_to_an_external_write_within_the_grace() -> None:
    bench = outside("ship").does(CancelRequested)
    assert bench.keys == ["t1.c1.a1"]

    bench.does(CallAnswered, call_id="t1.c1", text="sent")

    assert (bench.run.state, bench.results) == ("CANCELLED", [("t1.c1", "ok")])


def test_an_external_write_is_in_doubt_and_never_cancelled_when_the_grace_is_over() -> None:
    bench = outside("ship").does(CancelRequested)

    bench.does(GraceElapsed, time=bench.now + 60.0)

    assert bench.results == [("t1.c1", "in_doubt")]


def test_an_external_read_of_an_ending_run_is_cancelled_at_once() -> None:
    bench = outside("fetch").does(CancelRequested)

    assert (bench.run.state, bench.results) == ("CANCELLED", [("t1.c1", "cancelled")])


def test_an_external_read_by_older_rules_is_cancelled_by_its_effect_or_the_grace() -> None:
    bench = outside("fetch", limits=StepLimits()).does(CancelRequested)
    assert bench.run.state == "EXECUTE_TOOL"

    assert "nobody is to answer" not in bench.refuses(CallAnswered, call_id="t9.c9", text="x")
    bench.does(CallAnswered, call_id="t1.c1", text="just in time")

    assert bench.results == [("t1.c1", "ok")]


def test_a_call_of_an_ending_run_that_nobody_outside_has_is_not_answered() -> None:
    bench = outside("ship", "look", "look").does(CancelRequested)

    assert "nobody is to answer" in bench.refuses(CallAnswered, call_id="t1.c2", text="x")


# -- people who do not answer


def test_an_input_that_nobody_gives_is_timed_out_and_the_model_hears_of_it() -> None:
    bench = Bench(limits=StepLimits(approval_expiry_seconds=50.0)).starts().replies("", "ask").does(PauseRequested)
    assert bench.holds == ["input(t1.c1)", "paused"]

    rings(bench)

    assert bench.holds == ["paused"]
    assert bench.call("t1.c1").result.status == "timed_out"  # type: ignore[union-attr]
    assert bench.run.tool_failures == 1


def test_an_input_that_nobody_gives_lets_the_run_go_on() -> None:
    bench = rings(Bench().starts().replies("", "ask"))

    assert (bench.run.state, bench.results) == ("MODEL_THINKING", [("t1.c1", "timed_out")])


def test_a_doubt_that_nobody_settles_ends_the_run() -> None:
    bench = rings(outside("ship"))

    rings(bench)

    assert (bench.code, bench.results) == ("tool_lost", [("t1.c1", "in_doubt")])


def test_a_settled_doubt_expires_no_more() -> None:
    bench = rings(outside("ship", budget=Budget(max_seconds=UNLIMITED)))

    bench.does(CallSettled, call_id="t1.c1", done=False, not_done="run")

    assert bench.call("t1.c1").expires_at is None
    assert bench.refuses(TimerFired, kind="expired", time=10**9) == "nobody's time to answer is over"


def test_nobody_is_late_before_the_time_is_over() -> None:
    bench = Bench().starts().replies("", "ask")

    assert bench.refuses(TimerFired, kind="expired") == "nobody's time to answer is over"


def test_a_policy_sets_how_long_its_question_waits() -> None:
    bench = Bench(tools=TOOLS).starts().replies("", "write", "write").verdicts("ask", "ask", expires_seconds=7.0)
    asked = bench.now

    assert [call.expires_at for call in bench.run.calls] == [asked + 7.0] * 2
    bench.does(ApprovalDecided, call_id="t1.c2", approved=True, by="ops")
    bench.does(ApprovalExpired, call_id="t1.c1", time=asked + 7.0)
    assert bench.code == "approval_expired"


def test_a_turn_taken_outside_goes_through_the_same_checks_as_the_models() -> None:
    bench = outside()

    bench.does(TurnTaken, text="", calls=(), by="ops")

    assert (bench.run.anomalies, bench.run.state) == (1, "MODEL_THINKING")


@pytest.mark.parametrize(
    ("build", "elsewhere"),
    [
        (outside, True),
        (lambda: outside("fetch"), True),
        (lambda: outside("look"), False),
        (lambda: Bench().starts(), False),
        (lambda: Bench(providers=("m",), model=EXTERNAL).starts(), False),
        (lambda: rings(outside("ship", tools=(ToolSpec(name="ship", external=True, verify=True),))), False),
    ],
)
def test_what_somebody_outside_carries_out_is_told_from_what_is_done_here(build: Any, elsewhere: bool) -> None:
    bench = build()

    assert [is_outside(command, bench.spec) for command in outstanding(bench.run)] == [elsewhere]


def test_a_raised_budget_that_is_still_too_low_does_not_let_a_handoff_begin() -> None:
    bench = Bench(budget=Budget(max_seconds=10.0), on_budget="suspend", handoffs=("other",)).starts()
    bench.replies("", f"{HANDOFF_PREFIX}other", time=bench.now + 20.0)
    assert (bench.run.state, bench.run.phase, bench.holds) == ("SUSPENDED", "PREPARE_CONTEXT", ["budget"])

    assert bench.does(BudgetRaised, budget=Budget(max_seconds=15.0)).holds == ["budget"]
    assert bench.run.state == "SUSPENDED"

    assert bench.does(BudgetRaised, budget=Budget(max_seconds=90.0)).run.state == "PREPARE_CONTEXT"
