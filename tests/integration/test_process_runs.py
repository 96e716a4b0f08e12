"""Runs whose tools work in other processes: doubts, time-outs, closing, and that nobody else notices."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import process_tools
import psutil
import pytest
from processes import processes_below, until

from geartrain.limits import Limits
from geartrain.machine import RequestedCall, ResultStatus, ToolFinished, WriteInDoubt
from geartrain.models import ScriptedModel
from geartrain.persistence import MemoryJournal
from geartrain.runtime import Agent, Allow, RunHandle, Runtime
from geartrain.testing.misbehaviour import BAD_TOOLS
from geartrain.tools import Tool, ToolDefinitionError, tool

pytestmark = pytest.mark.real_time

HERE = Path(__file__).parent
LIMITS = Limits(grace_seconds=1.0, process_memory_bytes=200 << 20, process_cpu_seconds=0.3, process_children=20)


def an_agent(*tools: Tool, name: str = "worker", arguments: str = "{}") -> Agent:
    calls = tuple(RequestedCall(tool=made.name, arguments=arguments) for made in tools)
    return Agent(name, model=ScriptedModel([calls, "done"]), tools=tools)


def a_runtime(*agents: Agent, limits: Limits = LIMITS) -> Runtime:
    return Runtime.open(MemoryJournal(), agents=agents, policy=lambda *_: Allow(), limits=limits)


async def results_of(run: RunHandle) -> list[tuple[ResultStatus, str]]:
    events = [entry.event async for entry in run.events()]
    return [(event.status, event.text) for event in events if isinstance(event, ToolFinished)]


def alive(pid: int) -> bool:
    """Whether that process runs; one that nobody has taken note of yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def arguments(**given: Any) -> str:
    return msgspec.json.encode(given).decode()


async def test_a_write_whose_worker_has_ended_is_in_doubt_and_verified_in_another_one(tmp_path: Path) -> None:
    path = tmp_path / "marked"
    agent = an_agent(process_tools.mark_and_exit, arguments=arguments(path=str(path)))

    async with a_runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        end = await run.wait_ended()
        doubts = [entry async for entry in run.events() if isinstance(entry.event, WriteInDoubt)]
        statistics = (await runtime.statistics()).processes

    assert end.answer == "done"
    assert len(doubts) == 1
    assert path.read_text() == "x"
    assert statistics is not None
    assert (statistics.started, statistics.capacity) == (2, 4)


async def test_a_write_whose_worker_has_ended_is_in_doubt_and_waits_for_a_person(tmp_path: Path) -> None:
    path = tmp_path / "tried"
    made = tool(name="crash", isolation="process")(process_tools.crash_at_first.function)
    agent = an_agent(made, arguments=arguments(path=str(path)))

    async with a_runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        rest = await run.wait_at_rest()
        await run.settle("t1.c1", by="owner", not_done="run")
        end = await run.wait_ended()
        doubts = [entry.event.reason async for entry in run.events() if isinstance(entry.event, WriteInDoubt)]

    assert rest.holds == ("in_doubt(t1.c1)",)
    assert doubts == ["its worker process exited with code 5"]
    assert end.answer == "done"


async def test_an_idempotent_write_whose_worker_has_ended_runs_again(tmp_path: Path) -> None:
    agent = an_agent(process_tools.crash_at_first, arguments=arguments(path=str(tmp_path / "tried")))

    async with a_runtime(agent) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_ended()
        results = await results_of(run)

    assert results == [(ResultStatus.OK, "done at last")]


async def test_a_run_that_is_cancelled_ends_with_all_that_its_call_has_started(tmp_path: Path) -> None:
    folder = str(tmp_path)
    hanging = tool(name="hang", isolation="process", read_only=True)(process_tools.hang_with_children.function)
    agent = an_agent(hanging, arguments=arguments(folder=folder))

    async with a_runtime(agent, limits=Limits(tool_call_seconds=20, grace_seconds=1)) as runtime:
        run = await runtime.start(agent, "go")
        await until(lambda: len(os.listdir(folder)) == 4)
        ids = [int(name) for name in os.listdir(folder)]
        await run.cancel("enough")
        end = await run.wait_ended()
        await until(lambda: not any(alive(pid) for pid in ids))

    assert end.state == "CANCELLED"


async def test_closing_a_runtime_leaves_no_process_behind() -> None:
    before = processes_below()
    agents = [BAD_TOOLS[name].agent() for name in ("deadlock", "flood_the_output")]

    async with a_runtime(*agents) as runtime:
        done, _ = [await runtime.start(agent, "go") for agent in reversed(agents)]
        await done.wait_ended()
        await until(lambda: len(processes_below() - before) == 4)  # two workers and their wardens

    assert processes_below() - before == set()


async def test_the_parent_of_a_tool_that_no_worker_can_find_is_told_at_open() -> None:
    async def shadowed() -> None:
        """Be no tool of a module."""

    shadowed.__qualname__ = "shadowed"

    with pytest.raises(ToolDefinitionError, match="test_process_runs:shadowed is not there, so no worker process"):
        a_runtime(an_agent(tool(isolation="process")(shadowed)))
    with pytest.raises(ToolDefinitionError, match="its present cannot be found by a worker process"):
        a_runtime(an_agent(process_tools.hidden_hook))
