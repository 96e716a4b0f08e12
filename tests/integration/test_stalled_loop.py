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

from geartrain.limits import Limits
from geartrain.machine import RequestedCall
from geartrain.models import ScriptedModel
from geartrain.runtime import Agent, LoopStall, Runtime
from geartrain.tools import tool
from geartrain.trace import TraceRecord

pytestmark = pytest.mark.real_time
LIMIT = Limits(loop_stall_seconds=0.2)


class Heard:
    """An observer that notes when it was told of the loop, and lets a test wait for it."""

    def __init__(self) -> None:
        self.records: list[TraceRecord] = []
        self.told_at = 0.0
        self.came = threading.Event()

    def __call__(self, records: Sequence[TraceRecord], /) -> None:
        for record in records:
            if record.event in ("loop_stalled", "loop_went_on"):
                self.records.append(record)
                self.told_at = self.told_at or time.monotonic()
                self.came.set()


def sleep_on_the_loop() -> None:
    time.sleep(1.0)


def compute_on_the_loop() -> None:
    until = time.thread_time() + 1.0  # seconds of its own, however busy the machine is
    while time.thread_time() < until:
        pass


def keep_python_from_others() -> None:
    re.fullmatch("(a|a)*b", "a" * 24)


def agent_that_runs(block: Callable[[], None], ended_at: list[float]) -> Agent:
    async def blocking() -> str:
        """Block the loop."""
        block()
        ended_at.append(time.monotonic())
        return "done"

    script: list[Any] = [(RequestedCall(tool="blocking"),), "done"]
    return Agent("blocker", model=ScriptedModel(script), tools=[tool(read_only=True)(blocking)])


async def stall_of(tmp_path: Path, block: Callable[[], None]) -> tuple[LoopStall, Heard, float]:
    heard, ended_at = Heard(), []
    agent = agent_that_runs(block, ended_at)
    async with Runtime.open(tmp_path / "runs.db", agents=[agent], limits=LIMIT, observers=[heard]) as runtime:
        run = await runtime.start(agent, "go")
        await run.wait_ended()
        await asyncio.sleep(3 * LIMIT.loop_stall_seconds)
        last = (await runtime.statistics()).loop.last
    assert last is not None
    assert [record.event for record in heard.records] == ["loop_stalled", "loop_went_on"]
    assert {record.run_id for record in heard.records} <= {run.id, ""}
    return last, heard, ended_at[0]


@pytest.mark.parametrize("block", [sleep_on_the_loop, compute_on_the_loop])
async def test_a_stall_is_told_while_it_lasts_with_its_place_and_its_effect(
    tmp_path: Path, block: Callable[[], None]
) -> None:
    stall, heard, ended_at = await stall_of(tmp_path, block)

    assert heard.told_at < ended_at
    assert re.match(rf".*{Path(__file__).name}:\d+, {block.__name__}", stall.place)
    assert stall.stack[0] == heard.records[0].payload["place"]
    assert (stall.run_id, stall.key) == (heard.records[0].run_id, "t1.c1.a1")
    assert not stall.busy
    assert stall.seconds >= LIMIT.loop_stall_seconds
    assert not any(thread.name == "geartrain-stall" for thread in threading.enumerate())


async def test_a_call_that_lets_nobody_else_run_python_is_told_as_soon_as_it_is_over(tmp_path: Path) -> None:
    stall, _, _ = await stall_of(tmp_path, keep_python_from_others)

    assert stall.seconds >= LIMIT.loop_stall_seconds


async def test_a_loop_with_too_much_to_do_is_told_from_one_that_a_call_blocks(tmp_path: Path) -> None:
    heard = Heard()
    async with Runtime.open(tmp_path / "runs.db", limits=LIMIT, observers=[heard]):
        loop = asyncio.get_running_loop()
        for _ in range(40):
            loop.call_soon(time.sleep, 0.02)
        await asyncio.sleep(2 * LIMIT.loop_stall_seconds)

    assert heard.records[0].payload["busy"]


_IDLE = """
import asyncio, sys
from geartrain.limits import Limits
from geartrain.runtime import Runtime

async def main():
    async with Runtime.open(sys.argv[1], limits=Limits(loop_stall_seconds=0.2)) as runtime:
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print((await runtime.statistics()).loop.stalls, flush=True)

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
        assert process.stdout.readline() == "open\n"
        for _ in range(3):
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.7)
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.1)
        process.stdin.write("\n")
        process.stdin.flush()

        assert process.stdout.readline() == "0\n"
