"""Plans at work: tools and approvals as steps, side by side, over restarts; whatever a plan does, its run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from runtime_world import Gated, Ledger, Store, allow_all, calling, journal_of, quick, settle

from geartrain.errors import InvalidValue
from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import Budget, ModelReplied, Progress, ToolStarted, Usage
from geartrain.models import ScriptedModel
from geartrain.orchestrator import (
    Approval,
    Do,
    Done,
    Fail,
    FanOut,
    Graph,
    Job,
    Pipeline,
    Plan,
    Step,
)
from geartrain.persistence import StoreFailed
from geartrain.runtime import Agent, Allow, Ask, Deny, Runtime, default_policy
from geartrain.tools import Tool, ToolContext, ask_user, tool


class Asked(Plan):
    """A plan of the test's own."""

    def __init__(self, decide: Callable[[Progress], Any], *tools: Tool) -> None:
        self._decide, self.tools = decide, tools

    def next(self, progress: Progress, /) -> Any:
        return self._decide(progress)


def slow(name: str, seconds: float, log: list[str], **options: Any) -> Tool:
    """A tool that takes *seconds* and says so."""

    async def work(text: str = "") -> str:
        log.append(f"{name} begins")
        await asyncio.sleep(seconds)
        log.append(f"{name} ends")
        return f"{name}({text})"

    return tool(name=name, **{"read_only": True, **options})(work)


async def _timeline(runtime: Runtime, run_id: str) -> list[Any]:
    return [record async for record in runtime.timeline(run_id)]


def now() -> float:
    return asyncio.get_running_loop().time()


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


# -- restarts, and plans that have changed


def counted(ledger: Ledger) -> Agent:
    read = ledger.read(1.0)
    steps = [
        Step("a", ledger.write(1.0)),
        Step("b", read, after=["a"]),
        Step("c", read, input={"text": "{input}", "after": 2.0}),
        Step("d", read, after=["b", "c"], input="{b}+{c}"),
    ]
    return Agent("team", plan=Graph(steps, answer="{a}|{d}"))


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5, 2.5, 3.5, 4.5])
async def test_a_plan_goes_on_in_another_process_where_it_was(store: Store, ledger: Ledger, seconds: float) -> None:
    async with store.runtime(counted(ledger)) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(seconds)
    async with store.runtime(counted(ledger)) as runtime:
        end = await (await runtime.get(run.id)).wait_ended()
        replayed = await runtime.replay(run.id)

    assert end.answer == "wrote x|read read wrote x+read x"
    assert max(ledger.done.values()) == 1
    assert replayed.difference is None
    assert end.usage == Usage()


async def test_a_changed_plan_goes_on_if_it_has_all_that_was_begun(memory: Store) -> None:
    log: list[str] = []
    a, b = slow("a", 5, log), slow("b", 5, log)
    async with memory.runtime(Agent("team", plan=Pipeline(a), tools=[b])) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(1)
    async with memory.runtime(Agent("team", plan=Pipeline(a, b))) as runtime:
        end = await (await runtime.get(run.id)).wait_ended()
    assert end.answer == "b(a(x))"


async def test_a_changed_plan_that_runs_what_the_agent_had_not_sets_its_run_apart(memory: Store) -> None:
    a, b = slow("a", 5, []), slow("b", 5, [])
    async with memory.runtime(Agent("team", plan=Pipeline(a))) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(1)
    async with memory.runtime(Agent("team", plan=Pipeline(a, b))) as runtime:
        rest = await (await runtime.get(run.id)).wait_at_rest()
    assert rest.holds == ("quarantined",)


async def test_a_plan_without_a_step_that_was_begun_sets_its_run_apart_until_it_is_put_back(store: Store) -> None:
    log: list[str] = []
    a, b = slow("a", 5, log), slow("b", 5, log)
    before = Agent("team", plan=Pipeline(a, b))
    async with store.runtime(before) as runtime:
        run = await runtime.start("team", "x")
        await asyncio.sleep(6)
    async with store.runtime(Agent("team", plan=Pipeline(b))) as runtime:
        rest = await (await runtime.get(run.id)).wait_at_rest()
        assert rest.holds == ("quarantined",)
    async with store.runtime(before) as runtime:
        again = await runtime.get(run.id)
        await again.resume()
        end = await again.wait_ended()
    assert end.answer == "b(a(x))"
    assert log.count("a ends") == 1


@pytest.mark.parametrize("planned_first", [True, False])
async def test_a_run_does_not_change_between_a_plan_and_a_model(memory: Store, planned_first: bool) -> None:
    plan = Agent("team", plan=Pipeline(slow("a", 5, [])))
    model = Agent("team", model=ScriptedModel([[], "no"]), tools=[slow("a", 5, [])])
    first, second = (plan, model) if planned_first else (model, plan)
    async with memory.runtime(first) as runtime:
        run = await runtime.start("team", "x")
        if not planned_first:
            await run.pause()
    async with memory.runtime(second) as runtime:
        again = await runtime.get(run.id)
        if not planned_first:
            await again.resume()
        rest = await again.wait_at_rest()
    assert rest.holds == ("quarantined",)


async def test_a_run_handed_over_to_a_plan_begins_the_plan(memory: Store) -> None:
    team = Agent("team", plan=Pipeline(slow("a", 1, [])))
    desk = Agent("desk", model=ScriptedModel([[calling("hand_off_to_team", provider_id="call_1")]]), handoffs=[team])
    async with memory.runtime(desk) as runtime:
        end = await (await runtime.start("desk", "x")).wait_ended()
    assert (end.agent, end.answer) == ("team", "a(x)")


# -- fan-outs


async def test_a_fan_out_keeps_its_bound_and_its_order(store: Store) -> None:
    ledger = Ledger()
    inputs = [f"{i}" for i in range(100)]
    read = ledger.read(1.0)
    reads = FanOut(read, [{"text": text, "after": (int(text) * 7) % 5} for text in inputs])
    async with store.runtime(Agent("team", plan=reads)) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()

    assert end.answer == "\n".join(f"read {i}" for i in range(100))
    assert ledger.peak == 8
    assert set(ledger.done.values()) == {1}


async def test_a_thousand_inputs_are_gone_through_in_bounded_memory(memory: Store) -> None:
    read = Ledger().read(1.0)
    plan = FanOut(read, [{"text": str(i)} for i in range(1_000)], at_once=50)
    async with memory.runtime(Agent("team", plan=plan), limits=Limits(calls_at_once_per_run=50)) as runtime:
        began = now()
        end = await (await runtime.start("team", "x")).wait_ended()
        assert end.answer is not None
        assert len(end.answer.splitlines()) == 1_000
        assert 20 <= now() - began < 30
        assert len(runtime._host.node.effects.plans) == 0


async def test_more_jobs_than_a_reply_holds_are_begun_by_and_by(memory: Store) -> None:
    ledger = Ledger()
    plan = FanOut(ledger.read(1.0), [{"text": "x"}] * 30, at_once=30)
    async with memory.runtime(Agent("team", plan=plan), limits=quick(calls_per_reply=4)) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.state == "FINISHED"
    assert sum(ledger.done.values()) == 30


async def test_large_outputs_are_passed_on_whole(memory: Store) -> None:
    @tool(read_only=True)
    async def many() -> str:
        """Return much."""
        return "word " * 10_000

    @tool(read_only=True)
    async def size(text: str) -> str:
        """Measure."""
        return str(len(text))

    async with memory.runtime(Agent("team", plan=Pipeline(many, size))) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer == "50000"


async def test_a_store_that_cannot_be_read_for_a_while_is_no_fault_of_the_plan(memory: Store) -> None:
    class Unread(Gated):
        unread = 3

        async def read(self, *args: Any, **options: Any) -> Any:
            if self.unread:
                self.unread -= 1
                raise StoreFailed("runs.db", "read", "the disk is busy")
            return await self.journal.read(*args, **options)

    journal = Unread(memory.journal)
    agent = Agent("team", plan=Pipeline(slow("a", 1, [])))
    async with memory.runtime(agent, target=journal) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert (end.answer, journal.unread) == ("a(x)", 0)


async def test_an_output_that_is_too_large_to_be_passed_on_is_shortened_and_its_size_says_so(memory: Store) -> None:
    @tool(read_only=True)
    async def many() -> str:
        """Return more than a call may be given."""
        return "word " * 10_000

    plan = Pipeline(many, answer=lambda p: f"{p['many'].size} {len(p['many'].text) < 20_000}")
    async with memory.runtime(Agent("team", plan=plan), limits=quick(argument_bytes=40_000)) as runtime:
        end = await (await runtime.start("team", "x")).wait_ended()
    assert end.answer == "50000 True"


async def test_jobs_that_one_event_does_not_hold_are_begun_by_and_by(memory: Store) -> None:
    ledger = Ledger()
    plan = FanOut(ledger.read(1.0), [{"text": "x" * 40_000}] * 20, at_once=20, gather=lambda steps: str(len(steps)))
    async with memory.runtime(Agent("team", plan=plan)) as runtime:
        run = await runtime.start("team", "x")
        end = await run.wait_ended()
        asked = [len(e.event.calls) for e in await journal_of(run, runtime) if isinstance(e.event, ModelReplied)]
    assert end.answer == "20"
    assert asked[0] == 6  # a quarter of an event, for arguments may be written twice as long and more
    assert sum(asked) == sum(ledger.done.values()) == 20


async def test_an_input_that_is_too_large_fails_its_step_and_no_other(memory: Store) -> None:
    fan_out = FanOut(slow("a", 1, []), ["x", "y" * 100_000, "z"], need=2)
    async with memory.runtime(Agent("team", plan=fan_out)) as runtime:
        end = await (await runtime.start("team", "go")).wait_at_rest()
    assert end.answer == "a(x)\n[error] the arguments are too large (100011 bytes)\na(z)"


@pytest.mark.parametrize(
    "plan",
    [Pipeline(Approval("Go?\ud800")), FanOut("helper", ["\ud800"]), Graph([Step("a", "helper", input="\ud800")])],
    ids=["question", "inputs", "input"],
)
def test_a_plan_with_a_text_that_cannot_be_stored_is_refused_when_a_runtime_is_opened(
    plan: Plan, memory: Store
) -> None:
    with pytest.raises(InvalidValue, match=r"the plan of agent 'team' must be made of what JSON can hold"):
        memory.runtime(Agent("team", plan=plan))


@pytest.mark.parametrize("how", ["done", "fails", "cancelled", "deadline"])
async def test_the_progress_of_a_run_is_let_go_of_when_it_ends_however_it_does(memory: Store, how: str) -> None:
    steps = [Step("a", slow("a", 10, [])), Step("b", slow("b", 10, []), after=["a"])]
    last = Fail("no") if how == "fails" else Done("yes")
    plan = Asked(lambda p: last if p.steps and not p.under_way else Graph(steps[:1]).next(p), steps[0].run)
    agents = Agent("team", plan=plan if how in ("done", "fails") else Graph(steps))
    async with memory.runtime(agents) as runtime:
        deadline = runtime._host.node.clock.now() + 15 if how == "deadline" else None
        run = await runtime.start("team", "x", deadline=deadline)
        await asyncio.sleep(5)
        assert len(runtime._host.node.effects.plans) == 1
        if how == "cancelled":
            await run.cancel(by="ops")
        await run.wait_ended()
        assert len(runtime._host.node.effects.plans) == 0


async def test_progress_that_has_no_room_is_read_again(memory: Store) -> None:
    reads = FanOut(Ledger().read(1.0), [{"text": str(i)} for i in range(20)], at_once=4)
    agent = Agent("team", plan=reads)
    async with memory.runtime(agent, limits=quick(plan_progress_bytes=1)) as runtime:
        runs = [await runtime.start("team", "x") for _ in range(3)]
        await asyncio.sleep(2.5)
        assert len(runtime._host.node.effects.plans) == 1
        ends = [await run.wait_ended() for run in runs]
    assert {end.answer for end in ends} == {"\n".join(f"read {i}" for i in range(20))}


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
