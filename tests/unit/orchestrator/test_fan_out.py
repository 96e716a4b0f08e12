"""Fan-outs: bounded, in the order of the inputs, and what becomes of them when some fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_world import HELPER, World, a_progress, a_step, add, arguments, look, names

from geartrain.orchestrator import Done, Fail, FanOut, Progress


def test_each_input_is_a_step_of_its_own() -> None:
    assert arguments(FanOut(look, ["x", "y"]).next(a_progress())) == {"look.1": {"text": "x"}, "look.2": {"text": "y"}}
    assert arguments(FanOut(HELPER, ["x"]).next(a_progress())) == {"helper.1": {"input": "x"}}
    assert arguments(FanOut("the helper", ["x"]).next(a_progress())) == {"item.1": {"input": "x"}}
    assert arguments(FanOut(add, [{"left": 1, "right": 2}]).next(a_progress())) == {"add.1": {"left": 1, "right": 2}}
    assert FanOut(HELPER, ["x"]).agents == (HELPER,)
    assert FanOut(look, ["x"]).tools == (look,)


def test_no_more_run_at_once_than_there_is_room_for() -> None:
    plan = FanOut(look, ["x"] * 10, at_once=3)
    assert names(plan.next(a_progress())) == ["look.1", "look.2", "look.3"]
    half = a_progress(*(a_step(f"look.{i}", status=None, arguments='{"text":"x"}') for i in (1, 2)), a_step("look.3"))
    assert names(plan.next(half)) == ["look.4"]


def test_the_inputs_may_come_from_the_runs_own_input() -> None:
    plan = FanOut(look, lambda p: p.input.split())
    assert arguments(plan.next(a_progress(input="a b"))) == {"look.1": {"text": "a"}, "look.2": {"text": "b"}}
    assert plan.width == 0


def test_a_function_for_inputs_sees_no_steps() -> None:
    plan = FanOut(look, lambda p: ["x"] * (1 + len(p.steps)))
    assert plan.next(a_progress(a_step("look.1", "X", arguments='{"text":"x"}'))) == Done("X")


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (lambda p: p.steps["a"], "the function for the inputs raised KeyError: 'a'"),
        (lambda p: "abc", "inputs: inputs must be a list of texts (or of mappings, for a tool), or a plain"),
        (lambda p: [3], "got 3"),
        (lambda p: {"a"}, "got \"{'a'}\""),
        (lambda p: ["x"] * 1_001, "there are 1001 inputs, and a run has at most 1000 steps"),
    ],
)
def test_inputs_that_are_none_fail_the_run(inputs: Any, reason: str) -> None:
    plan = FanOut(look, inputs)
    said = plan.next(a_progress())
    assert isinstance(said, Fail)
    assert reason in said.reason
    assert plan.misfit(a_progress()) == ""


def test_the_texts_are_gathered_in_the_order_of_the_inputs_whoever_was_first() -> None:
    for seed in range(20):
        assert World(FanOut(look, list("abcdefghijkl"), at_once=5), seed).run() == Done(
            "\n".join(f"<look.{i}>" for i in range(1, 13))
        )


def test_nothing_to_do_is_done() -> None:
    assert FanOut(look, []).next(a_progress()) == Done("")


def test_gather_makes_the_answer() -> None:
    through = a_progress(a_step("look.1", "b"), a_step("look.2", "a"))
    assert FanOut(look, ["x", "y"], gather=lambda steps: str(len(steps))).next(through) == Done("2")
    assert FanOut(look, ["x", "y"], gather=lambda _: 2).next(through) == Fail("gather returned int, not str")
    assert FanOut(look, ["x", "y"], gather=lambda _: 1 / 0).next(through) == Fail(
        "gather raised ZeroDivisionError: division by zero"
    )


def test_what_has_failed_is_told_in_its_place() -> None:
    through = a_progress(a_step("look.1", "no", "error"), a_step("look.2", "yes"))
    assert FanOut(look, ["x", "y"], need="any").next(through) == Done("[error] no\nyes")


def test_it_fails_as_soon_as_too_few_can_go_well() -> None:
    plan = FanOut(look, list("abcd"), need=3)
    one = a_progress(a_step("look.1", "no", "error"), a_step("look.2", status=None))
    assert names(plan.next(one)) == ["look.3", "look.4"]
    two = a_progress(a_step("look.1", "no", "error"), a_step("look.2", "nor this", "timed_out"))
    assert plan.next(two) == Fail("3 of 4 have to go well, and 2 have not, first look.1 (error): no")
    assert FanOut(look, lambda _: [], need="any").next(a_progress()) == Fail("1 of 0 have to go well, and 0 have not")


def test_the_rest_is_cancelled_once_enough_have_gone_well_if_that_is_wanted() -> None:
    some = a_progress(a_step("look.1", status=None), a_step("look.2", "first"))
    assert FanOut(look, ["x", "y"], need="any", rest="cancel").next(some) == Done("first")
    assert names(FanOut(look, ["x", "y"], need="any").next(some)) == []


def test_inputs_that_were_others_when_they_were_begun_are_no_fit() -> None:
    begun = a_step("look.2", arguments='{"text":"y"}')
    assert FanOut(look, ["x", "y", "z"]).misfit(a_progress(begun)) == ""
    assert FanOut(look, ["x", "z"]).misfit(a_progress(begun)).startswith("step 'look.2' was begun with")
    assert FanOut(look, ["x"]).misfit(a_progress(begun)) == "the plan has no step 'look.2', which was begun"
    assert FanOut(look, ["x"]).misfit(a_progress(a_step("t1.c1", call_id="t1.c1"))) == ""


def test_the_outline_changes_with_what_it_is() -> None:
    outlines = [
        FanOut(look, ["x"]).outline(),
        FanOut(look, ["y"]).outline(),
        FanOut(look, lambda _: ["x"]).outline(),
        FanOut(look, ["x"], need="any").outline(),
        FanOut(HELPER, ["x"]).outline(),
        FanOut(look, ["x"], gather=str).outline(),
    ]
    assert all(a != b for i, a in enumerate(outlines) for b in outlines[:i])


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 20), st.integers(1, 8), st.sampled_from(["all", "any", 1, 2, 5]), st.sets(st.integers(1, 20)),
    st.sampled_from(["finish", "cancel"]), st.integers(0, 2**30),
)  # fmt: skip
def test_every_input_runs_at_most_once_and_the_rule_decides(
    count: int, at_once: int, need: Any, bad: set[int], rest: Any, seed: int
) -> None:
    needed = {"all": count, "any": 1}.get(need, need)
    fails = {f"look.{i}": "error" for i in bad}
    plan = FanOut(look, lambda _: ["x"] * count, at_once=at_once, need=need, rest=rest)
    world = World(plan, seed, fails=fails)

    end = world.run()

    assert len(world.begun) == len(set(world.begun))
    assert world.peak <= at_once
    good = count - len([i for i in bad if i <= count])
    assert isinstance(end, Done) is (good >= needed)
    if isinstance(end, Done) and rest == "finish":
        assert len(world.begun) == count


def test_a_person_may_have_made_calls_in_the_plans_place() -> None:
    plan = FanOut(look, ["x"])
    other = a_step("t1.c1", status=None, call_id="t1.c1")
    assert names(plan.next(a_progress(other))) == ["look.1"]


def test_progress_says_what_is_under_way() -> None:
    progress: Progress = a_progress(a_step("a", status=None), a_step("b"))
    assert [step.name for step in progress.under_way] == ["a"]
