"""AC-5: whatever fails before anything has happened, whoever waits, polls, follows or watches sees one and the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from runtime_world import Store, an_agent, calling

from geartrain.models import ModelRejected, answer
from geartrain.runtime import Agent, Deny
from geartrain.tools import tool


class Client:
    """A model client that fails in its own way."""

    name = "client"

    def __init__(self, failing: Callable[[], Any]) -> None:
        self._failing = failing

    def reply(self, _request: Any, _emit: Any, /) -> Any:
        return self._failing()


def at_once() -> Any:
    raise RuntimeError("set-up failed")


async def while_awaited() -> Any:
    raise ModelRejected("client", "set-up failed")


async def as_an_exit() -> Any:
    raise SystemExit("set-up failed")


def provider(_view: Any) -> str:
    raise RuntimeError("set-up failed")


async def async_provider(_view: Any) -> str:
    raise RuntimeError("set-up failed")


@tool
def note(text: str) -> str:
    """Note."""
    return text


CASES: dict[str, tuple[Callable[[], Agent], str]] = {
    "model client": (lambda: Agent("worker", model=Client(at_once)), "model_failed"),
    "first model call": (lambda: Agent("worker", model=Client(while_awaited)), "model_failed"),
    "an exit in it": (lambda: Agent("worker", model=Client(as_an_exit)), "model_failed"),
    "a plain provider": (lambda: an_agent([answer("x")], context=[provider]), "context_failed"),
    "an async provider": (lambda: an_agent([answer("x")], context=[async_provider]), "context_failed"),
    "first call denied": (lambda: an_agent([[calling("note", '{"text":"x"}')]], note), "tool_denied"),
}


@pytest.mark.parametrize("case", CASES)
async def test_an_early_failure_is_one_and_the_same_for_all_who_look(store: Store, case: str) -> None:
    build, code = CASES[case]
    agent = build()
    async with store.runtime(agent, policy=lambda _call, _run: Deny("set-up failed")) as runtime:
        watch = runtime.watch("r-mine")
        began = asyncio.get_running_loop().time()
        run = await runtime.start(agent, "go", run_id="r-mine")
        end, watched, followed = await asyncio.gather(run.wait_ended(), _all(watch), _all(run.events()))
        polled = await run.snapshot()

        assert asyncio.get_running_loop().time() - began < 1.0
    assert end.error is not None
    assert (end.state, end.error["code"], end.answer) == ("FAILED", code, None)
    assert "set-up failed" in end.error["message"]
    assert polled == end
    assert (watched[-1].event, watched[-1].payload["code"]) == ("run_finished", code)
    assert followed[-1].path[-1] == "FAILED"


async def _all(stream: Any) -> list[Any]:
    return [each async for each in stream]
