"""Agents that call others, and what is looked at of the runs below theirs."""

from __future__ import annotations

import json
from typing import Any

from runtime_world import an_agent, calling, results_of

from geartrain.machine import RequestedCall
from geartrain.runtime import Agent, RunHandle, Runtime


def delegate(name: str, text: str = "go") -> RequestedCall:
    return calling(name, json.dumps({"input": text}))


def searcher(*replies: Any, name: str = "search", **options: Any) -> Agent:
    return an_agent(replies or ["found it"], name=name, **options)


def team(*calls: RequestedCall, below: Any, answer: Any = "done", **options: Any) -> Agent:
    return an_agent([list(calls), answer], name="team", sub_agents=below, **options)


async def shown(run: RunHandle, runtime: Runtime) -> list[tuple[str, str]]:
    """The results that the model was shown, without the status that stands before a bad one."""
    return [(str(status), text.removeprefix(f"[{status}] ")) for status, text in await results_of(run, runtime)]


async def below(run: RunHandle, runtime: Runtime) -> list[Any]:
    return [each for each in reversed(await runtime.list(root=run.id)) if each.id != run.id]


__all__ = ["below", "delegate", "searcher", "shown", "team"]
