"""Events between the runs of a tree: published once, heard by all who wait, before or after, over restarts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from runtime_world import Store, an_agent, calling, journal_of, settle

from geartrain.machine import EventAwaited, EventHeard, EventPublished
from geartrain.models._scripted import Delay
from geartrain.orchestrator import FanOut, Graph, Pipeline, Step
from geartrain.runtime import Agent, Allow, Ask, Deny, Rule, Rules, default_policy
from geartrain.tools import publish, tool, wait_for


def tells(name: str, payload: str = "", *, after: float = 0.0, agent: str = "teller") -> Agent:
    call = calling("publish", json.dumps({"name": name, "payload": payload}))
    return an_agent([Delay(after, [call]), "told"], publish, name=agent)


def hears(*names: str, agent: str = "hearer", seconds: float = 300.0, after: float = 0.0) -> Agent:
    def last(request: Any) -> str:
        return " ".join(message.text for message in request.messages if message.role == "tool")

    turns: list[Any] = [[calling("wait_for", json.dumps({"name": n, "timeout_seconds": seconds}))] for n in names]
    return an_agent([Delay(after, turns[0]), *turns[1:], last], wait_for, name=agent)


def team(*agents: Agent, **options: Any) -> Agent:
    return Agent("team", plan=Graph([Step(agent.name, agent) for agent in agents], **options))


@tool(read_only=True)
async def echo(text: str) -> str:
    """Say it again."""
    return text


FANNED = Agent(
    "fanned", plan=FanOut(publish, [{"name": "n", "payload": "1"}, {"name": "n", "payload": "2"}], at_once=1)
)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(("told_after", "asked_after"), [(10, 0), (0, 10)])
async def test_an_event_is_heard_whether_it_is_published_before_or_after_somebody_waits(
    store: Store, told_after: float, asked_after: float
) -> None:
    agents = team(tells("ready", "all of it", after=told_after), hears("ready", after=asked_after), answer="{hearer}")
    async with store.runtime(agents, policy=default_policy) as runtime:
        began = now()
        end = await (await runtime.start("team", "x")).wait_ended()

    assert end.answer == "all of it"
    assert 10 <= now() - began < 11


async def test_all_who_wait_hear_it_and_one_event_once(memory: Store) -> None:
    many = [hears("ready", agent=f"h{i}") for i in range(5)]
    async with memory.runtime(team(*many, tells("ready", "go", after=5))) as runtime:
        run = await runtime.start("team", "x")
        await run.wait_ended()
        kinds = [type(entry.event) for entry in await journal_of(run, runtime)]
        hearers = [each for each in await runtime.list(root=run.id) if each.agent.startswith("h")]
        answers = [(await runtime.snapshot(each.id)).answer for each in hearers]

    assert answers == ["go"] * 5
    assert (kinds.count(EventPublished), kinds.count(EventAwaited)) == (1, 5)


async def test_a_run_hears_the_events_of_a_name_one_after_the_other_and_each_once(memory: Store) -> None:
    teller = an_agent(
        [
            [calling("publish", '{"name":"n","payload":"1"}')],
            [calling("publish", '{"name":"n","payload":"2"}')],
            "told",
        ],
        publish,
        name="teller",
    )
    async with memory.runtime(team(teller, hears("n", "n", "n", seconds=50), answer="{hearer}")) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer == "1 2 [timed_out] no answer within 50 s"


@pytest.mark.parametrize("together", [True, False])
async def test_two_waits_of_one_run_hear_one_event_each_at_the_same_time_or_not(store: Store, together: bool) -> None:
    steps = [
        Step("first", wait_for, input="n"),
        Step("second", wait_for, after=[] if together else ["first"], input="n"),
        Step("tell", FANNED),
    ]
    async with store.runtime(Agent("team", plan=Graph(steps, answer="{first}{second}"))) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert sorted(end.answer or "") == ["1", "2"]


async def test_a_wait_lasts_five_minutes_unless_it_says_otherwise(memory: Store) -> None:
    plan = Graph([Step("wait", wait_for, input="never", needed=False)])
    async with memory.runtime(Agent("team", plan=plan)) as runtime:
        began = now()
        end = await (await runtime.start("team", "x")).wait_ended()
    assert (end.answer, round(now() - began)) == ("[timed_out] no answer within 300 s", 300)


async def test_a_large_payload_comes_whole_to_the_step_after_the_wait(memory: Store) -> None:
    payload = "word " * 3_000
    tell = Step("tell", publish, input={"name": "n", "payload": payload})
    for after in ([], ["tell"]):
        graph = Graph([tell, Step("wait", wait_for, after=after, input="n"), Step("end", echo, ["wait"])])
        async with memory.runtime(Agent("team", plan=graph, tools=[echo])) as runtime:
            run = await runtime.start("team", "x")
            await run.wait_ended()
            progress = await runtime._host.node.effects.plans.progress(run.id, (await run.snapshot()).seq)
            assert progress["end"].text == payload


async def test_what_was_published_and_heard_is_traced(memory: Store) -> None:
    steps = [Step("tell", publish, input={"name": "n", "payload": "p" * 5_000}), Step("wait", wait_for, input="n")]
    async with memory.runtime(Agent("team", plan=Graph(steps))) as runtime:
        run = await runtime.start("team", "x")
        await run.wait_ended()
        told = [record async for record in runtime.timeline(run.id)]

    names = ["event_published", "event_awaited", "event_heard", "tool_call_finished"]
    found = {name: [record.payload for record in told if record.event == name] for name in names}
    assert [len(payloads) for payloads in found.values()] == [1, 1, 1, 2]
    assert len(found["event_published"][0]["payload"]) < 2_100
    assert found["event_heard"] == [{"call_id": "t1.c2", "name": "n", "number": 1}]
    results = [(each["call_id"], each["tool"], each["status"], each["size"]) for each in found["tool_call_finished"]]
    assert results == [("t1.c1", "publish", "ok", 13), ("t1.c2", "wait_for", "ok", 5_000)]


async def test_a_wait_that_nobody_ends_is_timed_out_as_its_result(store: Store) -> None:
    async with store.runtime(team(hears("never", seconds=60))) as runtime:
        began = now()
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer == "[timed_out] no answer within 60 s"
    assert 60 <= now() - began < 62


async def test_a_run_that_waits_for_an_event_rests_and_nobody_is_asked_to_answer(memory: Store) -> None:
    async with memory.runtime(team(hears("ready"), tells("ready", "go", after=100))) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(50)
        (hearer,) = [each for each in await runtime.list() if each.agent == "hearer"]
        assert hearer.holds == ("wait_for(t1.c1)",)
        assert hearer.id not in runtime._host.node.actors
        assert (await runtime.snapshot(hearer.id)).waiting == ()
        assert (await run.wait_at_rest()).state == "FINISHED"  # it is not at rest while somebody works


@pytest.mark.parametrize("seconds", [0.5, 2.0, 5.5, 8.0])
async def test_events_and_waits_outlive_their_process(store: Store, seconds: float) -> None:
    def agents() -> Agent:
        return team(
            tells("ready", "go", after=5),
            hears("ready"),
            hears("ready", agent="late", after=7),
            answer="{hearer}{late}",
        )

    async with store.runtime(agents()) as runtime:
        run_id = (await runtime.start("team", "x")).id
        await asyncio.sleep(seconds)
        if store.path is None:
            store.journal = runtime._host.node.journal.as_killed()
    async with store.runtime(agents()) as runtime:
        end = await (await runtime.get(run_id)).wait_ended()
        runs = await runtime.list()
        reports = [await runtime.replay(each.id) for each in runs]

    assert end.answer == "gogo"
    assert [report.difference for report in reports] == [None] * 4


async def test_a_run_without_a_tree_may_tell_itself(memory: Store) -> None:
    calls = [[calling("publish", '{"name":"n","payload":"x"}')], [calling("wait_for", '{"name":"n"}')], "done"]
    async with memory.runtime(an_agent(calls, publish, wait_for)) as runtime:
        run = await runtime.start("worker", "go")
        assert (await run.wait_at_rest()).answer == "done"  # it is not at rest while that is on its way
        heard = [entry.event for entry in await journal_of(run, runtime) if isinstance(entry.event, EventHeard)]
    assert [(each.number, each.payload) for each in heard] == [(0, ""), (1, "x")]


async def test_plans_publish_and_wait_as_steps(memory: Store) -> None:
    """A plan waits at one place for what another plan of its tree has come to."""
    indexer = Agent(
        "indexer",
        plan=Pipeline(
            an_agent([Delay(9, "index")], name="build"),
            Step("tell", publish, input={"name": "indexed", "payload": "{build}"}),
        ),
    )
    reader = Agent(
        "reader",
        plan=Pipeline(Step("wait", wait_for, input="indexed"), an_agent([lambda r: r.messages[-1].text], name="read")),
    )
    async with memory.runtime(team(indexer, reader, answer="{reader}")) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer == "index"


async def test_a_sub_agent_that_waits_for_its_parent_ends_by_its_time(memory: Store) -> None:
    parent = an_agent(
        [[calling("hearer", '{"input":"wait"}')], "done"],
        publish,
        name="parent",
        sub_agents=[hears("never", seconds=30)],
    )
    async with memory.runtime(parent) as runtime:
        run = await runtime.start("parent", "go")
        await run.wait_ended()
        (child,) = [each for each in await runtime.list() if each.agent == "hearer"]
        assert (await runtime.snapshot(child.id)).answer == "[timed_out] no answer within 30 s"


async def test_more_events_than_are_kept_are_refused_and_told_so(
    memory: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geartrain.machine._named_events.EVENTS_MAX", 2)
    monkeypatch.setattr("geartrain.machine._named_events.WAITS_MAX", 0)
    plan = FanOut(publish, ["a", "b", "c"], at_once=1, need="any")
    async with memory.runtime(Agent("team", plan=plan)) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer is not None
    assert end.answer.splitlines()[:2] == ["published 'a'", "published 'b'"]
    assert end.answer.splitlines()[2].startswith("[refused] 2 events")
    async with memory.runtime(team(hears("never"))) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer == "[refused] 0 waits are open, the most that are kept"


async def test_who_waits_when_the_tree_is_cancelled_is_cancelled_too(memory: Store) -> None:
    async with memory.runtime(team(hears("never"), an_agent([Delay(1_000, "x")], name="slow"))) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(5)
        await run.cancel("enough", by="ops")
        await run.wait_ended()
        await settle()
        assert {each.state for each in await runtime.list()} == {"CANCELLED"}


@pytest.mark.parametrize(
    "arguments", ['{"name":""}', '{"name":"n","timeout_seconds":0}', '{"name":"n","timeout_seconds":1e9}', "{}"]
)
async def test_a_wait_that_makes_no_sense_is_an_error(memory: Store, arguments: str) -> None:
    async with memory.runtime(an_agent([[calling("wait_for", arguments)], "done"], wait_for)) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
    assert (end.state, end.tool_failures) == ("FINISHED", 1)


async def test_a_policy_may_forbid_to_publish(memory: Store) -> None:
    agent = an_agent([[calling("publish", '{"name":"n"}')], "done"], publish, on_denied="tell")
    async with memory.runtime(agent, policy=lambda *_: Deny("no")) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        assert EventPublished not in [type(entry.event) for entry in await journal_of(run, runtime)]


async def test_a_person_who_is_asked_about_an_event_sees_it_and_may_edit_it(memory: Store) -> None:
    announced: list[str] = []

    async def announce(call: Any) -> None:
        announced.append(call.tool)

    rules = Rules([Rule("publish", Ask("is it true?")), Rule("wait_for", Ask("why wait?")), Rule("*", Allow())])
    agents = team(tells("n", "five"), hears("n"), answer="{hearer}, {teller}")
    async with memory.runtime(agents, policy=rules, on_approval=announce) as runtime:
        run = await runtime.start("team", "x")
        await run.wait_at_rest()
        asked = {call.tool: call.id for call in (await run.tree()).open_calls}
        assert sorted(asked) == sorted(announced) == ["publish", "wait_for"]
        assert {call.id async for call in runtime.approvals()} == set(asked.values())

        await run.approve(asked["publish"], by="desk", arguments='{"name":"m","payload":"six"}')
        await run.approve(asked["wait_for"], by="desk", arguments='{"name":"m"}')
        assert (await run.wait_ended()).answer == "six, told"


def test_the_tools_are_declared_and_never_run() -> None:
    for each in (publish, wait_for):
        with pytest.raises(NotImplementedError):
            each("n")
