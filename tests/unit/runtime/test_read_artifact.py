"""Reading again what was shortened: the whole result of any earlier call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from runtime_world import Store, an_agent, results_of

from geartrain import tool
from geartrain.limits import UNLIMITED
from geartrain.machine import Budget, ContextRules, ResultStatus
from geartrain.models import ModelRequest, call
from geartrain.tools import ResultUnavailable, ToolContext, read_artifact

LONG = "".join(f"line {n}\n" for n in range(20_000))
FREE = Budget(max_turns=UNLIMITED, max_tokens=UNLIMITED, max_tool_failures=UNLIMITED)


@tool(read_only=True)
async def long() -> str:
    """Return a long text."""
    return LONG


@tool(read_only=True)
async def picture() -> bytes:
    """Return a picture."""
    return b"\x89PNG\r\n\x1a\n" + bytes(100)


@tool(read_only=True)
async def medium(text: str = "m") -> str:
    """Return a text of medium length."""
    return text * 2_000


async def seen_by(store: Store, *replies: Any, **options: Any) -> list[tuple[ResultStatus, str]]:
    """What the model was shown last of all its results."""
    agent = an_agent([*replies, "done"], long, picture, medium, read_artifact, budget=FREE, **options)
    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        assert (await run.wait_ended()).state == "FINISHED"
        return await results_of(run, runtime)


async def test_a_trimmed_result_says_how_to_read_it_and_is_read_to_its_end(store: Store) -> None:
    pieces: list[str] = []

    def on(request: ModelRequest) -> Any:
        head, _, piece = request.messages[-1].text.partition("\n")
        pieces.append(piece)
        if "continue with" not in head:
            return "done"
        offset = int(head.partition("offset=")[2].strip("]"))
        return [call("read_artifact", call="t1.c1", offset=offset, limit=15_000)]

    agent = an_agent(
        [[call("long")], [call("read_artifact", call="t1.c1", limit=15_000)], *[on] * 20],
        long,
        read_artifact,
        budget=FREE,
        window=ContextRules(),
    )
    async with store.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        assert (await run.wait_ended()).state == "FINISHED"
        results = await results_of(run, runtime)

    assert results[0][1].endswith('[read_artifact with call="t1.c1" shows all of it]')
    assert "".join(pieces) == LONG


async def test_a_shrunk_result_is_read_again_by_the_name_in_its_line(store: Store) -> None:
    def by_its_line(request: ModelRequest) -> Any:
        line = next(message.text for message in request.messages if message.shrunk)
        return [call("read_artifact", call=line.partition('with call="')[2].partition('"')[0], limit=10)]

    looks = [[call("medium", text="abcde"[n % 5])] for n in range(12)]
    results = await seen_by(store, *looks, by_its_line)

    how = 'read_artifact with call="t1.c1" shows it'
    assert results[0][1] == f"[ok: 2,000 bytes of medium, call t1.c1, not shown any more; {how}]"
    assert results[-1][1] == "[t1.c1: characters 0 to 10 of 2,000; continue with offset=10]\naaaaaaaaaa"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"call": "t9.c9"}, "call 't9.c9': no call of that name has a result"),
        ({"call": '"'}, "no call of that name has a result"),
        ({"call": "t1.c2"}, "its result is no text but image/png, 108 bytes"),
        ({"call": "t1.c1", "offset": 10**9}, "offset is 1,000,000,000"),
        ({"call": "t1.c1", "offset": -1}, ">= 0"),
        ({"call": "t1.c1", "limit": 10**6}, "<= 15000"),
        ({"call": "t2.c1"}, "no call of that name has a result"),  # itself
    ],
)
async def test_what_cannot_be_read_is_an_error_for_the_model(memory: Store, arguments: Any, problem: str) -> None:
    results = await seen_by(memory, [call("long"), call("picture")], [call("read_artifact", **arguments)])

    assert results[-1][0] is ResultStatus.ERROR
    assert problem in results[-1][1]


async def test_wide_characters_are_read_in_pieces_that_are_shown_whole(memory: Store) -> None:
    results = await seen_by(
        memory, [call("medium", text="語" * 10)], [call("read_artifact", call="t1.c1", limit=15_000)]
    )

    assert results[-1][1].startswith("[t1.c1: characters 0 to 5,000 of 20,000; continue with offset=5000]\n語")
    assert results[-1][1].endswith("語")


async def test_an_answer_given_in_the_tools_place_is_read_again_too(memory: Store) -> None:
    agent = an_agent(
        [[call("never")], [call("read_artifact", call="t1.c1")], "done"], _external("never"), read_artifact
    )
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await asyncio.sleep(1)
        await run.answer_call("t1.c1", "said by a person", by="ops")
        await run.wait_ended()
        results = await results_of(run, runtime)

    assert results[-1][1] == "[t1.c1: characters 0 to 16 of 16]\nsaid by a person"


def _external(name: str) -> Any:
    @tool(name=name, read_only=True, external=True)
    async def external() -> None:
        """Be answered from outside."""

    return external


async def test_an_artifact_that_is_gone_is_said_to_be(memory: Store) -> None:
    agent = an_agent([[call("long")], _forget(memory), "done"], long, read_artifact)
    async with memory.runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_ended()
        results = await results_of(run, runtime)

    assert "its result is not stored any more" in results[-1][1]


def _forget(store: Store) -> Callable[[ModelRequest], Any]:
    def forgets(_request: ModelRequest) -> Any:
        store.journal._artifacts.clear()
        return [call("read_artifact", call="t1.c1")]

    return forgets


async def test_outside_a_run_there_is_nothing_to_read() -> None:
    with pytest.raises(ResultUnavailable, match="no run"):
        await ToolContext().result_of("t1.c1")
