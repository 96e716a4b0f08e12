"""Asking a tool whether its write was done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from geartrain.limits import Limits
from geartrain.testing import settle
from geartrain.tools import Done, NotDone, ThreadPool, ToolContext, Unknown, tool, verify


@pytest.fixture
async def threads() -> AsyncIterator[ThreadPool]:
    pool = ThreadPool(2)
    yield pool
    pool.close()


async def asked(function: Any, threads: ThreadPool, arguments: dict[str, Any] | None = None) -> Any:
    @tool(verify=function)
    async def write() -> None: ...

    context = ToolContext(idempotency_key="k", context={"a": [1]})
    return await verify(write, arguments or {}, context, limits=Limits(), threads=threads)


@pytest.mark.parametrize("answer", [NotDone(), Unknown("cannot say")])
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_an_answer_is_handed_on(answer: Any, asynchronous: bool, threads: ThreadPool) -> None:
    async def on_the_loop(_arguments: Any, _context: Any) -> Any:
        return answer

    def on_a_thread(_arguments: Any, _context: Any) -> Any:
        return answer

    assert await asked(on_the_loop if asynchronous else on_a_thread, threads) == answer


async def test_what_was_done_comes_as_the_text_for_the_model(threads: ThreadPool) -> None:
    def function(arguments: dict[str, Any], context: ToolContext) -> Done:
        return Done({"n": arguments["n"], "key": context.idempotency_key})

    assert await asked(function, threads, {"n": 1}) == Done('{"n":1,"key":"k"}')


async def test_what_was_done_is_shown_by_the_present_of_the_tool(threads: ThreadPool) -> None:
    @tool(verify=lambda _arguments, _context: Done({"shown": 1, "secret": 2}), present=lambda value: value["shown"])
    async def write() -> None: ...

    assert await verify(write, {}, ToolContext(), limits=Limits(), threads=threads) == Done("1")


async def test_a_reason_is_cleaned_and_cut(threads: ThreadPool) -> None:
    answer = await asked(lambda _arguments, _context: Unknown("\0" + "x" * 10_000), threads)

    assert answer == Unknown("\\x00" + "x" * 499)


@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_verify_that_raises_does_not_know(
    error: BaseException, asynchronous: bool, threads: ThreadPool
) -> None:
    async def on_the_loop(_arguments: Any, _context: Any) -> Any:
        raise error

    def on_a_thread(_arguments: Any, _context: Any) -> Any:
        raise error

    answer = await asked(on_the_loop if asynchronous else on_a_thread, threads)

    assert isinstance(answer, Unknown)
    assert type(error).__name__ in answer.reason


@pytest.mark.parametrize("nonsense", [None, True, "done", Done, [NotDone()], Unknown(None)])
async def test_an_answer_that_is_none_of_the_three_is_not_knowing(nonsense: Any, threads: ThreadPool) -> None:
    answer = await asked(lambda _arguments, _context: nonsense, threads)

    assert answer == Unknown(f"verify returned {type(nonsense).__qualname__!r}, expected Done, NotDone or Unknown")


async def test_a_tool_without_verify_does_not_know(threads: ThreadPool) -> None:
    @tool
    async def write() -> None: ...

    answer = await verify(write, {}, ToolContext(), limits=Limits(), threads=threads)

    assert isinstance(answer, Unknown)
    assert "has no verify" in answer.reason


async def test_a_verify_changes_neither_arguments_nor_data(threads: ThreadPool) -> None:
    def spoils(arguments: dict[str, Any], context: ToolContext) -> NotDone:
        arguments["list"].clear()
        context.context["a"].clear()
        return NotDone()

    arguments = {"list": [1]}
    await asked(spoils, threads, arguments)

    assert arguments == {"list": [1]}


async def test_a_cancelled_question_is_cancelled(threads: ThreadPool) -> None:
    async def waits(_arguments: Any, _context: Any) -> Any:
        await asyncio.sleep(100)

    task = asyncio.create_task(asked(waits, threads))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
