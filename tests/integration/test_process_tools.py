"""Tools in worker processes: what a call comes to, whatever its function does, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import process_tools
import psutil
import pytest
from processes import processes_below, until

from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.testing.misbehaviour import BAD_TOOLS
from geartrain.tools import (
    Done,
    NotDone,
    Outcome,
    ProcessPool,
    ResultUnavailable,
    ThreadPool,
    Tool,
    ToolContext,
    Unknown,
    invoke,
    verify,
)
from geartrain.tools._process_worker import PAUSE_SECONDS, READ_BYTES

pytestmark = pytest.mark.real_time

LIMITS = Limits(process_memory_bytes=200 << 20, process_cpu_seconds=20.0, process_children=20)
BRIEF = Limits(process_memory_bytes=200 << 20, process_cpu_seconds=0.2)
OK, ERROR = ResultStatus.OK, ResultStatus.ERROR


class World:
    """A pool of workers, and what was told about a call."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.threads = ThreadPool(1)
        self.pool = ProcessPool(limits)
        self.told: list[str] = []

    async def run(self, tool: Tool, context: ToolContext | None = None, **arguments: Any) -> Outcome:
        return await invoke(
            tool,
            arguments,
            context or ToolContext(),
            limits=self.limits,
            threads=self.threads,
            processes=self.pool,
            began=lambda: self.told.append("began"),
            over=lambda: self.told.append("over"),
            returned=lambda: self.told.append("returned"),
        )

    async def verified(self, tool: Tool, **arguments: Any) -> Done | NotDone | Unknown:
        return await verify(
            tool, arguments, ToolContext(), limits=self.limits, threads=self.threads, processes=self.pool
        )


@asynccontextmanager
async def world(limits: Limits = LIMITS) -> AsyncIterator[World]:
    """Open a pool; at its end nothing of ours runs any more."""
    before, made = processes_below(), World(limits)
    try:
        yield made
    finally:
        await made.pool.aclose(2.0)
        made.threads.close()
    assert made.pool.statistics().processes == 0
    assert processes_below() - before == set()


async def test_a_function_runs_in_another_process_which_serves_the_next_call_too() -> None:
    async with world() as here:
        sums = [await here.run(process_tools.add, a=1, b=n) for n in range(3)]
        later = await here.run(process_tools.add_later, a=20, b=3)
        places = {(await here.run(process_tools.where)).text for _ in range(3)}
        started = here.pool.statistics().started

    assert [outcome.text for outcome in sums] == ["1", "2", "3"]
    assert later.text == "23"
    assert len(places) == started == 1
    assert str(os.getpid()) not in places.pop()
    assert here.told[:6] == ["began", "returned", "over"] * 2


async def test_a_function_that_became_a_tool_elsewhere_is_found_with_its_hooks() -> None:
    async with world() as here:
        outcome = await here.run(process_tools.named_sum, a=2, b=3)

    assert outcome.text == "the sum is 5"


async def test_a_result_is_made_presentable_in_the_worker() -> None:
    async with world(Limits()) as here:
        shown = await here.run(process_tools.large, size=150 << 20)
        whole = await here.run(process_tools.whole, size=150 << 20)

    assert shown.text == f"{150 << 20:,} characters"
    assert whole.size == 150 << 20
    assert whole.full is not None
    assert len(whole.full) == here.limits.result_stored_bytes


async def test_a_worker_is_told_what_the_call_is_and_what_it_traces_arrives() -> None:
    traced: list[tuple[str, Any]] = []
    context = ToolContext(
        run_id="r-1",
        call_id="t1.c1",
        idempotency_key="r-1/t1.c1",
        attempt=2,
        deadline=12.5,
        context={"root": "/data"},
        principal="owner",
        emit=lambda name, payload: traced.append((name, payload)),
    )

    async with world() as here:
        outcome = await here.run(process_tools.told, context)

    assert outcome.text == '["r-1","t1.c1","r-1/t1.c1",2,12.5,"owner",{"root":"/data"}]'
    assert traced == [("seen", {"key": "r-1/t1.c1", "odd": "<class 'object'>"})]


async def test_a_worker_that_traces_much_is_heard_in_pieces_with_pauses_and_nothing_of_it_is_lost() -> None:
    traced: list[int] = []
    context = ToolContext(
        run_id="r-1", call_id="t1.c1", idempotency_key="k", emit=lambda _name, payload: traced.append(payload["number"])
    )
    loop = asyncio.get_running_loop()

    async with world() as here:
        began = loop.time()
        outcome = await here.run(process_tools.trace_much, context, records=1_000)
        took = loop.time() - began

    assert (outcome.text, traced) == ("1000", list(range(1_000)))
    assert took > 1_000 * 500 / READ_BYTES * PAUSE_SECONDS / 2  # however fast it sends, and some reads are not whole


async def test_no_more_calls_run_at_once_than_there_may_be_workers() -> None:
    async with world(Limits(process_calls_at_once=2)) as here:
        outcomes = await asyncio.gather(*(here.run(process_tools.add, a=n, b=0) for n in range(8)))
        statistics = here.pool.statistics()

    assert [outcome.text for outcome in outcomes] == [str(n) for n in range(8)]
    assert (statistics.capacity, statistics.processes, statistics.busy, statistics.waiting) == (2, 2, 0, 0)


# What each comes to: the status, and a part of what is said. None is a call that has to be ended from outside.
EXPECTED: dict[str, tuple[ResultStatus, str] | None] = {
    "spin": (ERROR, "took more than 0.2 s of processor time"),
    "spin_in_c": (ERROR, "took more than 0.2 s of processor time"),
    "hang_and_ignore_signals": None,
    "deadlock": None,
    "allocate_at_once": (ERROR, "MemoryError: a call may use 209,715,200 bytes"),
    "allocate_until_killed": (ERROR, "MemoryError: a call may use 209,715,200 bytes"),
    "allocate_in_children": (ERROR, "took more than 209,715,200 bytes of memory"),
    "exit_at_once": (ERROR, "its worker process exited with code 3"),
    "exit_as_if_well": (ERROR, "its worker process exited with code 0"),
    "segmentation_fault": (ERROR, "was ended by signal 11 (SIGSEGV)"),
    "abort": (ERROR, "was ended by signal 6 (SIGABRT); it last wrote: it is all over"),
    "kill_itself": (ERROR, "was ended by signal 9 (SIGKILL)"),
    "terminate_its_group": (ERROR, "was ended by signal 15 (SIGTERM)"),
    "kill_its_warden": (ERROR, "lost its warden"),
    "stop_its_warden": None,
    "close_everything": (ERROR, "its worker process"),
    "send_garbage": (ERROR, "has sent a message of 4,294,967,295 bytes"),
    "send_nonsense_frames": (ERROR, "has sent a message that cannot be read"),
    "flood_the_output": (OK, "said"),
    "ask_for_input": (OK, "nobody answers"),
    "return_a_lot": (OK, "binary data: application/octet-stream, 104,857,600 bytes"),
    "exit_politely": (ERROR, "SystemExit: no more"),
    "raise_what_cannot_be_shown": (ERROR, "_Unshowable"),
    "fork_and_return_twice": (OK, "one of two"),
    "become_a_daemon": (ERROR, "exited with code 0"),
    "start_processes_without_end": (ERROR, "had more than 20 processes of its own"),
    "leave_a_thread": (OK, "left one"),
    "leave_a_process": (OK, "left one"),
    "leave_the_folder": (OK, "gone"),
    "trace_without_end": None,
    "spin_in_a_coroutine": (ERROR, "took more than 0.2 s of processor time"),
    "stop_itself": None,
    "open_files_without_end": (ERROR, "Too many open files"),
    "leave_files_open": (OK, "left a hundred"),
    "connect_to_itself": (OK, "20"),
    "change_signal_handlers": (OK, "ignored from now on"),
}
APART = {name: BAD_TOOLS[name].tool(isolation="process") for name in EXPECTED}


def test_every_misbehaviour_is_in_the_table() -> None:
    assert {name for name, bad in BAD_TOOLS.items() if bad.isolation == "process"} <= set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
async def test_whatever_a_function_does_the_call_has_its_outcome_and_nothing_is_left(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = EXPECTED[name]
    if name == "stop_its_warden":  # which is then ended itself, once its time is over
        monkeypatch.setattr("geartrain.tools._process_worker.END_SECONDS", 0.2)

    async with world(BRIEF if name.startswith("spin") else LIMITS) as here:
        call = asyncio.ensure_future(here.run(APART[name]))
        if expected is None:
            await until(lambda: "began" in here.told)
            call.cancel()
        await asyncio.wait([call])
        await until(lambda: "over" in here.told)

    assert [word for word in here.told if word != "returned"] == ["began", "over"]
    if expected is None:
        assert call.cancelled()
    else:
        status, words = expected
        assert (call.result().status, words in call.result().text) == (status, True), call.result()


@pytest.mark.parametrize(
    "name",
    [
        "exit_at_once",
        "kill_itself",
        "leave_a_thread",
        "leave_a_process",
        "leave_the_folder",
        "leave_files_open",
        "change_signal_handlers",
    ],
)
async def test_the_next_call_has_a_worker_in_which_nothing_of_another_is_left(name: str) -> None:
    async with world() as here:
        before = await here.run(process_tools.where)
        await here.run(APART[name])
        after = await here.run(process_tools.where)

    assert after.status is OK
    assert after.text != before.text


async def test_everything_that_a_cancelled_call_has_started_ends_with_it(tmp_path: Path) -> None:
    async with world() as here:
        call = asyncio.ensure_future(here.run(process_tools.hang_with_children, folder=str(tmp_path)))
        await until(lambda: len(os.listdir(tmp_path)) == 4)
        ids = [int(name) for name in os.listdir(tmp_path)]
        assert all(psutil.pid_exists(pid) for pid in ids)

        call.cancel()
        await until(lambda: "over" in here.told)

        assert [pid for pid in ids if psutil.pid_exists(pid)] == []
        await asyncio.wait([call])
        assert call.cancelled()


async def test_a_call_that_is_cancelled_before_its_worker_is_there_has_not_begun() -> None:
    async with world() as here:
        call = asyncio.ensure_future(here.run(process_tools.add, a=1, b=2))
        await until(lambda: here.pool.statistics().started)
        call.cancel()
        await asyncio.wait([call])

        assert here.told == []
        assert (await here.run(process_tools.add, a=1, b=2)).text == "3"


async def test_a_read_whose_worker_has_ended_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "tried"

    async with world() as here:
        made = process_tools.crash_at_first
        again = process_tools.tool(name="again", idempotent=True, retries=1, isolation="process")(made.function)
        outcome = await here.run(again, path=str(path))

    assert (outcome.status, outcome.text, outcome.tries) == (OK, "done at last", 2)


async def test_a_call_whose_worker_has_ended_is_lost(tmp_path: Path) -> None:
    async with world() as here:
        outcome = await here.run(process_tools.crash_at_first, path=str(tmp_path / "tried"))

    assert outcome.lost == "its worker process exited with code 5"


async def test_verify_is_asked_in_a_worker(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.touch()

    async with world() as here:
        found = [
            await here.verified(process_tools.mark, path=str(path)) for path in (there, tmp_path / "not", "unknown")
        ]
        crashed = await here.verified(process_tools.mark, path="crash")

    assert isinstance(found[0], Done)
    assert len(found[0].result) <= here.limits.result_context_bytes
    assert found[1:] == [NotDone(), Unknown("nobody saw it")]
    assert crashed == Unknown("verify could not be asked: its worker process exited with code 9")


async def test_closing_the_pool_ends_what_is_at_work() -> None:
    async with world() as here:
        call = asyncio.ensure_future(here.run(APART["deadlock"]))
        await until(lambda: "began" in here.told)
        await here.pool.aclose(2.0)
        outcome = await call
        refused = await here.run(process_tools.add, a=1, b=2)

    assert outcome.lost == "its worker process was ended"
    assert (refused.status, refused.text) == (ResultStatus.NOT_STARTED, "no process to run in: the pool is closed")


async def test_a_worker_that_cannot_be_started_is_no_outcome_of_the_function(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))

    async with world() as here:
        outcome = await here.run(process_tools.add, a=1, b=2)

    assert outcome.status is ResultStatus.NOT_STARTED
    assert "no process to run in: " in outcome.text
    assert here.told == []


async def test_an_interpreter_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))

    async with world() as here:
        outcome = await here.run(process_tools.add, a=1, b=2)

    assert outcome.status is ResultStatus.NOT_STARTED
    assert outcome.text.endswith("could not be started; it last wrote: no such library")


async def test_memory_that_is_only_reserved_counts_for_nothing() -> None:
    async with world() as here:
        outcome = await here.run(process_tools.reserve, size=64 << 30)

    assert outcome.text == f"reserved {64 << 30}"


async def test_a_limit_may_be_infinite() -> None:
    async with world(Limits(process_cpu_seconds=float("inf"), process_memory_bytes=1 << 62)) as here:
        outcome = await here.run(process_tools.add, a=1, b=2)

    assert outcome.text == "3"


async def test_a_worker_that_has_had_nothing_to_do_for_long_leaves() -> None:
    async with world(Limits(process_idle_seconds=0.05)) as here:
        await here.run(process_tools.add, a=1, b=2)
        await until(lambda: here.pool.statistics().processes == 0)

        assert (await here.run(process_tools.add, a=1, b=3)).text == "4"


async def test_a_tool_in_a_worker_reads_the_results_of_earlier_calls() -> None:
    async def read_result(call_id: str) -> str:
        await asyncio.sleep(0)
        if call_id != "t1.c1":
            raise ResultUnavailable(call_id, "there is no such call")
        return "x" * 300_000

    async with world() as here:
        outcome = await here.run(process_tools.read_again, ToolContext(read_result=read_result))

    assert outcome.full is not None
    assert outcome.full.decode() == f'["{"x" * 300_000}","call \'t9.c9\': there is no such call"]'


@pytest.mark.parametrize("tool", [process_tools.fail_with, process_tools.fail_later_with], ids=lambda made: made.name)
async def test_whatever_a_function_raises_in_a_worker_is_an_error_that_names_it(tool: Tool) -> None:
    """CN-9."""
    names = ["ValueError", "SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "RecursionError"]

    async with world() as here:
        outcomes = [await here.run(tool, name=name) for name in names]
        started = here.pool.statistics().started

    assert [(outcome.status, outcome.text) for outcome in outcomes] == [(ERROR, name) for name in names]
    assert started == 1


async def test_a_frozen_program_has_no_interpreter_to_start_workers_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)

    async with world() as here:
        outcome = await here.run(process_tools.add, a=1, b=2)

    assert outcome.status is ResultStatus.NOT_STARTED
    assert "is a program that was frozen into one file" in outcome.text
