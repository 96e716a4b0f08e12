"""Who may do what: verdicts in line and awaited, policies that misbehave, approvals and their ends."""

from __future__ import annotations

import asyncio
from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, journal_of, names_of, results_of, settle
from structlog.testing import capture_logs

from geartrain.errors import EventRefused, GeartrainError
from geartrain.limits import Limits
from geartrain.machine import ApprovalDecided, Budget, PermissionsEvaluated, ResultStatus
from geartrain.models import Delay
from geartrain.runtime import Allow, Ask, Change, Deny, Runtime, default_policy
from geartrain.tools import ArgumentsInvalid


class NoText:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _raising(error: BaseException) -> Callable[..., Any]:
    def policy(_call: Any, _run: Any) -> Any:
        raise error

    return policy


def _raising_later(error: BaseException) -> Callable[..., Any]:
    async def policy(_call: Any, _run: Any) -> Any:
        await asyncio.sleep(0)
        raise error

    return policy


async def _hanging(_call: Any, _run: Any) -> Any:
    await asyncio.sleep(10_000)


async def _deaf(_call: Any, _run: Any) -> Any:
    while asyncio.get_running_loop().time() < 1_000:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            continue


def _saying(answer: Any) -> Callable[..., Any]:
    return lambda _call, _run: answer


def _saying_later(answer: Any) -> Callable[..., Any]:
    async def policy(_call: Any, _run: Any) -> Any:
        return answer

    return policy


class Own(BaseException):
    """What a stranger raises, and no handler of ours expects."""


class Untouchable:
    """An answer that must not even be looked at."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise Own


class Uncut(str):
    """A text that cannot be shortened."""

    __slots__ = ()

    def __getitem__(self, _index: Any) -> str:
        raise SystemExit(3)


class Unlistable(UserDict[str, Any]):
    """Arguments that cannot be read."""

    def __iter__(self) -> Any:
        raise Own


ODD_POLICIES = {
    "raises": _raising(ValueError("broken")),
    "raises odd text": _raising(ValueError("\ud800\x00")),
    "raises without text": _raising(type("Mute", (Exception,), {"__str__": NoText.__str__})()),
    "exits": _raising(SystemExit(3)),
    "interrupts": _raising(KeyboardInterrupt()),
    "own": _raising(type("Own", (BaseException,), {})()),
    "cancels": _raising(asyncio.CancelledError()),
    "raises later": _raising_later(ValueError("broken")),
    "exits later": _raising_later(SystemExit(3)),
    "cancels later": _raising_later(asyncio.CancelledError()),
    "times out later": _raising_later(TimeoutError()),
    "own later": _raising_later(type("Own", (BaseException,), {})()),
    "hangs": _hanging,
    "deaf": _deaf,
    "none": _saying(None),
    "true": _saying(True),
    "class": _saying(Allow),
    "text": _saying("allow"),
    "allow without text": _saying(Ask(reason=NoText())),  # type: ignore[arg-type]
    "surrogate": _saying(Ask(reason="\ud800\x00")),
    "long": _saying(Ask(reason="x" * 5_000_000)),
    "later none": _saying_later(None),
    "untouchable": _saying(Untouchable()),
    "untouchable later": _saying_later(Untouchable()),
    "text that exits": _saying(Ask(reason=Uncut("look"))),
    "text that exits later": _saying_later(Ask(reason=Uncut("look"))),
    "change that raises": _saying(Change(Unlistable())),
    "change that raises later": _saying_later(Change(Unlistable())),
    "wrong signature": lambda _call: Allow(),
}


@pytest.mark.parametrize("kind", ["wrong signature", "text that exits later"])
async def test_a_policy_that_misbehaves_is_named_in_the_log(store: Store, ledger: Ledger, kind: str) -> None:
    """A wrong signature would otherwise suspend every run of a service, and only their timelines would say so."""
    agent = an_agent([[calling("write")], "done"], ledger.write())
    with capture_logs() as logs:
        async with store.runtime(agent, policy=ODD_POLICIES[kind]) as runtime:
            run = await runtime.start("worker", "go")
            rest = await run.wait_at_rest()

    [told] = [entry for entry in logs if entry["event"] == "policy_failed"]
    assert (told["run_id"], told["calls"], told["log_level"]) == (run.id, ["t1.c1"], "warning")
    assert told["error"] in rest.waiting[0].reason


@pytest.mark.parametrize("kind", ODD_POLICIES)
async def test_a_policy_that_misbehaves_asks_a_person_and_shows_its_error(
    store: Store, ledger: Ledger, kind: str
) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write())
    other = an_agent([Delay(1, "fine")], name="other")
    async with store.runtime(agent, other, policy=ODD_POLICIES[kind]) as runtime:
        beside = await runtime.start("other", "go")
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("approval(t1.c1)",)
        assert rest.waiting[0].reason
        assert len(rest.waiting[0].reason) < 2_000
        assert not ledger.done
        assert (await beside.wait_ended()).answer == "fine"
        assert (await runtime.replay(run.id)).difference is None
        await run.deny("t1.c1", by="me", reason="no")
        assert (await run.wait_ended()).state == "FAILED"


async def test_many_calls_do_not_use_up_each_others_time_with_a_policy(memory: Store, ledger: Ledger) -> None:
    async def slow(_call: Any, _run: Any) -> Allow:
        await asyncio.sleep(4.0)
        return Allow()

    agent = an_agent([[calling("read", f'{{"text":"{n}"}}') for n in range(40)], "done"], ledger.read())
    async with memory.runtime(agent, policy=slow) as runtime:
        run = await runtime.start("worker", "go")

        assert (await run.wait_ended()).answer == "done"
        assert sum(ledger.done.values()) == 40


async def test_a_cancelled_run_is_rid_of_a_policy_that_has_to_be_cancelled_twice(memory: Store, ledger: Ledger) -> None:
    ended = []

    async def stubborn(call: Any, _run: Any) -> Allow:
        try:
            await asyncio.sleep(3.0)
        except asyncio.CancelledError:
            try:
                await asyncio.sleep(3_600.0)
            finally:
                ended.append(call.id)
        return Allow()

    agent = an_agent([[calling("read"), calling("read")], "done"], ledger.read())
    async with memory.runtime(agent, policy=stubborn) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1.0)
        await run.cancel(by="ops")
        await run.wait_ended()
        await asyncio.sleep(10.0)

        assert sorted(ended) == ["t1.c1", "t1.c2"]
        assert (await runtime.statistics()).effect_tasks == 0


async def test_a_policy_cannot_change_the_run(memory: Store, ledger: Ledger) -> None:
    def policy(call: Any, run: Any) -> Any:
        call.arguments["text"] = "changed"
        run.context["deep"]["list"].append("changed")
        run.labels["team"] = "changed"
        return Allow()

    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write())
    async with memory.runtime(agent, policy=policy) as runtime:
        run = await runtime.start("worker", "go", context={"deep": {"list": []}}, labels={"team": "a"})
        end = await run.wait_ended()
        assert (end.context, end.labels) == ({"deep": {"list": []}}, {"team": "a"})
        assert await results_of(run, runtime) == [(ResultStatus.OK, "wrote a")]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("answer", [Allow("fine"), Deny("never"), Ask("please")])
async def test_verdicts_in_line_and_awaited_mean_the_same(
    store: Store, ledger: Ledger, answer: Any, later: bool
) -> None:
    policy = _saying_later(answer) if later else _saying(answer)
    agent = an_agent([[calling("write")], "done"], ledger.write(), on_denied="tell")
    async with store.runtime(agent, policy=policy) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        if isinstance(answer, Ask):
            assert rest.holds == ("approval(t1.c1)",)
            await run.approve("t1.c1", by="me")
            rest = await run.wait_ended()
        ((status, text),) = await results_of(run, runtime)
        assert rest.answer == "done"
        assert rest.tool_failures == 0
        assert (status is ResultStatus.DENIED) == isinstance(answer, Deny)
        assert sum(ledger.done.values()) == (0 if isinstance(answer, Deny) else 1)
        assert "never" in text or not isinstance(answer, Deny)


async def test_a_denied_call_ends_the_run_unless_the_agent_is_to_be_told(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write())
    async with memory.runtime(agent, policy=_saying(Deny("never"))) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.error is not None
        assert (end.error["code"], end.error["kind"]) == ("tool_denied", "permission")
        assert not ledger.done


async def test_the_policy_in_force_when_the_run_goes_on_has_the_last_word(store: Store, ledger: Ledger) -> None:
    """A denial wins over an approval that was given before."""
    agent = an_agent([[calling("write")], "done"], ledger.write(), on_denied="tell")
    async with store.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
    async with store.runtime(agent, policy=_saying(Deny("not any more"))) as runtime:
        run = await runtime.get(run.id)
        await run.approve("t1.c1", by="me")
        assert (await run.wait_ended()).answer == "done"
        ((status, _),) = await results_of(run, runtime)
        assert status is ResultStatus.DENIED
        assert not ledger.done


async def test_a_decision_arrives_while_the_policy_is_being_asked_about_others(memory: Store, ledger: Ledger) -> None:
    """An answer of a policy from before a pause does not count after it."""
    asked = 0

    async def policy(_call: Any, _run: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.sleep(3)
            return Allow("an old answer")
        return Deny("a new answer")

    agent = an_agent([[calling("write")], "done"], ledger.write(), on_denied="tell")
    async with memory.runtime(agent, policy=policy) as runtime:
        run = await runtime.start("worker", "go")
        await settle()
        await run.pause()
        await run.resume()
        await run.wait_ended()
        assert not ledger.done


async def test_each_of_several_approvals_is_its_own(store: Store, ledger: Ledger) -> None:
    """AP-1: two with the same tool and arguments, decided in reverse order with a restart between."""
    calls = [calling("write", '{"text": "same"}'), calling("write", '{"text": "same"}'), calling("write", "{}")]
    agent = an_agent([calls, "done"], ledger.write(), on_denied="tell")
    async with store.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert [call.call_id for call in rest.waiting] == ["t1.c1", "t1.c2", "t1.c3"]
        await run.approve("t1.c3", by="me")
    async with store.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.get(run.id)
        await run.deny("t1.c2", by="me", reason="not twice")
        assert not ledger.done
    async with store.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.get(run.id)
        await run.approve("t1.c1", by="me")
        await run.wait_ended()
        results = await results_of(run, runtime)
        assert [status for status, _ in results] == [ResultStatus.OK, ResultStatus.DENIED, ResultStatus.OK]
        assert sorted(ledger.done) == [f"{run.id}/t1.c1", f"{run.id}/t1.c3"]


async def test_what_nobody_answered_runs_on_no_path(store: Store, ledger: Ledger) -> None:
    """AP-4: one of three answered, then every way of going on."""
    agent = an_agent([[calling("write")] * 3, "done"], ledger.write())
    async with store.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await run.approve("t1.c1", by="me")
        with pytest.raises(EventRefused, match=r"approval\(t1\.c2\)"):
            await run.resume()
        for wrong in ("", "t1.c9", "t2.c1"):
            with pytest.raises(GeartrainError):
                await run.approve(wrong, by="me")
        with pytest.raises(GeartrainError):
            await runtime.deliver(run.id, ApprovalDecided(id="x", time=0.0, call_id="t1.c2", approved=None))  # type: ignore[arg-type]
        await runtime.replay(run.id)
    async with store.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.get(run.id)
        await run.pause()
        await run.resume()
        await settle()
        assert not ledger.done
        await run.approve("t1.c2", by="me")
        assert not ledger.done
        await run.approve("t1.c3", by="me")
        assert (await run.wait_ended()).answer == "done"
        assert ledger.order == [f"{run.id}/t1.c{n}" for n in (1, 2, 3)]


async def test_an_answered_request_is_not_open_any_more_and_an_open_one_keeps_its_id(
    store: Store, ledger: Ledger
) -> None:
    """AP-7: a client that connects after a restart sees the open one, once, with the same id."""
    agent = an_agent([[calling("write"), calling("write")], "done"], ledger.write())
    async with store.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await run.approve("t1.c1", by="me")
    async with store.runtime(agent, policy=_saying(Ask())) as runtime:
        await asyncio.sleep(5)
        assert [call.call_id async for call in runtime.approvals()] == ["t1.c2"]
        assert [summary.id for summary in await runtime.list(waiting=True)] == [run.id]
        asked = [record async for record in runtime.timeline(run.id) if record.event == "approval_requested"]
        assert [record.payload["call_id"] for record in asked] == ["t1.c1", "t1.c2"]


async def test_a_decision_repeated_or_contradicted_at_once_is_made_once(store: Store, ledger: Ledger) -> None:
    """AP-9: the others are told what was decided."""
    agent = an_agent([[calling("write")], "done"], ledger.write(1.0))
    async with store.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        posts = [run.approve("t1.c1", by=f"p{n}") for n in range(10)] + [
            run.deny("t1.c1", by=f"d{n}") for n in range(10)
        ]
        got = await asyncio.gather(*posts, return_exceptions=True)
        won = [each for each in got if isinstance(each, int)]
        lost = [each for each in got if isinstance(each, EventRefused)]
        assert (len(won), len(lost)) == (1, 19)
        assert all("already decided: approved by p0" in str(each) for each in lost)
        assert (await run.wait_ended()).answer == "done"
        with pytest.raises(EventRefused):
            await run.approve("t1.c1", by="late")
        assert list(ledger.done.values()) == [1]
        assert (await names_of(run, runtime)).count("ApprovalDecided") == 1


async def test_reads_beside_a_guarded_write_run_at_once_and_once(store: Store, ledger: Ledger) -> None:
    """AP-11: one approval is asked; the results come in call order."""
    agent = an_agent([[calling("read"), calling("write"), calling("read")], "done"], ledger.read(1.0), ledger.write())
    async with store.runtime(agent, policy=default_policy) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert [call.call_id for call in rest.waiting] == ["t1.c2"]
        assert ledger.done[f"{run.id}/t1.c1"] == 1
        await run.approve("t1.c2", by="me")
        assert (await run.wait_ended()).answer == "done"
        assert [text for _, text in await results_of(run, runtime)] == ["read ", "wrote ", "read "]
        assert set(ledger.done.values()) == {1}


async def test_what_ran_before_a_pause_for_approval_does_not_run_again(store: Store, ledger: Ledger) -> None:
    """AP-12: resumed after three restarts."""
    agent = an_agent([[calling("write"), calling("second")], "done"], ledger.write(), ledger.write(name="second"))

    def policy(call: Any, _run: Any) -> Any:
        return Allow() if call.tool == "write" else Ask()

    async with store.runtime(agent, policy=policy) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
    for _ in range(3):
        async with store.runtime(agent, policy=policy) as runtime:
            await settle()
            assert (await runtime.snapshot(run.id)).holds == ("approval(t1.c2)",)
    async with store.runtime(agent, policy=policy) as runtime:
        run = await runtime.get(run.id)
        await run.approve("t1.c2", by="me")
        await run.wait_ended()
        assert ledger.done == {f"{run.id}/t1.c1": 1, f"{run.id}/t1.c2": 1}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("decision", ["approve", "edit", "deny", "expire"])
async def test_every_decision_wakes_the_run(store: Store, ledger: Ledger, decision: str, restart: bool) -> None:
    """AP-14: within two seconds, each with its own result for the model; also after a restart."""
    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write(), on_denied="tell")
    limits = Limits(approval_expiry_seconds=100)
    options: dict[str, Any] = {"policy": _saying(Ask()), "limits": limits}

    async def decide(runtime: Runtime) -> None:
        run = await runtime.get(run_id)
        match decision:
            case "approve":
                await run.approve("t1.c1", by="me")
            case "edit":
                await run.approve("t1.c1", by="me", arguments='{"text": "b"}')
            case "deny":
                await run.deny("t1.c1", by="me", reason="no")
            case _:
                await asyncio.sleep(100 - (loop.time() - began))
        decided = loop.time()
        assert (await run.wait_ended()).answer == "done"
        assert loop.time() - decided < 2
        ((status, text),) = await results_of(run, runtime)
        expected = {
            "approve": (ResultStatus.OK, "wrote a"),
            "edit": (ResultStatus.OK, "wrote b"),
            "deny": (ResultStatus.DENIED, "[denied] no"),
            "expire": (ResultStatus.DENIED, "[denied] nobody decided in time"),
        }
        assert (status, text) == expected[decision]

    loop = asyncio.get_running_loop()
    began = loop.time()
    async with store.runtime(agent, **options) as runtime:
        run_id = (await runtime.start("worker", "go")).id
        await (await runtime.get(run_id)).wait_at_rest()
        await settle()
        assert (await runtime.statistics()).runs_loaded == 0
        if not restart:
            await decide(runtime)
    if restart:
        await asyncio.sleep(10)
        async with store.runtime(agent, **options) as runtime:
            await decide(runtime)


async def test_an_approval_that_expired_while_nobody_was_there_is_expired_at_the_next_open(
    store: Store, ledger: Ledger
) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write())
    options: dict[str, Any] = {"policy": _saying(Ask()), "limits": Limits(approval_expiry_seconds=100)}
    async with store.runtime(agent, **options) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
    await asyncio.sleep(1_000)
    async with store.runtime(agent, **options) as runtime:
        end = await (await runtime.get(run.id)).wait_ended()
        assert end.error is not None
        assert end.error["code"] == "approval_expired"
        assert end.active_seconds < 1


async def test_edited_arguments_are_checked_against_the_tool_and_bound_to_what_was_seen(
    memory: Store, ledger: Ledger
) -> None:
    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], ledger.write())
    async with memory.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        for wrong in ('{"text": 5}', "[]", "{", '{"other": 1}', "\x00", "\ud800", ""):
            with pytest.raises(ArgumentsInvalid):
                await run.approve("t1.c1", by="me", arguments=wrong)
        with pytest.raises(EventRefused, match="other arguments"):
            await run.approve("t1.c1", by="me", arguments_digest="0" * 32)
        await run.approve("t1.c1", by="me", arguments_digest=rest.waiting[0].arguments_digest)
        assert (await run.wait_ended()).answer == "done"


async def test_a_remembered_approval_covers_the_same_call_in_this_run_only(memory: Store, ledger: Ledger) -> None:
    agent = an_agent(
        [[calling("write", '{"text": "a"}')], [calling("write", '{"text": "a"}')], [calling("write", "{}")], "done"],
        ledger.write(),
        budget=Budget(max_turns=9),
    )
    async with memory.runtime(agent, policy=_saying(Ask())) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await run.approve("t1.c1", by="me", remember="run")
        rest = await run.wait_at_rest()
        assert rest.holds == ("approval(t3.c1)",)
        verdicts = [e.event for e in await journal_of(run, runtime) if isinstance(e.event, PermissionsEvaluated)]
        assert len(verdicts) == 4
        other = await runtime.start("worker", "go")
        assert (await other.wait_at_rest()).holds == ("approval(t1.c1)",)
