"""Whatever a model says, or fails to say: a result it can react to, counted and bounded; the run lives."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from runtime_world import Ledger, Store, an_agent, calling, journal_of, names_of, results_of

from geartrain.limits import UNLIMITED, Limits
from geartrain.machine import Budget, ModelReplied, RequestedCall, ResultStatus, Usage
from geartrain.models import Attempts, ContextTooLong, Delay, ModelRejected, ModelReply, ModelUnavailable
from geartrain.runtime import Agent

MANY = Budget(max_tool_failures=UNLIMITED, max_tokens=UNLIMITED)

BAD_ARGUMENTS = ["{", "", "null", "[]", '"x"', "5", "{" * 5_000_000, '{"text": 5}', '{"text": NaN}', "[" * 100_000]
BAD_NAMES = ["gone", "", "READ", "read ", "x" * 100_000, "a\x00b", "\ud800", "hand_off_to_nobody"]


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=lambda text: text[:12] or "empty")
async def test_arguments_that_cannot_be_used_are_a_result_the_model_sees(
    store: Store, ledger: Ledger, arguments: str
) -> None:
    """IN-1: each is a size-capped error that counts as a failure; the run lives."""
    agent = an_agent([[calling("read", arguments)], "sorry"], ledger.read())
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        ((status, text),) = await results_of(run, runtime)
        assert end.answer == "sorry"
        if arguments == "":
            assert (status, end.tool_failures) in [(ResultStatus.OK, 0), (ResultStatus.ERROR, 1)]
        else:
            assert (status, end.tool_failures) == (ResultStatus.ERROR, 1)
            assert not ledger.done
        assert len(text) < 2_000


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda text: ascii(text[:10]))
async def test_a_tool_that_is_not_there_is_a_result_that_names_those_that_are(
    store: Store, ledger: Ledger, name: str
) -> None:
    """IN-1."""
    agent = an_agent([[calling(name)], "sorry"], ledger.read())
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        ((status, text),) = await results_of(run, runtime)
        assert (end.answer, end.tool_failures, status) == ("sorry", 1, ResultStatus.ERROR)
        assert "read" in text
        assert len(text) < 2_000


async def test_failed_calls_count_to_the_limit_and_the_reason_names_it(memory: Store) -> None:
    agent = an_agent([[calling("gone")], [calling("gone")], [calling("gone")], "never"])
    async with memory.runtime(agent) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.error is not None
        assert (end.state, end.error["code"], end.tool_failures) == ("FAILED", "too_many_tool_failures", 3)


@pytest.mark.parametrize("count", [200, 10_000])
async def test_a_reply_with_far_too_many_calls_runs_some_and_answers_all(
    store: Store, ledger: Ledger, count: int
) -> None:
    """PT-6: at most the set number at once, a result for each, refusals are not failures."""
    agent = an_agent([[calling("read")] * count, "done"], ledger.read(1.0), budget=MANY)
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        entries = await journal_of(run, runtime)
        replied = next(each.event for each in entries if isinstance(each.event, ModelReplied))
        if replied.anomaly:  # more than an event can hold: told to the model in one sentence
            assert count == 10_000
            assert end.answer == "done"
            return
        results = [m for m in agent.model.requests[-1].messages if m.role == "tool"]  # type: ignore[attr-defined]
        assert end.answer == "done"
        assert end.tool_failures == 0
        assert sum(ledger.done.values()) == 64
        assert ledger.peak == 8
        statuses = [message.status for message in results]
        assert statuses == [ResultStatus.OK] * 64 + [ResultStatus.REFUSED] * (count - 64)


async def test_equal_and_missing_provider_ids_do_not_mix_results(store: Store, ledger: Ledger) -> None:
    calls = [calling("read", f'{{"text": "{n}"}}', provider_id="same" if n % 2 else "") for n in range(6)]
    agent = an_agent([calls, "done"], ledger.read())
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        await run.wait_ended()
        assert [text for _, text in await results_of(run, runtime)] == [f"read {n}" for n in range(6)]


class Odd:
    """A model client of a stranger: gives what it was told to give."""

    name = "odd"

    def __init__(self, *replies: Any) -> None:
        self.replies = replies

    async def reply(self, request: Any, emit: Any, /) -> Any:
        reply = self.replies[min(request.turn, len(self.replies)) - 1]
        if issubclass(type(reply), BaseException):
            raise reply
        return reply


class NoText:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Word(str):
    __slots__ = ()


class Unseen:
    """What cannot be looked at without leaving the process."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise SystemExit(3)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        "just text",
        {"text": "x"},
        ModelReply(text=None),  # type: ignore[arg-type]
        ModelReply(text=b"bytes"),  # type: ignore[arg-type]
        ModelReply(calls=None),  # type: ignore[arg-type]
        ModelReply(calls=5),  # type: ignore[arg-type]
        ModelReply(calls=(None,)),  # type: ignore[arg-type]
        ModelReply(calls=({"tool": "x"},)),  # type: ignore[arg-type]
        ModelReply(calls=NoText()),  # type: ignore[arg-type]
        ModelReply(text="", finish_reason=NoText()),  # type: ignore[arg-type]
        ModelReply(text="x" * 3_000_000),
        ModelReply(text=""),
    ],
    ids=lambda reply: type(reply).__name__,
)
async def test_a_reply_that_is_none_is_told_to_the_model_and_the_run_goes_on(store: Store, reply: Any) -> None:
    agent = Agent("worker", model=Odd(reply, ModelReply(text="better")))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        assert (end.state, end.answer, end.turn_count) == ("FINISHED", "better", 2)
        assert (await runtime.replay(run.id)).difference is None


@pytest.mark.parametrize("where", ["", "text", "calls", "usage", "finish_reason"])
async def test_a_reply_that_cannot_even_be_looked_at_is_told_to_the_model_too(store: Store, where: str) -> None:
    reply = msgspec.structs.replace(ModelReply(text=""), **{where: Unseen()}) if where else Unseen()
    async with store.runtime(Agent("worker", model=Odd(reply, ModelReply(text="better")))) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
    assert (end.state, end.answer, end.turn_count) == ("FINISHED", "better", 2)


@pytest.mark.parametrize("odd", [None, 5, NoText(), b"bytes"], ids=lambda odd: type(odd).__name__)
async def test_a_call_made_of_no_text_is_a_failed_call(store: Store, odd: Any) -> None:
    asked = RequestedCall(tool=odd, arguments=odd, provider_id=odd)
    agent = Agent("worker", model=Odd(ModelReply(calls=(asked,)), ModelReply(text="better")))
    async with store.runtime(agent) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert (end.answer, end.tool_failures) == ("better", 1)


async def test_replies_that_stay_useless_end_the_run_with_the_reason(memory: Store) -> None:
    async with memory.runtime(Agent("worker", model=Odd(None))) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.error is not None
        assert (end.state, end.error["code"]) == ("FAILED", "unsupported_action")


async def test_text_of_a_class_of_its_own_is_stored_as_text(store: Store) -> None:
    reply = ModelReply(text=Word("fine"), finish_reason=Word("stop"))
    async with store.runtime(Agent("worker", model=Odd(reply))) as runtime:
        end = await (await runtime.start("worker", Word("go"))).wait_ended()
        assert end.answer == "fine"


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "many",
        {"input_tokens": 5},
        Usage(input_tokens=None, output_tokens=5),  # type: ignore[arg-type]
        Usage(input_tokens=-5, output_tokens=5),
        Usage(input_tokens=5.5, output_tokens=5),  # type: ignore[arg-type]
        Usage(input_tokens="5", output_tokens=5),  # type: ignore[arg-type]
        Usage(input_tokens=True, output_tokens=5),
        Usage(input_tokens=2**70, output_tokens=5),
        Usage(input_tokens=5, output_tokens=5, cost=float("nan")),
        Usage(input_tokens=5, output_tokens=5, cost=None),  # type: ignore[arg-type]
        Usage(input_tokens=5, output_tokens=5, cost=True),
        Usage(input_tokens=5, output_tokens=5, cost=-1.0),
        Usage(input_tokens=5, output_tokens=5, estimated="perhaps"),  # type: ignore[arg-type]
    ],
)
async def test_a_usage_that_is_none_is_estimated_and_the_total_never_falls(store: Store, usage: Any) -> None:
    """IN-8."""
    agent = Agent("worker", model=Odd(ModelReply(text="done", usage=usage)))
    async with store.runtime(agent) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        assert end.state == "FINISHED"
        assert end.usage.total_tokens >= 1
        assert 0 <= end.usage.cost < 1
    async with store.runtime(agent) as runtime:
        assert (await runtime.snapshot(run.id)).usage == end.usage


async def test_an_unavailable_model_is_tried_again_with_growing_pauses(memory: Store) -> None:
    down = ModelUnavailable("scripted", "busy")
    times: list[float] = []

    def entry(_request: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        return down if len(times) < 3 else "done"

    async with memory.runtime(an_agent([entry])) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.answer == "done"
        assert end.turn_count == 1
    first, second = times[1] - times[0], times[2] - times[1]
    assert 0.5 <= first <= 1.0
    assert 1.0 <= second <= 2.0


async def test_what_the_provider_wishes_is_obeyed(memory: Store) -> None:
    times: list[float] = []

    def entry(_request: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        return ModelUnavailable("scripted", "busy", retry_after_seconds=20.0) if len(times) < 2 else "done"

    async with memory.runtime(an_agent([entry])) as runtime:
        await (await runtime.start("worker", "go")).wait_ended()
    assert 20.0 <= times[1] - times[0] <= 22.0


@pytest.mark.parametrize("wish", ["soon", None, -1, float("nan"), float("inf"), True, NoText()])
async def test_a_wish_that_is_none_is_not_obeyed(memory: Store, wish: Any) -> None:
    down = ModelUnavailable("scripted", "busy", retry_after_seconds=wish)
    agent = an_agent([lambda request: down if len(model.requests) < 2 else "done"])
    model: Any = agent.model
    async with memory.runtime(agent) as runtime:
        began = asyncio.get_running_loop().time()
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.answer == "done"
        assert asyncio.get_running_loop().time() - began < 3


async def test_a_model_that_stays_unavailable_fails_the_run_after_its_attempts(memory: Store) -> None:
    agent = an_agent([ModelUnavailable("scripted", "busy")])
    async with memory.runtime(agent) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.error is not None
        assert (end.error["code"], end.error["kind"]) == ("model_failed", "model")
        assert "3 attempts" in end.error["message"]
        assert len(agent.model.requests) == 3  # type: ignore[attr-defined]


async def test_a_model_that_hangs_is_given_its_attempts_and_then_up(memory: Store) -> None:
    agent = an_agent([Delay(10_000, "late")], budget=Budget(max_seconds=UNLIMITED))
    async with memory.runtime(agent) as runtime:
        began = asyncio.get_running_loop().time()
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.error is not None
        assert end.error["code"] == "model_failed"
        assert "no reply within 120 s" in end.error["message"]
        assert 360 <= asyncio.get_running_loop().time() - began < 370


async def test_a_model_that_does_not_let_itself_be_cancelled_is_abandoned(memory: Store) -> None:
    class Deaf:
        name = "deaf"

        async def reply(self, request: Any, emit: Any, /) -> Any:
            until = asyncio.get_running_loop().time() + 1_000
            while asyncio.get_running_loop().time() < until:
                try:
                    await asyncio.sleep(10)
                except asyncio.CancelledError:
                    continue
            return ModelReply(text="late")

    async with memory.runtime(Agent("worker", model=Deaf()), limits=Limits(model_attempts=1)) as runtime:
        run = await runtime.start("worker", "go")
        end = await run.wait_ended()
        assert end.error is not None
        assert end.error["code"] == "model_failed"
        assert len((await runtime.statistics()).effects_abandoned) == 1
        await asyncio.sleep(1_000)
        assert (await runtime.statistics()).effects_abandoned == ()
        assert (await run.snapshot()).seq == end.seq


@pytest.mark.parametrize(
    "error",
    [
        ModelRejected("odd", "no"),
        ValueError("bug"),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        StopAsyncIteration(),
        StopIteration(),
        BaseExceptionGroup("several", [SystemExit(2)]),
        type("Own", (BaseException,), {})("own"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_model_raises_fails_its_run_and_nothing_else(memory: Store, error: BaseException) -> None:
    """CN-9, for models."""
    agents = (Agent("worker", model=Odd(error)), an_agent([Delay(1, "fine")], name="other"))
    async with memory.runtime(*agents) as runtime:
        other = await runtime.start("other", "go")
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.error is not None
        assert (end.state, end.error["code"]) == ("FAILED", "model_failed")
        assert (await other.wait_ended()).answer == "fine"


async def test_a_task_that_a_model_started_cannot_end_the_process_either(memory: Store) -> None:
    class Starting:
        name = "starting"

        async def reply(self, request: Any, emit: Any, /) -> Any:
            async def leave() -> None:
                raise SystemExit(3)

            task = asyncio.get_running_loop().create_task(leave())
            await asyncio.wait([task])
            task.exception()
            return ModelReply(text="done")

    async with memory.runtime(Agent("worker", model=Starting())) as runtime:
        assert (await (await runtime.start("worker", "go")).wait_ended()).answer == "done"


async def test_a_context_that_is_too_long_is_shortened_once_and_then_fails(memory: Store) -> None:
    long = ContextTooLong("scripted", "too long")
    agent = an_agent([[calling("gone")], Attempts(long, "short enough")])
    async with memory.runtime(agent) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.answer == "short enough"
    agent = an_agent([[calling("gone")], long])
    async with memory.runtime(agent) as runtime:
        end = await (await runtime.start("worker", "go")).wait_ended()
        assert end.error is not None
        assert end.error["code"] == "context_too_long"


async def test_a_model_is_asked_by_no_more_runs_at_once_than_it_may(memory: Store) -> None:
    at_once: list[int] = [0, 0]

    class Counting:
        name = "counting"

        async def reply(self, request: Any, emit: Any, /) -> Any:
            at_once[0] += 1
            at_once[1] = max(at_once)
            await asyncio.sleep(1)
            at_once[0] -= 1
            return ModelReply(text="done")

    async with memory.runtime(Agent("worker", model=Counting()), limits=Limits(model_calls_at_once=3)) as runtime:
        runs = [await runtime.start("worker", "go") for _ in range(10)]
        await runs[5].cancel()
        ends = [await run.wait_ended() for run in runs]
        assert [end.state for end in ends].count("FINISHED") == 9
        assert at_once[1] == 3
        assert "ModelReplied" not in await names_of(runs[5], runtime)
