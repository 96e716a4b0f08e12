"""Whatever one run's tool does, or an observer: 99 other runs end as if it had not been there."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import msgspec
import process_tools
import pytest
from processes import processes_below

from geartrain.limits import Limits
from geartrain.machine import RequestedCall, ResultStatus, ToolFinished
from geartrain.models import ScriptedModel
from geartrain.persistence import MemoryJournal
from geartrain.runtime import Agent, Allow, RunHandle, Runtime
from geartrain.testing.misbehaviour import BAD_OBSERVERS, BAD_TOOLS, BadTool
from geartrain.tools import tool
from geartrain.trace import Observer

pytestmark = pytest.mark.real_time

LIMITS = Limits(grace_seconds=0.5, process_memory_bytes=200 << 20, process_cpu_seconds=0.3, process_children=20)
OTHERS = 99
# How long those hang that would hang for ever, or for so long as nobody wants to wait here.
SECONDS = 1.0


async def quick(n: int) -> int:
    """Work as a task."""
    await asyncio.sleep(0)
    return n


def slow(n: int) -> int:
    """Work on a thread."""
    return -n


def healthy_agent(*, apart: bool = False) -> Agent:
    given = {"quick": '{"n": 3}', "slow": '{"n": 3}', **({"add": '{"a": 1, "b": 2}'} if apart else {})}
    # One after the other: in one turn, results are stored in the order in which they come.
    turns = [(RequestedCall(tool=name, arguments=arguments),) for name, arguments in given.items()]
    tools = [tool(read_only=True)(quick), tool(read_only=True)(slow), *([process_tools.add] if apart else [])]
    return Agent("healthy", model=ScriptedModel([*turns, "well"]), tools=tools)


def a_runtime(*agents: Agent, observers: tuple[Observer, ...] = ()) -> Runtime:
    journal = MemoryJournal()
    return Runtime.open(journal, agents=agents, policy=lambda *_: Allow(), limits=LIMITS, observers=observers)


def bad_agent(bad: BadTool) -> Agent:
    """An agent that uses the behaviour once; what it leaves behind is gone soon."""
    brief = "seconds" in bad.tool().parameters["properties"]
    timeout = SECONDS if bad.stops != "itself" else None
    return bad.agent(arguments='{"seconds": 1.5}' if brief else "{}", timeout_seconds=timeout)


async def journal_of(run: RunHandle) -> list[Any]:
    """All that is stored of a run, without the times."""
    entries = [(entry.seq, entry.path, msgspec.to_builtins(entry.event)) async for entry in run.events()]
    return [(seq, path, {**event, "time": 0}) for seq, path, event in entries]


async def results_of(run: RunHandle) -> list[ResultStatus]:
    return [entry.event.status async for entry in run.events() if isinstance(entry.event, ToolFinished)]


async def started(runtime: Runtime, agent: Agent) -> list[RunHandle]:
    return [await runtime.start(agent, "go", run_id=f"healthy-{n}") for n in range(OTHERS)]


@cache
def clean_journals(*, apart: bool = False) -> list[Any]:
    """The journals of 99 healthy runs that are alone; in a loop of their own, once for all tests."""

    async def alone() -> list[Any]:
        healthy = healthy_agent(apart=apart)
        async with a_runtime(healthy) as runtime:
            return [await journal_of(run) for run in await started(runtime, healthy)]

    return asyncio.run(alone())


@pytest.fixture(scope="module")
def clean() -> list[Any]:
    return clean_journals()


def test_the_kit_has_forty_ways_to_misbehave_each_with_its_words() -> None:
    everything = [*BAD_TOOLS.values(), *BAD_OBSERVERS.values()]

    assert len(everything) >= 40
    assert [bad.name for bad in everything if not bad.does.endswith(".")] == []


HERE = [bad for bad in BAD_TOOLS.values() if bad.isolation != "process"]
APART = [bad for bad in BAD_TOOLS.values() if bad.isolation == "process"]


@pytest.mark.parametrize("bad", HERE, ids=lambda bad: bad.name)
async def test_ninety_nine_runs_beside_one_that_misbehaves_end_as_in_a_clean_run(
    bad: BadTool, clean: list[Any]
) -> None:
    before, healthy, worse = asyncio.all_tasks(), healthy_agent(), bad_agent(bad)
    # As in any program: the loop says what a callback raised, and goes on. The test runner would fail instead.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    async with a_runtime(healthy, worse) as runtime:
        run = await runtime.start(worse, "go")
        good = await started(runtime, healthy)
        journals = [await journal_of(each) for each in good]
        end = await run.wait_ended()
        results = await results_of(run)

    assert journals == clean
    assert end.answer == "done"
    assert len(results) == 1
    if left := asyncio.all_tasks() - before:  # by the tool; it ends by itself
        await asyncio.wait(left)


@pytest.mark.parametrize("name", BAD_OBSERVERS)
async def test_a_hundred_runs_before_an_observer_that_misbehaves_end_as_in_a_clean_run(
    name: str, clean: list[Any]
) -> None:
    healthy = healthy_agent()

    async with a_runtime(healthy, observers=(BAD_OBSERVERS[name].observer,)) as runtime:
        journals = [await journal_of(run) for run in await started(runtime, healthy)]

    assert journals == clean


async def test_ninety_nine_runs_beside_all_that_needs_a_process_of_its_own_end_as_in_a_clean_run() -> None:
    before, healthy = processes_below(), healthy_agent(apart=True)
    async with a_runtime(healthy) as runtime:
        expected = [await journal_of(run) for run in await started(runtime, healthy)]
    worse = [bad_agent(bad) for bad in APART]

    async with a_runtime(healthy, *worse) as runtime:
        bad = [await runtime.start(agent, "go") for agent in worse]
        good = await started(runtime, healthy)
        ends = [await run.wait_ended() for run in (*bad, *good)]
        journals = [await journal_of(run) for run in good]
        results = [await results_of(run) for run in bad]

    assert [end.answer for end in ends] == ["done"] * len(bad) + ["well"] * len(good)
    assert journals == expected
    assert [len(result) for result in results] == [1] * len(worse)
    timed_out = {each.name for each, [status] in zip(APART, results, strict=True) if status is ResultStatus.TIMED_OUT}
    assert timed_out >= {"deadlock", "hang_and_ignore_signals", "stop_itself", "stop_its_warden"}
    assert processes_below() - before == set()
