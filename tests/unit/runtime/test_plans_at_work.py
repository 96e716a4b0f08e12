"""Plans at work: tools and approvals as steps, side by side, over restarts; whatever a plan does, its run ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from planned_runs import Asked, now, slow
from runtime_world import Store, allow_all, journal_of, quick, settle

from geartrain.errors import InvalidValue
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import Budget, ModelReplied, ToolStarted, Usage
from geartrain.models import ScriptedModel
from geartrain.orchestrator import Approval, Do, Done, Fail, FanOut, Graph, Job, Pipeline, Step
from geartrain.runtime import Agent, Allow, Ask, Deny, Runtime, default_policy
from geartrain.tools import ToolContext, ask_user, tool


async def _timeline(runtime: Runtime, run_id: str) -> list[Any]:
    return [record async for record in runtime.timeline(run_id)]


async def test_b_begins_when_a_ends_though_c_takes_ten_times_as_long(store: Store) -> None:
    log: list[str] = []
    a, b, c = slow("a", 1, log), slow("b", 1, log), slow("c", 10, log)
    graph = Graph([Step("c", c), Step("a", a), Step("b", b, after=["a"])])
    async with store.runtime(Agent("team", plan=graph)) as runtime:
        began = now()
        end = await (await runtime.start("team", "x")).wait_ended()

    assert log == ["c begins", "a begins", "a ends", "b begins", "b ends", "c ends"]
    assert (end.state, end.answer) == ("FINISHED", "## c\n\nc(x)\n\n## b\n\nb(a(x))")
    assert 10 <= now() - began < 10.5


async def test_a_plan_costs_nothing_and_its_steps_go_by_their_names(memory: Store) -> None:
    pipeline = Pipeline(slow("search", 1, []), Step("sum", slow("summarise", 1, []), input="{search} of {input}"))
    async with memory.runtime(Agent("team", plan=pipeline)) as runtime:
        run = await runtime.start("team", "it")
        end = await run.wait_ended()
        asked = [
            call for e in await journal_of(run, runtime) if isinstance(e.event, ModelReplied) for call in e.event.calls
        ]

        told = [r.payload for r in await _timeline(runtime, run.id) if r.event == "tool_call_requested"]

    assert end.answer == "summarise(search(it) of it)"
    assert [(payload["tool"], payload["step"]) for payload in told] == [("search", "search"), ("summarise", "sum")]
    assert end.usage == Usage()
    assert [(call.provider_id, call.tool, call.arguments) for call in asked] == [
        ("search", "search", '{"text":"it"}'),
        ("sum", "summarise", '{"text":"search(it) of it"}'),
    ]


async def test_writes_that_the_plan_lets_run_side_by_side_do(store: Store) -> None:
    log: list[str] = []
    first, second = slow("first", 5, log, read_only=False), slow("second", 5, log, read_only=False)
    async with store.runtime(Agent("team", plan=Graph([Step("a", first), Step("b", second)]))) as runtime:
        run = await runtime.start("team", "x")
        await run.wait_ended()
        started = [e.event.call_id for e in await journal_of(run, runtime) if isinstance(e.event, ToolStarted)]

    assert log[:2] == ["first begins", "second begins"]
    assert started == ["t1.c1", "t1.c2"]


# -- approvals


def publishing(log: list[str]) -> Agent:
    return Agent(
        "desk",
        plan=Graph(
            [
                Step("draft", slow("draft", 1, log)),
                Step("ok", Approval("Publish this?"), after=["draft"]),
                Step("publish", slow("publish", 1, log, read_only=False), after=["ok"]),
                Step("count", slow("count", 20, log)),
            ],
            answer="{publish}",
        ),
    )


async def test_what_a_person_approves_goes_on_as_it_was_or_as_edited(store: Store) -> None:
    log: list[str] = []
    async with store.runtime(publishing(log)) as runtime:
        run = await runtime.start("desk", "news")
        await asyncio.sleep(2)
        (waiting,) = (await run.snapshot()).waiting
        assert (waiting.tool, waiting.reason, waiting.provider_id) == ("approval", "Publish this?", "ok")
        await run.approve(waiting.call_id, by="editor", arguments='{"question":"Publish this?","about":"better"}')
        await asyncio.sleep(2)
        assert log == ["draft begins", "count begins", "draft ends", "publish begins", "publish ends"]
        end = await run.wait_ended()

    assert end.answer == "publish(better)"


async def test_a_person_is_asked_at_an_approval_whatever_the_policy_allows(memory: Store) -> None:
    async with memory.runtime(publishing([]), policy=allow_all) as runtime:
        run = await runtime.start("desk", "news")
        await asyncio.sleep(2)
        assert [call.provider_id for call in (await run.snapshot()).waiting] == ["ok"]


async def test_an_approval_that_is_about_nothing_says_that_it_was_given(memory: Store) -> None:
    plan = Pipeline(Step("ok", Approval("Go?"), input=""), slow("go", 1, []))
    async with memory.runtime(Agent("desk", plan=plan)) as runtime:
        run = await runtime.start("desk", "news")
        await run.approve((await run.wait_at_rest()).waiting[0].call_id, by="ops")
        end = await run.wait_ended()
    assert end.answer == "go(approved)"


async def test_a_denied_approval_fails_the_run_unless_the_step_is_not_needed(memory: Store) -> None:
    async with memory.runtime(publishing([]), limits=quick(grace_seconds=1.0)) as runtime:
        run = await runtime.start("desk", "news")
        await asyncio.sleep(2)
        await run.deny("t2.c1", by="editor", reason="too long")
        end = await run.wait_ended()

    assert end.error == {"code": "plan_failed", "kind": "model", "message": "step 'ok' (denied): too long"}


async def test_an_approval_that_nobody_gives_expires(memory: Store) -> None:
    plan = Graph([Step("ok", Approval("Now?", expires_seconds=60), needed=False), Step("go", slow("go", 1, []))])
    async with memory.runtime(Agent("desk", plan=plan)) as runtime:
        run = await runtime.start("desk", "news")
        began = now()
        end = await run.wait_ended()

    assert 60 <= now() - began < 62
    assert end.answer == "## ok\n\n[denied] nobody decided in time\n\n## go\n\ngo(news)"


async def test_three_approvals_decided_in_reverse_with_restarts_between_go_their_own_ways(store: Store) -> None:
    """AP-1, AP-4, AP-14: two with the same question; the third is never answered for the others."""
    done: list[str] = []

    def team() -> Agent:
        steps = []
        for name in ("a", "b", "c"):
            steps.append(Step(name, Approval("Go?"), input="the same"))
            steps.append(Step(f"{name}-done", slow(name, 1, done, read_only=False), after=[name]))
        return Agent("team", plan=Graph(steps))

    async with store.runtime(team()) as runtime:
        run_id = (await runtime.start("team", "x")).id
        await settle()
    for call_id, name in (("t1.c3", "c"), ("t1.c2", "b"), ("t1.c1", "a")):
        async with store.runtime(team()) as runtime:
            run = await runtime.get(run_id)
            await run.approve(call_id, by="ops")
            await asyncio.sleep(5)
            assert done[-2:] == [f"{name} begins", f"{name} ends"]
            end = await run.wait_at_rest()

    assert len(done) == 6
    assert end.answer == "\n\n".join(f"## {name}-done\n\n{name}(the same)" for name in "abc")


# -- the ends of a plan


NEVER_ENDS = {
    "waits for nothing": (lambda p: Do(), "waits, but nothing is under way"),
    "raises": (lambda p: p.steps["none"], "the plan raised KeyError: 'none'"),
    "cancels itself": (lambda p: (_ for _ in ()).throw(asyncio.CancelledError("me")), "the plan raised CancelledError"),
    "returns nothing": (lambda p: None, "the plan returned NoneType"),
    "returns a coroutine's name": (lambda p: "a", "the plan returned str"),
    "answers with a number": (lambda p: Done(3), "the plan returned Done, not"),
    "asks for no job": (lambda p: Do("a"), "the plan asked for str, not for a Job"),
    "asks twice": (lambda p: Do(Job("a", "t", {}), Job("a", "t", {})), "two steps of one name: 'a'"),
    "asks for no JSON": (lambda p: Do(Job("a", "t", {"x": object()})), "step 'a': it cannot be asked for so"),
    "asks for no mapping": (lambda p: Do(Job("a", "t", 3)), "step 'a': it cannot be asked for so"),
    "asks for nothing to run": (lambda p: Do(Job("a", None, {})), "step 'a': it cannot be asked for so"),
    "gives no name": (lambda p: Do(Job("", "t", {})), "a step's name must be 1 to 200"),
    "changes its mind": (
        lambda p: Do(Job("a", "t", {"text": str(len(p.steps))})),
        'step \'a\' was begun as t with {"text":"0"}, and is asked for as t with {"text":"1"}',
    ),
    "goes on for ever": (
        lambda p: Do(Job(str(len(p.steps)), "t", {})),
        "step '30' is one too many: a run has at most 30",
    ),
    "fails": (lambda p: Fail("no more paper"), "no more paper"),
    "answers at too great a length": (
        lambda p: Done("x" * 300_000),
        "the reply was too large: 300000 characters, at most 262144",
    ),
    "fails without a word": (lambda p: Fail(""), "the plan gave no reason"),
}


@pytest.mark.parametrize("what", NEVER_ENDS)
async def test_a_plan_that_does_not_work_ends_its_run_with_the_reason(memory: Store, what: str) -> None:
    decide, reason = NEVER_ENDS[what]
    agent = Agent("team", plan=Asked(decide, slow("t", 1, [])))
    async with memory.runtime(agent, limits=quick(sub_agent_width=30)) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()

    assert end.error is not None
    assert (end.state, end.error["code"]) == ("FAILED", "plan_failed")
    assert reason in end.error["message"]


async def test_what_a_person_answers_a_step_comes_whole_to_the_next(memory: Store) -> None:
    answer, size = "word " * 3_000, slow("size", 1, [])
    graph = Graph([Step("ask", ask_user, input="Which?"), Step("other", size), Step("next", size, after=["ask"])])
    async with memory.runtime(Agent("team", plan=graph)) as runtime:
        run = await runtime.start("team", "x")
        rest = await run.wait_at_rest()
        assert [(call.tool, call.provider_id) for call in rest.waiting] == [("ask_user", "ask")]
        await run.send(answer)
        end = await run.wait_ended()
    assert end.answer == f"## other\n\nsize(x)\n\n## next\n\nsize({answer})"


async def test_what_is_said_to_a_plan_is_heard_at_its_next_turn(memory: Store) -> None:
    plan = Asked(
        lambda p: Done(f"heard {p.said}") if p.steps and p["t"].ok else Do(Job("t", "t", {})), slow("t", 5, [])
    )
    async with memory.runtime(Agent("team", plan=plan)) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(1)
        await run.send("hurry")
        end = await run.wait_ended()
    assert (end.state, end.answer) == ("FINISHED", "heard ('hurry',)")


async def test_an_empty_answer_is_told_as_such(memory: Store) -> None:
    async with memory.runtime(Agent("team", plan=Asked(lambda _: Done()))) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert (end.state, end.answer) == ("FINISHED", "(no output)")


async def test_a_plan_that_is_done_cancels_what_is_under_way(memory: Store) -> None:
    log: list[str] = []
    plan = Asked(
        lambda p: (
            Done("quick")
            if "fast" in p.steps and p["fast"].ok
            else Do(Job("fast", "fast", {}), Job("slow", "slow", {}))
        ),
        slow("fast", 1, log),
        slow("slow", 1_000, log),
    )
    async with memory.runtime(Agent("team", plan=plan)) as runtime:
        began = now()
        end = await (await runtime.start("team", "x")).wait_ended()
    assert (end.state, end.answer) == ("FINISHED", "quick")
    assert now() - began < 10
    assert "slow ends" not in log


async def test_a_failed_step_ends_the_run_and_is_named(memory: Store) -> None:
    @tool(read_only=True)
    async def broken() -> str:
        """Break."""
        raise ValueError("no such file")

    async with memory.runtime(Agent("team", plan=Pipeline(broken, slow("next", 1, [])))) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()

    assert end.error is not None
    assert end.error["message"] == "step 'broken' (error): ValueError: no such file"


async def test_a_step_denied_by_the_policy_is_told_to_the_plan(memory: Store) -> None:
    plan = Graph([Step("a", slow("a", 1, []), needed=False), Step("b", slow("b", 1, []), after=["a"])])

    def deny(call: Any, _run: Any) -> Any:
        return Deny("not today") if call.tool == "a" else Allow()

    async with memory.runtime(Agent("team", plan=plan), policy=deny) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer == "b([denied] not today)"


async def test_a_write_of_a_plan_asks_a_person_by_default(memory: Store) -> None:
    plan = Pipeline(slow("write", 1, [], read_only=False))
    async with memory.runtime(Agent("team", plan=plan), policy=default_policy) as runtime:
        rest = await (await runtime.start("team", "x")).wait_at_rest()
    assert rest.holds == ("approval(t1.c1)",)


# -- agents with a plan


def test_a_plan_has_nothing_that_only_a_model_would_hear_or_say() -> None:
    plan = Pipeline(slow("a", 1, []))
    for more in (
        {"model": ScriptedModel([])},
        {"model": "external"},
        {"output_guardrails": [lambda _t, _r: Allow()]},
        {"handoffs": ["other"]},
        {"summariser": "offline"},
        {"context": [lambda _run: None]},
        {"on_budget": "wrap_up"},
    ):
        with pytest.raises(InvalidValue, match="plan"):
            Agent("team", plan=plan, **more)
    with pytest.raises(InvalidValue, match="a Plan, such as a Graph"):
        Agent("team", plan=lambda _: None)  # type: ignore[arg-type]


def test_the_steps_bound_a_plan_unless_it_has_a_budget() -> None:
    plan = Pipeline(slow("a", 1, []))
    assert Agent("team", plan=plan).budget.max_turns is UNLIMITED
    assert Agent("team", plan=plan, budget=Budget(max_turns=3)).budget.max_turns == 3


def test_a_plan_wider_than_the_runtime_allows_is_refused_when_it_is_opened(memory: Store) -> None:
    wide = Agent("team", plan=FanOut(slow("a", 1, []), ["x"] * 10_000))
    with pytest.raises(InvalidValue, match="at most 1000 steps"):
        Runtime.open(memory.target, agents=[wide])


def test_a_tool_of_the_agent_and_of_its_plan_is_one() -> None:
    a = slow("a", 1, [])
    assert list(Agent("team", plan=Pipeline(a), tools=[a]).tools) == ["a"]


def test_a_changed_plan_is_another_spec() -> None:
    limits = Limits()
    one, other = (Agent("team", plan=Pipeline(slow(name, 1, []))).spec(limits) for name in "ab")
    assert one.plan != other.plan
    assert (one.consult, one.on_denied, one.model) == ("each_result", "tell", "plan")


async def test_a_guardrail_of_the_agent_is_asked_about_the_plans_calls(memory: Store) -> None:
    def careful(call: Any, _run: Any) -> Any:
        return Ask("really?") if call.tool == "a" else Allow()

    agent = Agent("team", plan=Pipeline(slow("a", 1, [])), tool_guardrails=[careful])
    async with memory.runtime(agent) as runtime:
        rest = await (await runtime.start("team", "x")).wait_at_rest()
    assert rest.waiting[0].reason == "really?"


async def test_a_tool_sees_its_own_key_in_each_step(memory: Store) -> None:
    keys: list[str] = []

    @tool
    async def put(context: ToolContext, text: str) -> str:
        """Put."""
        keys.append(context.idempotency_key)
        return text

    async with memory.runtime(Agent("team", plan=Graph([Step("a", put), Step("b", put)]))) as runtime:
        await (await runtime.start("team", "x")).wait_ended()
    assert len(set(keys)) == 2
