"""Guardrails of inputs and answers: in many stores, over restarts, with people, and misbehaving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, names_of, settle
from test_guardrails import VERDICTS, saying
from test_policies import ODD_POLICIES

from geartrain.errors import EventRefused, InvalidValue
from geartrain.limits import Limits
from geartrain.machine import guard_arguments
from geartrain.models import Delay
from geartrain.runtime import Agent, Allow, Ask, Change, Deny


def refusing(word: str) -> Callable[..., Any]:
    def refuses(text: Any, _run: Any) -> Any:
        assert isinstance(text, str)
        return Deny(f"{word!r} is not said here") if word in text else Allow()

    return refuses


@pytest.mark.parametrize("later", [False, True])
async def test_an_input_is_judged_before_the_model_hears_it(store: Store, later: bool) -> None:
    agent = an_agent(["done"], input_guardrails=[saying(Change("please go"), later=later)])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "GO")
        end = await run.wait_ended()
        assert (end.answer, end.input, end.tool_calls) == ("done", "GO", 0)
        records = [record async for record in runtime.timeline(run.id, full=True)]
        (asked,) = [record.payload["saw"] for record in records if record.event == "llm_call_started"]
        assert [message["text"] for message in asked if message["role"] == "user"] == ["please go"]
        assert (await runtime.replay(run.id)).difference is None
        assert not [record for record in records if record.event.startswith("tool_call")]


async def test_a_guardrail_of_texts_sees_the_text_and_the_run(memory: Store) -> None:
    seen: list[Any] = []

    def looks(text: str, run: Any) -> Any:
        seen.append((text, run.agent, run.principal, dict(run.labels)))
        return Allow()

    agent = an_agent(["the answer"], input_guardrails=[looks], output_guardrails=[looks])
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go", principal="ops", labels={"team": "a"})
        await run.wait_ended()
    assert seen == [("go", "worker", "ops", {"team": "a"}), ("the answer", "worker", "ops", {"team": "a"})]


async def test_a_denied_input_ends_the_run_before_the_model_is_asked(store: Store) -> None:
    agent = an_agent(["done"], input_guardrails=[refusing("bomb")], on_denied="tell")
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "a bomb please")
        end = await run.wait_ended()
        assert end.error is not None
        assert (end.error["code"], end.error["kind"]) == ("input_denied", "permission")
        assert "'bomb' is not said here" in end.error["message"]
        assert (end.turn_count, end.usage.total_tokens) == (0, 0)


async def test_a_denied_later_input_is_not_heard_where_denials_are_told(store: Store) -> None:
    agent = an_agent([Delay(5, "first"), "second"], input_guardrails=[refusing("bomb")], on_denied="tell")
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
        await run.send("a bomb please")
        end = await run.wait_ended()
        assert end.answer == "second"
        saw = [r.payload["saw"] async for r in runtime.timeline(run.id, full=True) if r.event == "llm_call_started"]
        assert not any("a bomb please" in message["text"] for messages in saw for message in messages)
        assert any("was said and not let through" in message["text"] for message in saw[-1])


@pytest.mark.parametrize("on_denied", ["fail", "tell"])
async def test_a_denied_answer_is_nobodys_answer(store: Store, on_denied: Any) -> None:
    agent = an_agent(
        ["the password is x", "all is well"], output_guardrails=[refusing("password")], on_denied=on_denied
    )
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        if on_denied == "tell":
            assert (end.answer, end.turn_count) == ("all is well", 2)
        else:
            assert end.error is not None
            assert (end.error["code"], end.answer) == ("output_denied", None)
        records = [record async for record in runtime.timeline(run.id)]
        (denied,) = [record.payload for record in records if record.event == "guardrail"]
        assert (denied["guard"], denied["verdict"], denied["role"]) == ("refuses", "deny", "answer")
        evaluated = [r.payload for r in records if r.event == "permission_evaluated"]
        assert (evaluated[0]["guard"], evaluated[0]["role"]) == ("refuses", "answer")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("second", VERDICTS)
@pytest.mark.parametrize("first", VERDICTS)
async def test_the_strictest_of_several_wins(memory: Store, first: str, second: str, later: bool) -> None:
    guards = [saying(VERDICTS[first]), saying(VERDICTS[second], later=later)]
    agent = an_agent(["done"], output_guardrails=guards)
    async with memory.runtime(agent) as runtime:
        rest = await (await runtime.start("worker", "go")).wait_at_rest()
    expected = {"allow": "FINISHED", "ask": "SUSPENDED", "deny": "FAILED"}
    assert rest.state == expected[next(kind for kind in ("deny", "ask", "allow") if kind in (first, second))]


async def test_a_person_edits_an_answer_before_it_goes_out(store: Store) -> None:
    agent = an_agent(["dear mr x"], output_guardrails=[saying(Ask("a name in it"))])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        (call,) = rest.waiting
        assert (call.call_id, call.role, call.arguments) == ("t1.answer", "answer", guard_arguments("dear mr x"))
        assert (rest.answer, call.reason) == (None, "a name in it")
        assert [open_.call_id async for open_ in runtime.approvals()] == ["t1.answer"]
    async with store.runtime(agent) as runtime:
        run = await runtime.get(run.id)
        for wrong in ("{}", '{"text": ""}', "dear customer"):
            with pytest.raises(EventRefused):
                await run.approve("t1.answer", by="ops", arguments=wrong)
        await run.approve("t1.answer", by="ops", arguments='{"text": "dear customer"}')
        end = await run.wait_ended()
        assert end.answer == "dear customer"
        with pytest.raises(EventRefused):
            await run.answer_call("t1.answer", "mine", by="ops")


@pytest.mark.parametrize("role", ["input", "answer"])
@pytest.mark.parametrize("decision", ["deny", "expire"])
async def test_a_text_that_nobody_lets_through(store: Store, role: str, decision: str) -> None:
    guards: dict[str, Any] = {"input_guardrails" if role == "input" else "output_guardrails": [saying(Ask())]}
    agent = an_agent(["done"], **guards)
    limits = Limits(approval_expiry_seconds=100)
    async with store.runtime(agent, limits=limits) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        if decision == "deny":
            await run.deny(rest.waiting[0].call_id, by="ops", reason="no")
            await run.wait_ended()
    await asyncio.sleep(200)
    async with store.runtime(agent, limits=limits) as runtime:
        end = await (await runtime.get(run.id)).wait_ended()
        assert end.error is not None
        assert end.error["code"] == {"deny": "approval_denied", "expire": "approval_expired"}[decision]


async def test_an_answer_is_answered_for_over_restarts_and_pauses(store: Store, ledger: Ledger) -> None:
    """The guardrail in force when the run goes on is asked again."""
    asked: list[str] = []

    async def slow(text: str, _run: Any) -> Any:
        asked.append(text)
        await asyncio.sleep(3)
        return Allow()

    agent = an_agent([[calling("write")], "done"], ledger.write(), output_guardrails=[slow])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        assert (await run.snapshot()).state == "WAIT_APPROVAL"
    async with store.runtime(agent) as runtime:
        run = await runtime.get(run.id)
        await asyncio.sleep(1)
        await run.pause()
        await asyncio.sleep(5)
        assert (await run.snapshot()).state == "SUSPENDED"
        await run.resume()
        end = await run.wait_ended()
        assert (end.answer, asked) == ("done", ["done"] * 3)
        assert sum(ledger.done.values()) == 1
        assert (await runtime.replay(run.id)).difference is None


@pytest.mark.parametrize("role", ["input", "answer"])
async def test_a_cancelled_run_does_not_wait_for_its_guardrails(memory: Store, role: str) -> None:
    guards: dict[str, Any] = {"input_guardrails" if role == "input" else "output_guardrails": [ODD_POLICIES["hangs"]]}
    async with memory.runtime(an_agent(["done"], **guards)) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        await run.cancel()
        end = await run.wait_ended()
        assert (end.state, end.answer) == ("CANCELLED", None)
        await settle()
        assert (await runtime.statistics()).effects == 0


NONSENSE = {
    **ODD_POLICIES,
    "change to nothing": saying(Change("  ")),
    "change to a mapping": saying(Change({"text": "x"})),
    "change to too much": saying(Change("x" * 1_000_000)),
}


@pytest.mark.parametrize("role", ["input", "answer"])
@pytest.mark.parametrize("kind", NONSENSE)
async def test_a_guardrail_of_texts_that_misbehaves_asks_a_person(memory: Store, kind: str, role: str) -> None:
    guards: dict[str, Any] = {"input_guardrails" if role == "input" else "output_guardrails": [NONSENSE[kind]]}
    agent, other = an_agent(["done"], **guards), an_agent([Delay(1, "fine")], name="other")
    async with memory.runtime(agent, other) as runtime:
        beside = await runtime.start("other", "go")
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert [call.role for call in rest.waiting] == [role]
        assert rest.waiting[0].reason
        assert (await beside.wait_ended()).answer == "fine"
        await run.deny(rest.waiting[0].call_id, by="ops")
        assert (await run.wait_ended()).state == "FAILED"
        assert (await runtime.replay(run.id)).difference is None


async def test_where_the_guardrails_are_gone_a_person_is_asked(store: Store) -> None:
    """The run was started under a spec whose answers are guarded; today's code has nobody to ask."""
    agent = an_agent([Delay(5, "done")], output_guardrails=[saying(Allow())])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
    async with store.runtime(an_agent([Delay(5, "done")])) as runtime:
        run = await runtime.get(run.id)
        rest = await run.wait_at_rest()
        assert rest.holds == ("approval(t1.answer)",)
        assert "no guardrails for its answer any more" in rest.waiting[0].reason


async def test_texts_with_odd_characters_are_judged_and_kept(store: Store) -> None:
    odd = 'a "quoted" \\ line\n\ud800\x00 ünï 🦜'
    agent = an_agent([odd], input_guardrails=[saying(Allow())], output_guardrails=[saying(Allow())])
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", odd)
        end = await run.wait_ended()
        assert end.answer == 'a "quoted" \\ line\n\\ud800\\x00 ünï 🦜'
        assert await names_of(run, runtime) == [
            "RunStarted",
            "PermissionsEvaluated",
            "ModelReplied",
            "PermissionsEvaluated",
        ]


@pytest.mark.parametrize("which", ["input_guardrails", "output_guardrails"])
def test_what_is_no_list_of_functions_is_refused(which: str) -> None:
    with pytest.raises(InvalidValue, match="guardrails"):
        Agent("worker", **{which: ["guard"]})  # type: ignore[arg-type]
