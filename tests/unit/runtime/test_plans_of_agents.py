"""Plans whose steps are agents: runs of their own, in a tree with one budget, one question at the root, one end."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling

from geartrain.machine import ENDED, Budget, Usage
from geartrain.models import ModelReply
from geartrain.models._scripted import Delay
from geartrain.orchestrator import Approval, FanOut, Graph, Pipeline, Step
from geartrain.runtime import Agent, Ask, Runtime, default_policy


def worker(name: str, seconds: float = 1.0, **options: Any) -> Agent:
    """An agent that says its name and input after *seconds*."""

    def says(request: Any) -> Any:
        return Delay(seconds, f"{name}({request.messages[-1].text})")

    return an_agent([says], name=name, **options)


def now() -> float:
    return asyncio.get_running_loop().time()


async def ended(runtime: Runtime, agent: str, text: str = "x") -> Any:
    return await (await runtime.start(agent, text)).wait_ended()


async def test_an_agent_begins_when_what_it_comes_after_ends_though_another_takes_ten_times_as_long(
    store: Store,
) -> None:
    """Show 4: B needs only A, and C takes ten times as long."""
    a, b, c = worker("a"), worker("b"), worker("c", 10)
    graph = Graph([Step("a", a), Step("b", b, after=["a"]), Step("c", c)], answer="{b} and {c}")
    async with store.runtime(Agent("team", plan=graph)) as runtime:
        began = now()
        run = await runtime.start("team", "x")
        await asyncio.sleep(1.5)
        at_work = {each.agent for each in await runtime.list(root=run.id) if each.state not in ENDED}
        end = await run.wait_ended()

    assert at_work == {"team", "b", "c"}
    assert end.answer == "b(a(x)) and c(x)"
    assert now() - began == pytest.approx(10, abs=0.5)


async def test_a_pipeline_of_agents_tools_and_an_approval(store: Store, ledger: Ledger) -> None:
    plan = Pipeline(worker("search"), worker("summarise"), Approval("Publish?"), ledger.write(1.0))
    async with store.runtime(Agent("desk", plan=plan)) as runtime:
        run = await runtime.start("desk", "news")
        rest = await run.wait_at_rest()
        assert rest.waiting[0].arguments == '{"question":"Publish?","about":"summarise(search(news))"}'
        await run.approve(rest.waiting[0].call_id, by="editor")
        end = await run.wait_ended()

    assert end.answer == "wrote summarise(search(news))"


async def test_plans_nest(memory: Store) -> None:
    each = Agent("each", plan=FanOut(worker("read"), lambda p: p.input.split(",")))
    listing = an_agent([Delay(1, "a,b,c")], name="find")
    async with memory.runtime(Agent("team", plan=Pipeline(listing, each, worker("join")))) as runtime:
        end = await ended(runtime, "team")
    assert end.answer == "join(read(a)\nread(b)\nread(c))"


async def test_a_sub_agent_that_fails_fails_the_plan_and_is_named_with_its_code(memory: Store) -> None:
    looping = an_agent([[calling("read")]] * 9, Ledger().read(), name="loop", budget=Budget(max_turns=2))
    async with memory.runtime(Agent("team", plan=Pipeline(looping))) as runtime:
        end = await ended(runtime, "team")
    assert end.error is not None
    assert end.error["code"] == "plan_failed"
    assert end.error["message"].startswith("step 'loop' (error): budget: max_turns_exceeded")


async def test_a_sub_agent_that_is_not_needed_may_fail(memory: Store) -> None:
    broken = an_agent([ValueError("no")], name="broken")
    graph = Graph([Step("a", broken, needed=False), Step("b", worker("b"), after=["a"])])
    async with memory.runtime(Agent("team", plan=graph)) as runtime:
        end = await ended(runtime, "team")
    assert end.answer is not None
    assert end.answer.startswith("b([error] model: model_failed")


async def test_an_agent_that_nobody_has_is_a_step_that_fails(memory: Store) -> None:
    async with memory.runtime(Agent("team", plan=Pipeline("nobody"))) as runtime:
        end = await ended(runtime, "team")
    assert end.error is not None
    assert "step 'nobody' (error)" in end.error["message"]
    assert "no agent 'nobody' is registered here" in end.error["message"]


async def test_a_plan_that_runs_itself_ends_at_the_depth(memory: Store) -> None:
    async with memory.runtime(Agent("team", plan=Pipeline("team"))) as runtime:
        end = await ended(runtime, "team")
        runs = await runtime.list()
    assert end.state == "FAILED"
    assert len(runs) == 9
    assert all(run.state == "FAILED" for run in runs)


async def test_a_sub_agent_of_a_plan_that_suspends_again_and_again_is_answered_at_the_root(store: Store) -> None:
    """The second and third suspension and resumption of the same sub-agent, each after a restart."""
    ledger = Ledger()
    writer = an_agent(
        [[calling("write", '{"text":"1"}')], [calling("write")], [calling("write")], "all written"],
        ledger.write(),
        name="writer",
    )
    team = Agent(
        "team", plan=Graph([Step("w", writer), Step("other", worker("other", 30)), Step("end", worker("end"), ["w"])])
    )
    async with store.runtime(team, policy=default_policy) as runtime:
        run_id = (await runtime.start("team", "x")).id
        await asyncio.sleep(1)
    for _ in range(3):
        async with store.runtime(team, policy=default_policy) as runtime:
            run = await runtime.get(run_id)
            await asyncio.sleep(1)
            (open_call,) = [call async for call in runtime.approvals()]
            assert open_call.root == run_id
            await run.approve(f"{open_call.run_id}/{open_call.call_id}", by="ops")
            await asyncio.sleep(1)
    async with store.runtime(team, policy=default_policy) as runtime:
        end = await (await runtime.get(run_id)).wait_ended()

    assert end.answer == "## other\n\nother(x)\n\n## end\n\nend(all written)"
    assert sum(ledger.done.values()) == 3


async def test_three_approvals_in_three_sub_agents_each_get_their_own_decision(memory: Store) -> None:
    """AP-1, AP-4 on the path of sub-agents: decided in reverse, one denied, two with the same arguments."""
    ledger = Ledger()
    asks = an_agent([[calling("write", '{"text":"same"}')], "written"], ledger.write(), name="asks", on_denied="fail")
    plan = FanOut(asks, ["a", "b", "c"], need="any")
    async with memory.runtime(
        Agent("team", plan=plan),
        policy=lambda call, _run: Ask() if call.tool == "write" else default_policy(call, _run),
    ) as runtime:
        run = await runtime.start("team", "x")
        await run.wait_at_rest()
        waiting = [call async for call in runtime.approvals()]
        assert len(waiting) == 3
        by_path = sorted(waiting, key=lambda call: call.path)
        await run.approve(f"{by_path[2].run_id}/{by_path[2].call_id}", by="ops")
        await run.deny(f"{by_path[1].run_id}/{by_path[1].call_id}", by="ops", reason="no")
        assert not (await run.snapshot()).ended
        await run.approve(f"{by_path[0].run_id}/{by_path[0].call_id}", by="ops")
        end = await run.wait_ended()

    assert end.answer is not None
    lines = end.answer.splitlines()
    assert (lines[0], lines[2]) == ("written", "written")
    assert lines[1].startswith("[error] permission: approval_denied")
    assert sum(ledger.done.values()) == 2


async def test_cancelling_a_plan_leaves_nobody_alive(memory: Store) -> None:
    inner = Agent("inner", plan=FanOut(worker("slow", 1_000), ["a", "b", "c"]))
    async with memory.runtime(Agent("team", plan=Graph([Step("i", inner), Step("s", worker("s", 1_000))]))) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(5)
        began = now()
        await run.cancel("enough", by="ops")
        end = await run.wait_ended()
        runs = await runtime.list()

    assert (end.state, len(runs)) == ("CANCELLED", 6)
    assert now() - began < 40
    assert all(each.state in ENDED for each in runs)


async def test_the_budget_of_a_plan_is_one_for_the_tree(memory: Store) -> None:
    """BU-7: what the agents use counts, and what is left is what they may use."""
    costly = an_agent([ModelReply(text="done", usage=Usage(input_tokens=40))], name="costly")
    plan = FanOut(costly, ["x"] * 10, at_once=1)
    async with memory.runtime(Agent("team", plan=plan, budget=Budget(max_turns=100, max_tokens=100))) as runtime:
        run = await runtime.start("team", "x")
        end = await run.wait_ended()
    assert end.error is not None
    assert end.error["code"] in ("token_budget_exceeded", "plan_failed")
    assert "token" in end.error["message"]


async def test_of_many_sub_agents_one_that_hangs_ends_by_its_own_limit_and_the_others_on_time(memory: Store) -> None:
    """Show 3, in small: the hung one is named."""

    def hangs(request: Any) -> Any:
        return Delay(1_000_000, "never") if request.messages[-1].text == "17" else Delay(1, request.messages[-1].text)

    hanging = an_agent([hangs], name="reader", budget=Budget(max_seconds=60))
    plan = FanOut(hanging, [str(i) for i in range(100)], at_once=50, need=99)
    async with memory.runtime(Agent("team", plan=plan)) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(30)
        left = [each for each in await runtime.list(root=run.id) if each.agent == "reader" and each.state not in ENDED]
        began = now()
        end = await run.wait_ended()

    assert len(left) == 1
    assert now() - began < 40
    assert end.answer is not None
    lines = end.answer.splitlines()
    assert len(lines) == 100
    assert [line for line in lines if not line.isdecimal()] == [lines[17]]
    assert "timeout" in lines[17]


@pytest.mark.parametrize("seed", range(12))
async def test_a_plan_killed_at_any_moment_gives_the_same_answer_with_each_effect_once(seed: int) -> None:
    rng = random.Random(seed)
    ledger = Ledger()

    def team() -> Agent:
        writer = an_agent(
            [[calling("write", '{"text":"w"}')], "written"], ledger.write(0.5, idempotent=True), name="writer"
        )
        fan = Agent("fan", plan=FanOut(worker("part", 0.7), ["1", "2", "3", "4", "5"], at_once=2))
        graph = Graph(
            [
                Step("read", ledger.read(0.8)),
                Step("write", writer, after=["read"]),
                Step("fan", fan),
                Step("join", worker("join"), after=["write", "fan"], input="{write}+{fan}"),
            ]
        )
        return Agent("team", plan=graph)

    store = Store()
    async with store.runtime(team()) as runtime:
        run_id = (await runtime.start("team", "x")).id
        await asyncio.sleep(rng.uniform(0, 2))
        store.journal = runtime._host.node.journal.as_killed()
    async with store.runtime(team()) as runtime:  # not more often: what is there each time is a suspect
        await asyncio.sleep(rng.uniform(0, 2))
        store.journal = runtime._host.node.journal.as_killed()
    async with store.runtime(team()) as runtime:
        end = await (await runtime.get(run_id)).wait_ended()
        runs = await runtime.list()
        reports = [await runtime.replay(each.id) for each in runs]

    parts = "\n".join(f"part({i})" for i in range(1, 6))
    assert end.answer == f"join(written+{parts})"
    assert all(each.state in ENDED for each in runs)
    assert [report.difference for report in reports] == [None] * len(runs)
    assert len(runs) == 9
