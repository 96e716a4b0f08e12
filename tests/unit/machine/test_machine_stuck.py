"""Runs that do not get on: every wait × every action, and turns that bring nothing new."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from machine_bench import TOOLS, Bench, writing

from geartrain.errors import InvalidValue
from geartrain.limits import UNLIMITED
from geartrain.machine import (
    EXTERNAL,
    READ_ARTIFACT,
    Artifact,
    Budget,
    CancelRequested,
    ContextRules,
    InputReceived,
    PauseRequested,
    ReasonCode,
    RunRecovered,
    RunResumed,
    StepLimits,
    StuckRules,
    SubAgentSpec,
    TimerFired,
    ToolSpec,
    alarms,
    decode_spec,
    encode_spec,
    overdue_keys,
    stuck,
    wake_at,
)

FOREVER = Budget(max_seconds=UNLIMITED, max_tool_failures=UNLIMITED)
LIMIT = 10.0
OUTSIDE = StepLimits(external_seconds=5.0)


def bench(action: Any, **spec: Any) -> Bench:
    dwell = dict.fromkeys(
        ("PREPARE_CONTEXT", "MODEL_THINKING", "WAIT_APPROVAL", "EXECUTE_TOOL", "COMPACT_OR_SAVE"), LIMIT
    )
    return Bench(budget=FOREVER, stuck=StuckRules(dwell=dwell, on_dwell=action), **spec)


def preparing(action: Any) -> Bench:
    return bench(action, providers=("m",)).starts()


def thinking(action: Any) -> Bench:
    return bench(action).starts()


def judging(action: Any) -> Bench:
    return bench(action).starts().replies("", "look")


def reading(action: Any) -> Bench:
    return bench(action).starts().replies("", "look").verdicts("allow")


def started(tool: str) -> Callable[[Any], Bench]:
    return lambda action: bench(action).starts().replies("", tool).verdicts("allow").begins("t1.c1")


def verifying(action: Any) -> Bench:
    begun = started("post")(action)
    return begun.does(TimerFired, kind="dwell", time=begun.now + LIMIT) if action == "resend" else begun


def summarising(action: Any) -> Bench:
    rules = ContextRules(summarise=True, summarise_turns=1)
    summing = bench(action, context=rules).starts()
    while summing.run.state == "MODEL_THINKING":
        number = summing.run.turn_count + 1
        summing.replies("x" * 500, f'look:{{"n":{number}}}').verdicts("allow").finishes(f"t{number}.c1", "y" * 500)
    assert summing.run.state == "COMPACT_OR_SAVE"
    return summing


# What becomes of each wait that outlasts its limit: (state, holds, keys of what is awaited then, code).
GRID: dict[tuple[str, Callable[[Any], Bench]], dict[str, tuple[str, list[str], list[str], str]]] = {
    ("context", preparing): {
        "report": ("PREPARE_CONTEXT", [], ["t0.context.a1"], ""),
        "resend": ("PREPARE_CONTEXT", [], ["t0.context.a2"], ""),
        "fail": ("FAILED", [], ["end"], "context_failed"),
        "suspend": ("SUSPENDED", ["stuck"], [], ""),
    },
    ("model", thinking): {
        "report": ("MODEL_THINKING", [], ["t1.model.a1"], ""),
        "resend": ("MODEL_THINKING", [], ["t1.model.a2"], ""),
        "fail": ("FAILED", [], ["end"], "model_failed"),
        "suspend": ("SUSPENDED", ["stuck"], [], ""),
    },
    ("policy", judging): {
        "report": ("WAIT_APPROVAL", [], ["t1.policy.a1"], ""),
        "resend": ("WAIT_APPROVAL", [], ["t1.policy.a2"], ""),
        "fail": ("FAILED", [], ["end"], "system_error"),
        "suspend": ("SUSPENDED", ["stuck"], [], ""),
    },
    ("read", reading): {
        "report": ("EXECUTE_TOOL", [], ["t1.c1.a1"], ""),
        "resend": ("EXECUTE_TOOL", [], ["t1.c1.a2"], ""),
        "fail": ("EXECUTE_TOOL", [], [], "tool_lost"),  # until it has stopped
        "suspend": ("SUSPENDED", ["stuck"], [], ""),
    },
    ("write", started("write")): {
        "report": ("EXECUTE_TOOL", [], ["t1.c1.a1"], ""),
        "resend": ("SUSPENDED", ["in_doubt(t1.c1)"], [], ""),
        "fail": ("EXECUTE_TOOL", [], ["t1.c1.a1"], "tool_lost"),  # it has the grace to finish
        "suspend": ("SUSPENDED", ["stuck", "in_doubt(t1.c1)"], [], ""),
    },
    ("idempotent write", started("put")): {
        "report": ("EXECUTE_TOOL", [], ["t1.c1.a1"], ""),
        "resend": ("EXECUTE_TOOL", [], ["t1.c1.a2"], ""),
        "fail": ("EXECUTE_TOOL", [], ["t1.c1.a1"], "tool_lost"),
        "suspend": ("SUSPENDED", ["stuck"], [], ""),
    },
    ("verifiable write", started("post")): {
        "report": ("EXECUTE_TOOL", [], ["t1.c1.a1"], ""),
        "resend": ("EXECUTE_TOOL", [], ["t1.c1.verify.a1"], ""),
        "fail": ("EXECUTE_TOOL", [], ["t1.c1.a1"], "tool_lost"),
        "suspend": ("EXECUTE_TOOL", ["stuck"], ["t1.c1.verify.a1"], ""),  # to be asked is no work that is begun
    },
    ("summary", summarising): {
        "report": ("COMPACT_OR_SAVE", [], ["t3.compact.a1"], ""),
        "resend": ("MODEL_THINKING", [], ["t4.model.a1"], ""),
        "fail": ("FAILED", [], ["end"], "model_failed"),
        "suspend": ("SUSPENDED", ["stuck"], [], ""),
    },
}
ROWS = [(build, action, *row) for (_, build), rows in GRID.items() for action, row in rows.items()]


@pytest.mark.parametrize(("build", "action", "state", "holds", "keys", "code"), ROWS)
def test_what_becomes_of_each_wait_over_its_limit_is_as_the_rules_say(
    build: Any, action: str, state: str, holds: list[str], keys: list[str], code: str
) -> None:
    run = build(action)
    due = run.now + LIMIT
    assert wake_at(run.run, run.spec) == due
    assert [event.kind for event in alarms(run.run, run.spec, due)] == ["dwell"]  # type: ignore[union-attr]
    assert overdue_keys(run.run, run.spec, due) == tuple(run.keys)
    assert overdue_keys(run.run, run.spec, due - 0.1) == ()
    assert "over its limit" in run.refuses(TimerFired, kind="dwell", time=due - 0.1)

    run.does(TimerFired, kind="dwell", time=due)

    ending = run.run.ending
    found = run.code or (str(ending.error.code) if ending is not None and ending.error is not None else "")
    assert (run.run.state, run.holds, run.keys, found) == (state, holds, keys, code)
    acted = run.run.acted
    assert acted is not None
    assert (acted.cause, acted.action, acted.since, acted.time) == ("dwell", action, due - LIMIT, due)


@pytest.mark.parametrize("build", [build for _, build in GRID])
def test_what_is_only_reported_is_reported_once_and_named_until_it_is_over(build: Any) -> None:
    run = build("report")
    before = stuck(run.run, run.now + LIMIT, run.spec)
    run.does(TimerFired, kind="dwell", time=run.now + LIMIT)

    after = stuck(run.run, run.now, run.spec)

    assert alarms(run.run, run.spec, run.now + 1_000_000) == ()
    assert before is not None
    assert after is not None
    assert (before.done, after.done) == ("", "report")
    assert (before.cause, before.since, before.about) == (after.cause, after.since, after.about)


@pytest.mark.parametrize("build", [preparing, thinking, reading, started("put")])
def test_what_was_asked_for_once_more_is_named_until_it_comes(build: Any) -> None:
    run = build("resend")
    first = run.now
    run.does(TimerFired, kind="dwell", time=run.now + LIMIT)

    again = stuck(run.run, run.now + 1, run.spec)

    assert again is not None
    assert (again.cause, again.since, again.done) == ("dwell", first, "resend")


def test_an_answer_that_comes_to_the_second_try_ends_it() -> None:
    run = reading("resend")
    run.does(TimerFired, kind="dwell", time=run.now + LIMIT).finishes("t1.c1")

    assert stuck(run.run, run.now + 1, run.spec) is None
    assert run.results == [("t1.c1", "ok")]


def test_a_read_is_run_again_as_often_as_the_rules_say_and_then_times_out() -> None:
    run = reading("resend")
    for attempt in (2, 3):
        run.does(TimerFired, kind="dwell", time=run.now + LIMIT)
        assert run.keys == [f"t1.c1.a{attempt}"]

    run.does(TimerFired, kind="dwell", time=run.now + LIMIT)

    assert run.results == [("t1.c1", "timed_out")]


def test_attempts_that_were_lost_with_their_process_are_none_of_those_that_the_rules_give() -> None:
    run = reading("resend")
    for attempt in (1, 2):
        run.does(RunRecovered, attempt=attempt)

    for resent in (4, 5):
        run.does(TimerFired, kind="dwell", time=run.now + LIMIT)
        assert run.keys == [f"t1.c1.a{resent}"]

    assert run.does(TimerFired, kind="dwell", time=run.now + LIMIT).results == [("t1.c1", "timed_out")]


def test_providers_are_asked_again_as_often_as_the_rules_say_and_then_fail_the_run() -> None:
    run = preparing("resend")
    for attempt in (2, 3):
        run.does(TimerFired, kind="dwell", time=run.now + LIMIT)
        assert run.keys == [f"t0.context.a{attempt}"]

    assert run.does(TimerFired, kind="dwell", time=run.now + LIMIT).code == "context_failed"


def test_a_model_is_asked_again_up_to_its_attempts_each_charged() -> None:
    run = thinking("resend")
    charged = [run.run.token_count.total_tokens]
    for _ in range(2):
        run.does(TimerFired, kind="dwell", time=run.now + LIMIT)
        charged.append(run.run.token_count.total_tokens)

    assert run.does(TimerFired, kind="dwell", time=run.now + LIMIT).code == "model_failed"
    assert charged == sorted(set(charged))


def test_a_write_outlasting_its_limit_is_never_started_a_second_time() -> None:
    for action in ("report", "resend", "fail", "suspend"):
        run = started("write")(action)
        run.does(TimerFired, kind="dwell", time=run.now + LIMIT)
        if run.run.held_by("stuck"):
            run.does(RunResumed)

        assert "a2" not in " ".join(run.keys)
        assert run.run.ending is not None or run.call("t1.c1").status in ("started", "in_doubt")


@pytest.mark.parametrize("build", [preparing, thinking, judging, reading, started("put"), summarising])
def test_a_run_held_for_being_stuck_rests_is_named_and_goes_on_when_it_is_resumed(build: Any) -> None:
    run = build("suspend")
    state = run.run.state
    run.does(TimerFired, kind="dwell", time=run.now + LIMIT)
    found = stuck(run.run, run.now + 10_000, run.spec)
    assert found is not None
    assert found.done == "suspend"
    assert [getattr(event, "kind", "") for event in alarms(run.run, run.spec, 10**9)] == ["expired"]

    run.does(RunResumed)

    assert run.run.state in (state, "WAIT_APPROVAL", "COMPACT_OR_SAVE", "MODEL_THINKING")
    assert run.holds == []
    assert run.keys


def test_a_run_that_is_paused_and_held_for_being_stuck_is_freed_of_both_at_once() -> None:
    run = thinking("suspend")
    run.does(TimerFired, kind="dwell", time=run.now + LIMIT).does(PauseRequested)
    assert run.holds == ["stuck", "paused"]

    assert run.does(RunResumed).run.state == "MODEL_THINKING"


# -- what is no dwell, and whose limits count


def test_without_a_limit_of_its_own_a_wait_outlasts_the_limits_of_its_effect_and_the_dwell_seconds() -> None:
    usual = Bench(budget=FOREVER, stuck=StuckRules())
    limits = usual.spec.limits
    usual.starts()
    assert wake_at(usual.run, usual.spec) == usual.now + 3 * limits.model_seconds + limits.dwell_seconds
    usual.replies("", "look").verdicts("allow")
    assert wake_at(usual.run, usual.spec) == usual.now + 30.0 + limits.dwell_seconds

    found = stuck(usual.run, usual.now + 60.0, usual.spec)

    assert found is not None
    assert found.cause == "dead_effect"


def test_a_model_over_its_own_limits_is_a_lost_reply() -> None:
    usual = Bench(budget=FOREVER, stuck=StuckRules()).starts()

    found = stuck(usual.run, usual.now + 390.0, usual.spec)

    assert found is not None
    assert found.cause == "lost_reply"


@pytest.mark.parametrize("action", ["report", "resend", "fail", "suspend"])
def test_sub_agents_and_persons_are_no_dwell(action: Any) -> None:
    waiting = bench(action, sub_agents=(SubAgentSpec(name="helper"),)).starts().replies("", "helper").verdicts("allow")
    asked = bench(action).starts().replies("", "write").verdicts("ask")

    for run in (waiting, asked):
        assert [event for event in alarms(run.run, run.spec, run.now + 86_400) if event.source != "timer"] == []
        assert "dwell" not in [getattr(event, "kind", "") for event in alarms(run.run, run.spec, run.now + 86_400)]
        assert stuck(run.run, run.now + 86_400, run.spec) is None


@pytest.mark.parametrize("action", ["report", "resend", "fail", "suspend"])
def test_what_is_awaited_from_outside_ends_as_it_would_without_rules(action: Any) -> None:
    answered = bench(action).starts().replies("", "fetch").verdicts("allow")
    answered.does(TimerFired, kind="dwell", time=answered.now + 30.0)
    model = bench(action, model=EXTERNAL, limits=OUTSIDE).starts()
    model.does(TimerFired, kind="dwell", time=model.now + 5.0)

    assert answered.results == [("t1.c1", "timed_out")]
    assert model.code == "model_failed"
    assert answered.run.acted is None
    assert model.run.acted is None


def test_an_answer_from_outside_ends_at_its_time_beside_one_of_ours_that_is_only_reported() -> None:
    run = bench("report").starts().replies("", "look", "fetch").verdicts("allow", "allow")

    run.does(TimerFired, kind="dwell", time=run.now + 30.0)

    assert run.status == ["running", "done"]
    assert run.run.acted is not None


@pytest.mark.parametrize("kind", ["dwell", "grace"])
def test_a_run_that_ends_is_given_its_grace_and_nothing_else(kind: str) -> None:
    run = started("write")("resend").does(CancelRequested)

    assert [type(event).__name__ for event in alarms(run.run, run.spec, run.now + 1_000)] == ["GraceElapsed"]
    found = stuck(run.run, run.now + 1_000, run.spec)
    assert found is not None
    assert found.about == "ending as CANCELLED"
    assert kind


# -- no progress


def turn(run: Bench, call: str = "look", text: str = "same") -> Bench:
    run.replies("", call).verdicts("allow")
    return run.finishes(f"t{run.run.turn_count}.c1", text)


def looping(action: Any, **rules: Any) -> Bench:
    found = {"repeats": 3, "on_no_progress": action, **rules}
    return Bench(budget=Budget(max_turns=100, max_seconds=UNLIMITED), stuck=StuckRules(**found)).starts()


def notes(run: Bench) -> list[str]:
    return [message.text for message in run.run.messages if message.note]


@pytest.mark.parametrize(
    ("action", "state", "done"),
    [
        ("report", "MODEL_THINKING", "report"),
        ("nudge", "MODEL_THINKING", "nudge"),
        ("fail", "FAILED", None),
        ("suspend", "SUSPENDED", "suspend"),
    ],
)
def test_the_same_turn_so_many_times_in_a_row_is_no_progress(action: str, state: str, done: str | None) -> None:
    run = looping(action)
    turn(turn(run))
    assert run.run.acted is None
    assert stuck(run.run, run.now, run.spec) is None

    turn(run)

    about = "3 times in a row the same calls with the same results: look"
    found = stuck(run.run, run.now, run.spec)
    acted = run.run.acted
    assert acted is not None
    assert (acted.cause, acted.action, acted.about) == ("no_progress", action, about)
    assert run.run.state == state
    assert (found.done if found else None) == done
    assert notes(run) == (
        [f"[No progress] {about}. Do something else, or answer with what there is."] if done == "nudge" else []
    )
    assert run.code == ("no_progress" if action == "fail" else "")


@pytest.mark.parametrize(("nudges", "told"), [(0, "told so 0 times"), (1, "told so 1 time")])
def test_the_error_counts_how_often_the_model_was_told(nudges: int, told: str) -> None:
    run = looping("nudge", nudges=nudges)
    while not run.code:
        turn(run)

    assert run.run.error is not None
    assert run.run.error.message.endswith(told)


def test_a_model_that_goes_on_repeating_itself_is_told_so_and_fails_in_the_end() -> None:
    run = looping("nudge", nudges=2)
    for _ in range(8):
        turn(run)
    assert [text.endswith("the run ends.") for text in notes(run)] == [False, True]

    turn(run)

    assert run.code == ReasonCode.NO_PROGRESS
    assert run.run.error is not None
    assert run.run.error.kind == "model"
    assert run.run.error.message.endswith("told so 2 times")


def test_something_new_forgets_all_nudges() -> None:
    run = looping("nudge", nudges=1)
    for _ in range(5):
        turn(run)
    assert run.run.nudges == 1
    turn(run, 'look:{"n":1}')
    assert run.run.nudges == 0
    for _ in range(3):
        turn(run, 'look:{"n":2}')

    assert run.run.nudges == 1
    assert not run.code


@pytest.mark.parametrize("different", ["call", "arguments", "result", "status", "said"])
def test_a_turn_that_differs_in_anything_is_new(different: str) -> None:
    run = turn(turn(looping("fail")))
    if different == "said":
        run.does(InputReceived, text="go on")
    if different == "status":
        run.replies("", "look").verdicts("allow").finishes("t3.c1", "same", "timed_out")  # type: ignore[arg-type]
    else:
        turn(
            run,
            {"call": "write", "arguments": 'look:{"n":1}'}.get(different, "look"),
            "other" if different == "result" else "same",
        ) if different != "call" else run.replies("", "put").verdicts("allow").begins("t3.c1").finishes("t3.c1", "same")

    assert run.run.state == "MODEL_THINKING"
    assert run.run.repeated <= 1


@pytest.mark.parametrize(("digests", "code"), [("d1 d1 d1", "no_progress"), ("d1 d1 d2", "")])
def test_results_that_are_too_large_to_be_seen_whole_are_compared_whole(digests: str, code: str) -> None:
    """What the model sees of one names its call, and so is never the same twice."""
    tools = (*TOOLS, ToolSpec(name=READ_ARTIFACT, read_only=True))
    rules = StuckRules(repeats=3, on_no_progress="fail")
    run = Bench(budget=Budget(max_turns=100, max_seconds=UNLIMITED), stuck=rules, tools=tools).starts()
    for number, digest in enumerate(digests.split(), start=1):
        run.replies("", "look").verdicts("allow")
        run.finishes(f"t{number}.c1", "the beginning", artifact=Artifact(digest=digest, size=10**6))

    assert run.code == code


def test_what_is_only_reported_about_no_progress_is_reported_once_until_something_new_comes() -> None:
    run = looping("report")
    acted = []
    for n in range(12):
        turn(run, "look" if n < 9 else 'look:{"n":1}')
        acted.append(run.run.acted)

    assert len({id(each) for each in acted if each is not None}) == 2
    assert acted[2] is not None
    assert acted[8] is acted[2]
    assert acted[11] is not acted[2]


@pytest.mark.parametrize("rules", [{"idle_turns": 4}, {"idle_tokens": 40}])
def test_turns_that_only_go_round_in_a_circle_are_no_progress(rules: dict[str, Any]) -> None:
    run = looping("fail", repeats=UNLIMITED, **rules)
    turns = itertools.cycle(['look:{"n":1}', 'look:{"n":2}'])
    count = 0
    while not run.code:
        turn(run, next(turns))
        count += 1

    assert run.code == "no_progress"
    assert count == 6
    assert run.run.error is not None
    assert "with nothing new: look" in run.run.error.message


def test_an_agent_without_rules_is_left_alone() -> None:
    run = Bench(budget=Budget(max_turns=100, max_seconds=UNLIMITED)).starts()
    for _ in range(20):
        turn(run)

    assert run.run.state == "MODEL_THINKING"
    assert (run.run.repeated, run.run.acted) == (0, None)


def test_a_run_that_is_ending_is_not_judged() -> None:
    run = turn(turn(looping("fail")))
    run.replies("", "look").verdicts("allow").does(CancelRequested).finishes("t3.c1", "same")

    assert run.run.state == "CANCELLED"


# -- rules as data


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"dwell": {"SUSPENDED": 1.0}}, "a state in `dwell`"),
        ({"dwell": {"EXECUTE_TOOL": 0.0}}, "dwell['EXECUTE_TOOL']"),
        ({"dwell": {"EXECUTE_TOOL": float("inf")}}, "dwell['EXECUTE_TOOL']"),
        ({"dwell": {"EXECUTE_TOOL": "60"}}, "dwell['EXECUTE_TOOL']"),
        ({"dwell": 60}, "dwell"),
        ({"repeats": 1}, "repeats"),
        ({"repeats": "3"}, "repeats"),
        ({"idle_turns": 2.5}, "idle_turns"),
        ({"nudges": UNLIMITED}, "nudges"),
        ({"idle_turns": 0}, "idle_turns"),
        ({"idle_tokens": 0}, "idle_tokens"),
        ({"resends": -1}, "resends"),
        ({"nudges": -1}, "nudges"),
        ({"on_dwell": "nudge"}, "on_dwell"),
        ({"on_no_progress": "resend"}, "on_no_progress"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused_by_its_name(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        StuckRules(**fields)

    assert refused.value.name == name


def test_rules_are_stored_with_their_spec() -> None:
    spec = bench("report").spec

    assert decode_spec(encode_spec(spec)) == spec
    assert writing().spec.stuck is None
