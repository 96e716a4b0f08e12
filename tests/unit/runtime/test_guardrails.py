"""Guardrails of tools: asked in order before the policy, the strictest wins, and changes are checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, journal_of, results_of, settle
from test_policies import ODD_POLICIES

from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.machine import PermissionsEvaluated, ResultStatus, Verdict
from geartrain.runtime import Agent, Allow, Ask, Change, Deny, OpenCall, RunHandle, Runtime


def saying(answer: Any, name: str = "guard", *, later: bool = False) -> Callable[..., Any]:
    def guard(_call: Any, _run: Any) -> Any:
        return answer

    async def guard_later(_call: Any, _run: Any) -> Any:
        return answer

    found = guard_later if later else guard
    found.__name__ = name
    return found


def changing(**to: Any) -> Callable[..., Any]:
    def change(call: Any, _run: Any) -> Any:
        return Change({**call.arguments, **to}, "safer so")

    return change


async def verdicts_of(run: RunHandle, runtime: Runtime) -> list[Verdict]:
    events = [entry.event for entry in await journal_of(run, runtime)]
    return [verdict for event in events if isinstance(event, PermissionsEvaluated) for verdict in event.verdicts]


VERDICTS = {"allow": Allow(), "ask": Ask("look"), "deny": Deny("no")}


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("policy", VERDICTS)
@pytest.mark.parametrize("second", VERDICTS)
@pytest.mark.parametrize("first", VERDICTS)
async def test_the_strictest_verdict_wins(
    memory: Store, ledger: Ledger, first: str, second: str, policy: str, later: bool
) -> None:
    guards = [saying(VERDICTS[first], "first"), saying(VERDICTS[second], "second", later=later)]
    agent = an_agent([[calling("write")], "done"], ledger.write(), on_denied="tell", tool_guardrails=guards)
    async with memory.runtime(agent, policy=saying(VERDICTS[policy])) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        (verdict,) = await verdicts_of(run, runtime)
    strictest = next(kind for kind in ("deny", "ask", "allow") if kind in (first, second, policy))
    assert verdict.verdict == strictest
    decided = next((name for name, said in (("first", first), ("second", second)) if said == strictest), "")
    assert verdict.guard == ("" if strictest == "allow" else decided)
    assert [guard.verdict for guard in verdict.guards] == [
        said for said in ((first,) if first == "deny" else (first, second)) if said != "allow"
    ]


@pytest.mark.parametrize("later", [False, True])
async def test_a_change_goes_to_those_who_are_asked_next_and_to_the_tool(
    store: Store, ledger: Ledger, later: bool
) -> None:
    seen: list[Any] = []

    def policy(call: Any, _run: Any) -> Any:
        seen.append(dict(call.arguments))
        call.arguments["text"] = "changed behind our back"
        return Allow()

    guards = [saying(Change({"text": "b"}, "safer"), later=later), policy]
    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write(), tool_guardrails=guards)
    async with store.runtime(agent, policy=policy) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        assert seen == [{"text": "b"}, {"text": "b"}]
        assert await results_of(run, runtime) == [(ResultStatus.OK, "wrote b")]
        (verdict,) = await verdicts_of(run, runtime)
        assert (verdict.verdict, verdict.arguments) == ("allow", '{"text":"b"}')
        assert (await runtime.replay(run.id)).difference is None


async def test_every_verdict_that_is_not_plain_allow_is_traced(memory: Store, ledger: Ledger) -> None:
    guards = [
        saying(Allow(), "quiet"),
        saying(Change({"text": "b"}, "safer"), "softener"),
        saying(Ask("hm"), "doubter"),
    ]
    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write(), tool_guardrails=guards)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        timeline = [record async for record in runtime.timeline(run.id)]
        said = [
            (r.payload["guard"], r.payload["verdict"], r.payload["reason"]) for r in timeline if r.event == "guardrail"
        ]
        assert said == [("softener", "change", "safer"), ("doubter", "ask", "hm")]
        (evaluated,) = [record.payload for record in timeline if record.event == "permission_evaluated"]
        assert (evaluated["verdict"], evaluated["guard"], evaluated["arguments"]) == ("ask", "doubter", '{"text":"b"}')


async def test_an_approval_of_other_arguments_no_longer_counts(store: Store, ledger: Ledger) -> None:
    """P6: what was approved is what runs, or somebody is asked again."""
    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write())
    stricter = an_agent(
        [[calling("write", '{"text": "a"}')], "done"], ledger.write(), tool_guardrails=[changing(text="b")]
    )
    async with store.runtime(agent, policy=saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
    async with store.runtime(stricter, policy=saying(Ask())) as runtime:
        run = await runtime.get(run.id)
        await run.approve("t1.c1", by="ops")
        rest = await run.wait_at_rest()
        assert [call.arguments for call in rest.waiting] == ['{"text":"b"}']
        assert not ledger.done
        await run.approve("t1.c1", by="ops")
        await run.wait_ended()
        assert await results_of(run, runtime) == [(ResultStatus.OK, "wrote b")]


async def test_a_change_that_means_what_is_there_already_keeps_the_approval(memory: Store, ledger: Ledger) -> None:
    """An edit of a person's is written otherwise than the guardrail would write it."""
    guards = [changing(text="b")]
    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write(), tool_guardrails=guards)
    async with memory.runtime(agent, policy=saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await run.approve("t1.c1", by="ops", arguments='{ "text":   "b" }')
        assert (await run.wait_ended()).answer == "done"
        assert sum(ledger.done.values()) == 1


def louder(call: Any, _run: Any) -> Change:
    return Change({"text": f"{call.arguments['text']}!"})


async def test_a_guardrail_that_adds_something_adds_it_once_however_often_it_is_asked(
    store: Store, ledger: Ledger
) -> None:
    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write(), tool_guardrails=[louder])
    async with store.runtime(agent, policy=saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await run.pause()
    async with store.runtime(agent, policy=saying(Ask())) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        await run.approve("t1.c1", by="ops")
        await run.wait_ended()
        assert await results_of(run, runtime) == [(ResultStatus.OK, "wrote a!")]


async def test_what_a_person_edits_is_judged_from_there_and_approved_as_it_will_run(
    store: Store, ledger: Ledger
) -> None:
    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write(), tool_guardrails=[louder])
    async with store.runtime(agent, policy=saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await run.approve("t1.c1", by="ops", arguments='{"text": "b"}')
        rest = await run.wait_at_rest()
        assert [call.arguments for call in rest.waiting] == ['{"text":"b!"}']
        await run.approve("t1.c1", by="ops")
        await run.wait_ended()
        assert await results_of(run, runtime) == [(ResultStatus.OK, "wrote b!")]


class _Odd:
    def __iter__(self) -> Any:
        raise RuntimeError("no")


NONSENSE_CHANGES = {
    "other type": Change({"text": 5}),
    "other name": Change({"other": "x"}),
    "text": Change('{"text": "b"}'),
    "nothing": Change(None),  # type: ignore[arg-type]
    "not a number": Change({"text": "b", "n": float("nan")}),
    "no data": Change({"text": object()}),
    "no mapping": Change(_Odd()),  # type: ignore[arg-type]
    "no text": Change({5: "b"}),  # type: ignore[dict-item]
    "too large": Change({"text": "x" * 100_000}),
    "reason": Change({"text": "b"}, reason=5),  # type: ignore[arg-type]
    "class": Change,
}


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("kind", NONSENSE_CHANGES)
async def test_a_change_that_cannot_be_made_asks_a_person(
    memory: Store, ledger: Ledger, kind: str, later: bool
) -> None:
    guards = [saying(NONSENSE_CHANGES[kind], later=later)]
    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write(), tool_guardrails=guards)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("approval(t1.c1)",)
        assert "guardrail 'guard" in rest.waiting[0].reason
        assert rest.waiting[0].arguments == '{"text": "a"}'
        assert not ledger.done


@pytest.mark.parametrize("kind", ODD_POLICIES)
async def test_a_guardrail_that_misbehaves_asks_a_person_and_shows_its_error(
    memory: Store, ledger: Ledger, kind: str
) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write(), tool_guardrails=[ODD_POLICIES[kind]])
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("approval(t1.c1)",)
        assert rest.waiting[0].reason
        assert len(rest.waiting[0].reason) < 2_000
        assert not ledger.done
        assert (await runtime.replay(run.id)).difference is None


async def test_whoever_is_asked_reads_every_reason_for_asking(memory: Store, ledger: Ledger) -> None:
    guards = [saying(Ask("an address in it")), ODD_POLICIES["raises"]]
    agent = an_agent([[calling("write")], "done"], ledger.write(), tool_guardrails=guards)
    async with memory.runtime(agent, policy=saying(Ask("it writes"))) as runtime:
        rest = await (await runtime.start("worker", "go")).wait_at_rest()
        assert rest.waiting[0].reason == "an address in it; it writes; guardrail 'policy' failed: ValueError: broken"


async def test_many_that_hang_are_given_up_before_the_run_takes_their_answers_for_lost(
    memory: Store, ledger: Ledger
) -> None:
    """They are asked once, and each call then waits for a person."""
    asked = 0

    async def hangs(_call: Any, _run: Any) -> Any:
        nonlocal asked
        asked += 1
        await asyncio.sleep(10_000)

    agent = an_agent([[calling("write")] * 20, "done"], ledger.write(), tool_guardrails=[hangs] * 3)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert len(rest.holds) == 20
        assert asyncio.get_running_loop().time() < Limits().policy_seconds + Limits().dwell_seconds
        assert asked <= 20 * 3
        assert len(await verdicts_of(run, runtime)) == 20


async def test_a_pause_while_a_guardrail_is_asked_has_it_asked_again(memory: Store, ledger: Ledger) -> None:
    asked = 0

    async def slow(_call: Any, _run: Any) -> Any:
        nonlocal asked
        asked += 1
        await asyncio.sleep(2)
        return Allow() if asked == 1 else Deny("not any more")

    agent = an_agent([[calling("write")], "done"], ledger.write(), tool_guardrails=[slow], on_denied="tell")
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
        await run.pause()
        await run.resume()
        await run.wait_ended()
        assert asked == 2
        assert not ledger.done


@pytest.mark.parametrize("wrong", [[5], "guard", saying(Allow()), [None]])
def test_what_is_no_list_of_functions_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match="guardrails"):
        Agent("worker", tool_guardrails=wrong)


async def test_a_hook_is_told_again_of_an_approval_asked_for_anew(memory: Store, ledger: Ledger) -> None:
    """What was approved is not what would run now: whoever decides must see it."""
    told: list[str] = []
    strict = False

    def guard(call: Any, _run: Any) -> Any:
        return Change({**call.arguments, "text": "b"}) if strict else Allow()

    async def hook(call: OpenCall) -> None:
        told.append(call.arguments)

    agent = an_agent([[calling("write", '{"text":"a"}')], "done"], ledger.write(), tool_guardrails=[guard])
    async with memory.runtime(agent, policy=saying(Ask()), on_approval=hook) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        strict = True
        await run.approve("t1.c1", by="ops")
        await asyncio.sleep(1)
        assert told == ['{"text":"a"}', '{"text":"b"}']
        await run.approve("t1.c1", by="ops")
        assert (await run.wait_ended()).answer == "done"
