"""Running a tool: whatever its function does, there is one outcome."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest

from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.testing import settle
from geartrain.tools import Outcome, ThreadPool, Tool, ToolContext, invoke, tool

LIMITS = Limits()
OK, ERROR = ResultStatus.OK, ResultStatus.ERROR


@pytest.fixture
async def threads() -> AsyncIterator[ThreadPool]:
    pool = ThreadPool(4)
    yield pool
    pool.close()


async def run(tool_: Tool, pool: ThreadPool, context: ToolContext | None = None, **arguments: Any) -> Outcome:
    return await invoke(tool_, arguments, context or ToolContext(), limits=LIMITS, threads=pool)


async def test_a_task_and_a_thread_give_what_the_function_returns(threads: ThreadPool) -> None:
    @tool(read_only=True)
    async def on_the_loop(n: int) -> list[int]:
        return [n]

    @tool(read_only=True)
    def on_a_thread(n: int) -> str:
        return f"{n} {threading.current_thread() is threading.main_thread()}"

    assert (await run(on_the_loop, threads, n=1)).text == "[1]"
    assert (await run(on_a_thread, threads, n=2)).text == "2 False"


async def test_a_call_that_waits_for_a_thread_has_not_begun(threads: ThreadPool) -> None:
    go_on = threading.Event()
    stuck = [threads.submit(lambda: go_on.wait(20)) for _ in range(4)]
    began: list[str] = []

    @tool
    def write() -> None:
        began.append("ran")

    arguments = {"limits": LIMITS, "threads": threads, "began": lambda: began.append("began")}
    given_up = asyncio.create_task(invoke(write, {}, ToolContext(), **arguments))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    before = list(began)
    go_on.set()
    await asyncio.gather(*stuck)
    await invoke(write, {}, ToolContext(), **arguments)

    assert before == []
    assert began == ["began", "ran"]


async def test_each_try_on_the_loop_says_that_it_begins(threads: ThreadPool) -> None:
    function, tried_at = failing(1, ValueError())
    began: list[int] = []

    await invoke(
        tool(read_only=True, retries=1)(function),
        {},
        ToolContext(),
        limits=LIMITS,
        threads=threads,
        began=lambda: began.append(len(tried_at)),
    )

    assert began == [0, 1]


class Own(BaseException):
    pass


RAISED = [
    ValueError("v"),
    SystemExit(2),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration(1),
    StopAsyncIteration(),
    Own("o"),
    asyncio.CancelledError("mine"),
    MemoryError(),
    RecursionError("deep"),
    BaseExceptionGroup("g", [KeyboardInterrupt()]),
]


@pytest.mark.parametrize("isolation", ["async", "task", "thread"])
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
async def test_whatever_a_tool_raises_is_an_error_that_names_it(
    error: BaseException, isolation: Any, threads: ThreadPool
) -> None:
    """CN-9."""

    async def asynchronous() -> None:
        await asyncio.sleep(0)
        raise error

    def plain() -> None:
        raise error

    made = tool(asynchronous) if isolation == "async" else tool(isolation=isolation)(plain)
    outcome = await run(made, threads)

    assert outcome.status is ERROR
    # Python itself turns a StopIteration that leaves a coroutine into a RuntimeError.
    turned = isolation == "async" and isinstance(error, StopIteration)
    assert outcome.text.startswith("RuntimeError: coroutine raised" if turned else type(error).__name__)
    assert not threads.statistics().busy


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("awaited", [True, False])
async def test_a_tool_whose_own_task_exits_ends_neither_the_loop_nor_another_call(
    kind: type[BaseException], awaited: bool, threads: ThreadPool
) -> None:
    """CN-9."""

    async def exits() -> None:
        raise kind

    @tool
    async def starts() -> str:
        task = asyncio.create_task(exits(), name="mine")
        if awaited:
            await task
        await asyncio.wait([task])
        return f"{task.get_name()} {task.exception()}"

    first, second = await asyncio.gather(run(starts, threads), run(add, threads, a=1, b=2))

    assert first.status is (ERROR if awaited else OK)
    assert f"a task started by a tool raised {kind.__name__}" in first.text
    assert second.text == "3"


async def test_a_task_group_inside_a_tool_reports_an_exit_like_any_error(threads: ThreadPool) -> None:
    """CN-9."""

    async def exits() -> None:
        sys.exit(1)

    @tool
    async def groups() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(exits)
            group.start_soon(asyncio.sleep, 100)

    outcome = await run(groups, threads)

    assert outcome.status is ERROR
    assert "SystemExit" in outcome.text


async def test_a_task_started_outside_of_tools_is_left_alone(threads: ThreadPool) -> None:
    await run(add, threads, a=1, b=2)

    async def mine() -> int:
        return 1

    coroutine = mine()
    task = asyncio.create_task(coroutine)

    assert task.get_coro() is coroutine
    assert await task == 1


async def test_the_task_factory_that_was_there_before_still_makes_the_tasks(threads: ThreadPool) -> None:
    made: list[str] = []

    def factory(loop: Any, coroutine: Any, **options: Any) -> Any:
        made.append(coroutine.__qualname__.rpartition(".")[2])
        return asyncio.Task(coroutine, loop=loop, **options)

    async def child() -> None: ...

    @tool
    async def starts() -> None:
        await asyncio.create_task(child())

    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    loop.set_task_factory(factory)
    try:
        await run(starts, threads)
        await run(starts, threads)
    finally:
        loop.set_task_factory(before)

    assert made == ["child", "child"]


async def test_a_child_task_that_exits_when_it_is_cancelled_ends_only_itself(threads: ThreadPool) -> None:
    """CN-9."""

    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            sys.exit(1)

    @tool
    async def starts() -> str:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return str(task.exception())

    assert (await run(starts, threads)).text == "a task started by a tool raised SystemExit"


async def test_a_child_task_cancelled_before_its_first_step_leaves_no_warning(threads: ThreadPool) -> None:
    async def child() -> None: ...

    @tool
    async def starts() -> str:
        task = asyncio.create_task(child())
        task.cancel()
        await asyncio.wait([task])
        return str(task.cancelled())

    assert (await run(starts, threads)).text == "True"


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    return a + b


async def test_a_cancellation_of_the_call_is_raised(threads: ThreadPool) -> None:
    @tool
    async def waits() -> None:
        await asyncio.sleep(100)

    task = asyncio.create_task(run(waits, threads))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_tool_that_swallows_its_cancellation_still_gives_its_outcome(threads: ThreadPool) -> None:
    """CN-2: what happened is known, so it is told; what becomes of it is the runtime's affair."""

    @tool
    async def stubborn() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
        return "late"

    task = asyncio.create_task(run(stubborn, threads))
    await settle()
    task.cancel()

    assert (await task).text == "late"


async def test_a_time_out_inside_a_tool_is_its_own_error(threads: ThreadPool) -> None:
    @tool
    async def impatient() -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(100)

    assert (await run(impatient, threads)).text == "TimeoutError"


async def test_a_cancelled_inner_task_is_an_error_and_no_cancellation(threads: ThreadPool) -> None:
    @tool
    async def cancels_its_child() -> None:
        child = asyncio.create_task(asyncio.sleep(100))
        asyncio.get_running_loop().call_later(1, child.cancel)
        await child

    outcome = await run(cancels_its_child, threads)

    assert (outcome.status, outcome.text) == (ERROR, "CancelledError")


async def test_a_cancelled_call_on_a_thread_is_raised_at_once_and_its_thread_given_up(threads: ThreadPool) -> None:
    go_on = threading.Event()

    @tool
    def blocks() -> None:
        go_on.wait(20)

    task = asyncio.create_task(run(blocks, threads))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)

    assert threads.statistics().abandoned == 1
    go_on.set()


def failing(times: int, error: BaseException) -> tuple[Callable[[], Any], list[float]]:
    tried_at: list[float] = []

    async def function() -> str:
        tried_at.append(asyncio.get_running_loop().time())
        if len(tried_at) <= times:
            raise error
        return "at last"

    return function, tried_at


@pytest.mark.parametrize("setting", ["read_only", "idempotent"])
async def test_a_call_that_may_be_repeated_is_tried_again_with_back_off(setting: str, threads: ThreadPool) -> None:
    function, tried_at = failing(2, ValueError())
    repeated = tool(retries=3, **{setting: True})(function)  # type: ignore[arg-type]

    outcome = await run(repeated, threads)

    assert (outcome.status, outcome.text, outcome.tries) == (OK, "at last", 3)
    assert [round(after - before, 6) for before, after in pairwise(tried_at)] == [0.1, 0.2]


async def test_the_last_try_gives_the_error(threads: ThreadPool) -> None:
    function, tried_at = failing(9, ValueError("again"))

    outcome = await run(tool(read_only=True, retries=2)(function), threads)

    assert (outcome.status, outcome.text, outcome.tries) == (ERROR, "ValueError: again", 3)
    assert len(tried_at) == 3


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt(), asyncio.CancelledError(), Own()])
async def test_what_is_no_exception_is_not_tried_again(error: BaseException, threads: ThreadPool) -> None:
    function, tried_at = failing(9, error)

    await run(tool(read_only=True, retries=5)(function), threads)

    assert len(tried_at) == 1


async def test_a_write_is_run_once(threads: ThreadPool) -> None:
    function, tried_at = failing(9, ValueError())

    outcome = await run(tool(function), threads)

    assert (outcome.tries, len(tried_at)) == (1, 1)


async def test_each_try_has_arguments_and_data_of_its_own(threads: ThreadPool) -> None:
    seen: list[tuple[Any, Any]] = []

    @tool(read_only=True, retries=1)
    def spoils(context: ToolContext, items: list[int]) -> None:
        seen.append((list(items), list(context.context["list"])))
        items.clear()
        context.context["list"].clear()
        raise ValueError

    arguments, context = {"items": [1, 2]}, ToolContext(context={"list": [3]})
    await invoke(spoils, arguments, context, limits=LIMITS, threads=threads)

    assert seen == [([1, 2], [3])] * 2
    assert arguments == {"items": [1, 2]}
    assert context.context == {"list": [3]}


async def test_a_tool_cannot_put_anything_into_the_data_of_its_run(threads: ThreadPool) -> None:
    @tool
    def writes(context: ToolContext) -> None:
        context.context["root"] = "/"  # type: ignore[index]

    assert (await run(writes, threads)).text.startswith("TypeError")


async def test_arguments_that_cannot_be_copied_start_nothing(threads: ThreadPool) -> None:
    outcome = await run(add, threads, a=threading.Lock(), b=1)

    assert outcome.status is ResultStatus.NOT_STARTED
    assert outcome.text.startswith("the arguments cannot be copied: TypeError")


async def test_a_tool_gets_its_context_and_may_trace(threads: ThreadPool) -> None:
    traced: list[tuple[str, Any]] = []
    context = ToolContext(
        run_id="r-1", call_id="t1.c1", attempt=2, emit=lambda name, payload: traced.append((name, payload))
    )

    @tool
    def tells(c: ToolContext) -> str:
        c.trace("step", name="x", n=1)
        return f"{c.run_id} {c.call_id} {c.attempt}"

    assert (await run(tells, threads, context)).text == "r-1 t1.c1 2"
    assert traced == [("step", {"name": "x", "n": 1})]


async def test_tracing_never_fails_a_tool(threads: ThreadPool) -> None:
    def broken(_name: str, _payload: Any) -> None:
        raise RuntimeError

    @tool
    def tells(c: ToolContext) -> str:
        c.trace("step")
        return "fine"

    assert (await run(tells, threads, ToolContext(emit=broken))).text == "fine"


@pytest.mark.parametrize("isolation", ["async", "thread"])
async def test_present_says_what_is_shown(isolation: str, threads: ThreadPool) -> None:
    async def asynchronous() -> dict[str, int]:
        return {"shown": 1, "secret": 2}

    def plain() -> dict[str, int]:
        return {"shown": 1, "secret": 2}

    made = tool(present=lambda value: value["shown"])(asynchronous if isolation == "async" else plain)

    assert (await run(made, threads)).text == "1"


async def test_a_present_that_raises_hides_the_result_and_the_call_is_done(threads: ThreadPool) -> None:
    @tool(present=lambda value: value["missing"])
    async def secret() -> dict[str, str]:
        return {"secret": "s3cr3t"}

    outcome = await run(secret, threads)

    assert outcome.status is OK
    assert outcome.text == "done; the result cannot be shown: present raised KeyError"


async def test_a_present_without_a_thread_to_run_on_leaves_the_call_done() -> None:
    closed = ThreadPool(1)
    closed.close()

    @tool(idempotent=True, retries=3, present=str)
    async def works() -> int:
        return 1

    outcome = await run(works, closed)

    assert (outcome.status, outcome.tries) == (OK, 1)
    assert "no thread to run on" in outcome.text


async def test_a_call_without_a_thread_to_run_on_is_not_started() -> None:
    closed = ThreadPool(1)
    closed.close()

    @tool
    def works() -> None: ...

    outcome = await run(works, closed)

    assert outcome.status is ResultStatus.NOT_STARTED
    assert outcome.text == "no thread to run on: the pool is closed"


async def test_a_plain_function_that_returns_a_coroutine_is_done_without_a_result(threads: ThreadPool) -> None:
    """IN-5."""

    async def inner() -> int:
        return 1

    @tool
    def wraps() -> Any:
        return inner()

    assert (await run(wraps, threads)).text == (
        "done; the result cannot be stored (coroutine): it is a coroutine that nobody has awaited"
    )


async def test_a_result_whose_property_raises_is_done_without_a_result(threads: ThreadPool) -> None:
    """IN-5."""

    class Lazy:
        __dataclass_fields__: Any = property(lambda self: 1 / 0)

    @tool
    async def lazy() -> Any:
        return Lazy()

    assert (await run(lazy, threads)).text.startswith("done; the result cannot be stored (")


@pytest.mark.parametrize("failed", [0, 2, 4])
async def test_a_failing_read_leaves_the_results_of_its_siblings(failed: int, threads: ThreadPool) -> None:
    """PT-1."""

    @tool(read_only=True)
    async def read(n: int) -> int:
        await asyncio.sleep(n)
        if n == failed:
            raise ValueError(n)
        return n

    outcomes = await asyncio.gather(*(run(read, threads, n=n) for n in range(5)))

    assert [outcome.status for outcome in outcomes] == [ERROR if n == failed else OK for n in range(5)]


class Lag:
    """The longest time for which the event loop did not come round, in seconds of work by this process.

    Seconds on the wall would also count what other processes do to a busy machine.
    """

    seconds = 0.0

    async def watch(self) -> None:
        last = time.process_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.process_time()
            self.seconds = max(self.seconds, now - last)
            last = now


@pytest.mark.real_time
@pytest.mark.parametrize(
    "make",
    [
        lambda: "x" * 200_000_000,
        lambda: "a line of text\n" * 7_000_000,
        lambda: "é" * 10_000_000,
        lambda: "\0" * 2_000_000,
        lambda: b"z" * 100_000_000,
        lambda: list(range(2_000_000)),
        lambda: [b"\x89PNG" + bytes(1_000)] * 100_000,
        lambda: ["x" * 100_000_000],
    ],
    ids=["one line", "lines", "not ascii", "NUL", "bytes", "numbers", "images", "text in a list"],
)
async def test_a_huge_result_does_not_hold_up_the_event_loop(make: Callable[[], Any], threads: ThreadPool) -> None:
    """IN-6."""
    value = make()

    @tool
    async def huge() -> Any:
        return value

    gc.disable()  # a collection stops every thread, and takes long with what a whole test suite has made
    try:
        lag = Lag()
        watching = asyncio.create_task(lag.watch())
        await asyncio.sleep(0.01)
        outcome = await run(huge, threads)
        watching.cancel()
    finally:
        gc.enable()

    assert len(outcome.text.encode()) <= LIMITS.result_context_bytes
    assert len(outcome.full or b"") <= LIMITS.result_stored_bytes
    assert lag.seconds < 0.05


SERVICE = """
import asyncio, os, signal, sys
from geartrain.limits import Limits
from geartrain.tools import ThreadPool, ToolContext, invoke, tool

@tool
async def waits() -> None:
    print("ready", flush=True)
    await asyncio.sleep(60)

async def main():
    await invoke(waits, {}, ToolContext(), limits=Limits(), threads=ThreadPool(1))

try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.real_time
def test_ctrl_c_stops_a_service_while_a_tool_runs() -> None:
    """CN-9."""
    process = subprocess.Popen([sys.executable, "-c", SERVICE], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)

        assert process.wait(10) == 130
