"""Deadlines, holds that nobody lifts, and the rule behind both: every wait ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from machine_bench import Bench, writing
from machine_world import World, in_many_worlds, walk

from geartrain.limits import UNLIMITED
from geartrain.machine import (
    ENDED,
    EXTERNAL,
    ActorRestarted,
    ApprovalDecided,
    Budget,
    BudgetRaised,
    CancelRequested,
    ContextPrepared,
    ContextRules,
    DeadlinePassed,
    Event,
    HandedOff,
    InputReceived,
    PauseRequested,
    Refusal,
    RequestedCall,
    Run,
    RunQuarantined,
    RunRecovered,
    RunResumed,
    RunState,
    StepLimits,
    SubAgentEnded,
    SubAgentSpec,
    TimerFired,
    ToolSpec,
    TurnTaken,
    WriteInDoubt,
    alarms,
    outstanding,
    step,
    wake_at,
)
from geartrain.machine._outstanding import dwells_until

FOREVER = Budget(max_seconds=UNLIMITED)
WEEK = 7 * 86_400.0
# The deadline of every run here; they start at 1,001 and an event comes each second.
DEADLINE = 1_100.0
HANDOFF = "hand_off_to_other"
SLOW = ToolSpec(name="fetch", read_only=True, external=True, timeout_seconds=600.0)


def due(**spec: Any) -> Bench:
    return Bench(budget=FOREVER, **spec).starts(deadline=DEADLINE)


def summarising() -> Bench:
    bench = due(context=ContextRules(summarise=True, summarise_turns=1))
    for turn in (1, 2, 3):
        bench.replies("", "look").verdicts("allow").finishes(f"t{turn}.c1", text="long " * 50)
    assert bench.run.compacting
    return bench


# Where a run can be, how it gets there, and what the error says was at work.
PLACES: tuple[tuple[str, Callable[[], Bench], str], ...] = (
    ("context", lambda: due(providers=("memory",)), "in PREPARE_CONTEXT, turn 0, the context for 99.0 s"),
    ("model", due, "in MODEL_THINKING, turn 0, the model call of turn 1 (attempt 1) for 99.0 s"),
    ("external model", lambda: due(model=EXTERNAL), "in MODEL_THINKING, turn 0"),
    ("policy", lambda: due().replies("", "look"), "turn 1, t1.c1 of 'look' before the policy for 98.0 s"),
    ("approval", lambda: due().replies("", "write").verdicts("ask"), "t1.c1 of 'write' waiting for approval for 97"),
    ("read", lambda: due().replies("", "look").verdicts("allow"), "in EXECUTE_TOOL, turn 1, t1.c1 of 'look' at work"),
    (
        "external read",
        lambda: due(tools=(SLOW,)).replies("", "fetch").verdicts("allow"),
        "t1.c1 of 'fetch' at work",
    ),
    ("write", lambda: due().replies("", "write").verdicts("allow").begins("t1.c1"), "'write' at work for 96.0 s"),
    (
        "sub-agent",
        lambda: due(sub_agents=(SubAgentSpec(name="helper"),)).replies("", "helper").verdicts("allow"),
        "t1.c1 of 'helper' at work",
    ),
    ("question", lambda: due().replies("", "ask"), "in SUSPENDED, turn 1"),
    (
        "doubt",
        lambda: due().replies("", "write").verdicts("allow").begins("t1.c1").does(
            WriteInDoubt, call_id="t1.c1", attempt=1, reason="killed"
        ),
        "in SUSPENDED, turn 1",
    ),
    ("summary", summarising, "in COMPACT_OR_SAVE, turn 3, a summary for"),
    ("paused", lambda: due().does(PauseRequested).replies("", "look"), "in SUSPENDED, turn 1"),
    ("quarantined", lambda: due().does(RunQuarantined, reason="bug"), "in SUSPENDED, turn 0"),
    ("back-off", lambda: due().does(ActorRestarted, reason="bug", restarts=1, resume_at=9_000.0), "in MODEL_THINKING"),
    (
        "budget",
        lambda: due(on_budget="suspend").replies("", "look").verdicts("allow").does(
            BudgetRaised, budget=Budget(max_turns=1)
        ).finishes("t1.c1"),
        "in SUSPENDED, turn 1",
    ),
    (
        "wrap-up turn",
        lambda: due(on_budget="wrap_up").does(BudgetRaised, budget=Budget(max_turns=2)).replies("", "nothing"),
        "in MODEL_THINKING, turn 1",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("place", "build", "said"), PLACES)
def test_wherever_a_run_is_its_deadline_is_its_next_alarm_and_ends_it(
    place: str, build: Callable[[], Bench], said: str
) -> None:
    bench = build()
    assert wake_at(bench.run, bench.spec) == DEADLINE

    (event,) = alarms(bench.run, bench.spec, DEADLINE)
    bench.does(type(event), time=DEADLINE)

    ending = bench.run.ending
    assert ending is not None
    assert (ending.state, ending.error.code, ending.error.kind) == ("FAILED", "deadline_exceeded", "deadline")  # type: ignore[union-attr]
    assert said in ending.error.message  # type: ignore[union-attr]
    assert "used: " in ending.error.message  # type: ignore[union-attr]
    # What may be awaited for the grace: a started write, a read and a sub-agent whose effects tell that they stopped.
    assert (bench.run.state == "FAILED") is (place not in ("read", "external read", "write", "sub-agent"))


# What comes first after the deadline, before the timer: it must start nothing, and ends the run by itself.
LATE: tuple[tuple[str, Callable[[], Bench], Callable[[Bench], Bench]], ...] = (
    ("a reply with calls", due, lambda b: b.replies("", "look", time=DEADLINE)),
    ("a reply with a handoff", lambda: due(handoffs=("other",)), lambda b: b.replies("", HANDOFF, time=DEADLINE)),
    ("an empty reply", due, lambda b: b.replies("", time=DEADLINE)),
    ("verdicts", lambda: due().replies("", "look"), lambda b: at(b, DEADLINE).verdicts("allow")),
    ("a result", lambda: due().replies("", "look").verdicts("allow"), lambda b: b.finishes("t1.c1", time=DEADLINE)),
    (
        "one of two results",
        lambda: due().replies("", "look", "write").verdicts("allow", "allow"),
        lambda b: b.finishes("t1.c1", time=DEADLINE),
    ),
    (
        "an approval",
        lambda: due().replies("", "write").verdicts("ask"),
        lambda b: b.does(ApprovalDecided, call_id="t1.c1", approved=True, time=DEADLINE),
    ),
    ("the context", lambda: due(providers=("m",)), lambda b: b.does(ContextPrepared, time=DEADLINE)),
    ("words", due, lambda b: b.does(InputReceived, text="and?", time=DEADLINE)),
    ("a resumption", lambda: due().does(PauseRequested).replies(""), lambda b: b.does(RunResumed, time=DEADLINE)),
    ("a recovery", due, lambda b: b.does(RunRecovered, attempt=1, time=DEADLINE)),
    ("a higher budget", due, lambda b: b.does(BudgetRaised, budget=FOREVER, time=DEADLINE)),
    (
        "the last turn's calls",
        lambda: due(on_budget="wrap_up").does(BudgetRaised, budget=Budget(max_turns=2)).replies("", "nothing"),
        lambda b: b.replies("", "look", time=DEADLINE),
    ),
    (
        "a person's calls",
        due,
        lambda b: b.does(TurnTaken, calls=(RequestedCall(tool="look"),), time=DEADLINE),
    ),
)  # fmt: skip


def at(bench: Bench, time: float) -> Bench:
    bench.now = time - 1.0
    return bench


@pytest.mark.parametrize(("what", "build", "late"), LATE)
@pytest.mark.parametrize("on_budget", ["fail", "wrap_up", "suspend"])
def test_nothing_starts_once_the_deadline_is_over_though_the_timer_is_late(
    what: str, build: Callable[[], Bench], late: Callable[[Bench], Bench], on_budget: str
) -> None:
    bench = late(build())

    assert (bench.run.state, bench.code) == ("FAILED", "deadline_exceeded")
    assert [command.key for command in outstanding(bench.run)] == ["end"]


def test_an_answer_that_comes_before_the_timer_finishes_though_the_deadline_is_over() -> None:
    assert due().replies("the answer", time=DEADLINE + 1).run.state == "FINISHED"


def test_a_run_that_starts_after_its_deadline_asks_nobody() -> None:
    bench = Bench(providers=("memory",)).starts(deadline=900.0)

    assert (bench.run.state, bench.code, bench.run.turn_count) == ("FAILED", "deadline_exceeded", 0)


@pytest.mark.parametrize("on_budget", ["fail", "wrap_up", "suspend"])
def test_of_a_deadline_and_a_budget_at_one_moment_the_deadline_counts(on_budget: str) -> None:
    bench = Bench(budget=Budget(max_seconds=99.0), on_budget=on_budget).starts(deadline=DEADLINE)

    first = alarms(bench.run, bench.spec, DEADLINE)[0]
    bench.does(type(first), **{"kind": first.kind} if isinstance(first, TimerFired) else {}, time=DEADLINE)

    assert bench.code == "deadline_exceeded"


def test_of_a_cancellation_and_a_deadline_at_one_moment_the_cancellation_counts() -> None:
    bench = due().does(CancelRequested, time=DEADLINE)

    assert bench.code == "cancelled_by_user"
    assert "ended" in bench.refuses(DeadlinePassed, time=DEADLINE)


def test_under_the_rules_of_old_journals_only_the_timer_ends_a_run_at_its_deadline() -> None:
    bench = due(rules_version=1).replies("", "look", time=DEADLINE)
    assert bench.run.state == "WAIT_APPROVAL"

    bench.does(DeadlinePassed, time=DEADLINE)

    assert bench.run.error.message.startswith("the deadline passed in WAIT_APPROVAL after 1 turns")  # type: ignore[union-attr]


def test_a_handoff_at_the_deadline_is_not_gone_through_with() -> None:
    bench = due(handoffs=("agent",)).replies("", "hand_off_to_agent")

    bench.does(HandedOff, agent="agent", spec=bench.run.spec, time=DEADLINE)

    assert bench.code == "deadline_exceeded"


# -- holds that nobody lifts


@pytest.mark.parametrize(
    ("build", "code", "state"),
    [
        (lambda: Bench().starts().does(PauseRequested).replies("", "look"), "cancelled_by_system", "CANCELLED"),
        (lambda: Bench().starts().does(RunQuarantined, reason="bug"), "system_error", "FAILED"),
        (lambda: Bench().starts().does(RunQuarantined, reason="x", code="agent_gone"), "agent_gone", "FAILED"),
        (
            lambda: Bench(budget=Budget(max_tokens=5), on_budget="suspend").starts().replies("", "look"),
            "token_budget_exceeded",
            "FAILED",
        ),
        (
            lambda: Bench().starts().does(PauseRequested).does(RunQuarantined, reason="bug"),
            "cancelled_by_system",
            "CANCELLED",
        ),
    ],
)
def test_a_hold_that_nobody_lifts_ends_the_run_when_an_approval_would_expire(build: Any, code: str, state: str) -> None:
    bench = build()
    until = wake_at(bench.run, bench.spec)
    assert until is not None
    assert bench.now <= until + 1 - WEEK + 1

    (event,) = alarms(bench.run, bench.spec, until)
    bench.does(TimerFired, kind=event.kind, time=until)

    assert (bench.run.state, bench.code) == (state, code)
    assert "nobody lifted the hold" in bench.run.error.message  # type: ignore[union-attr]


def test_of_two_holds_that_expire_at_once_the_one_with_a_reason_of_its_own_names_the_code() -> None:
    bench = Bench().starts().does(PauseRequested).does(RunQuarantined, reason="bug")

    bench.does(TimerFired, kind="expired", time=bench.now + WEEK)

    assert bench.code == "system_error"


def test_a_hold_expires_only_in_its_time_and_not_once_it_is_lifted() -> None:
    bench = Bench().starts().does(PauseRequested).replies("", "look")
    assert bench.refuses(TimerFired, kind="expired")

    bench.does(RunResumed)

    assert bench.refuses(TimerFired, kind="expired", time=bench.now + WEEK)


def test_under_the_rules_of_old_journals_a_pause_has_no_end() -> None:
    bench = Bench(rules_version=1).starts().does(PauseRequested).replies("", "look")

    assert wake_at(bench.run, bench.spec) is None


# -- every wait ends (P10)


def next_by_itself(world: World, run: Run) -> Event | None:
    """Return what happens to a run that nobody answers: its next alarm, its next lost answer, a sub-agent's end."""
    spec = world.specs[run.spec]
    times = [time for time in (wake_at(run, spec), dwells_until(run, spec)) if time is not None]
    if not times:
        helper = next((call for call in run.calls if call.sub_agent and call.status == "running"), None)
        if helper is None:
            return None
        return SubAgentEnded(id="e", time=run.updated_at, call_id=helper.id, run_id="c", state=RunState.CANCELLED)
    now = max(run.updated_at, min(times))
    due = alarms(run, spec, now)
    return due[0] if due else TimerFired(id="dwell", time=now, kind="dwell")


@in_many_worlds
def test_a_run_that_nobody_ever_answers_ends_by_itself(seed: int) -> None:
    """P10: from wherever it is, without a person, a model, a tool or a policy that answers."""
    for world, moved in [*walk(seed)][::7]:
        run, steps = moved.after, 0
        while run.state not in ENDED:
            event = next_by_itself(world, run)
            assert event is not None, f"waits for ever: {run.state} {run.holds} {run.calls}"
            result = step(run, event, world.specs)
            assert not isinstance(result, Refusal), (result, run.state, run.calls)
            run, steps = result.run, steps + 1
            assert steps < 200, f"goes round: {run.state} {run.holds} {run.calls}"


@in_many_worlds
def test_a_suspended_run_always_has_an_alarm(seed: int) -> None:
    for world, moved in walk(seed):
        if moved.after.state is RunState.SUSPENDED:
            assert wake_at(moved.after, world.specs[moved.after.spec]) is not None


def test_a_write_that_never_ends_is_given_up_in_time() -> None:
    bench = writing(budget=FOREVER, limits=StepLimits(approval_expiry_seconds=60.0))
    while bench.run.state not in ENDED:
        until = dwells_until(bench.run, bench.spec) or wake_at(bench.run, bench.spec)
        assert until is not None
        due = alarms(bench.run, bench.spec, until)
        kind = getattr(due[0], "kind", "dwell") if due else "dwell"
        bench.does(TimerFired, kind=kind, time=until)

    assert bench.code == "tool_lost"
