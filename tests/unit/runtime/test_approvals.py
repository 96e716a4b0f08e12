"""Who is told of approvals: a hook at least once, followers exactly once, nobody of what is decided."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from runtime_world import Ledger, Store, allow_all, an_agent, calling, settle

from geartrain.errors import EventConflict, EventRefused, InvalidValue, RunNotFound, RuntimeClosed
from geartrain.limits import Limits
from geartrain.models import answer
from geartrain.runtime import Agent, Ask, Change, OpenCall, Runtime
from geartrain.tools import ArgumentsInvalid


def ask(_call: Any, _run: Any) -> Ask:
    return Ask("think twice")


def writing(ledger: Ledger, count: int = 1) -> Agent:
    calls = [calling("write", f'{{"text":"{n}"}}') for n in range(count)]
    return an_agent([calls, answer("done")], ledger.write(), on_denied="tell")


async def until(true: Callable[[], bool]) -> None:
    """Wait until something that happens on a thread is *true*."""
    async with asyncio.timeout(300.0):
        while not true():  # noqa: ASYNC110 - it happens on a thread
            await asyncio.sleep(0.01)


# -- the hook


async def test_the_hook_is_told_of_each_open_approval_once_and_of_nothing_else(store: Store, ledger: Ledger) -> None:
    told: list[OpenCall] = []

    async def hook(call: OpenCall) -> None:
        told.append(call)

    agent = writing(ledger, 2)
    async with store.runtime(agent, policy=ask, on_approval=hook) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(1.0)

        assert [call.id for call in told] == [f"{run.id}/t1.c1", f"{run.id}/t1.c2"]
        assert told[0].reason == "think twice"
        await run.approve("t1.c1", by="ops")
        await run.deny("t1.c2", by="ops")
        assert (await run.wait_ended()).answer == "done"
        assert len(told) == 2


async def test_a_plain_hook_runs_beside_the_loop(memory: Store, ledger: Ledger) -> None:
    threads: list[threading.Thread] = []
    agent = writing(ledger)
    async with memory.runtime(agent, policy=ask, on_approval=lambda _: threads.append(threading.current_thread())) as r:
        await r.start(agent, "go")
        await until(lambda: bool(threads))

    assert threads[0] is not threading.main_thread()


async def test_a_plain_hook_that_returns_something_to_await_is_awaited(memory: Store, ledger: Ledger) -> None:
    told: list[str] = []

    async def later(call: OpenCall) -> None:
        told.append(call.id)

    agent = writing(ledger)
    async with memory.runtime(agent, policy=ask, on_approval=partial(later)) as runtime:
        await runtime.start(agent, "go")
        await until(lambda: bool(told))


async def test_after_a_restart_the_hook_is_told_again_of_what_is_still_open_under_the_same_id(
    store: Store, ledger: Ledger
) -> None:
    told: Counter[str] = Counter()

    async def hook(call: OpenCall) -> None:
        told[call.id] += 1

    agent = writing(ledger, 3)
    async with store.runtime(agent, policy=ask, on_approval=hook) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
        await run.approve("t1.c2", by="ops")
        await asyncio.sleep(1.0)
    async with store.runtime(agent, policy=ask, on_approval=hook):
        await asyncio.sleep(1.0)

    assert told == {f"{run.id}/t1.c1": 2, f"{run.id}/t1.c2": 1, f"{run.id}/t1.c3": 2}


async def test_a_runtime_that_moves_no_runs_by_itself_tells_of_those_that_are_used(
    store: Store, ledger: Ledger
) -> None:
    told: list[str] = []

    async def hook(call: OpenCall) -> None:
        told.append(call.id)

    agent = writing(ledger, 2)
    async with store.runtime(agent, policy=ask) as runtime:
        used = await runtime.start(agent, "go")
        other = await runtime.start(agent, "go")
        await other.wait_at_rest()
        await used.wait_at_rest()
    async with store.runtime(agent, policy=ask, on_approval=hook, recover="none") as runtime:
        await (await runtime.get(used.id)).approve("t1.c1", by="ops")
        await asyncio.sleep(1.0)

    assert told == [f"{used.id}/t1.c1", f"{used.id}/t1.c2"]


@pytest.mark.parametrize("fails", [1, 2, 9])
async def test_a_hook_that_raises_is_called_three_times_in_all(memory: Store, ledger: Ledger, fails: int) -> None:
    tries: list[float] = []

    async def hook(_call: OpenCall) -> None:
        tries.append(asyncio.get_running_loop().time())
        if len(tries) <= fails:
            raise (SystemExit(3) if len(tries) == 2 else ValueError("down"))

    agent = writing(ledger)
    async with memory.runtime(agent, policy=ask, on_approval=hook) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(60.0)
        await run.approve("t1.c1", by="ops")
        assert (await run.wait_ended()).answer == "done"

    assert len(tries) == min(fails + 1, 3)


async def test_a_hook_that_fails_is_not_called_again_for_what_was_decided_meanwhile(
    memory: Store, ledger: Ledger
) -> None:
    tries: list[str] = []

    async def hook(call: OpenCall) -> None:
        tries.append(call.id)
        raise ValueError("down")

    agent = writing(ledger)
    async with memory.runtime(agent, policy=ask, on_approval=hook) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(0.5)
        await run.approve("t1.c1", by="ops")
        await asyncio.sleep(60.0)

    assert len(tries) == 1


async def test_a_hook_still_at_work_is_told_anew_of_what_is_asked_anew_meanwhile(memory: Store, ledger: Ledger) -> None:
    heard: list[str] = []
    free = asyncio.Event()
    text = "first"

    async def hook(call: OpenCall) -> None:
        heard.append(call.arguments)
        await free.wait()

    agent = an_agent([[calling("write")], "done"], ledger.write(), tool_guardrails=[lambda *_: Change({"text": text})])
    async with memory.runtime(agent, policy=ask, on_approval=hook) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await settle()
        text = "second"
        await run.approve("t1.c1", by="ops")  # of other arguments than those that are to run now: asked anew
        assert (await run.wait_at_rest()).holds == ("approval(t1.c1)",)
        free.set()
        await until(lambda: len(heard) == 2)
    assert heard == ['{"text":"first"}', '{"text":"second"}']
    assert not ledger.done


async def test_a_hook_that_hangs_or_swallows_its_cancellation_holds_up_nothing(memory: Store, ledger: Ledger) -> None:
    begun: list[str] = []

    async def hook(call: OpenCall) -> None:
        begun.append(call.id)
        until = asyncio.get_running_loop().time() + 60.0
        while asyncio.get_running_loop().time() < until:
            try:
                await asyncio.sleep(60.0)
            except asyncio.CancelledError:
                continue

    agent = writing(ledger, 20)
    async with memory.runtime(agent, policy=ask, on_approval=hook) as runtime:
        run = await runtime.start(agent, "go")
        for call in (await run.wait_at_rest()).waiting:
            await run.approve(call.call_id, by="ops")
        end = await run.wait_ended()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 15.0

    assert end.answer == "done"
    assert end.active_seconds < 1.0


async def test_a_hook_that_blocks_its_thread_holds_up_nothing_and_not_the_closing(memory: Store) -> None:
    ledger, free = Ledger(), threading.Event()
    agent = writing(ledger)
    began = time.monotonic()
    async with memory.runtime(agent, policy=ask, on_approval=lambda _call: free.wait(60.0)) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
        await run.approve("t1.c1", by="ops")
        assert (await run.wait_ended()).answer == "done"
    free.set()

    assert time.monotonic() - began < 30.0


async def test_what_a_hook_does_to_what_it_is_given_changes_nothing(memory: Store, ledger: Ledger) -> None:
    async def hook(call: OpenCall) -> None:
        with pytest.raises(AttributeError):
            call.arguments = "{}"  # type: ignore[misc]

    agent = writing(ledger)
    async with memory.runtime(agent, policy=ask, on_approval=hook) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(1.0)

        assert [call.arguments for call in (await run.snapshot()).waiting] == ['{"text":"0"}']


async def test_a_hook_may_decide_itself(memory: Store, ledger: Ledger) -> None:
    runtime: Runtime

    async def hook(call: OpenCall) -> None:
        await (await runtime.get(call.run_id)).approve(call.call_id, by="the hook")

    agent = writing(ledger, 3)
    async with memory.runtime(agent, policy=ask, on_approval=hook) as runtime:
        run = await runtime.start(agent, "go")

        assert (await run.wait_ended()).answer == "done"


# -- following


async def test_a_follower_sees_each_open_approval_once_and_no_decided_one(store: Store, ledger: Ledger) -> None:
    """AP-7: those from before a restart, and those that open while it listens."""
    agent = writing(ledger, 2)
    async with store.runtime(agent, policy=ask) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
        await run.approve("t1.c1", by="ops")
    seen: list[str] = []
    async with store.runtime(agent, policy=ask) as runtime:
        await asyncio.sleep(5.0)

        async def follow() -> None:
            async for call in runtime.approvals(follow=True):
                seen.append(call.id)  # noqa: PERF401 - it never ends

        following = asyncio.create_task(follow())
        await asyncio.sleep(1.0)
        assert seen == [f"{run.id}/t1.c2"]
        other = await runtime.start(agent, "go")
        await asyncio.sleep(1.0)
        await other.approve("t1.c1", by="ops")
        await other.approve("t1.c2", by="ops")
        await asyncio.sleep(1.0)
    with pytest.raises(RuntimeClosed):
        await following

    assert seen == [f"{run.id}/t1.c2", f"{other.id}/t1.c1", f"{other.id}/t1.c2"]


async def test_a_slow_follower_is_not_told_of_what_was_decided_before_its_turn(memory: Store, ledger: Ledger) -> None:
    agent = writing(ledger, 3)
    async with memory.runtime(agent, policy=ask) as runtime:
        early = await runtime.start(agent, "go")
        await early.wait_at_rest()
        approvals = runtime.approvals(follow=True)
        assert (await anext(approvals)).call_id == "t1.c1"
        late = await runtime.start(agent, "go")
        await late.wait_at_rest()
        for run in (early, late):
            await run.approve("t1.c2", by="ops")

        rest = [(await anext(approvals)).id for _ in range(3)]
        await approvals.aclose()  # type: ignore[attr-defined]

    assert rest == [f"{early.id}/t1.c3", f"{late.id}/t1.c1", f"{late.id}/t1.c3"]


async def test_following_begins_with_a_listing_that_a_damaged_run_does_not_end(memory: Store, ledger: Ledger) -> None:
    agent = writing(ledger)
    async with memory.runtime(agent, policy=ask) as runtime:
        runs = [await runtime.start(agent, "go") for _ in range(3)]
        for run in runs:
            await run.wait_at_rest()

        assert {call.run_id for call in [c async for c in runtime.approvals()]} == {run.id for run in runs}


# -- decisions that cannot be taken


async def test_others_have_their_turn_while_a_store_in_memory_is_listed(memory: Store, ledger: Ledger) -> None:
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if turns < 1_000:
            asyncio.get_running_loop().call_soon(turn)

    async with memory.runtime(writing(ledger), policy=ask) as runtime:
        for _ in range(20):
            await (await runtime.start("worker", "go")).wait_at_rest()
        turn()
        before = turns
        assert len([call async for call in runtime.approvals()]) == 20
        assert turns - before >= 20


async def test_a_run_that_cannot_be_read_at_all_ends_no_runtime_that_looks_for_approvals(
    memory: Store, ledger: Ledger
) -> None:
    first, other = writing(ledger), an_agent([[calling("write")], "done"], ledger.write(), name="other")
    async with memory.runtime(first, other, policy=ask) as runtime:
        lost = await runtime.start("worker", "go")
        await lost.wait_at_rest()
        specs = set(memory.journal._specs)
        found = await runtime.start("other", "go")
        await found.wait_at_rest()
    for digest in specs:
        del memory.journal._specs[digest]
    heard: list[str] = []
    async with memory.runtime(first, other, policy=ask, on_approval=lambda call: heard.append(call.id)) as runtime:
        await until(lambda: bool(heard))
        assert [call.id async for call in runtime.approvals()] == heard == [f"{found.id}/t1.c1"]


async def test_a_second_decision_is_told_the_first(memory: Store, ledger: Ledger) -> None:
    agent = writing(ledger, 2)
    async with memory.runtime(agent, policy=ask) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
        await run.approve("t1.c1", by="ops", event_id="d1")

        with pytest.raises(EventRefused, match="already decided: approved by ops"):
            await run.approve("t1.c1", by="desk")
        with pytest.raises(EventRefused, match="already decided: approved by ops"):
            await run.deny("t1.c1", by="desk")
        with pytest.raises(EventConflict):
            await run.deny("t1.c1", by="desk", event_id="d1")
        assert await run.approve("t1.c1", by="ops", event_id="d1") > 0


async def test_of_an_approval_and_a_denial_at_once_one_wins_and_the_other_is_told(
    memory: Store, ledger: Ledger
) -> None:
    agent = writing(ledger)
    async with memory.runtime(agent, policy=ask) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()

        told = await asyncio.gather(
            run.approve("t1.c1", by="ops"), run.deny("t1.c1", by="desk"), return_exceptions=True
        )
        end = await run.wait_ended()

    assert [type(each) for each in told] == [int, EventRefused]
    assert "already decided: approved by ops" in str(told[1])
    assert (end.answer, sum(ledger.done.values())) == ("done", 1)


async def test_a_decision_after_the_end_or_the_expiry_is_refused(memory: Store, ledger: Ledger) -> None:
    agent = writing(ledger, 2)
    async with memory.runtime(agent, policy=lambda _c, _r: Ask(expires_seconds=10.0)) as runtime:
        cancelled, expired = await runtime.start(agent, "go"), await runtime.start(agent, "go")
        await expired.wait_at_rest()
        await cancelled.wait_at_rest()
        await cancelled.cancel(by="ops")
        with pytest.raises(EventRefused, match="the run ended"):
            await cancelled.approve("t1.c1", by="desk")
        await expired.approve("t1.c1", by="desk")
        await asyncio.sleep(11.0)
        with pytest.raises(EventRefused, match="the run ended"):
            await expired.approve("t1.c2", by="desk")

    assert sum(ledger.done.values()) == 1


async def test_a_decision_about_another_runs_call_or_none_is_refused(memory: Store, ledger: Ledger) -> None:
    agent, free = writing(ledger, 2), an_agent([answer("x")], name="free")
    async with memory.runtime(agent, free, policy=ask) as runtime:
        run, other = await runtime.start(agent, "go"), await runtime.start(free, "go")
        digest = (await run.wait_at_rest()).waiting[1].arguments_digest
        with pytest.raises(EventRefused, match="not waiting for a decision"):
            await run.approve("t7.c1", by="ops")
        with pytest.raises(EventRefused):
            await other.approve("t1.c1", by="ops")
        with pytest.raises(EventRefused, match="other arguments"):
            await run.approve("t1.c1", by="ops", arguments_digest=digest)
        with pytest.raises(RunNotFound):
            await runtime.get("r-none")

    assert not ledger.done


@pytest.mark.parametrize("arguments", ['{"text":7}', "{", "[]", '{"other":"x"}'])
async def test_an_approval_with_arguments_that_do_not_fit_is_refused_and_leaves_the_call_open(
    memory: Store, ledger: Ledger, arguments: str
) -> None:
    agent = writing(ledger)
    async with memory.runtime(agent, policy=ask) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()

        with pytest.raises(ArgumentsInvalid):
            await run.approve("t1.c1", by="ops", arguments=arguments)

        assert (await run.snapshot()).holds == ("approval(t1.c1)",)
        await run.approve("t1.c1", by="ops", arguments='{"text":"better"}')
        assert (await run.wait_ended()).answer == "done"


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), 10**400, "10", True])
async def test_a_time_to_decide_that_is_none_asks_with_the_error_shown(
    memory: Store, ledger: Ledger, seconds: Any
) -> None:
    agent = writing(ledger)
    async with memory.runtime(agent, policy=lambda _c, _r: Ask("x", expires_seconds=seconds)) as runtime:
        run = await runtime.start(agent, "go")
        (call,) = (await run.wait_at_rest()).waiting

    assert "no number of seconds" in call.reason
    assert call.expires_at == pytest.approx(call.since + Limits().approval_expiry_seconds)


async def test_a_policys_own_time_to_decide_is_kept_over_a_restart(store: Store, ledger: Ledger) -> None:
    agent = writing(ledger)
    async with store.runtime(agent, policy=lambda _c, _r: Ask(expires_seconds=100)) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
        await asyncio.sleep(50.0)
    async with store.runtime(agent, policy=allow_all) as runtime:
        run = await runtime.get(run.id)
        assert not (await run.snapshot()).ended
        await asyncio.sleep(51.0)

        assert (await run.snapshot()).ended
    assert not ledger.done


async def test_more_open_approvals_than_may_wait_are_told_of_all_the_same(
    memory: Store, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geartrain.runtime._approvals.HOOKS_WAITING", 4)
    told: Counter[str] = Counter()

    async def hook(call: OpenCall) -> None:
        await asyncio.sleep(1.0)
        told[call.id] += 1

    agent = writing(ledger, 30)
    async with memory.runtime(agent, policy=ask, on_approval=hook) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(60.0)
        assert told == {f"{run.id}/t1.c{n}": 1 for n in range(1, 31)}
    told.clear()
    async with memory.runtime(agent, policy=ask, on_approval=hook):
        await asyncio.sleep(60.0)

    assert told == {f"{run.id}/t1.c{n}": 1 for n in range(1, 31)}


# -- who


@pytest.mark.parametrize("nobody", ["", "  "])
async def test_a_decision_of_nobody_is_refused(store: Store, ledger: Ledger, nobody: str) -> None:
    agent = writing(ledger)
    async with store.runtime(agent, policy=ask) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_at_rest()
        acts = [
            run.approve("t1.c1", by=nobody),
            run.deny("t1.c1", by=nobody),
            run.settle("t1.c1", by=nobody, done=True),
            run.answer_call("t1.c1", "x", by=nobody),
            run.reply("x", by=nobody),
        ]
        for act in acts:
            with pytest.raises(InvalidValue, match="not blank"):
                await act

        assert (await run.snapshot()).holds == ("approval(t1.c1)",)
