"""What is wrong with a plan or a tree, in the words that its author reads: refused where it is made, or ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from runtime_world import Store, an_agent, calling

from geartrain.clock import LoopClock
from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.machine import Budget
from geartrain.orchestrator import FanOut, Graph, PlanRefused, Step
from geartrain.runtime import Agent, Do, Job, Plan
from geartrain.tools import wait_for

READER = an_agent([lambda request: request.messages[-1].text] * 9, name="reader")
TOO_WIDE = "the plan of agent 'team' must be at most 1000 steps (Limits.sub_agent_width), got 10000"


def chain(**after: str) -> Graph:
    return Graph([Step(name, READER, after=[before]) for name, before in after.items()])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: chain(a="c", b="a", c="b"),
            "Graph: steps must not come after each other in a circle; got 'a after c after b after a'",
        ),
        (lambda: chain(a="a"), "Graph: steps must not come after each other in a circle; got 'a after a'"),
        (lambda: chain(a="nowhere"), "step 'a': a step can only come after one that there is; got 'nowhere'"),
        (
            lambda: Graph([Step("a", READER), Step("a", READER)]),
            "step 'a': two steps must not have one name; got 'a'",
        ),
        (
            lambda: Graph([Step("a", 42)]),  # type: ignore[arg-type]
            "step 'a': run must be an agent or its name, a tool, or an Approval; got 42",
        ),
    ],
)
def test_a_wrong_graph_is_refused_where_it_is_made(make: Callable[[], Graph], text: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        make()
    assert str(refused.value) == text


@pytest.mark.parametrize(
    "plan", [FanOut(READER, ["x"] * 10_000), Graph([Step(f"s{n}", READER) for n in range(10_000)])]
)
def test_ten_thousand_steps_are_refused_when_a_runtime_is_opened(memory: Store, plan: Plan) -> None:
    with pytest.raises(InvalidValue) as refused:
        memory.runtime(Agent("team", plan=plan))
    assert str(refused.value) == TOO_WIDE


class Says(Plan):
    """Says what it is given."""

    def __init__(self, said: Any) -> None:
        self._said = said

    @property
    def agents(self) -> tuple[Agent, ...]:
        return (READER,)

    def next(self, progress: Any) -> Any:
        return self._said(progress) if callable(self._said) else self._said


def raises(_progress: Any) -> Any:
    raise KeyError("oops")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (42, "the plan returned int, not Do, Done or Fail with what belongs to it"),
        (None, "the plan returned NoneType, not Do, Done or Fail with what belongs to it"),
        (Do("a"), "the plan asked for str, not for a Job"),  # type: ignore[arg-type]
        (raises, "the plan raised KeyError: 'oops'"),
        (Do(), "the plan waits, but nothing is under way: it would never end"),
        (
            Do(Job("a", "nobody", "x")),
            (
                "the plan waits, but nothing is under way: it would never end; first step 'a' (error): "
                "there is no tool 'nobody'; there are: reader"
            ),
        ),
        (Do(Job("a", READER, "x"), Job("a", READER, "y")), "two steps of one name: 'a'"),
        (
            lambda progress: Do(Job("a", READER, f"{len(progress.steps)}"), Job("b", READER, "y")),
            (
                'step \'a\' was begun as reader with {"input":"0"}, and is asked for as reader with {"input":"2"}: '
                "a plan must say the same whenever it is asked"
            ),
        ),
        (
            lambda progress: Do(*[Job(f"s{n}", READER, "x") for n in range(len(progress.steps) + 1)]),
            "step 's20' is one too many: a run has at most 20 steps",
        ),
        (
            lambda _: Do(*[Job(f"s{n}", READER, "x") for n in range(10_000)]),
            "step 's20' is one too many: a run has at most 20 steps",
        ),
    ],
)
async def test_a_plan_that_is_none_ends_its_run_with_the_reason(memory: Store, said: Any, text: str) -> None:
    async with memory.runtime(Agent("team", plan=Says(said)), limits=Limits(sub_agent_width=20)) as runtime:
        end = await (await runtime.start("team", "go")).wait_ended()

    assert end.error is not None
    assert (end.state, end.error["code"], end.error["message"]) == ("FAILED", "plan_failed", text)


async def test_ten_thousand_inputs_that_are_only_known_at_work_end_the_run(memory: Store) -> None:
    plan = FanOut(READER, lambda _: ["x"] * 10_000)
    async with memory.runtime(Agent("team", plan=plan)) as runtime:
        end = await (await runtime.start("team", "go")).wait_ended()

    assert end.error is not None
    assert end.error["message"] == "there are 10000 inputs, and a run has at most 1000 steps"


async def test_an_agent_that_lists_itself_goes_a_hundred_deep_if_it_may_and_no_deeper(memory: Store) -> None:
    again = calling("again", '{"input":"deeper"}')
    agent = an_agent([[again], lambda request: request.messages[-1].text], name="again", sub_agents=["again"])
    budget = Budget(max_turns=5_000, max_seconds=5_000.0, max_tool_failures=500, max_tokens=10_000_000)
    async with memory.runtime(agent, limits=Limits(sub_agent_depth=100)) as runtime:
        run = await runtime.start(agent, "go", budget=budget)
        end = await run.wait_ended()
        depths = [each.depth for each in await runtime.list(root=run.id, limit=200)]

    assert end.answer == "[refused] sub-agents may be 100 deep, and this run is at that depth"
    assert sorted(depths) == list(range(101))


async def test_a_sub_agent_that_waits_for_its_parent_ends_by_its_deadline_with_the_reason(memory: Store) -> None:
    wait = calling("wait_for", '{"name":"parent.done","timeout_seconds":1000}')
    below = an_agent([[wait]], wait_for, name="below")
    agent = an_agent([[calling("below", '{"input":"go"}')]], name="above", sub_agents=[below])
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go", deadline=LoopClock().now() + 60)
        end = await run.wait_ended()
        (child,) = [each for each in await runtime.list(root=run.id) if each.id != run.id]
        child_end = await (await runtime.get(child.id)).wait_ended()

    assert end.error is not None
    assert child_end.error is not None
    assert end.error["code"] == child_end.error["code"] == "deadline_exceeded"
    assert "t1.c1 of 'below' at work for 60.0 s" in end.error["message"]
    assert "t1.c1 of 'wait_for' at work for 60.0 s" in child_end.error["message"]
