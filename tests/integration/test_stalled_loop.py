"""A loop that stands still is named with its place, in real time, from a real thread."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import until

from geartrain.limits import Limits
from geartrain.machine import RequestedCall
from geartrain.models import ScriptedModel
from geartrain.runtime import Agent, LoopStall, Runtime
from geartrain.tools import tool
from geartrain.trace import TraceRecord

pytestmark = pytest.mark.real_time
LIMIT = Limits(loop_stall_seconds=0.2)


class Heard:
    """An observer that notes what it was told of the loop, and lets a test wait for it."""

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []
        self.told_meanwhile = False
        self.came = threading.Event()

    def __call__(self, records: Sequence[TraceRecord], /) -> None:
        for record in records:
            if record.event in ("loop_stalled", "loop_went_on"):
                self.records.append(record)
                self.came.set()


# They stand still until that is told, however busy the machine is, or for so long.
AT_MOST_SECONDS = 30.0


def sleep_on_the_loop(told: threading.Event) -> None:
    until = time.monotonic() + AT_MOST_SECONDS
    while not told.is_set() and time.monotonic() < until:
        time.sleep(0.01)


def compute_on_the_loop(told: threading.Event) -> None:
    until = time.thread_time() + AT_MOST_SECONDS
    while not told.is_set() and time.thread_time() < until:
        pass


def keep_python_from_others(_told: threading.Event) -> None:
    re.fullmatch("(a|a)*b", "a" * 24)


def agent_that_runs(block: Callable[[threading.Event], None], heard: Heard) -> Agent:
    async def blocking() -> str:
        """Block the loop."""
        heard.records.clear()  # what a busy machine has made of opening the runtime is another matter
        heard.came.clear()
        block(heard.came)
        heard.told_meanwhile = heard.came.is_set()
        return "done"

    script: list[Any] = [(RequestedCall(tool="blocking"),), "done"]
    return Agent("blocker", model=ScriptedModel(script), tools=[tool(read_only=True)(blocking)])


async def stall_of(tmp_path: Path, block: Callable[[threading.Event], None]) -> tuple[str, Heard]:
    """The id of a run whose call has blocked the loop, and what was heard of that, to its end."""
    heard = Heard()
    agent = agent_that_runs(block, heard)
    async with Runtime.open(tmp_path / "runs.db", agents=[agent], limits=LIMIT, observers=[heard]) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_ended()
        await until(lambda: len(heard.records) >= 2)
        assert (await runtime.statistics()).loop.stalls >= 1
    assert [record.event for record in heard.records][:2] == ["loop_stalled", "loop_went_on"]
    return run.id, heard


@pytest.mark.parametrize("block", [sleep_on_the_loop, compute_on_the_loop])
async def test_a_stall_is_told_while_it_lasts_with_its_place_and_its_effect(
    tmp_path: Path, block: Callable[[threading.Event], None]
) -> None:
    run_id, heard = await stall_of(tmp_path, block)

    assert heard.told_meanwhile
    for record in heard.records[:2]:
        stall = LoopStall(**record.payload)
        assert re.match(rf".*{Path(__file__).name}:\d+, {block.__name__}", stall.place)
        assert stall.place in stall.stack[:2]  # perhaps just within `is_set`, which is the library's
        assert (record.run_id, stall.key) == (run_id, "t1.c1.a1")
        assert not stall.busy
        assert stall.seconds >= LIMIT.loop_stall_seconds
    assert not any(thread.name == "geartrain-stall" for thread in threading.enumerate())


async def test_a_call_that_lets_nobody_else_run_python_is_told_as_soon_as_it_is_over(tmp_path: Path) -> None:
    _, heard = await stall_of(tmp_path, keep_python_from_others)

    assert heard.records[1].payload["seconds"] >= LIMIT.loop_stall_seconds


async def test_a_loop_with_too_much_to_do_is_told_from_one_that_a_call_blocks(tmp_path: Path) -> None:
    heard = Heard()
    async with Runtime.open(tmp_path / "runs.db", limits=LIMIT, observers=[heard]):
        loop = asyncio.get_running_loop()
        for _ in range(1_500):
            loop.call_soon(lambda: heard.came.is_set() or time.sleep(0.02))
        await until(heard.came.is_set)

    assert heard.records[0].payload["busy"]


_IDLE = """
import asyncio, sys
from geartrain.limits import Limits
from geartrain.runtime import Runtime

async def main():
    async with Runtime.open(sys.argv[1], limits=Limits(loop_stall_seconds=0.5)) as runtime:
        for _ in range(2):
            print((await runtime.statistics()).loop.stalls, flush=True)
            await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


def test_a_process_that_was_stopped_is_not_called_stalled(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _IDLE, str(tmp_path / "runs.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = process.stdout.readline()
        for _ in range(3):
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.2)
        process.stdin.write("\n")
        process.stdin.flush()

        assert process.stdout.readline() == before
        process.stdin.write("\n")
