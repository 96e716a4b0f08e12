"""Whatever a tool does: one result with its status, once; a finished write is never repeated."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import msgspec
import pytest
from runtime_world import Ledger, Store, an_agent, calling, journal_of, names_of, results_of

from geartrain.limits import Limits
from geartrain.machine import CallStatus, ResultStatus
from geartrain.models import Delay
from geartrain.runtime._reading._runs import read_run
from geartrain.tools import Done, NotDone, ToolContext, Unknown, tool


class Own(BaseException):
    pass


ERRORS = [
    ValueError("bad"),
    SystemExit(1),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration(),
    StopAsyncIteration(),
    Own("own"),
    asyncio.CancelledError(),
    TimeoutError(),
    BaseExceptionGroup("several", [SystemExit(2)]),
    MemoryError(),
    RecursionError(),
    ValueError("\ud800\x00" + "x" * 1_000_000),
]


@pytest.mark.parametrize("where", ["task", "thread", "child task"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_whatever_a_tool_raises_is_a_result_and_the_run_lives(
    memory: Store, where: str, error: BaseException
) -> None:
    """CN-9: async, in a thread, in a child task; the process and other runs live."""
    calls = 0

    def fails() -> str:
        """Fail."""
        nonlocal calls
        calls += 1
        raise error

    async def async_fails() -> str:
        """Fail."""
        return fails()

    async def starts() -> str:
        """Fail in a task of its own."""
        await asyncio.create_task(async_fails())
        return "unreachable"

    chosen = {"task": async_fails, "thread": fails, "child task": starts}[where]
    agents = (
        an_agent([[calling("fails")], "saw it"], tool(name="fails")(chosen)),
        an_agent([Delay(1, "fine")], name="other"),
    )
    async with memory.runtime(*agents) as runtime:
        other = await runtime.start("other", "go")
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        ((status, text),) = await results_of(run, runtime)
        assert (end.answer, end.tool_failures, calls) == ("saw it", 1, 1)
        assert status is ResultStatus.ERROR
        assert len(text) < 20_000
        assert (await other.wait_ended()).answer == "fine"


async def test_one_failing_read_keeps_the_results_of_its_siblings(store: Store) -> None:
    """PT-1: first, middle and last to finish."""
    for failing in range(5):

        async def read(position: int, failing: int = failing) -> str:
            """Read."""
            await asyncio.sleep(position)
            if position == failing:
                raise ValueError(f"bad {position}")
            return f"read {position}"

        calls = [calling("read", f'{{"position": {n}, "failing": {failing}}}') for n in range(5)]
        async with store.runtime(an_agent([calls, "done"], tool(read_only=True)(read))) as runtime:
            run = await runtime.start("worker", "go")
            end = await run.wait_ended()
            results = await results_of(run, runtime)
            assert end.answer == "done"
            assert [status is ResultStatus.ERROR for status, _ in results] == [n == failing for n in range(5)]
            assert [text[-1] for _, text in results] == [str(n) for n in range(5)]
            assert (await names_of(run, runtime)).count("ToolFinished") == 5


class Locked(msgspec.Struct):
    lock: Any


class Silent:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def _cyclic() -> Any:
    ring: list[Any] = []
    ring.append(ring)
    return ring


class Untouchable:
    """A result that must not even be looked at."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise SystemExit(3)


UNSTORABLE = {
    "socket": socket.socket,
    "generator": lambda: (n for n in range(3)),
    "coroutine": lambda: asyncio.sleep(0),
    "lambda": lambda: lambda: 1,
    "cycle": _cyclic,
    "bytes": lambda: b"\x00\xff",
    "set": lambda: {1, 2},
    "lock": lambda: Locked(threading.Lock()),
    "silent": Silent,
    "untouchable": Untouchable,
    "untouchable inside": lambda: [{"x": Untouchable()}],
    "nan": lambda: [float("nan"), float("inf")],
    "surrogate": lambda: "\ud800\x00",
    "surrogate key": lambda: {"\ud800": "\x00", 5: object()},
    "huge": lambda: "x" * 500_000_000,
    "list": lambda: ["x" * 1000] * 100_000,
}


@pytest.mark.parametrize("kind", UNSTORABLE)
async def test_a_result_that_cannot_be_stored_never_makes_a_write_run_again(store: Store, kind: str) -> None:
    """IN-5, IN-6, ST-9: done, with a safe text of bounded size; not repeated; the run goes on, also when reopened."""
    made: list[Any] = []

    async def write() -> Any:
        """Write."""
        # The whole 500 MB once: what is stored of it is small, so the store makes no difference.
        made.append("x" * 5_000_000 if kind == "huge" and store.path is not None else UNSTORABLE[kind]())
        return made[-1]

    agent = an_agent([[calling("write")], "done"], tool(write))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        ((status, text),) = await results_of(run, runtime)
        assert (end.answer, len(made), status) == ("done", 1, ResultStatus.OK)
        assert len(text.encode()) <= 20_000
        assert (await names_of(run, runtime)).count("ToolFinished") == 1
    async with store.runtime(agent) as runtime:
        assert (await runtime.snapshot(run.id)).answer == "done"
        assert (await runtime.replay(run.id)).difference is None
    if type(made[0]) is socket.socket:
        made[0].close()


async def test_a_large_result_is_shown_in_part_and_kept_as_an_artifact(store: Store) -> None:
    async def read() -> str:
        """Read."""
        return "x" * 500_000

    async with store.runtime(an_agent([[calling("read")], "done"], tool(read_only=True)(read))) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        finished = next(
            each.event for each in await journal_of(run, runtime) if "ToolFinished" in str(type(each.event))
        )
        assert finished.size == 500_000  # type: ignore[union-attr]
        kept = await runtime._host.node.journal.artifact(finished.artifact.digest)  # type: ignore[union-attr]
        assert kept == b"x" * 500_000


async def test_a_read_that_hangs_is_timed_out(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("read")], "saw it"], ledger.read(1_000.0, timeout_seconds=7.0))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        assert await results_of(run, runtime) == [(ResultStatus.TIMED_OUT, "[timed_out] no result within 7 s")]
        assert end.tool_failures == 1
        assert 7 <= end.active_seconds < 8


async def test_a_write_that_hangs_is_in_doubt_and_a_person_settles_it(store: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], "saw it"], ledger.write(1_000.0, timeout_seconds=7.0))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert rest.holds == ("in_doubt(t1.c1)",)
        assert rest.waiting[0].waits_for == "in_doubt"
        assert sum(ledger.begun.values()) == 1
    async with store.runtime(agent) as runtime:
        run = await runtime.get(run.id)
        await run.settle("t1.c1", by="me", done=True, text="it is there")
        end = await run.wait_ended()
        assert end.answer == "saw it"
        assert await results_of(run, runtime) == [(ResultStatus.OK, "it is there")]
        assert sum(ledger.begun.values()) == 1


@pytest.mark.parametrize("decision", ["run", "skip"])
async def test_a_doubt_settled_as_not_done_is_run_or_skipped(memory: Store, decision: Any) -> None:
    tries = 0

    async def write() -> str:
        """Write."""
        nonlocal tries
        tries += 1
        await asyncio.sleep(1_000 if tries == 1 else 0)
        return "written"

    async with memory.runtime(an_agent([[calling("write")], "saw it"], tool(timeout_seconds=5)(write))) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_at_rest()
        await run.settle("t1.c1", by="me", not_done=decision)
        await run.wait_ended()
        ((status, _),) = await results_of(run, runtime)
        assert (tries, status) == ((2, ResultStatus.OK) if decision == "run" else (1, ResultStatus.NOT_STARTED))


async def test_an_idempotent_write_in_doubt_runs_again_under_the_same_key(store: Store) -> None:
    keys: list[tuple[str, int]] = []

    async def write(context: ToolContext) -> str:
        """Write."""
        keys.append((context.idempotency_key, context.attempt))
        await asyncio.sleep(1_000 if len(keys) == 1 else 0)
        return "written"

    agent = an_agent([[calling("write")], "done"], tool(idempotent=True, timeout_seconds=5)(write))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        assert (await run.wait_ended()).answer == "done"
        assert keys == [(f"{run.id}/t1.c1", 1), (f"{run.id}/t1.c1", 2)]
        assert await results_of(run, runtime) == [(ResultStatus.OK, "written")]


@pytest.mark.parametrize(
    ("answer", "result", "tries"),
    [
        (Done("found"), (ResultStatus.OK, "found"), 1),
        (NotDone(), (ResultStatus.OK, "written"), 2),
        (Unknown("who knows"), None, 1),
        (None, None, 1),
        (SystemExit(3), None, 1),
        ("hang", None, 1),
    ],
    ids=str,
)
async def test_a_write_in_doubt_is_verified_by_its_tool(
    store: Store, answer: Any, result: tuple[ResultStatus, str] | None, tries: int
) -> None:
    tried = 0

    async def write() -> str:
        """Write."""
        nonlocal tried
        tried += 1
        await asyncio.sleep(1_000 if tried == 1 else 0)
        return "written"

    async def check(arguments: Any, context: ToolContext) -> Any:
        if answer == "hang":
            await asyncio.sleep(1_000)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    agent = an_agent([[calling("write")], "done"], tool(verify=check, timeout_seconds=5)(write))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        rest = await run.wait_at_rest()
        assert tried == tries
        if result is None:
            assert rest.holds == ("in_doubt(t1.c1)",)
        else:
            assert rest.answer == "done"
            assert await results_of(run, runtime) == [result]


async def test_a_write_whose_tool_lost_its_arguments_while_in_doubt_is_not_called_failed(memory: Store) -> None:
    """What keeps us from asking a tool says nothing about what the write did."""

    async def check(arguments: Any, context: ToolContext) -> Any:
        return Done("found")

    async def write(text: str = "") -> str:
        """Write."""
        await asyncio.sleep(1_000)
        return "never"

    async def other(number: int) -> str:
        """Write."""
        return "never"

    agent = an_agent([[calling("write", '{"text": "a"}')], "done"], tool(verify=check, timeout_seconds=50)(write))
    async with memory.runtime(agent, limits=Limits(grace_seconds=1)) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
    changed = an_agent([[], "done"], tool(name="write", verify=check)(other))
    async with memory.runtime(changed) as runtime:
        rest = await (await runtime.get(run.id)).wait_at_rest()
        assert rest.holds == ("in_doubt(t1.c1)",)
        assert "could not be verified" in rest.waiting[0].reason
    async with memory.runtime(an_agent([[], "done"])) as runtime:  # and gone altogether
        run = await runtime.get(run.id)
        await run.settle("t1.c1", by="me", done=True)
        assert (await run.wait_ended()).answer == "done"


async def test_a_tool_that_raises_is_tried_again_as_often_as_it_says_and_fails_once(memory: Store) -> None:
    tries = 0

    async def read() -> str:
        """Read."""
        nonlocal tries
        tries += 1
        raise ValueError(f"try {tries}")

    agent = an_agent([[calling("read")], "done"], tool(read_only=True, retries=2)(read))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        assert (tries, end.tool_failures) == (3, 1)


async def test_a_trace_of_objects_that_cannot_be_copied_reaches_observers_as_words(memory: Store) -> None:
    seen: list[Any] = []

    async def read(context: ToolContext) -> str:
        """Read."""
        ring = _cyclic()
        for value in (threading.Lock(), ring, "\ud800", float("nan"), b"x", "x" * 1_000_000):
            context.trace("progress", value=value)
        return "fine"

    agent = an_agent([[calling("read")], "done"], tool(read_only=True)(read))
    async with memory.runtime(agent, observers=[seen.extend]) as runtime:
        run = await runtime.start("worker", "go")
        watch = run.watch()
        assert (await run.wait_ended()).answer == "done"
        watched = [record async for record in watch if record.event == "progress"]
    assert len(watched) == 6
    assert [record for record in seen if record.event == "progress"] == watched
    assert seen[-1].event == "run_finished"


async def test_a_call_at_work_shows_its_status_in_the_journal(memory: Store, ledger: Ledger) -> None:
    agent = an_agent([[calling("write")], "done"], ledger.write(10.0))
    async with memory.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await asyncio.sleep(1)
        revived = await read_run(runtime._host.node.journal, run.id)
        assert [call.status for call in revived.run.calls] == [CallStatus.STARTED]
        assert (await names_of(run, runtime))[-1] == "ToolStarted"
