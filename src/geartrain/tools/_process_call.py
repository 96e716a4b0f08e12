"""A call of a tool in a worker process, from the choice of a worker to what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import msgspec

from geartrain.clock import thread_job
from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.tools._clean import Outcome, cut, error_text, unshown
from geartrain.tools._context import ToolContext
from geartrain.tools._errors import ProcessesUnavailable, ResultUnavailable, ToolDefinitionError, WorkerEnded
from geartrain.tools._found import Done, NotDone, Unknown
from geartrain.tools._process_frames import Answer, Answered, Call, Result, ResultWanted, Target, Traced, Verified
from geartrain.tools._process_pool import ProcessPool, TargetRefused
from geartrain.tools._process_target import target_of
from geartrain.tools._process_worker import Worker
from geartrain.tools._tool import Tool


async def run_in_process(  # noqa: PLR0911 - each way not to begin ends at once
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext,
    *,
    limits: Limits,
    processes: ProcessPool,
    began: Callable[[], None],
    over: Callable[[], None],
    returned: Callable[[], None],
) -> tuple[Outcome, bool]:
    """Run a tool's function in a worker; return what came of it, and whether it may be tried again.

    If this task is cancelled, the worker is ended with all that it has started, and `CancelledError` raised at once.
    *began* is called before anything of the function can have run, and *over* once nothing of it runs any more.
    """
    has_returned = False

    def note_returned() -> None:
        nonlocal has_returned
        has_returned = True
        returned()

    def not_started(reason: str, *, may_retry: bool = False) -> tuple[Outcome, bool]:
        return Outcome(ResultStatus.NOT_STARTED, cut(reason, limits.result_context_bytes)), may_retry

    with thread_job():
        try:
            call = _call(tool, "run", arguments, context, limits=limits, number=processes.next_number())
            worker = await processes.worker_for(call.target)
        except ProcessesUnavailable as error:
            return not_started(str(error), may_retry=True)
        except (ToolDefinitionError, _CannotBeSent) as error:
            return not_started(str(error))
        except TargetRefused as refused:
            return not_started(f"a worker process cannot load {tool.name!r}: {refused}")
        except WorkerEnded as ended:
            return not_started(f"it could not be loaded: {ended}")
        began()
        use = _Use(worker, processes, over)
        try:
            answer = await use.answer(call, context, note_returned)
        except WorkerEnded as ended:
            if has_returned:
                return unshown(str(ended), limits), False
            text = cut(str(ended), limits.result_context_bytes)
            return Outcome(ResultStatus.ERROR, text, len(text.encode()), lost=text), True
    assert isinstance(answer, Answered), "asked to run"
    return answer.outcome, answer.may_retry


async def verify_in_process(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, *, limits: Limits, processes: ProcessPool
) -> Done | NotDone | Unknown:
    """Ask a tool's `verify` in a worker; that it could not be asked, or ended there, is `Unknown` with the reason."""
    with thread_job():
        try:
            call = _call(tool, "verify", arguments, context, limits=limits, number=processes.next_number())
            worker = await processes.worker_for(call.target)
            answer = await _Use(worker, processes, lambda: None).answer(call, context, lambda: None)
        except (ProcessesUnavailable, ToolDefinitionError, _CannotBeSent, TargetRefused, WorkerEnded) as error:
            return Unknown(f"verify could not be asked: {error}"[:500])
    assert isinstance(answer, Verified), "asked to verify"
    match answer.found:
        case "done":
            return Done(answer.text)
        case "not_done":
            return NotDone()
        case "unknown":
            return Unknown(answer.text)


class _CannotBeSent(Exception):
    """Arguments or context have no form in which they can be sent."""


def _call(
    tool: Tool,
    mode: Literal["run", "verify"],
    arguments: Mapping[str, Any],
    context: ToolContext,
    *,
    limits: Limits,
    number: int,
) -> Call:
    target: Target = target_of(tool)
    try:
        text = msgspec.json.encode(dict(arguments)).decode()
        data = msgspec.to_builtins(dict(context.context), str_keys=True)
    except Exception as error:  # noqa: BLE001 - a stranger's values
        raise _CannotBeSent(f"the arguments cannot be sent to a worker process: {error_text(error)}") from None
    return Call(
        number=number,
        target=target,
        mode=mode,
        arguments=text,
        run_id=context.run_id,
        call_id=context.call_id,
        idempotency_key=context.idempotency_key,
        attempt=context.attempt,
        deadline=context.deadline,
        context=data,
        principal=context.principal,
        limits=limits,
    )


class _Use:
    """The use of a worker for one call; *over* is called once nothing of the call runs any more."""

    def __init__(self, worker: Worker, processes: ProcessPool, over: Callable[[], None]) -> None:
        self._worker = worker
        self._processes = processes
        self._over = over

    async def answer(self, call: Call, context: ToolContext, returned: Callable[[], None]) -> Answer:
        """Return the worker's answer; end the worker if there is none or if something of the call is left in it."""
        worker = self._worker
        traced = partial(_trace, context)
        try:
            answer = await worker.call(call, on_traced=traced, on_returned=returned)
            while isinstance(answer, ResultWanted):
                answer = await worker.go_on(await _result(context, answer.call_id))
        except BaseException as error:
            worker.gone.add_done_callback(lambda _: self._over())
            worker.kill()
            if isinstance(error, WorkerEnded):
                # What it has started may still be at work; another try must not run beside it.
                await asyncio.wait([worker.gone])
            raise
        if isinstance(answer, Answered | Verified) and answer.reusable and not worker.ending:
            self._processes.give_back(worker)
            self._over()
        else:
            worker.gone.add_done_callback(lambda _: self._over())
            worker.quit()
        return answer


async def _result(context: ToolContext, call_id: str) -> Result:
    try:
        return Result(await context.read_result(call_id))
    except ResultUnavailable as unavailable:
        return Result("", unavailable.reason)


def _trace(context: ToolContext, record: Traced) -> None:
    context.trace(record.name, **record.payload)
