"""Cancel runs, and let their deadlines pass, at a thousand instants of whatever a tool does.

`make cancel-sweep` runs it. Tools on the event loop are swept in virtual time, those on threads and in worker processes
on the real clock over a store in a file. Each run is held against what was promised: the cancellation is acknowledged
in 100 ms, the run ends in a second, or in the grace and a second where a tool does not cooperate or a write has
started, no model and no tool is called afterwards, nothing is stored after the end, each call has one result, and no
task, thread, process, file or place in a pool is left. Exits with 1 if anything was found wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import psutil
import structlog

from geartrain.clock import Clock, LoopClock, SystemClock
from geartrain.errors import EventRefused
from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.models import Delay, ScriptedModel, answer, call
from geartrain.persistence import MemoryJournal
from geartrain.runtime import Agent, Allow, JournalEntry, RunHandle, Runtime
from geartrain.runtime._effects._executor import LiveExecutor
from geartrain.runtime._reading._runs import journal_entry, read_run
from geartrain.testing import VirtualLoop
from geartrain.testing.misbehaviour import BAD_TOOLS, BadTool
from geartrain.tools import ToolContext, tool

Cause = Literal["cancel", "deadline"]
CAUSES: Final[tuple[Cause, ...]] = ("cancel", "deadline")
# At once, so that they get into each other's way.
GROUP: Final = 25
# In virtual time, until whatever a tool has left has ended.
ALL_OVER: Final = 200.0
ACKNOWLEDGED_SECONDS: Final = 0.1
ENDED_SECONDS: Final = 1.0
# Times near 1.8e9 in a double: what is closer than this is the same moment.
CLOCK_GRAIN: Final = 1e-6
GRACE: Final = 5.0
REAL_GRACE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Sweep:
    """How much is swept: instants for each behaviour and cause, on virtual and on real time."""

    instants: int = 1_000
    real_instants: int = 16
    seed: int = 1
    acknowledged_seconds: float = ACKNOWLEDGED_SECONDS
    # Added to every limit on the real clock, where other tests may have the processors.
    slack_seconds: float = 0.0
    names: tuple[str, ...] = tuple(BAD_TOOLS)

    def chosen(self, *isolations: str) -> Iterator[BadTool]:
        for name in self.names:
            if BAD_TOOLS[name].isolation in isolations:
                yield BAD_TOOLS[name]


@dataclass(slots=True)
class Row:
    """What became of the runs of one behaviour and cause. Seconds; acknowledgements on the real clock."""

    name: str
    cause: Cause
    runs: int = 0
    over_before: int = 0
    acknowledged: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def line(self) -> str:
        acknowledged = f"{1000 * percentile(self.acknowledged, 99):9.1f}" if self.acknowledged else "        –"
        ended = f"{percentile(self.ended, 99):8.2f}{max(self.ended):7.2f}" if self.ended else "       –      –"
        late = f"{max(self.late):9.3f}" if self.late else "        –"
        counts = f"{self.name:28}{self.cause:9}{self.runs:6}{self.over_before:7}"
        return f"{counts}{acknowledged}{ended}{late}{len(self.wrong):6}"


HEAD: Final = (
    f"{'tool':28}{'cause':9}{'runs':>6}{'over':>7}{'ack p99':>9}{'end p99':>8}{'max':>7}{'late':>9}{'wrong':>6}\n"
    f"{'':28}{'':9}{'':6}{'before':>7}{'ms':>9}{'s':>8}{'s':>7}{'s':>9}"
)


def percentile(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        return max(values, default=0.0)
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


class Witness:
    """Everything that is called, in order, and by which run it is."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, float]] = []
        self.begun: set[str] = set()
        self.done: set[str] = set()

    def note(self, run_id: str, what: str) -> None:
        self.calls.append((run_id, what, asyncio.get_running_loop().time()))

    def executor(self, limits: Limits, threads: Any) -> LiveExecutor:
        return NotingExecutor(limits, threads, self)


class NotingExecutor(LiveExecutor):
    """Carries effects out, and notes when a model or a tool is really called."""

    __slots__ = ("_witness",)

    def __init__(self, limits: Limits, threads: Any, witness: Witness) -> None:
        super().__init__(limits, threads)
        self._witness = witness

    async def call_model(self, model: Any, request: Any, emit: Any) -> Any:
        self._witness.note(request.run_id, "model")
        return await super().call_model(model, request, emit)

    async def run_tool(self, tool: Any, command: Any, context: Any, began: Any, over: Any, *, returned: Any) -> Any:
        def begins() -> None:
            self._witness.note(context.run_id, f"{tool.name} {command.call_id}")
            began()

        return await super().run_tool(tool, command, context, begins, over, returned=returned)


class World:
    """One runtime, its runs, and what they are cancelled at."""

    def __init__(self, bad: BadTool, sweep: Sweep, *, read_only: bool, real: bool) -> None:
        self.bad = bad
        self.real = real
        self.slack = sweep.slack_seconds if real else 0.0
        self.grace = REAL_GRACE if real else GRACE
        self.clock: Clock = SystemClock() if real else LoopClock()
        self.witness = Witness()
        self.rng = random.Random(f"{sweep.seed} {bad.name} {read_only}")
        self.unit = 0.1 if real else 1.0
        self.agent = self._agent(read_only)
        self.writes = not read_only

    def _agent(self, read_only: bool) -> Agent:
        unit, witness = self.unit, self.witness

        @tool(read_only=True)
        async def look() -> str:
            """Look."""
            await asyncio.sleep(0.3 * unit)
            return "seen"

        @tool
        async def post(context: ToolContext) -> str:
            """Post."""
            witness.begun.add(context.run_id)
            await asyncio.sleep(0.3 * unit)
            witness.done.add(context.run_id)
            return "posted"

        bad = self.bad.tool(name="bad", read_only=read_only, timeout_seconds=2 * unit)
        brief = {"seconds": 6 * unit} if self.real and "seconds" in bad.parameters["properties"] else {}
        replies = [[call("look"), call("bad", **brief), call("post")], [call("look")], answer("done")]
        model = ScriptedModel([Delay(0.2 * unit, reply) for reply in replies])
        return Agent("swept", model=model, tools=[look, post, bad], on_denied="tell")

    def runtime(self, store: Any) -> Runtime:
        limits = Limits(
            grace_seconds=self.grace,
            process_memory_bytes=100 << 20,
            process_cpu_seconds=0.3,
            process_children=20,
            result_stored_bytes=64 << 10,
        )
        return Runtime.open(
            store,
            agents=[self.agent],
            policy=lambda *_: Allow(),
            limits=limits,
            clock=self.clock,
            executor=self.witness.executor,
            seed=1,
        )

    async def moments(self, runtime: Runtime) -> list[float]:
        """Let a run go to its end, or as far as that is worth while, and return when its events came."""
        run = await runtime.start(self.agent, "go")
        begun = self.clock.now()
        with suppress(TimeoutError):
            await asyncio.wait_for(run.wait_at_rest(), 3.0 if self.real else 60.0)
        entries = await entries_of(run, runtime)
        if not (await run.snapshot()).ended:
            await run.cancel()
            await run.wait_ended()
        return [entry.event.time - begun for entry in entries]

    def instants(self, count: int, moments: Sequence[float]) -> list[tuple[float, int]]:
        """Return when to cancel: seconds after the start, and turns of the event loop after that.

        Two of three are right at something that happens in a run, or within some turns of the loop after it.
        """
        end = moments[-1] * 1.05 + 0.01
        found = []
        for number in range(count):
            if number % 3:
                found.append((self.rng.choice(moments), self.rng.randrange(40)))
            else:
                found.append((self.rng.uniform(0.0, end), 0))
        return found


async def entries_of(run: RunHandle, runtime: Runtime) -> list[JournalEntry]:
    rows = await runtime._host.node.journal.read(run.id, limit=100_000)
    return [journal_entry(row) for row in rows]


async def sweep_one(world: World, runtime: Runtime, cause: Cause, instant: tuple[float, int], row: Row) -> None:
    """Play one run, and note in *row* what is wrong with it."""
    seconds, turns = instant
    loop = asyncio.get_running_loop()
    row.runs += 1
    if cause == "deadline":
        at = world.clock.now() + max(0.001, seconds)
        run = await runtime.start(world.agent, "go", deadline=at)
        mark, began = None, at
    else:
        run = await runtime.start(world.agent, "go")
        await asyncio.sleep(seconds)
        for _ in range(turns):
            await asyncio.sleep(0)
        began, asked, virtual = world.clock.now(), time.perf_counter(), loop.time()
        try:
            await run.cancel("swept")
        except EventRefused:
            row.over_before += 1  # it had ended
        else:
            row.acknowledged.append((time.perf_counter() - asked) if world.real else loop.time() - virtual)
        mark = len(world.witness.calls)
    end = await run.wait_at_rest()
    if not end.ended and cause == "deadline":
        end = await run.wait_ended()  # a doubt waits for a person, and at most until then
    judged = await judge(world, runtime, run, cause, began, mark, row)
    row.wrong += [f"{cause} at {seconds:.4f} s + {turns} turns, run {run.id}: {found}" for found in judged]


async def judge(
    world: World, runtime: Runtime, run: RunHandle, cause: Cause, began: float, mark: int | None, row: Row
) -> list[str]:
    """Return what is wrong with a run that has ended."""
    wrong: list[str] = []
    end = await run.snapshot()
    entries = await entries_of(run, runtime)
    names = [type(entry.event).__name__ for entry in entries]
    if not end.ended:
        if "CancelRequested" in names or cause == "deadline":
            wrong.append(f"it rests in {end.state} with {end.holds}")
        return wrong
    code = (end.error or {}).get("code", "")
    if code != {"cancel": "cancelled_by_user", "deadline": "deadline_exceeded"}[cause]:
        row.over_before += cause == "deadline"
        if end.state != "FINISHED":
            wrong.append(f"{end.state} because of {code}")
        return wrong
    at = noticed_at(entries, cause, began)
    took = entries[-1].event.time - began
    row.ended.append(took)
    wrong += too_long(world, entries[:at], took)
    if cause == "deadline":
        late = entries[at].event.time - began
        row.late.append(late)
        if not -0.001 <= late <= ENDED_SECONDS + world.slack:
            wrong.append(f"the deadline was noticed {late:.3f} s late")
    wrong += called_afterwards(world, run.id, entries[at].event.time, mark)
    wrong += await results_wrong(world, runtime, run.id)
    return wrong


def noticed_at(entries: Sequence[JournalEntry], cause: Cause, deadline: float) -> int:
    """Return the place of the event with which a run began to end; a deadline is noticed by any event after it."""
    for place, entry in enumerate(entries):
        if cause == "cancel" and type(entry.event).__name__ == "CancelRequested":
            return place
        if cause == "deadline" and entry.event.time >= deadline - CLOCK_GRAIN:
            return place
    return len(entries) - 1


def too_long(world: World, before: Sequence[JournalEntry], took: float) -> list[str]:
    """Say whether the end took longer than it may, with what was under way when it was asked for."""
    names = Counter(type(entry.event).__name__ for entry in before)
    writes = names["ToolStarted"] > 0
    at_most = ENDED_SECONDS + world.slack + (world.grace if writes or world.bad.stops == "late" else 0.0)
    return [f"it took {took:.2f} s to end, and may take {at_most:g} s"] if took > at_most else []


def called_afterwards(world: World, run_id: str, at: float, mark: int | None) -> list[str]:
    """Say what was called after the cancellation was acknowledged, or after the deadline."""
    if mark is not None:
        late = [what for each, what, _ in world.witness.calls[mark:] if each == run_id]
    else:
        offset = world.clock.now() - asyncio.get_running_loop().time()
        margin = 0.25 + world.slack if world.real else 0.001
        late = [what for each, what, when in world.witness.calls if each == run_id and when + offset > at + margin]
    return [f"{what} was called afterwards" for what in late]


async def results_wrong(world: World, runtime: Runtime, run_id: str) -> list[str]:
    """Say which call has no result, or another one than it may have."""
    run = (await read_run(runtime._host.node.journal, run_id)).run
    asked = [each.id for message in run.messages for each in message.calls]
    results = {message.call_id: message for message in run.messages if message.role == "tool"}
    wrong = [f"call {each} has no result" for each in asked if each not in results]
    posted = next((m for m in results.values() if m.tool == "post"), None)
    if posted is not None:
        begun, done, status = run_id in world.witness.begun, run_id in world.witness.done, posted.status
        if begun and not done and status is not ResultStatus.IN_DOUBT:
            wrong.append(f"a write that was cut off is {status}")
        if not begun and status is ResultStatus.OK:
            wrong.append("a write that never began is ok")
    return wrong


def left_behind(runtime: Runtime, before: Iterable[asyncio.Task[Any]]) -> list[str]:
    """Say what is left when all runs have ended, and all that their tools have left has too."""
    node = runtime._host.node
    tasks = [task.get_name() for task in asyncio.all_tasks() if task not in before]
    pool, threads = node.pool.statistics(), node.threads.statistics()
    counts = {
        "actors": len(node.actors),
        "effects": node.effects.count,
        "effect tasks": node.tasks.alive,
        "abandoned tasks": len(node.tasks.abandoned),
        "writes at work": len(node.attempts),
        "places in the pool": sum(kind.in_use + kind.waiting for kind in (pool.task, pool.thread, pool.process)),
        "runs in the pool": pool.runs,
        "threads at work": threads.busy + threads.abandoned + threads.waiting,
        "calls of models": sum(len(gate._busy) + len(gate._waiting) for gate in node.effects._gates.values()),
        "waiters": sum(map(len, node.waiters.values())),
    }
    return [f"left: {tasks}"] * bool(tasks) + [f"left: {count} {what}" for what, count in counts.items() if count]


async def sweep_virtual(bad: BadTool, sweep: Sweep, cause: Cause) -> Row:
    """Sweep a tool that runs on the event loop, half of the runs with it as a write."""
    row = Row(bad.name, cause)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for read_only in (True, False):
        world = World(bad, sweep, read_only=read_only, real=False)
        async with world.runtime(MemoryJournal()) as runtime:
            await asyncio.sleep(0)
            before = asyncio.all_tasks()
            moments = await world.moments(runtime)
            instants = world.instants((sweep.instants + 1) // 2, moments)
            for start in range(0, len(instants), GROUP):
                group = instants[start : start + GROUP]
                await asyncio.gather(*(sweep_one(world, runtime, cause, instant, row) for instant in group))
                await asyncio.sleep(ALL_OVER)
                row.wrong += left_behind(runtime, before)
            row.wrong += await appended_later(runtime)
    return row


async def appended_later(runtime: Runtime) -> list[str]:
    """Say which runs go on after their end."""
    journal = runtime._host.node.journal
    wrong: list[str] = []
    after = None
    while rows := await journal.list(after=after, limit=500):
        after = (rows[-1].head.created_at, rows[-1].run_id)
        for row in rows:
            if row.head.state not in ("FINISHED", "FAILED", "CANCELLED", "SUSPENDED"):
                wrong.append(f"run {row.run_id} is in {row.head.state}")
            stored = await journal.read(row.run_id, limit=100_000)
            ends = [event.seq for event in stored if event.path.split(">")[-1].strip() in ("FAILED", "CANCELLED")]
            if ends and ends[0] != stored[-1].seq:
                wrong.append(f"run {row.run_id} has events after its end at {ends[0]}")
    return wrong


async def sweep_real(bad: BadTool, sweep: Sweep, cause: Cause, folder: Path) -> Row:
    """Sweep a tool that runs on a thread or in a worker process, over a store in a file."""
    row = Row(bad.name, cause)
    own = psutil.Process()
    world = World(bad, sweep, read_only=True, real=True)
    handles, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    async with world.runtime(folder / f"{bad.name}-{cause}.db") as runtime:
        await asyncio.sleep(0)
        before = asyncio.all_tasks()
        moments = await world.moments(runtime)
        instants = world.instants(sweep.real_instants, moments)
        await asyncio.gather(*(sweep_one(world, runtime, cause, instant, row) for instant in instants))
        # A thread that was given up works on, here for less than that.
        row.wrong += await lasting(lambda: left_behind(runtime, before))
        row.wrong += await appended_later(runtime)
    loop = asyncio.get_running_loop()
    await loop.shutdown_default_executor()  # its threads are kept for the next one, and are no leak
    loop._executor_shutdown_called = False  # type: ignore[attr-defined]
    loop._default_executor = None  # type: ignore[attr-defined]
    row.wrong += await lasting(lambda: _left_in_the_system(own, handles, threads))
    return row


async def lasting(look: Callable[[], list[str]], seconds: float = 10.0) -> list[str]:
    """Return what *look* still finds after some seconds, if it finds anything at all."""
    until = time.monotonic() + seconds
    while True:
        found = look()
        if not found or time.monotonic() > until:
            return found
        await asyncio.sleep(0.05)


def _left_in_the_system(own: psutil.Process, handles: int, threads: int) -> list[str]:
    counts = {
        "processes": len(own.children(recursive=True)),
        "files": len(os.listdir("/proc/self/fd")) - handles,
        "threads": threading.active_count() - threads,
    }
    return [f"left: {count} {what}" for what, count in counts.items() if count > 0]


def virtual_row(job: tuple[str, Cause, Sweep]) -> Row:
    """Sweep one tool in virtual time."""
    name, cause, sweep = job
    with quiet(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(sweep_virtual(BAD_TOOLS[name], sweep, cause))


@contextmanager
def quiet() -> Iterator[None]:
    """Let the runtime's log be still: it says of each run what its tool has done."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    try:
        yield
    finally:
        structlog.configure(**before)


def run(sweep: Sweep, told: Callable[[Row], None] = lambda _: None, *, workers: int = 1) -> list[Row]:
    """Sweep all that is chosen, and return a row for each tool and cause."""
    rows = []
    jobs = [(bad.name, cause, sweep) for bad in sweep.chosen("task") for cause in CAUSES]
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        for row in pool.map(virtual_row, jobs) if pool is not None else map(virtual_row, jobs):
            rows.append(row)
            told(row)
    with quiet():
        rows += _real_rows(sweep, told)
    p99 = acknowledged_at_p99(rows)
    if p99 > sweep.acknowledged_seconds:
        promised = 1000 * sweep.acknowledged_seconds
        rows[-1].wrong.append(
            f"of all rows: acknowledged in {1000 * p99:.0f} ms at p99, and {promised:g} were promised"
        )
    return rows


def acknowledged_at_p99(rows: Sequence[Row]) -> float:
    """Return in how many seconds 99 of 100 cancellations were acknowledged, where time is real."""
    real = [row for row in rows if BAD_TOOLS[row.name].isolation != "task"]
    return percentile([seconds for row in real for seconds in row.acknowledged], 99)


def _real_rows(sweep: Sweep, told: Callable[[Row], None]) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for bad in sweep.chosen("thread", "process") if sweep.real_instants else ():
            for cause in CAUSES:
                rows.append(asyncio.run(sweep_real(bad, sweep, cause, Path(folder))))
                told(rows[-1])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--instants", type=int, default=Sweep().instants, help="for each tool on the loop and cause")
    parser.add_argument("--real-instants", type=int, default=Sweep().real_instants, help="for each other tool; 0: none")
    parser.add_argument("--seed", type=int, default=1, help="which instants are taken")
    parser.add_argument("--workers", type=int, default=2, help="processes for what runs in virtual time")
    parser.add_argument("--only", action="append", choices=sorted(BAD_TOOLS), help="a tool; all if left out")
    options = parser.parse_args()
    sweep = Sweep(options.instants, options.real_instants, options.seed)
    if options.only:
        sweep = replace(sweep, names=tuple(options.only))
    print(
        f"seed {sweep.seed}; grace {GRACE:g} s in virtual time, {REAL_GRACE:g} s on the real clock\n{HEAD}", flush=True
    )
    begun = time.monotonic()

    def told(row: Row) -> None:
        print(row.line(), flush=True)
        for found in row.wrong[:5]:
            print(f"    WRONG {found[:400]}", flush=True)

    rows = run(sweep, told, workers=options.workers)
    late = max((seconds for row in rows for seconds in row.late), default=0.0)
    wrong = sum(len(row.wrong) for row in rows)
    print(
        f"{sum(row.runs for row in rows):,} runs in {time.monotonic() - begun:.0f} s; acknowledged in "
        f"{1000 * acknowledged_at_p99(rows):.1f} ms at p99 on the real clock; deadlines noticed {late:.3f} s late at "
        f"most; {wrong} wrong"
    )
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
