"""Graphs: what begins when, what is skipped, what each step is given, and the wrong ones, each with its own reason."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_world import HELPER, World, a_progress, a_step, add, arguments, look, names, nothing, write

from geartrain.limits import Limits
from geartrain.orchestrator import (
    Approval,
    Do,
    Done,
    Fail,
    FanOut,
    Graph,
    Pipeline,
    PlanRefused,
    Progress,
    Step,
    WrongPlan,
)
from geartrain.runtime import Agent
from geartrain.tools import tool

UNSEEN = repr("no step 'b' is to be seen from here; use get() for one that may be skipped")


def diamond(**options: Any) -> Graph:
    """A, then B and C side by side, then D."""
    steps = [
        Step("d", look, after=["b", "c"]),
        Step("b", look, after=["a"], **options),
        Step("c", look, after=["a"]),
        Step("a", look),
    ]
    return Graph(steps)


# -- what begins


def test_a_step_begins_when_what_it_comes_after_is_through_whatever_else_runs() -> None:
    graph = Graph([Step("a", look), Step("c", look), Step("b", look, after=["a"])])

    assert names(graph.next(a_progress())) == ["a", "c"]
    assert names(graph.next(a_progress(a_step("a"), a_step("c", status=None)))) == ["b"]


def test_at_most_so_many_run_at_once() -> None:
    graph = Graph([Step(str(i), look) for i in range(5)], at_once=2)

    assert names(graph.next(a_progress())) == ["0", "1"]
    assert names(graph.next(a_progress(a_step("0", status=None), a_step("1")))) == ["2"]
    assert names(graph.next(a_progress(a_step("0", status=None), a_step("1", status=None)))) == []


def test_a_needed_step_that_fails_ends_the_graph_at_once() -> None:
    said = diamond().next(a_progress(a_step("a"), a_step("b", "no such file", "error"), a_step("c", status=None)))

    assert said == Fail("step 'b' (error): no such file")


def test_a_step_that_is_not_needed_may_fail_and_is_seen_to_have() -> None:
    said = diamond(needed=False).next(a_progress(a_step("a"), a_step("b", "no", "error"), a_step("c", "yes")))

    assert arguments(said) == {"d": {"text": "## b\n\n[error] no\n\n## c\n\nyes"}}


def test_a_step_whose_condition_says_no_is_skipped_and_the_join_goes_on() -> None:
    graph = diamond(when=lambda p: p["a"].text == "x")

    assert names(graph.next(a_progress(a_step("a", "y")))) == ["c"]
    assert arguments(graph.next(a_progress(a_step("a", "y"), a_step("c", "C")))) == {"d": {"text": "C"}}
    assert names(graph.next(a_progress(a_step("a", "x")))) == ["b", "c"]


def test_what_comes_after_skipped_steps_only_is_skipped_too() -> None:
    graph = Graph([Step("a", look, when=lambda _: False), Step("b", look, after=["a"]), Step("c", look, after=["b"])])

    assert graph.next(a_progress()) == Done("")


def test_a_condition_sees_what_it_comes_after_and_nothing_else() -> None:
    seen: list[set[str]] = []

    def look_around(progress: Progress) -> bool:
        seen.append(set(progress.steps))
        return True

    graph = Graph([Step("a", look), Step("b", look, after=["a"]), Step("c", look), Step("d", look, ["b"], look_around)])
    graph.next(a_progress(a_step("a"), a_step("b"), a_step("c")))

    assert seen == [{"a", "b"}]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (lambda p: p.steps["none"], "the condition of step 'b' raised KeyError: 'none'"),
        (lambda p: "yes", "the condition of step 'b' returned str, not bool"),
    ],
)
def test_a_condition_that_gives_no_answer_fails_the_run(condition: Callable[[Progress], Any], reason: str) -> None:
    graph = Graph([Step("a", look), Step("b", look, after=["a"], when=condition)])
    assert graph.next(a_progress(a_step("a"))) == Fail(reason)


# -- what a step is given


def test_a_first_step_is_given_the_input_and_a_later_one_what_it_comes_after() -> None:
    assert arguments(diamond().next(a_progress())) == {"a": {"text": "go"}}
    assert arguments(diamond().next(a_progress(a_step("a", "found")))) == {
        "b": {"text": "found"},
        "c": {"text": "found"},
    }


def test_a_text_names_the_input_and_the_steps_before() -> None:
    graph = Graph(
        [
            Step("a", look),
            Step("b-2", look, after=["a"]),
            Step("c", HELPER, ["b-2"], input="{a}, {b-2} of {input} {{so}}"),
        ]
    )

    assert arguments(graph.next(a_progress(a_step("a", "A"), a_step("b-2", "B {input}")))) == {
        "c": {"input": "A, B {input} of go {so}"}
    }


def test_a_skipped_step_leaves_nothing_in_a_text() -> None:
    steps = [
        Step("a", look, when=lambda _: False),
        Step("b", look),
        Step("c", look, after=["a", "b"], input="[{a}{b}]"),
    ]
    assert arguments(Graph(steps).next(a_progress(a_step("b", "B")))) == {"c": {"text": "[B]"}}


def test_a_mapping_gives_a_tools_arguments_and_its_texts_are_filled_in() -> None:
    step = Step("sum", add, input={"left": 1, "right": 2})
    assert arguments(Graph([step]).next(a_progress())) == {"sum": {"left": 1, "right": 2}}
    step = Step("w", write, input={"text": "about {input}"})
    assert arguments(Graph([step]).next(a_progress())) == {"w": {"text": "about go"}}


def test_a_text_for_a_parameter_that_takes_none_is_read_as_json() -> None:
    graph = Graph([Step("n", look), Step("sum", add, ["n"], input={"left": "{n}", "right": 2})])

    assert arguments(graph.next(a_progress(a_step("n", "3")))) == {"sum": {"left": 3, "right": 2}}
    assert graph.next(a_progress(a_step("n", "three"))) == Fail(
        "parameter 'left' takes no text, and 'three' is no JSON"
    )


def test_a_parameter_that_may_be_empty_takes_what_it_is_for() -> None:
    @tool(read_only=True)
    async def look_up(number: int | None, text: str | None) -> str:
        """Look up."""
        return f"{number}{text}"

    step = Step("a", look_up, input={"number": "{input}", "text": "{input}"})
    assert arguments(Graph([step]).next(a_progress(input="7"))) == {"a": {"number": 7, "text": "7"}}


def test_a_function_gives_a_text_or_a_mapping() -> None:
    steps = [
        Step("sum", add, input=lambda p: {"left": len(p.input), "right": 2}),
        Step("text", look, input=lambda p: p.input * 2),
        Step("agent", HELPER, input=lambda p: p.input.upper()),
    ]
    assert arguments(Graph(steps).next(a_progress())) == {
        "sum": {"left": 2, "right": 2},
        "text": {"text": "gogo"},
        "agent": {"input": "GO"},
    }


def test_a_tool_without_parameters_is_given_nothing() -> None:
    assert arguments(Graph([Step("a", nothing)]).next(a_progress())) == {"a": {}}


def test_an_input_that_gives_no_answer_fails_the_run() -> None:
    said = Graph([Step("a", look, input=lambda p: p["b"].text)]).next(a_progress())
    assert said == Fail(f"the input of step 'a' raised KeyError: {UNSEEN}")
    said = Graph([Step("a", look, input=lambda p: None)]).next(a_progress())
    assert said == Fail("the input of step 'a' returned NoneType, not str or Mapping")


def test_an_approval_asks_its_question_about_its_input() -> None:
    graph = Graph([Step("a", look), Step("ok", Approval("Go?", expires_seconds=60), after=["a"])])

    assert arguments(graph.next(a_progress(a_step("a", "this")))) == {
        "ok": {"question": "Go?", "expires_seconds": 60, "about": "this"}
    }
    assert [tool.name for tool in graph.tools] == ["look", "approval"]
    assert len(graph.guardrails) == 1
    assert Graph([Step("a", look)]).guardrails == ()


# -- the answer


def test_the_answer_are_the_texts_of_the_last_steps() -> None:
    graph = Graph([Step("b", look, after=["a"]), Step("a", look), Step("c", look)])
    assert graph.next(a_progress(a_step("a"), a_step("b", "B"), a_step("c", "C"))) == Done("## b\n\nB\n\n## c\n\nC")
    assert Pipeline(look, write).next(a_progress(a_step("look"), a_step("write", "W"))) == Done("W")


def test_the_answer_may_be_a_text_or_a_function() -> None:
    through = a_progress(a_step("a", "A"))
    assert Graph([Step("a", look)], answer="{input}: {a}").next(through) == Done("go: A")
    assert Graph([Step("a", look)], answer=lambda p: p["a"].call_id).next(through) == Done("c-a")
    assert Graph([Step("a", look)], answer=lambda p: 3).next(through) == Fail("the answer returned int, not str")
    assert Graph([Step("a", look)], answer=lambda p: p["b"]).next(through) == Fail(
        f"the answer raised KeyError: {UNSEEN}"
    )


# -- pipelines


def test_the_stages_of_a_pipeline_come_one_after_the_other() -> None:
    pipeline = Pipeline(look, Step("check", HELPER, input="is {look} right?"), "helper", look, Approval("?"), look)

    assert [(step.name, list(step.after)) for step in pipeline.steps] == [
        ("look", []),
        ("check", ["look"]),
        ("helper", ["check"]),
        ("look-2", ["helper"]),
        ("approval", ["look-2"]),
        ("look-3", ["approval"]),
    ]
    assert pipeline.agents == [HELPER]


def test_a_stage_gives_way_to_a_step_that_has_its_name() -> None:
    assert [step.name for step in Pipeline(look, Step("look", write)).steps] == ["look-2", "look"]


def test_a_stage_with_a_name_that_is_none_for_a_step_is_a_stage() -> None:
    assert [step.name for step in Pipeline("my helper", "other agent").steps] == ["stage", "stage-2"]


# -- changes


def test_a_graph_knows_which_step_was_begun_that_it_has_not() -> None:
    assert diamond().misfit(a_progress(a_step("a"), a_step("z"))) == "the plan has no step 'z', which was begun"
    assert diamond().misfit(a_progress(a_step("a"))) == ""


def test_a_graph_knows_which_step_was_begun_before_its_time() -> None:
    added = Graph([Step("z", look), Step("a", look, after=["z"])])
    assert added.misfit(a_progress(a_step("a"))) == (
        "step 'a' was begun, and step 'z', which comes before it, is not through"
    )


def test_a_condition_that_says_yes_after_it_said_no_is_a_misfit_and_not_obeyed() -> None:
    says = [False, True]
    graph = Graph([Step("a", look, when=lambda _: says.pop(0)), Step("b", look), Step("c", look, ["a", "b"])])
    assert names(graph.next(a_progress(a_step("b")))) == ["c"]
    assert graph.misfit(a_progress(a_step("b"), a_step("c", status=None))).startswith(
        "step 'c' was begun, and step 'a'"
    )


def test_a_call_that_a_person_made_in_the_plans_place_is_no_misfit() -> None:
    assert diamond().misfit(a_progress(a_step("t1.c1", call_id="t1.c1"))) == ""


def test_the_outline_changes_with_what_a_graph_is() -> None:
    one = [Step("a", look), Step("b", look, after=["a"])]
    outlines = [
        Graph(one).outline(),
        Graph(one, answer="{a}").outline(),
        Graph([Step("a", look), Step("b", write, after=["a"])]).outline(),
        Graph([Step("a", look), Step("b", look)]).outline(),
        Graph([Step("a", look), Step("b", look, after=["a"], needed=False)]).outline(),
        Graph([Step("a", look), Step("b", look, after=["a"], when=lambda _: True)]).outline(),
        Graph([Step("a", look), Step("b", look, after=["a"], input="{a}")]).outline(),
        Graph([Step("a", Approval("a?")), Step("b", look, after=["a"])]).outline(),
        Graph([Step("a", Approval("b?")), Step("b", look, after=["a"])]).outline(),
    ]
    assert all(a != b for i, a in enumerate(outlines) for b in outlines[:i])
    assert Graph(one).outline() == Graph(list(one)).outline()
    Agent("team", plan=Graph([Step("a", add, input={"left": 1, "right": 2})])).spec(Limits())


# -- what is wrong


async def _async(_progress: Progress) -> bool:
    return True


@tool(name="look", read_only=True)
async def other_look(text: str) -> str:
    """Look elsewhere."""
    return text


@tool(read_only=True)
async def count(number: int) -> int:
    """Count."""
    return number


WRONG: dict[str, tuple[Callable[[], Any], WrongPlan]] = {
    "no steps": (lambda: Graph([]), WrongPlan.STEPS),
    "a step alone": (lambda: Graph(Step("a", look)), WrongPlan.STEPS),
    "a tool for a step": (lambda: Graph([look]), WrongPlan.STEPS),
    "a text for steps": (lambda: Graph("abc"), WrongPlan.STEPS),
    "no name": (lambda: Graph([Step("", look)]), WrongPlan.NAME),
    "a name with a brace": (lambda: Graph([Step("a{", look)]), WrongPlan.NAME),
    "a number for a name": (lambda: Graph([Step(3, look)]), WrongPlan.NAME),
    "a long name": (lambda: Graph([Step("a" * 101, look)]), WrongPlan.NAME),
    "called input": (lambda: Graph([Step("input", look)]), WrongPlan.NAME_RESERVED),
    "one name twice": (lambda: Graph([Step("a", look), Step("a", look)]), WrongPlan.NAME_TAKEN),
    "a function to run": (lambda: Graph([Step("a", _async)]), WrongPlan.RUN),
    "nothing to run": (lambda: Graph([Step("a", "")]), WrongPlan.RUN),
    "two tools of one name": (lambda: Graph([Step("a", look), Step("b", other_look)]), WrongPlan.RUN_TAKEN),
    "two agents of one name": (lambda: Graph([Step("a", HELPER), Step("b", Agent("helper"))]), WrongPlan.RUN_TAKEN),
    "an agent called as a tool": (lambda: Graph([Step("a", look), Step("b", "look")]), WrongPlan.RUN_TAKEN),
    "a text for after": (lambda: Graph([Step("a", look), Step("b", look, after="a")]), WrongPlan.AFTER),
    "steps for after": (lambda: Graph([Step("a", look, after=[Step("b", look)])]), WrongPlan.AFTER),
    "after what is not there": (lambda: Graph([Step("a", look, after=["b"])]), WrongPlan.UNKNOWN_STEP),
    "after itself": (lambda: Graph([Step("a", look, after=["a"])]), WrongPlan.CYCLE),
    "a circle": (
        lambda: Graph([Step("z", look), Step("a", look, ["z", "c"]), Step("b", look, ["a"]), Step("c", look, ["b"])]),
        WrongPlan.CYCLE,
    ),
    "a value for when": (lambda: Graph([Step("a", look, when=True)]), WrongPlan.WHEN),
    "an async when": (lambda: Graph([Step("a", look, when=_async)]), WrongPlan.WHEN),
    "a number for input": (lambda: Graph([Step("a", look, input=3)]), WrongPlan.INPUT),
    "an async input": (lambda: Graph([Step("a", look, input=_async)]), WrongPlan.INPUT),
    "a mapping for an agent": (lambda: Graph([Step("a", HELPER, input={"input": "x"})]), WrongPlan.INPUT),
    "a text naming what it is not after": (
        lambda: Graph([Step("b", look), Step("a", look, input="{b}")]),
        WrongPlan.TEMPLATE,
    ),
    "a text with an open brace": (lambda: Graph([Step("a", look, input="{")]), WrongPlan.TEMPLATE),
    "a text with an empty brace": (lambda: Graph([Step("a", look, input="{}")]), WrongPlan.TEMPLATE),
    "a text that looks inside": (lambda: Graph([Step("a", look, input="{input.text}")]), WrongPlan.TEMPLATE),
    "a text with a format": (lambda: Graph([Step("a", look, input="{input:>10}")]), WrongPlan.TEMPLATE),
    "a text with a conversion": (lambda: Graph([Step("a", look, input="{input!r}")]), WrongPlan.TEMPLATE),
    "a mapping with a wrong text": (lambda: Graph([Step("a", look, input={"text": "{b}"})]), WrongPlan.TEMPLATE),
    "a text for two parameters": (lambda: Graph([Step("a", add, input="x")]), WrongPlan.TEXT_INPUT),
    "no input for two parameters": (lambda: Graph([Step("a", add)]), WrongPlan.TEXT_INPUT),
    "a text for a number": (lambda: Graph([Step("a", count)]), WrongPlan.TEXT_INPUT),
    "an unknown parameter": (lambda: Graph([Step("a", look, input={"txt": "x"})]), WrongPlan.PARAMETER),
    "needed by a number": (lambda: Graph([Step("a", look, needed=1)]), WrongPlan.NEEDED),
    "a number for the answer": (lambda: Graph([Step("a", look)], answer=3), WrongPlan.ANSWER),
    "an async answer": (lambda: Graph([Step("a", look)], answer=_async), WrongPlan.ANSWER),
    "an answer naming what is not there": (lambda: Graph([Step("a", look)], answer="{b}"), WrongPlan.TEMPLATE),
    "none at once": (lambda: Graph([Step("a", look)], at_once=0), WrongPlan.AT_ONCE),
    "a truth at once": (lambda: Graph([Step("a", look)], at_once=True), WrongPlan.AT_ONCE),
    "a half at once": (lambda: FanOut(look, ["x"], at_once=0.5), WrongPlan.AT_ONCE),
    "an empty pipeline": (Pipeline, WrongPlan.STEPS),
    "a stage that is nothing": (lambda: Pipeline(3), WrongPlan.RUN),
    "a stage after another": (lambda: Pipeline(look, Step("b", look, after=["look"])), WrongPlan.STAGE_AFTER),
    "no question": (lambda: Approval(" "), WrongPlan.QUESTION),
    "a long question": (lambda: Approval("a" * 2_001), WrongPlan.QUESTION),
    "a number for a question": (lambda: Approval(3), WrongPlan.QUESTION),
    "no time": (lambda: Approval("?", expires_seconds=0), WrongPlan.EXPIRES),
    "a truth for a time": (lambda: Approval("?", expires_seconds=True), WrongPlan.EXPIRES),
    "nothing to fan out": (lambda: FanOut(3, ["x"]), WrongPlan.RUN),
    "a text for inputs": (lambda: FanOut(look, "abc"), WrongPlan.INPUTS),
    "numbers for inputs": (lambda: FanOut(look, [1]), WrongPlan.INPUTS),
    "mappings for an agent": (lambda: FanOut(HELPER, [{"input": "x"}]), WrongPlan.INPUTS),
    "an async for inputs": (lambda: FanOut(look, _async), WrongPlan.INPUTS),
    "texts for two parameters": (lambda: FanOut(add, ["x"]), WrongPlan.TEXT_INPUT),
    "mappings with what is not there": (lambda: FanOut(add, [{"up": 1}]), WrongPlan.PARAMETER),
    "a need of none": (lambda: FanOut(look, ["x"], need=0), WrongPlan.NEED),
    "a need of a truth": (lambda: FanOut(look, ["x"], need=True), WrongPlan.NEED),
    "a need of more": (lambda: FanOut(look, ["x"], need=2), WrongPlan.NEED),
    "any of nothing": (lambda: FanOut(look, [], need="any"), WrongPlan.NEED),
    "a need of most": (lambda: FanOut(look, ["x"], need="most"), WrongPlan.NEED),
    "a rest of nothing": (lambda: FanOut(look, ["x"], rest="stop"), WrongPlan.REST),
    "an async gather": (lambda: FanOut(look, ["x"], gather=_async), WrongPlan.GATHER),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_plan_is_refused_with_its_own_reason(what: str) -> None:
    make, why = WRONG[what]
    with pytest.raises(PlanRefused) as refused:
        make()
    assert refused.value.why is why
    assert why.value in str(refused.value)
    assert pickle.loads(pickle.dumps(refused.value)).why is why


def test_every_reason_has_a_wrong_plan() -> None:
    assert {why for _, why in WRONG.values()} == set(WrongPlan)


def test_a_circle_is_shown() -> None:
    with pytest.raises(PlanRefused) as refused:
        Graph([Step("z", look, ["a"]), Step("a", look, ["c"]), Step("b", look, ["a"]), Step("c", look, ["b"])])
    assert refused.value.found == "a after c after b after a"


def test_an_agent_may_be_given_by_its_name_elsewhere() -> None:
    assert Graph([Step("a", "helper"), Step("b", HELPER), Step("c", "helper")]).agents == [HELPER]


# -- random graphs


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Step], int, dict[str, str], int]:
    """Steps in any order, without a circle; some of them fail, some are skipped."""
    count = draw(st.integers(1, 12))
    steps, fails = [], {}
    for i in range(count):
        after = draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        name = f"s{i}"
        kind = draw(st.sampled_from(("needed", "needed", "needed", "optional", "fails", "skipped", "sometimes")))
        when = {"skipped": lambda _: False, "sometimes": _even}.get(kind)
        needed = kind not in ("optional", "fails")
        if kind == "fails" or (kind == "needed" and draw(st.integers(0, 30)) == 0):
            fails[name] = draw(st.sampled_from(("error", "timed_out", "denied", "in_doubt", "not_started")))
        steps.append(Step(name, look, [f"s{j}" for j in after], when, needed=needed))
    return draw(st.permutations(steps)), draw(st.integers(1, 12)), fails, draw(st.integers(0, 2**30))


def _even(progress: Progress) -> bool:
    return len(progress.steps) % 2 == 0


def _through(steps: list[Step]) -> dict[str, bool]:
    """What is to run and what to be skipped, found in another way: from the end, by asking what comes before."""
    by_name = {step.name: step for step in steps}
    found: dict[str, bool] = {}

    def before(name: str) -> set[str]:
        return {a for direct in by_name[name].after for a in {direct, *before(direct)}}

    def runs(name: str) -> bool:
        if name not in found:
            step = by_name[name]
            wanted = not step.after or any(list(map(runs, step.after)))
            if wanted and step.when is not None:
                seen = [a_step(a) for a in before(name) if runs(a)]
                wanted = step.when(a_progress(*seen))
            found[name] = wanted
        return found[name]

    return {name: runs(name) for name in by_name}


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_every_step_runs_once_and_only_after_what_it_comes_after(case: Any) -> None:
    steps, at_once, fails, seed = case
    world = World(Graph(steps, at_once=at_once), seed, fails=fails)

    end = world.run()

    runs = _through(steps)
    by_name = {step.name: step for step in steps}
    assert len(world.begun) == len(set(world.begun))
    assert world.peak <= at_once
    for name in world.begun:
        assert runs[name]
        assert {a for a in by_name[name].after if runs[a]} <= world.before[name]
    lethal = [name for name in world.ended if name in fails and by_name[name].needed]
    if lethal:
        assert isinstance(end, Fail)
        assert any(repr(name) in end.reason for name in lethal)
    else:
        assert isinstance(end, Done)
        assert set(world.ended) == {name for name, ran in runs.items() if ran}


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 2**30))
def test_what_a_graph_does_and_answers_does_not_depend_on_who_is_faster(case: Any, other: int) -> None:
    steps, at_once, fails, seed = case
    optional = {name: status for name, status in fails.items() if not next(s for s in steps if s.name == name).needed}
    one = World(Graph(steps, at_once=at_once), seed, fails=optional)
    two = World(Graph(steps), other, fails=optional)

    assert one.run() == two.run()
    assert {n: s.arguments for n, s in one.steps.items()} == {n: s.arguments for n, s in two.steps.items()}


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_nothing_waits_that_could_begin(case: Any) -> None:
    """B begins when A ends though C still runs: whatever can begin has begun, as far as there is room."""
    steps, at_once, _, seed = case
    runs, by_name = _through(steps), {step.name: step for step in steps}
    world = World(Graph(steps, at_once=at_once), seed)
    while isinstance(said := world.ask(), Do):
        for job in said.jobs:
            world.steps[job.name] = a_step(job.name, status=None)
        through = set(world.ended)
        for _ in steps:  # a step is known to be skipped once all that it comes after is through
            through |= {name for name, step in by_name.items() if not runs[name] and through.issuperset(step.after)}
        can = [n for n, step in by_name.items() if runs[n] and n not in world.steps and through.issuperset(step.after)]
        assert not can or len(world.under_way) == at_once
        world.end(world.random.choice(world.under_way))


def test_a_chain_far_too_long_to_run_is_still_made_at_once() -> None:
    """Runtimes refuse it; it must not take the process with it before that."""
    assert Graph([Step(f"s{i}", look, [f"s{i - 1}"] if i else []) for i in range(20_000)]).width == 20_000


def test_a_long_chain_is_gone_through_step_by_step() -> None:
    world = World(Graph([Step(f"s{i}", look, [f"s{i - 1}"] if i else []) for i in range(200)]), 1)
    assert isinstance(world.run(), Done)
    assert world.begun == [f"s{i}" for i in range(200)]
