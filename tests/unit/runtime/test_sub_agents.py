"""Sub-agents: a call starts a run of its own, whose end is its result."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace
from runtime_world import Ledger, Store, an_agent, calling, journal_of, names_of, quick
from structlog.testing import capture_logs
from teams import below, delegate, searcher, shown, team

from geartrain.clock import LoopClock
from geartrain.errors import EventConflict, EventRefused, InvalidValue, RunNotFound
from geartrain.ids import sub_agent_run_id
from geartrain.limits import UNLIMITED
from geartrain.machine import Budget, RequestedCall, RunStarted, Usage
from geartrain.models import ModelReply, ModelRequest
from geartrain.models._scripted import Delay
from geartrain.runtime import Agent, Ask, Deny, default_policy
from geartrain.tools import ask_user


async def test_a_sub_agents_answer_is_the_result_of_its_call() -> None:
    agent = team(delegate("search", "look"), below=[searcher()])
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go", principal="ops", context={"k": 1}, permissions=["p"], deadline=9e9)

        rest = await run.wait_at_rest()

        assert (rest.state, rest.answer) == ("FINISHED", "done")
        assert await shown(run, runtime) == [("ok", "found it")]
        (child,) = await below(run, runtime)
        assert (child.agent, child.state, child.parent, child.depth) == ("search", "FINISHED", run.id, 1)
        started = (await journal_of(await runtime.get(child.id), runtime))[0].event
        assert isinstance(started, RunStarted)
        assert (started.input, started.principal, started.context) == ("look", "ops", {"k": 1})
        assert (started.permissions, started.deadline) == (("p",), 9e9)


async def test_what_a_model_is_offered_says_what_the_sub_agent_is_for_and_what_it_takes() -> None:
    seen: list[ModelRequest] = []

    def look(request: ModelRequest) -> str:
        seen.append(request)
        return "done"

    agent = an_agent([look], name="team", sub_agents=[searcher(description="Looks things up.")])
    async with Store().runtime(agent) as runtime:
        await (await runtime.start(agent, "go")).wait_ended()

    (offered,) = seen[0].tools
    assert (offered.name, offered.description) == ("search", "Looks things up.")
    assert offered.parameters["required"] == ["input"]


async def test_sub_agents_work_side_by_side_and_their_results_are_in_call_order() -> None:
    """JR-1: whatever order they end in."""
    slow = [searcher(Delay(20.0 - 5 * n, f"answer {n}"), name=f"s{n}") for n in range(4)]
    agent = team(*[delegate(f"s{n}") for n in range(4)], below=slow)
    async with Store().runtime(agent) as runtime:
        began = asyncio.get_running_loop().time()
        run = await runtime.start(agent, "go")

        await run.wait_ended()

        assert asyncio.get_running_loop().time() - began == pytest.approx(20.0)
        assert await shown(run, runtime) == [("ok", f"answer {n}") for n in range(4)]


async def test_a_run_that_only_waits_for_sub_agents_is_out_of_memory_and_uses_no_active_time() -> None:
    agent = team(delegate("search"), below=[searcher(Delay(100.0, "found"))])
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(50.0)

        assert run.id not in runtime._host.node.actors
        summary = next(each for each in await runtime.list() if each.id == run.id)
        assert (summary.holds, summary.delegates, summary.at_rest) == (("sub_agents",), True, False)
        rest = await run.wait_at_rest()
        assert rest.state == "FINISHED"
        assert rest.active_seconds == pytest.approx(0.0)


@pytest.mark.parametrize("limit", ["sub_agents_at_once", "sub_agents_at_once_per_tree", "sub_agents_at_once_per_node"])
async def test_no_more_sub_agents_are_at_work_than_the_limit_says_and_the_others_follow(limit: str) -> None:
    ledger = Ledger()
    worker = an_agent([[calling("read")], "found"], ledger.read(10.0), name="search")
    agent = team(*[delegate("search")] * 7, below=[worker])
    async with Store().runtime(agent, limits=quick(**{limit: 3})) as runtime:
        began = asyncio.get_running_loop().time()
        run = await runtime.start(agent, "go")

        assert (await run.wait_at_rest()).answer == "done"

        assert ledger.peak == 3
        assert asyncio.get_running_loop().time() - began == pytest.approx(30.0, abs=1.0)
        assert await shown(run, runtime) == [("ok", "found")] * 7


async def test_trees_deeper_than_there_are_places_go_on() -> None:
    """A run that waits for others has no place."""
    leaf = searcher(name="d5")
    agents = [leaf]
    for depth in (4, 3, 2, 1):
        agents.append(
            an_agent([[delegate(agents[-1].name)] * 2, f"up {depth}"], name=f"d{depth}", sub_agents=[agents[-1]])
        )
    agent = team(delegate("d1"), below=[agents[-1]])
    async with Store().runtime(agent, limits=quick(sub_agents_at_once_per_node=1)) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_at_rest()).answer == "done"
        assert len(await below(run, runtime)) == 1 + 2 + 4 + 8 + 16


async def test_an_agent_that_calls_itself_is_bounded_by_depth() -> None:
    agent = an_agent([[delegate("self")], "done"], name="self", sub_agents=["self"])
    async with Store().runtime(agent, limits=quick(sub_agent_depth=3)) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_at_rest()).answer == "done"
        runs = await below(run, runtime)
        assert sorted(each.depth for each in runs) == [1, 2, 3]
        deepest = await runtime.get(next(each.id for each in runs if each.depth == 3))
        assert [status for status, _ in await shown(deepest, runtime)] == ["refused"]


async def test_a_sub_agent_that_fails_is_an_observation_with_its_kind_and_code() -> None:
    agent = team(delegate("search"), below=[searcher(ValueError("no such index"))])
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_at_rest()).answer == "done"
        ((status, text),) = await shown(run, runtime)
        assert status == "error"
        assert text.startswith("model: model_failed: ")


async def test_a_sub_agent_that_is_not_here_is_an_error_and_no_run() -> None:
    agent = team(delegate("search"), below=["search"])
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_at_rest()).answer == "done"
        assert await shown(run, runtime) == [("error", "system: agent_gone: no agent 'search' is registered here")]
        assert await below(run, runtime) == []


async def test_of_several_sub_agents_that_are_not_here_each_is_an_error() -> None:
    agent = team(*[delegate("search")] * 3, below=["search"])
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_at_rest()).answer == "done"
        assert [status for status, _ in await shown(run, runtime)] == ["error"] * 3


@pytest.mark.parametrize("seconds", [0.0, 100.0], ids=["ended", "at work"])
async def test_a_sub_agent_whose_run_id_was_given_to_another_run_is_an_error(seconds: float) -> None:
    worker = searcher(Delay(seconds, "not for you"))
    agent = team(delegate("search"), below=[worker])
    async with Store().runtime(agent) as runtime:
        other = await runtime.start(worker, "go", run_id=sub_agent_run_id("r-team", "t1.c1"))
        await asyncio.sleep(1)
        run = await runtime.start(agent, "go", run_id="r-team")

        assert (await run.wait_ended()).answer == "done"
        ((status, text),) = await shown(run, runtime)
        assert status == "error"
        assert f"run {other.id!r} is there already" in text
        assert (await other.wait_ended()).answer == "not for you"
        assert await runtime._host.node.journal.runnable() == []


@pytest.mark.parametrize("arguments", ["{}", '{"input":""}', '{"input":3}', '{"input":"x","more":1}', "[1]"])
async def test_a_call_of_a_sub_agent_with_other_arguments_is_an_error_and_no_run(arguments: str) -> None:
    agent = team(calling("search", arguments), below=[searcher()])
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_at_rest()).answer == "done"
        assert [status for status, _ in await shown(run, runtime)] == ["error"]
        assert await below(run, runtime) == []


# -- what is checked


async def test_a_sub_agent_may_start_by_default_and_its_own_writes_are_asked_about() -> None:
    """AP-4: reached through a sub-agent, no unanswered effect runs."""
    ledger = Ledger()
    worker = an_agent([[calling("write")], "written"], ledger.write(), name="search")
    agent = team(delegate("search"), below=[worker])
    async with Store().runtime(agent, policy=default_policy) as runtime:
        run = await runtime.start(agent, "go")

        rest = await run.wait_at_rest()

        assert (rest.ended, rest.waiting, rest.at_rest) == (False, (), True)
        (call,) = (await run.tree()).open_calls
        assert (call.tool, call.root, call.path) == ("write", run.id, ("t1.c1",))
        assert [each async for each in runtime.approvals()] == [call]
        assert not ledger.done
        await run.approve(call.id, by="ops")
        assert (await run.wait_at_rest()).answer == "done"
        assert list(ledger.done.values()) == [1]


async def test_a_tree_rests_when_all_that_is_at_work_in_it_waits_for_somebody() -> None:
    asks = an_agent([[calling("write")], "written"], Ledger().write(), name="asks")
    agent = team(
        delegate("asks"), delegate("slow"), delegate("slow"), below=[asks, searcher(Delay(9, "x"), name="slow")]
    )
    limits = quick(sub_agents_at_once_per_tree=1)
    async with Store().runtime(agent, policy=default_policy, limits=limits) as runtime:
        run = await runtime.start(agent, "go")

        await asyncio.sleep(5)
        one_works = await run.tree()
        await asyncio.sleep(60)
        all_wait = await run.tree()

    assert [(each.state, each.at_rest) for each in one_works.walk()] == [
        ("EXECUTE_TOOL", False),
        ("SUSPENDED", True),
        ("MODEL_THINKING", False),
        ("QUEUED", False),
    ]
    assert [each.at_rest for each in all_wait.walk()] == [True, True, True, True]


async def test_a_sub_agent_that_suspends_again_and_again_is_answered_at_the_root() -> None:
    ledger = Ledger()
    worker = an_agent([[calling("write", f'{{"text":"{n}"}}')] for n in "abc"] + ["written"], ledger.write(), name="w")
    agent = team(delegate("w"), delegate("w"), below=[worker])
    store = Store()
    run_id = ""
    for round_ in range(4):
        async with store.runtime(agent, policy=default_policy) as runtime:
            run = await runtime.get(run_id) if run_id else await runtime.start(agent, "go")
            run_id = run.id
            rest = await run.wait_at_rest()
            calls = (await run.tree()).open_calls
            assert len(calls) == (2 if round_ < 3 else 0)
            for call in reversed(calls):
                await run.approve(call.id, by="ops")
    assert rest.answer == "done"
    assert sorted(ledger.done.values()) == [1] * 6


async def test_only_calls_below_the_run_can_be_answered_at_it() -> None:
    worker = an_agent([[calling("write")], "written"], Ledger().write(), name="w")
    agent = team(delegate("w"), below=[worker])
    async with Store().runtime(agent, policy=default_policy) as runtime:
        one, other = [await runtime.start(agent, "go") for _ in range(2)]
        await one.wait_at_rest()
        await other.wait_at_rest()
        (call,) = (await one.tree()).open_calls

        with pytest.raises(RunNotFound):
            await other.approve(call.id, by="ops")
        await one.deny(call.id, by="ops")
        assert (await one.wait_at_rest()).answer == "done"


async def test_what_a_sub_agent_asks_its_user_is_answered_at_the_root() -> None:
    worker = an_agent([[calling("ask_user", '{"question":"which?"}')], "that one"], ask_user, name="w")
    agent = team(delegate("w"), below=[worker])
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
        (call,) = (await run.tree()).open_calls

        await run.send("the blue one", to=call.run_id)

        assert (await run.wait_at_rest()).answer == "done"


async def test_a_policy_may_deny_or_ask_about_a_sub_agent() -> None:
    agent = team(delegate("search"), delegate("other"), below=[searcher(), searcher(name="other")], on_denied="tell")

    def policy(call: Any, _run: Any) -> Any:
        assert call.sub_agent
        return Deny("not that") if call.tool == "other" else Ask("sure?")

    async with Store().runtime(agent, policy=policy) as runtime:
        run = await runtime.start(agent, "go")
        (waiting,) = (await run.wait_at_rest()).waiting
        await run.approve(waiting.call_id, by="ops", arguments='{"input":"edited"}')

        assert (await run.wait_at_rest()).answer == "done"
        assert [status for status, _ in await shown(run, runtime)] == ["ok", "denied"]
        (child,) = await below(run, runtime)
        assert (await runtime.snapshot(child.id)).input == "edited"


# -- one budget


def spending(tokens: int) -> ModelReply:
    return ModelReply(text="found", usage=Usage(input_tokens=tokens))


async def test_eight_sub_agents_on_the_last_unit_do_not_overshoot() -> None:
    worker = searcher(spending(10), budget=Budget(max_turns=1))
    agent = team(*[delegate("search")] * 8, below=[worker], budget=Budget(max_turns=4))
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")

        rest = await run.wait_at_rest()

        statuses = [status for status, _ in await shown(run, runtime)]
        assert statuses == ["ok"] * 2 + ["refused"] * 6
        assert (rest.answer, rest.turn_count) == ("done", 2)
        assert len(await below(run, runtime)) == 2
        assert rest.tree_usage.total_tokens == rest.usage.total_tokens + 20


async def test_a_looping_sub_agent_is_stopped_by_the_smaller_of_its_own_and_its_parents_budget() -> None:
    """BU-7: and the parent gets a result that names the limit."""
    looping = an_agent([[calling("read")]] * 50, Ledger().read(), name="search", budget=Budget(max_turns=40))
    agent = team(delegate("search"), below=[looping], budget=Budget(max_turns=7))
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_at_rest()).answer == "done"
        ((status, text),) = await shown(run, runtime)
        assert status == "error"
        assert text.startswith("budget: max_turns_exceeded: 5 of 5 turns used")


# -- ends


def deep_team(ledger: Ledger) -> Agent:
    worker = an_agent([[calling("read")], "found"], ledger.read(1_000.0), name="leaf")
    middle = an_agent([[delegate("leaf"), delegate("leaf")], "merged"], name="middle", sub_agents=[worker])
    return team(delegate("middle"), delegate("middle"), below=[middle])


@pytest.mark.parametrize("how", ["cancel", "deadline", "budget"])
async def test_the_end_of_a_root_reaches_all_that_is_below_it_within_the_grace(how: str) -> None:
    """BU-5."""
    ledger = Ledger()
    agent = deep_team(ledger)
    store, clock = Store(), LoopClock()
    async with store.runtime(agent, clock=clock) as runtime:
        deadline = clock.now() + 10.0 if how == "deadline" else None
        budget = Budget(max_seconds=10.0) if how == "budget" else None
        run = await runtime.start(agent, "go", deadline=deadline, budget=budget)
        await asyncio.sleep(9.0)
        if how == "cancel":
            await run.cancel("enough", by="ops")

        rest = await run.wait_ended()
        await asyncio.sleep(2.0)

        runs = await below(run, runtime)
        assert len(runs) >= 5
        assert all(each.state in ("CANCELLED", "FAILED") for each in runs)
        assert not runtime._host.node.actors
        assert (await runtime.statistics()).effects == 0
        assert ledger.at_once == 0
        wanted = {"cancel": "cancelled_by_user", "deadline": "deadline_exceeded"}
        if how in wanted:
            assert rest.error is not None
            assert rest.error["code"] == wanted[how]
            assert asyncio.get_running_loop().time() < 9.0 + 7.0


async def test_pausing_a_root_pauses_all_below_and_resuming_it_goes_on() -> None:
    ledger = Ledger()
    worker = an_agent([[calling("read")], [calling("read")], "found"], ledger.read(10.0), name="leaf")
    middle = an_agent([[delegate("leaf")], "merged"], name="middle", sub_agents=[worker])
    agent = team(delegate("middle"), below=[middle])
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(5.0)
        await run.pause(by="ops")

        rest = await run.wait_at_rest()
        await asyncio.sleep(100.0)

        assert rest.state == "SUSPENDED"
        assert {each.state for each in await below(run, runtime)} == {"SUSPENDED"}
        assert sum(ledger.done.values()) == 1
        await run.resume(by="ops")
        assert (await run.wait_at_rest()).answer == "done"
        assert sum(ledger.done.values()) == 2


async def test_sub_agents_that_wait_for_a_place_do_not_begin_while_their_tree_is_paused() -> None:
    ledger, asked = Ledger(), list[str]()

    def ask(request: ModelRequest) -> list[RequestedCall]:
        asked.append(request.run_id)
        return [calling("read")]

    worker = an_agent([ask, "found"], ledger.read(10.0), name="search")
    agent = team(*[delegate("search")] * 6, below=[worker])
    async with Store().runtime(agent, limits=quick(sub_agents_at_once_per_tree=2)) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(5.0)
        await run.pause(by="ops")
        await run.wait_at_rest()
        await asyncio.sleep(100.0)
        assert len(asked) == 2

        await run.resume(by="ops")

        assert (await run.wait_at_rest()).answer == "done"
        assert (len(asked), ledger.peak) == (6, 2)


async def test_sub_agents_that_wait_for_a_place_end_with_their_paused_parent() -> None:
    agent = team(*[delegate("search")] * 6, below=[searcher(Delay(10.0, "late"))])
    async with Store().runtime(agent, limits=quick(sub_agents_at_once_per_tree=2)) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(5.0)
        await run.pause(by="ops")
        await run.wait_at_rest()

        await run.cancel(by="ops")

        ended = await run.wait_ended()
        assert ended.error is not None
        assert ended.error["message"] == "cancelled"  # nobody is named that has not ended
        states = sorted(each.state for each in await below(run, runtime))
        assert states == ["CANCELLED"] * 4 + ["FINISHED"] * 2
        assert await runtime._host.node.journal.runnable() == []


async def test_more_sub_agents_end_at_once_than_a_mailbox_takes() -> None:
    agent = team(*[delegate("search")] * 20, below=[searcher()])
    with capture_logs() as logs:
        async with Store().runtime(agent, limits=quick(mailbox_capacity=2)) as runtime:
            rest = await (await runtime.start(agent, "go")).wait_at_rest()

    assert rest.answer == "done"
    assert asyncio.get_running_loop().time() < 1.0
    assert logs == []


# -- bad input


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sub_agents": [searcher(), searcher()]}, "different agents"),
        ({"sub_agents": [searcher(name="no such name")]}, "64 letters"),
        ({"sub_agents": "search"}, "a list of agents"),
        ({"sub_agents": [3]}, "a list of agents"),
        ({"sub_agents": ["read"], "tools": [Ledger().read()]}, "different agents"),
        ({"shares": "fair"}, "on_demand"),
        ({"shares": 3}, "on_demand"),
        ({"sub_agents": ["a"], "shares": {"b": 1}}, "about its sub-agents (a)"),
        ({"sub_agents": ["a"], "shares": {"a": 0}}, "a number from 0.000001 to 1000000"),
        ({"sub_agents": ["a"], "shares": {"a": 1e-300}}, "a number from"),
        ({"sub_agents": ["a"], "shares": {"a": 10**400}}, "a number from"),
        ({"sub_agents": ["a"], "shares": {"a": True}}, "a number from"),
        ({"sub_agents": ["hand_off_to_b"], "handoffs": ["b"]}, "called as a tool or a sub-agent"),
    ],
)
def test_wrong_sub_agents_are_refused_where_the_agent_is_made(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        Agent("team", **options)

    assert problem in str(caught.value)


def test_two_agents_of_one_name_are_refused_when_a_runtime_is_opened() -> None:
    with pytest.raises(InvalidValue, match="one of a name"):
        Store().runtime(
            an_agent([], name="team", sub_agents=[searcher(), an_agent([], name="m", sub_agents=[searcher()])])
        )


async def test_a_raised_budget_of_a_sub_agent_is_paid_from_its_parents() -> None:
    worker = an_agent(
        [[calling("read")]] * 4 + ["found"],
        Ledger().read(),
        name="search",
        budget=Budget(max_turns=2),
        on_budget="suspend",
    )
    agent = team(delegate("search"), below=[worker], budget=Budget(max_turns=9))
    async with Store().runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        rest = await run.wait_at_rest()
        child = await runtime.get(rest.sub_agents[0].run_id)
        now = await child.snapshot()
        assert now.holds == ("budget",)
        assert now.budget is not None

        with pytest.raises(EventRefused, match="max_turns can be raised to 7"):
            await child.raise_budget(replace(now.budget, max_turns=8), by="ops")
        await child.raise_budget(replace(now.budget, max_turns=7), by="ops", event_id="raise")
        await child.raise_budget(replace(now.budget, max_turns=7), by="ops", event_id="raise")

        assert (await run.wait_at_rest()).answer == "done"
        assert await shown(run, runtime) == [("ok", "found")]
        await child.raise_budget(replace(now.budget, max_turns=7), by="ops", event_id="raise")
        with pytest.raises(EventConflict):
            await child.raise_budget(replace(now.budget, max_turns=8), by="ops", event_id="raise")
        assert (await names_of(run, runtime)).count("ShareRaised") == 1


async def test_many_sub_agents_fifty_at_a_time_of_which_one_hangs() -> None:
    """The others finish on time; the one that hangs ends by its own limit, and is named with its code.

    `make tree-sweep` has a thousand of them.
    """
    ledger = Ledger()

    def one(request: ModelRequest) -> Any:
        hangs = request.messages[-1].text == "100"
        return [calling("read", json.dumps({"after": 10_000.0 if hangs else 1.0}))]

    worker = an_agent(
        [one, "found"], ledger.read(timeout_seconds=20_000.0), name="w", budget=Budget(max_seconds=60.0), stuck=None
    )
    calls = [delegate("w", str(n)) for n in range(200)]
    budget = Budget(max_turns=UNLIMITED, max_tokens=UNLIMITED, max_seconds=10_000.0, max_tool_failures=UNLIMITED)
    agent = team(*calls, below=[worker], budget=budget)
    limits = quick(calls_per_reply=1_000)
    async with Store().runtime(agent, limits=limits) as runtime:
        began = asyncio.get_running_loop().time()
        run = await runtime.start(agent, "go")

        rest = await run.wait_at_rest()

        assert asyncio.get_running_loop().time() - began == pytest.approx(62.0, abs=2.0)
        assert ledger.peak == 50
        assert rest.answer == "done"
        bad = await runtime.list(root=run.id, states=["FAILED"])
        assert [each.error for each in bad] == ["timeout"]
        assert len(await runtime.list(root=run.id, limit=2_000)) == 201
