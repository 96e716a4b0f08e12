"""When a run wants to be woken, for what, and why it does not move."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from machine_bench import Bench, writing

from geartrain.limits import UNLIMITED
from geartrain.machine import (
    EXTERNAL,
    ActorRestarted,
    Budget,
    CancelRequested,
    CompactionFailed,
    ContextPrepared,
    ContextRules,
    InputReceived,
    ModelReplied,
    PauseRequested,
    Run,
    RunCall,
    StepLimits,
    SubAgentSpec,
    TimerFired,
    WriteInDoubt,
    alarms,
    outstanding,
    stuck,
    wake_at,
)
from geartrain.machine._outstanding import WRAP_UP_TOKENS

FOREVER = Budget(max_seconds=UNLIMITED)


def reading(tool: str = "look", **spec: Any) -> Bench:
    return Bench(budget=FOREVER, **spec).starts().replies("", tool).verdicts("allow")


def backing_off(until: float) -> Bench:
    return Bench(budget=FOREVER).starts().does(ActorRestarted, reason="r", restarts=1, resume_at=until)


def kinds(bench: Bench, now: float) -> list[str]:
    return [getattr(event, "kind", type(event).__name__) for event in alarms(bench.run, bench.spec, now)]


# -- wake_at and alarms


def test_a_run_wants_to_be_woken_when_its_active_seconds_are_used_up() -> None:
    bench = Bench(budget=Budget(max_seconds=100.0)).starts()
    due = bench.now + 100.0

    assert wake_at(bench.run, bench.spec) == due
    assert kinds(bench, due - 1) == []
    assert kinds(bench, due) == ["active_seconds"]


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (lambda: Bench(budget=FOREVER).starts(deadline=1_500.0), "DeadlinePassed"),
        (lambda: Bench(budget=FOREVER).starts().replies("", "write").verdicts("ask"), "ApprovalExpired"),
        (lambda: reading().does(CancelRequested), "GraceElapsed"),
        (lambda: backing_off(until=1_009.0), "back_off"),
        (lambda: reading("fetch"), "dwell"),
        (lambda: Bench(budget=FOREVER, model=EXTERNAL).starts(), "dwell"),
    ],
)  # fmt: skip
def test_each_wait_with_a_time_has_its_alarm_and_the_alarm_moves_the_run(build: Any, kind: str) -> None:
    bench = build()
    due = wake_at(bench.run, bench.spec)
    assert due is not None

    (event,) = alarms(bench.run, bench.spec, due)

    assert getattr(event, "kind", type(event).__name__) == kind
    fields = {name: getattr(event, name) for name in event.__struct_fields__ if name not in ("id", "source")}
    bench.does(type(event), **fields)
    later = wake_at(bench.run, bench.spec)
    assert later is None or later > due


def test_alarms_come_earliest_first_and_once_for_each_wait() -> None:
    bench = Bench(budget=Budget(max_seconds=50.0)).starts(deadline=1_030.0).replies("", "write", "fetch")
    bench.verdicts("ask", "allow")

    assert kinds(bench, 9_999_999.0) == ["DeadlinePassed", "ApprovalExpired"]
    ids = [event.id for event in alarms(bench.run, bench.spec, 9_999_999.0)]
    assert ids == ["deadline", "t1.c1.expired"]


@pytest.mark.parametrize(
    "build",
    [
        reading,
        lambda: Bench(budget=FOREVER).starts(),
        lambda: Bench().starts().replies("done"),
        lambda: Bench(rules_version=1).starts().does(PauseRequested).replies("", "look"),
    ],
)
def test_a_run_whose_effects_keep_their_own_time_sets_no_alarm(build: Any) -> None:
    bench = build()

    assert wake_at(bench.run, bench.spec) is None
    assert alarms(bench.run, bench.spec, 10**12) == ()


@pytest.mark.parametrize("kind", ["active_seconds", "dwell", "back_off"])
def test_an_alarm_that_is_not_due_is_refused(kind: str) -> None:
    bench = Bench().starts()

    assert bench.refuses(TimerFired, kind=kind)
    bench.does(ActorRestarted, reason="r", restarts=1, resume_at=bench.now + 100)
    assert bench.refuses(TimerFired, kind=kind)


# -- waits over their limit


def test_a_reply_that_does_not_come_is_asked_for_again_and_then_the_run_fails() -> None:
    bench = Bench(budget=FOREVER, limits=StepLimits(model_attempts=2)).starts()
    bench.does(TimerFired, kind="dwell", time=bench.now + 1_000)
    assert bench.keys == ["t1.model.a2"]
    assert bench.run.token_count.estimated

    bench.does(TimerFired, kind="dwell", time=bench.now + 1_000)

    assert bench.code == "model_failed"


def test_a_paused_run_does_not_ask_again_for_a_reply_that_did_not_come() -> None:
    bench = Bench(budget=FOREVER).starts().does(PauseRequested).does(TimerFired, kind="dwell", time=9_999.0)

    assert (bench.run.state, bench.keys) == ("SUSPENDED", [])


def test_context_providers_that_do_not_answer_end_the_run() -> None:
    bench = Bench(providers=("memory",), budget=FOREVER).starts().does(TimerFired, kind="dwell", time=9_999.0)

    assert bench.code == "context_failed"


def test_a_policy_that_does_not_answer_is_asked_again_under_another_key() -> None:
    bench = Bench(budget=FOREVER).starts().replies("", "write")

    bench.does(TimerFired, kind="dwell", time=9_999.0)

    assert bench.keys == ["t1.policy.a2"]
    assert stuck(bench.run, 9_999.0, bench.spec) is None


@pytest.mark.parametrize(("rules", "then"), [(1, "t1.policy.a3"), (2, "t1.c1.ask")])
def test_a_policy_that_twice_does_not_answer_counts_as_ask(rules: int, then: str) -> None:
    """P6: and so this wait ends, too, also where no budget of seconds ends it."""
    bench = Bench(budget=FOREVER, rules_version=rules).starts().replies("", "write")

    bench.does(TimerFired, kind="dwell", time=9_999.0).does(TimerFired, kind="dwell", time=99_999.0)

    assert bench.keys == [then]
    assert rules == 1 or bench.call("t1.c1").reason == "the policy was asked twice and gave no verdict"


def test_a_summary_that_does_not_come_is_done_without() -> None:
    bench = Bench(budget=FOREVER, context=ContextRules(summarise=True, summarise_turns=1)).starts()
    for turn in (1, 2, 3):
        bench.replies("", "look").verdicts("allow").finishes(f"t{turn}.c1", "y" * 500)

    bench.does(TimerFired, kind="dwell", time=9_999.0)

    assert bench.run.state == "MODEL_THINKING"
    assert bench.refuses(CompactionFailed, message="late") == "that is not awaited"


@pytest.mark.parametrize("tool", ["look", "fetch"])
def test_a_read_without_an_answer_is_timed_out(tool: str) -> None:
    assert reading(tool).does(TimerFired, kind="dwell", time=9_999.0).results == [("t1.c1", "timed_out")]


@pytest.mark.parametrize("tool", ["write", "ship"])
def test_a_started_write_without_an_answer_is_in_doubt(tool: str) -> None:
    bench = writing(tool, budget=FOREVER).does(TimerFired, kind="dwell", time=9_999.0)

    assert bench.holds == ["in_doubt(t1.c1)"]


def test_a_write_in_doubt_whose_next_attempt_never_starts_stays_in_doubt() -> None:
    bench = writing("put", budget=FOREVER).does(WriteInDoubt, call_id="t1.c1", attempt=1, reason="lost")

    assert bench.does(TimerFired, kind="dwell", time=9_999.0).holds == ["in_doubt(t1.c1)"]


def test_a_model_and_a_call_lost_at_once_when_that_uses_the_budget_up() -> None:
    """The run is held, and what its calls brought is merged meanwhile: MODEL_THINKING → OBSERVE."""
    budget = Budget(max_tokens=40, max_seconds=UNLIMITED)
    bench = Bench(consult="each_result", on_budget="suspend", budget=budget, instructions="long " * 20).starts()
    bench.replies("", "look", "look").verdicts("allow", "allow").finishes("t1.c1")
    assert bench.run.state == "MODEL_THINKING"

    bench.does(TimerFired, kind="dwell", time=bench.now + 10_000)

    assert bench.path == ("OBSERVE", "COMPACT_OR_SAVE", "SUSPENDED")
    assert bench.holds == ["budget"]
    assert bench.results == [("t1.c1", "ok"), ("t1.c2", "timed_out")]


def test_a_sub_agent_keeps_its_own_time() -> None:
    bench = reading("helper", sub_agents=(SubAgentSpec(name="helper"),))

    assert bench.refuses(TimerFired, kind="dwell", time=9_999.0) == "no wait is over its limit"
    assert stuck(bench.run, 9_999.0, bench.spec) is None


def test_a_call_that_is_overdue_while_the_model_is_consulted_is_given_up() -> None:
    bench = (
        Bench(consult="each_result", budget=FOREVER).starts().replies("", "look", "fetch").verdicts("allow", "allow")
    )
    bench.finishes("t1.c1")

    bench.does(TimerFired, kind="dwell", time=bench.now + 31.0)

    assert (bench.run.state, bench.status) == ("MODEL_THINKING", ["done", "done"])


# -- stuck


@pytest.mark.parametrize(
    ("build", "cause", "about"),
    [
        (lambda: Bench().starts(), "lost_reply", "model call of turn 1, attempt 1"),
        (reading, "dead_effect", "call t1.c1 of look"),
        (lambda: Bench(providers=("m",)).starts(), "dwell", "PREPARE_CONTEXT"),
        (lambda: Bench().starts().replies("", "look"), "dwell", "WAIT_APPROVAL"),
        (lambda: reading().does(CancelRequested), "dwell", "ending as CANCELLED"),
    ],
)
def test_a_run_that_does_not_move_says_why(build: Any, cause: str, about: str) -> None:
    bench = build()

    found = stuck(bench.run, bench.now + 10_000, bench.spec)

    assert found is not None
    assert (found.cause, found.about) == (cause, about)
    assert stuck(bench.run, bench.now, bench.spec) is None


@pytest.mark.parametrize(
    "build",
    [
        lambda: Bench().starts().replies("done"),
        lambda: Bench().starts().replies("", "write").verdicts("ask"),
    ],
)
def test_a_run_that_has_ended_or_waits_for_a_person_is_not_stuck(build: Any) -> None:
    bench = build()

    assert stuck(bench.run, 10**9, bench.spec) is None


@pytest.mark.parametrize(("said", "found"), [("", True), ("try something else", False)])
def test_the_same_calls_turn_after_turn_are_no_progress_until_somebody_says_something(said: str, found: bool) -> None:
    bench = Bench().starts()
    for turn in range(1, 4):
        if turn == 3 and said:
            bench.does(InputReceived, text=said)
        bench.replies("", 'look:{"a":1}', "look").verdicts("allow", "allow")
        bench.finishes(f"t{turn}.c1").finishes(f"t{turn}.c2")

    stopped = stuck(bench.run, bench.now, bench.spec)

    assert (stopped is not None) is found
    assert stopped is None or (stopped.cause, stopped.about) == ("no_progress", "3 times in a row: look, look")
    bench.replies("", "write").verdicts("allow")
    assert stuck(bench.run, bench.now, bench.spec) is None or found


# -- outstanding


def test_what_is_outstanding_follows_from_the_run_alone() -> None:
    bench = Bench(handoffs=("other",)).starts()
    assert bench.keys == ["t1.model.a1"]
    assert Bench(providers=("m",)).starts().does(ContextPrepared).keys == ["t1.model.a1"]
    assert bench.replies("done").keys == ["end"]
    assert outstanding(Run(id="r-1")) == ()


def test_the_tokens_left_cap_the_next_reply() -> None:
    bench = Bench(budget=Budget(max_tokens=100)).starts().replies("", "look", tokens=40).verdicts("allow")
    (call,) = outstanding(bench.finishes("t1.c1").run)
    assert call.max_output_tokens == 60  # type: ignore[union-attr]
    (call,) = outstanding(Bench(budget=Budget(max_tokens=UNLIMITED)).starts().run)
    assert call.max_output_tokens is None  # type: ignore[union-attr]
    (call,) = outstanding(Bench(budget=Budget(max_tokens=5, max_turns=1), on_budget="wrap_up").starts().run)
    assert (call.max_output_tokens, call.tools) == (WRAP_UP_TOKENS, False)  # type: ignore[union-attr]


def test_a_command_to_run_a_call_says_all_that_running_it_needs() -> None:
    (command,) = outstanding(Bench().starts().replies("", 'ship:{"n":1}').verdicts("allow").run)

    assert command == RunCall(
        key="t1.c1.a1", call_id="t1.c1", tool="ship", arguments='{"n":1}', attempt=1, read_only=False, external=True
    )


def test_a_run_between_two_attempts_awaits_the_second_reply_only() -> None:
    bench = Bench(budget=FOREVER).starts().does(TimerFired, kind="dwell", time=9_999.0)

    assert "(turn 1, attempt 2 is)" in bench.refuses(ModelReplied, turn=1, attempt=1, text="late")


def test_a_run_that_is_not_summarising_has_no_such_command() -> None:
    bench = Bench().starts()

    assert [type(c).__name__ for c in outstanding(msgspec.structs.replace(bench.run, compacting=3))] == ["CallModel"]
