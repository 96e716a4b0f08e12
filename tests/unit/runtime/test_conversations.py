"""Runs that go on from ended ones: what they take over, and what they do not."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_world import Ledger, Store, an_agent, calling

from geartrain.errors import InvalidValue, RunExists, RunNotFound, RunStillGoing
from geartrain.limits import Limits
from geartrain.machine import ContextRules, Message, RunStarted, ToolCall, groups
from geartrain.models import ModelRequest, answer, call
from geartrain.runtime import Agent, RunHandle, Runtime
from geartrain.runtime._reading._continuing import fitted
from geartrain.tools import read_artifact, tool


def seeing(requests: list[ModelRequest], *replies: Any) -> list[Any]:
    """Return scripted replies that keep what the model was asked."""
    left = list(replies)

    def reply(request: ModelRequest) -> Any:
        requests.append(request)
        return left.pop(0)

    return [reply] * len(replies)


def said(request: ModelRequest) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in request.messages]


async def ended(runtime: Runtime, agent: Agent, text: str, **options: Any) -> RunHandle:
    run = await runtime.start(agent, text, **options)
    await run.wait_ended()
    return run


async def test_a_conversation_goes_on_from_run_to_run_under_any_agent(store: Store, ledger: Ledger) -> None:
    asked: list[ModelRequest] = []
    reader = an_agent([[calling("read", '{"text":"a"}')], answer("it is a")], ledger.read(), instructions="Read.")
    friend = an_agent(seeing(asked, answer("a, I said"), answer("still a")), name="friend", instructions="Be kind.")
    async with store.runtime(reader, friend) as runtime:
        first = await ended(runtime, reader, "what is it?")
    async with store.runtime(reader, friend) as runtime:
        second = await ended(runtime, friend, "again?", continues=first.id)
        third = await ended(runtime, friend, "and now?", continues=second.id)
        assert (await third.snapshot()).continues == second.id
        assert (await runtime.replay(third.id)).difference is None

    conversation = [
        ("system", "Be kind."),
        ("user", "what is it?"),
        ("assistant", ""),
        ("tool", "read a"),
        ("assistant", "it is a"),
        ("user", "again?"),
    ]
    assert said(asked[0]) == conversation
    assert said(asked[1]) == [*conversation, ("assistant", "a, I said"), ("user", "and now?")]
    for request in asked:
        assert [call.id for message in request.messages for call in message.calls] == [f"{first.id}/t1.c1"]
        assert [message.call_id for message in request.messages if message.call_id] == [f"{first.id}/t1.c1"]
        assert {message.turn for message in request.messages} == {0}


async def test_a_run_that_failed_or_was_cancelled_is_continued_too(store: Store, ledger: Ledger) -> None:
    asked: list[ModelRequest] = []
    slow = an_agent([[calling("read")] * 2, answer("x")], ledger.read(50.0, timeout_seconds=60.0), name="slow")
    poor = an_agent([ValueError("down")], name="poor")
    friend = an_agent(seeing(asked, answer("yes"), answer("yes")), name="friend")
    async with store.runtime(slow, poor, friend) as runtime:
        failed = await ended(runtime, poor, "help?")
        cancelled = await runtime.start(slow, "look?")
        await asyncio.sleep(1.0)
        await cancelled.cancel()
        await cancelled.wait_ended()
        for run in (failed, cancelled):
            assert (await (await ended(runtime, friend, "go on", continues=run.id)).snapshot()).answer == "yes"

    assert said(asked[0])[1:] == [("user", "help?"), ("user", "go on")]
    assert [role for role, _ in said(asked[1])][1:] == ["user", "assistant", "tool", "tool", "user"]


async def test_what_has_not_ended_or_is_not_there_is_not_continued(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], answer("x")], ledger.read(50.0, timeout_seconds=60.0))
    async with memory.runtime(agent) as runtime:
        going = await runtime.start(agent, "go")
        with pytest.raises(RunStillGoing, match="wait for its end"):
            await runtime.start(agent, "more", continues=going.id)
        with pytest.raises(RunNotFound):
            await runtime.start(agent, "more", continues="r-none")
        with pytest.raises(InvalidValue):
            await runtime.start(agent, "more", continues="\n")

        assert [row.id for row in await runtime.list()] == [going.id]


async def test_what_is_continued_is_part_of_the_request(memory: Store) -> None:
    agent = an_agent([answer("x")] * 9)
    async with memory.runtime(agent) as runtime:
        one, other = await ended(runtime, agent, "a"), await ended(runtime, agent, "b")
        run = await ended(runtime, agent, "more", continues=one.id, idempotency_key="k")
        assert (await runtime.start(agent, "more", continues=one.id, idempotency_key="k")).id == run.id
        for continues in (other.id, None):
            with pytest.raises(RunExists):
                await runtime.start(agent, "more", continues=continues, idempotency_key="k")


async def test_a_long_history_is_cut_to_what_an_event_takes(store: Store) -> None:
    asked: list[ModelRequest] = []
    limits = Limits(event_bytes=8_000)

    @tool(read_only=True)
    async def page(number: int) -> str:
        """Return a page."""
        return f"{number}:" + "x" * 600

    pages = [[call("page", number=number)] for number in range(15)]
    agent = an_agent([*pages, answer("read")], page)
    friend = an_agent(seeing(asked, answer("yes")), name="friend")
    async with store.runtime(agent, friend, limits=limits) as runtime:
        run = await ended(runtime, agent, "read all")
        following = await ended(runtime, friend, "go on", continues=run.id)
        (entry, *_) = [entry async for entry in following.events()]

    assert isinstance(entry.event, RunStarted)
    texts = [message.text[:3] for message in asked[0].messages if message.role == "tool"]
    assert 2 < len(texts) < 10
    assert texts[-1] == "14:"
    assert asked[0].messages[1].calls
    assert len(msgspec.json.encode(entry.event)) < limits.event_bytes


async def test_a_shortened_result_of_an_earlier_run_is_read_by_its_own_name_and_no_other_runs_is(store: Store) -> None:
    @tool(read_only=True)
    async def long(word: str) -> str:
        """Return a long text."""
        return word * 5_000

    asked: list[ModelRequest] = []
    window = ContextRules(result_bytes=2_000)
    first = an_agent([[call("long", word="one ")], answer("x")], long, read_artifact, name="first", window=window)
    async with store.runtime(first) as runtime:
        before, stranger = await ended(runtime, first, "go"), await ended(runtime, first, "go")
    replies = seeing(
        asked,
        [call("long", word="two ")],
        [call("read_artifact", call=f"{before.id}/t1.c1"), call("read_artifact", call="t1.c1")],
        [call("read_artifact", call=f"{stranger.id}/t1.c1")],
        answer("done"),
    )
    second = an_agent(replies, long, read_artifact, name="second", window=window)
    async with store.runtime(first, second) as runtime:
        await ended(runtime, second, "go on", continues=before.id)

    (shown,) = [message.text for message in asked[0].messages if message.role == "tool"]
    assert f'call="{before.id}/t1.c1"' in shown
    old, own = [message.text for message in asked[2].messages if message.tool == "read_artifact"]
    assert "one one" in old
    assert "two two" in own
    assert "no call of that name" in asked[3].messages[-1].text


# -- cutting


def _units(sizes: list[int], pinned: set[int]) -> list[Message]:
    messages: list[Message] = [Message(role="system", text="be good")]
    for number, size in enumerate(sizes):
        if size % 2:
            calls = tuple(ToolCall(id=f"c{number}.{n}", tool="t", arguments="{}") for n in range(1 + size % 3))
            messages.append(Message(role="assistant", text="x" * size, calls=calls))
            # Of a call, what is pinned is the result: words with which somebody has answered a question.
            last = Message(role="tool", text="y" * size, call_id=calls[-1].id, pinned=number in pinned)
            messages += [*(Message(role="tool", text="y" * size, call_id=each.id) for each in calls[:-1]), last]
        else:
            messages.append(Message(role="user", text="z" * size, pinned=number in pinned))
    return messages


@given(
    sizes=st.lists(st.integers(0, 400), max_size=12),
    pinned=st.sets(st.integers(0, 11), max_size=3),
    room=st.integers(0, 4_000),
)
def test_a_history_that_is_cut_fits_keeps_pairs_and_loses_the_oldest_first(
    sizes: list[int], pinned: set[int], room: int
) -> None:
    messages = _units(sizes, pinned)

    kept = fitted(messages, room)

    assert sum(len(msgspec.json.encode(message)) + 1 for message in kept) <= room
    assert all(message.role != "system" for message in kept)
    units, all_units = groups(kept), groups(tuple(messages[1:]))
    assert all(unit in all_units for unit in units)
    free = [unit for unit in all_units if not _pinned(unit)]
    rest = [unit for unit in units if not _pinned(unit)]
    assert rest == free[len(free) - len(rest) :]
    left_out = [unit for unit in all_units if _pinned(unit) and unit not in units]
    assert not (rest and any(_size(unit) <= _size(rest[0]) for unit in left_out))


def test_a_pinned_answer_to_what_an_agent_asked_outlasts_newer_messages_when_a_history_is_cut() -> None:
    messages = _units([31, 400], pinned={0})
    pinned = messages[1:4]

    assert fitted(messages, _size(pinned) + 100) == tuple(pinned)


def _pinned(unit: list[Message]) -> bool:
    return any(message.pinned for message in unit)


def _size(unit: list[Message]) -> int:
    return sum(len(msgspec.json.encode(message)) + 1 for message in unit)


@pytest.mark.parametrize("wrong", ["", 7, b"r-1", object(), "x" * 201])
async def test_what_is_no_id_cannot_be_gone_on_from_and_nothing_is_stored(store: Store, wrong: Any) -> None:
    agent = an_agent([answer("yes")])
    async with store.runtime(agent) as runtime:
        with pytest.raises(InvalidValue):
            await runtime.start(agent, "go on", run_id="r-2", continues=wrong)

        assert await runtime.list() == []


async def test_going_on_from_nothing_is_a_plain_start(store: Store) -> None:
    agent = an_agent([answer("yes")])
    async with store.runtime(agent) as runtime:
        run = await ended(runtime, agent, "hello", continues=None)

        assert (await run.snapshot()).answer == "yes"
