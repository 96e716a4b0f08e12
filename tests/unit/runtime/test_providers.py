"""Context providers: what they tell, and what becomes of one that tells nothing usable."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from runtime_world import Ledger, Store, an_agent, calling, journal_of, names_of, quick

from geartrain import Note, RunView
from geartrain.errors import InvalidValue
from geartrain.machine import ContextPrepared, Message
from geartrain.models import ScriptedModel
from geartrain.runtime import Agent, Runtime

SHORT = quick(context_provider_seconds=1.0, grace_seconds=0.5)


def told_by(*providers: Any, replies: Sequence[Any] = ("done",), **options: Any) -> tuple[Agent, ScriptedModel]:
    agent = an_agent(replies, context=providers, **options)
    assert isinstance(agent.model, ScriptedModel)
    return agent, agent.model


async def ended(store: Store, agent: Agent, **options: Any) -> Any:
    async with store.runtime(agent, **options) as runtime:
        run = await runtime.start(agent, "go", context={"home": "here"}, principal="ops")
        return await run.wait_ended()


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


async def test_what_providers_tell_stands_before_the_input_in_their_order(store: Store) -> None:
    async def first(_view: RunView) -> str:
        return "one"

    def second(_view: RunView) -> list[Any]:
        return [Note("two", pinned=True), "three"]

    def nothing(_view: RunView) -> None:
        return None

    agent, model = told_by(first, second, nothing)

    assert (await ended(store, agent)).state == "FINISHED"

    seen = model.requests[0].messages
    assert texts(seen) == ["", "one", "two", "three", "go"]
    assert [message.pinned for message in seen] == [False, False, True, False, False]
    assert [message.provider for message in seen] == ["", "first", "second", "second", ""]
    assert all(message.note for message in seen[1:4])


async def test_a_plain_provider_runs_on_a_thread_and_an_async_one_on_the_loop(memory: Store) -> None:
    threads: dict[str, threading.Thread] = {}

    def plain(_view: RunView) -> None:
        threads["plain"] = threading.current_thread()

    async def other(_view: RunView) -> None:
        threads["async"] = threading.current_thread()

    await ended(memory, told_by(plain, other)[0])

    assert threads["plain"] is not threading.current_thread()
    assert threads["async"] is threading.current_thread()


async def test_a_provider_knows_the_run_and_can_change_nothing_of_it(memory: Store) -> None:
    views: list[RunView] = []

    async def looks(view: RunView) -> str:
        view.context["home"] = "away"  # type: ignore[index]
        views.append(view)
        return f"{view.input} for {view.principal}"

    agent, model = told_by(looks)

    snapshot = await ended(memory, agent)

    assert model.requests[0].messages[1].text == "go for ops"
    assert snapshot.context == {"home": "here"}


async def test_an_object_with_an_async_call_is_a_provider_named_by_itself(memory: Store) -> None:
    class Memory:
        name = "long memory"

        async def __call__(self, _view: RunView) -> str:
            return "remembered"

    agent, model = told_by(Memory())

    await ended(memory, agent)

    assert model.requests[0].messages[1].provider == "long memory"


async def _raises(_view: RunView) -> str:
    raise ValueError("no disk")


def _exits(_view: RunView) -> str:
    raise SystemExit(3)


async def _hangs(_view: RunView) -> str:
    await asyncio.sleep(1_000)
    return "late"


async def _ignores_its_end(_view: RunView) -> str:
    for _ in range(10):
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            continue
    return "late"


async def _is_cancelled(_view: RunView) -> str:
    raise asyncio.CancelledError


class _Odd(list[Any]):
    def __len__(self) -> int:
        raise OSError("gone")


class _Exiting(list[Any]):
    def __len__(self) -> int:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("provider", "problem"),
    [
        (_raises, "no disk"),
        (_exits, "SystemExit"),
        (_hangs, "no answer within 1 s"),
        (_ignores_its_end, "no answer within 1 s"),
        (_is_cancelled, "CancelledError"),
        (lambda _: 7, "a text, a Note, a sequence of them, or None, got 'int'"),
        (lambda _: [7], "texts and Notes of text"),
        (lambda _: Note(7), "texts and Notes of text"),  # type: ignore[arg-type]
        (lambda _: Note("x", pinned=7), "texts and Notes of text"),  # type: ignore[arg-type]
        (lambda _: _Odd("x"), "gone"),
        (lambda _: _Exiting("x"), "SystemExit"),
    ],
)
async def test_a_provider_that_tells_nothing_usable_fails_the_run_by_name(
    memory: Store, provider: Any, problem: str
) -> None:
    agent, model = told_by(provider)

    snapshot = await ended(memory, agent, limits=SHORT)

    assert snapshot.error["code"] == "context_failed"
    assert provider.__name__ in snapshot.error["message"]
    assert problem in snapshot.error["message"]
    assert not model.requests


async def test_a_hanging_provider_is_no_matter_to_other_runs(memory: Store) -> None:
    bad, good = told_by(_hangs, name="bad")[0], told_by(name="good")[0]
    async with memory.runtime(bad, good, limits=SHORT) as runtime:
        stuck = await runtime.start(bad, "go")
        runs = [await runtime.start(good, "go") for _ in range(20)]

        assert {(await run.wait_ended()).state for run in runs} == {"FINISHED"}
        assert (await stuck.wait_ended()).state == "FAILED"


async def test_ten_megabytes_are_cut_off_and_say_so(store: Store) -> None:
    agent, model = told_by(_much)

    assert (await ended(store, agent)).state == "FINISHED"

    told = texts(model.requests[0].messages)[1:-1]
    assert len(told[0]) == 64 * 1024
    assert told[1:] == ["[… _much told 10,000,000 characters; what is not here was too much]"]


def _much(_view: RunView) -> str:
    return "\x00" * 10_000_000


async def test_many_providers_and_notes_fit_into_one_event(memory: Store) -> None:
    def provider(number: int) -> Any:
        def tells(_view: RunView) -> list[str]:
            return ["y" * 3_000] * 1_000

        tells.__name__ = f"p{number}"
        return tells

    agent, _ = told_by(*[provider(n) for n in range(32)])
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        assert (await run.wait_ended()).state == "FINISHED"
        prepared = (await journal_of(run, runtime))[1].event

    assert isinstance(prepared, ContextPrepared)
    by_name = [[m.text for m in prepared.messages if m.provider == f"p{n}"] for n in range(32)]
    assert sum(len(text) for told in by_name for text in told) < 300_000
    assert by_name[0][-1] == "[… p0 told 1,000 notes; what is not here was too much]"
    assert by_name[31] == ["[… p31 told 1,000 notes; what is not here was too much]"]


async def test_each_provider_has_its_own_time(memory: Store) -> None:
    def slow(name: str) -> Any:
        async def tells(_view: RunView) -> str:
            await asyncio.sleep(0.9)
            return name

        tells.__name__ = name
        return tells

    limits = quick(context_provider_seconds=1.0, dwell_seconds=0.1)
    agent, model = told_by(*[slow(f"p{n}") for n in range(5)])

    assert (await ended(memory, agent, limits=limits)).state == "FINISHED"
    assert texts(model.requests[0].messages)[1:6] == ["p0", "p1", "p2", "p3", "p4"]


async def test_runs_that_begin_at_once_do_not_use_up_each_others_time(memory: Store) -> None:
    at_once, peak = 0, 0

    async def slow(_view: RunView) -> str:
        nonlocal at_once, peak
        at_once += 1
        peak = max(peak, at_once)
        await asyncio.sleep(0.9)
        at_once -= 1
        return "fact"

    agent, _ = told_by(slow)
    limits = quick(context_provider_seconds=1.0, task_calls_at_once=4)
    async with memory.runtime(agent, limits=limits) as runtime:
        runs = [await runtime.start(agent, "go") for _ in range(40)]
        cancelled = runs.pop()
        await cancelled.cancel()

        assert {(await run.wait_ended()).state for run in runs} == {"FINISHED"}
        assert (await cancelled.wait_ended()).state == "CANCELLED"
        assert runtime._host.node.pool.statistics().task.in_use == 0

    assert peak == 4


async def test_a_recovery_asks_no_provider_that_was_answered(store: Store) -> None:
    asked: list[str] = []

    async def tells(view: RunView) -> str:
        asked.append(view.run_id)
        return "fact"

    world = Ledger()
    agent, model = told_by(tells, replies=[[calling("write")], "done"])
    agent = Agent("worker", model=model, tools=[world.write(seconds=5, idempotent=True)], context=[tells])
    async with store.runtime(agent, limits=SHORT) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(1)
        assert world.begun

    async with store.runtime(agent) as runtime:
        run = await runtime.get(run.id)
        assert (await run.wait_ended()).state == "FINISHED"
        events = await journal_of(run, runtime)

    assert len(asked) == 1
    told = [entry.event for entry in events if isinstance(entry.event, ContextPrepared)]
    assert [texts(event.messages) for event in told] == [["fact"]]
    assert texts(model.requests[-1].messages)[:3] == ["", "fact", "go"]


async def test_a_close_while_providers_run_leaves_the_run_to_be_gone_on_with(store: Store) -> None:
    slow = [5.0]

    async def tells(_view: RunView) -> str:
        await asyncio.sleep(slow[0])
        return "fact"

    agent, _ = told_by(tells)
    async with store.runtime(agent, limits=quick(context_provider_seconds=60.0)) as runtime:
        run = await runtime.start(agent, "go")
        assert (await run.snapshot()).state == "PREPARE_CONTEXT"

    slow[0] = 0.1
    async with store.runtime(agent, limits=quick(context_provider_seconds=60.0)) as runtime:
        run = await runtime.get(run.id)
        assert (await run.wait_ended()).state == "FINISHED"
        assert (await names_of(run, runtime))[:3] == ["RunStarted", "RunRecovered", "ContextPrepared"]


async def test_a_run_cancelled_while_its_providers_run_ends_at_once(memory: Store) -> None:
    agent, _ = told_by(_hangs)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await run.cancel("enough")

        assert (await run.wait_ended()).state == "CANCELLED"


async def test_a_run_paused_while_its_providers_run_goes_on_with_what_they_told(memory: Store) -> None:
    async def tells(_view: RunView) -> str:
        await asyncio.sleep(1)
        return "fact"

    agent, model = told_by(tells)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await run.pause()
        assert (await run.wait_at_rest()).state == "SUSPENDED"
        await run.resume()
        assert (await run.wait_ended()).state == "FINISHED"

    assert texts(model.requests[0].messages) == ["", "fact", "go"]


async def test_a_provider_that_is_gone_fails_the_run_that_was_to_ask_it(memory: Store) -> None:
    async def tells(_view: RunView) -> str:
        await asyncio.sleep(100)
        return "fact"

    limits = quick(context_provider_seconds=1_000.0)
    agent, model = told_by(tells)
    async with memory.runtime(agent, limits=limits) as runtime:
        run = await runtime.start(agent, "go")

    async with memory.runtime(Agent("worker", model=model), limits=limits) as runtime:
        snapshot = await (await runtime.get(run.id)).wait_ended()

    assert snapshot.error["message"] == "context provider 'tells': it is gone: this agent has it no more"


@pytest.mark.real_time
async def test_a_plain_provider_that_hangs_does_not_hold_the_close_up() -> None:
    over = threading.Event()

    def hangs(_view: RunView) -> str:
        over.wait(20)
        return "late"

    agent = told_by(hangs)[0]
    begun = time.monotonic()
    async with Runtime.open(Store().target, agents=[agent], limits=quick(context_provider_seconds=0.2)) as runtime:
        snapshot = await (await runtime.start(agent, "go")).wait_ended()
    over.set()

    assert snapshot.error is not None
    assert snapshot.error["code"] == "context_failed"
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("providers", "problem"),
    [
        (7, "a sequence of functions"),
        ("memory", "a sequence of functions"),
        (lambda _: None, "a sequence of functions"),
        ([7], "functions of a RunView"),
        ([_raises, _raises], "providers with different names"),
        ([lambda _: None, lambda _: None], "providers with different names"),
        ([lambda _: None] * 33, "at most 32"),
    ],
)
def test_what_is_no_provider_is_refused_when_the_agent_is_made(providers: Any, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        Agent("a", context=providers)


def test_a_provider_without_a_printable_name_is_refused() -> None:
    def tells(_view: RunView) -> None: ...

    tells.__name__ = "a\nb"

    with pytest.raises(InvalidValue, match="printable"):
        Agent("a", context=[tells])


async def test_after_a_handoff_the_other_agents_providers_are_asked_and_told_anew_when_it_is_handed_back(
    store: Store,
) -> None:
    told: list[str] = []

    def memory_of(agent: str) -> Any:
        async def tells(view: RunView) -> str:
            told.append(view.agent)
            return f"{agent} knows, told {len(told)}"

        tells.__name__ = f"memory_of_{agent}"
        return tells

    first = an_agent(
        [[calling("hand_off_to_second")], "unused", "done"],
        name="first",
        context=[memory_of("first")],
        handoffs=["second"],
    )
    second = an_agent(
        ["unused", [calling("hand_off_to_first")]], name="second", context=[memory_of("second")], handoffs=["first"]
    )
    async with store.runtime(first, second) as runtime:
        run = await runtime.start(first, "go")
        assert (await run.wait_ended()).answer == "done"
        assert (await runtime.replay(run.id)).difference is None

    assert told == ["first", "second", "first"]
    assert isinstance(first.model, ScriptedModel)
    seen = first.model.requests[-1].messages
    assert [m.text for m in seen if m.provider] == ["second knows, told 2", "first knows, told 3"]
