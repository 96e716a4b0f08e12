"""Running a tool's function: whatever it does, there is one outcome.

Rule 1: what the function raises is the call's result, whatever class it has, `SystemExit` and a `CancelledError` of
its own included. Only a cancellation of this very task goes through.
Rule 2: once the function has returned, its effect has happened. From then on nothing gives an error.
Rule 3: no time-out in here; the caller cancels the task. A function on a thread is given up then and ends by itself;
one in a worker process is ended, with everything that it has started.
Rule 4: what was given up may still have its effect. Whoever must know is told when nothing of a call runs any more.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from geartrain.limits import Limits
from geartrain.machine import ResultStatus
from geartrain.tools._clean import Outcome, cut, error_text, present, unshown
from geartrain.tools._contain import inside_a_tool
from geartrain.tools._context import ToolContext
from geartrain.tools._errors import ThreadsUnavailable
from geartrain.tools._json import is_light, type_name
from geartrain.tools._threads import ThreadPool
from geartrain.tools._tool import Tool

if TYPE_CHECKING:
    from geartrain.tools._process_pool import ProcessPool

BACKOFF_SECONDS: Final = 0.1
BACKOFF_SECONDS_MAX: Final = 5.0


def _nothing() -> None:
    """Do nothing: for callers that do not ask when a try begins or all is over."""


async def invoke(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext,
    *,
    limits: Limits,
    threads: ThreadPool,
    processes: ProcessPool | None = None,
    began: Callable[[], None] = _nothing,
    over: Callable[[], None] = _nothing,
    returned: Callable[[], None] = _nothing,
) -> Outcome:
    """Run a tool's function and return what came of it: ok, error, or not_started.

    Each try gets copies of *arguments* and of the context's data, so nothing that is shared can be changed.
    A read or an idempotent write that raised an `Exception` is tried again, up to `tool.retries` times, with back-off.
    If this task is cancelled, `CancelledError` is raised, and whether the effect happened is not known. A function that
    swallows the cancellation and returns all the same gives its outcome.

    Args:
        tool: What to run; its time-out is the caller's affair.
        arguments: As `tool.decode` returned them.
        context: For the function's `ToolContext` parameter, if it has one.
        limits: Of these, how much of the result is shown and stored.
        threads: Where plain functions run.
        processes: Where functions of isolation "process" run; without it they are not started.
        began: Called on the event loop just before each try starts to run. As long as it was not called nothing has
            happened, however long the call has waited for a thread.
        over: Called once on the event loop, if any try has begun, when this call has returned and no function of it
            runs any more, on a thread neither, however long ago this task was cancelled.
        returned: Called, perhaps on the tool's thread, as soon as the function has returned: its effect has happened,
            and what is left is making its result presentable.
    """
    watch = _Watch(began, over, returned)
    places = _Places(threads, processes)
    tries = 0
    try:
        while True:
            tries += 1
            outcome, may_retry = await _tried(tool, arguments, context, limits=limits, places=places, watch=watch)
            if not may_retry or tries > tool.retries or not tool.repeatable or being_cancelled():
                return msgspec.structs.replace(outcome, tries=tries)
            await asyncio.sleep(min(BACKOFF_SECONDS * 2 ** (tries - 1), BACKOFF_SECONDS_MAX))
    finally:
        watch.part_over()


class _Places(NamedTuple):
    """Where functions run that do not run on the event loop."""

    threads: ThreadPool
    processes: ProcessPool | None


class _Watch:
    """What runs of one call: the call itself, and functions elsewhere, which may outlive it."""

    __slots__ = ("_began", "_begun", "_over", "_parts", "returned")

    def __init__(self, began: Callable[[], None], over: Callable[[], None], returned: Callable[[], None]) -> None:
        self.returned = returned
        self._began = began
        self._over = over
        self._begun = False
        self._parts = 1

    def try_begins(self) -> None:
        self._begun = True
        self._began()

    def part_begins(self) -> None:
        self._parts += 1
        self.try_begins()

    def part_over(self) -> None:
        self._parts -= 1
        if self._begun and not self._parts:
            self._over()


async def _tried(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext,
    *,
    limits: Limits,
    places: _Places,
    watch: _Watch,
) -> tuple[Outcome, bool]:
    threads = places.threads
    if tool.isolation == "process":
        return await _run_elsewhere(tool, arguments, context, limits=limits, processes=places.processes, watch=watch)
    try:
        call = prepared(tool, arguments, context)
    except Exception as error:  # noqa: BLE001 - copying a stranger's values
        text = f"the arguments cannot be copied: {error_text(error)}"
        return Outcome(ResultStatus.NOT_STARTED, cut(text, limits.result_context_bytes)), False
    try:
        if tool.isolation == "task":
            watch.try_begins()
            value = await _run_here(call, tool, limits)
            if type(value) is _Failed:  # a stranger's value may answer `isinstance` with code of its own
                return value.outcome, value.may_retry
            watch.returned()
            return await shaped(tool, value, limits, threads), False
        work = partial(run_plain, tool, call, limits, watch.returned)
        return await threads.submit(work, began=watch.part_begins, over=watch.part_over)
    except ThreadsUnavailable as error:
        return Outcome(ResultStatus.NOT_STARTED, cut(str(error), limits.result_context_bytes)), True


def prepared(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
    """Return the function with arguments of its own, for one try.

    Raises:
        Exception: The arguments cannot be copied.
    """
    own = copy.deepcopy(dict(arguments))
    if tool.context_parameter is not None:
        own[tool.context_parameter] = own_context(context)
    return lambda: tool.function(**own)


def own_context(context: ToolContext) -> ToolContext:
    """Return the context with a read-only copy of the run's data, for one try."""
    return replace(context, context=MappingProxyType(copy.deepcopy(dict(context.context))))


async def _run_elsewhere(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext,
    *,
    limits: Limits,
    processes: ProcessPool | None,
    watch: _Watch,
) -> tuple[Outcome, bool]:
    if processes is None:
        return Outcome(ResultStatus.NOT_STARTED, "there are no worker processes here for it to run in"), False
    from geartrain.tools._process_call import run_in_process  # noqa: PLC0415 - only programs with such tools load it

    return await run_in_process(
        tool,
        arguments,
        context,
        limits=limits,
        processes=processes,
        began=watch.part_begins,
        over=watch.part_over,
        returned=watch.returned,
    )


class _Failed(NamedTuple):
    outcome: Outcome
    may_retry: bool


async def _run_here(call: Callable[[], Any], tool: Tool, limits: Limits) -> Any:
    """Return what the function returns, or how it failed."""
    cancellations = being_cancelled()
    try:
        with inside_a_tool():
            value = call()
            if inspect.iscoroutinefunction(tool.function):
                value = await value
    except asyncio.CancelledError as error:
        if being_cancelled() > cancellations:
            raise
        return _Failed(_failed(error, limits), may_retry=False)  # its own: nobody has cancelled this task
    except BaseException as error:  # noqa: BLE001 - a stranger's code runs here, and rule 1 holds for all it raises
        return _Failed(_failed(error, limits), may_retry=isinstance(error, Exception))
    return value


async def shaped(tool: Tool, value: Any, limits: Limits, threads: ThreadPool) -> Outcome:
    """Return what becomes of a value that a tool has given, off the event loop if that takes long."""
    if tool.present is None and is_light(value):
        return succeeded(tool, value, limits)
    if tool.present is None:
        # Not on the pool, whose threads may all be busy for long: converting ends by itself.
        return await asyncio.to_thread(succeeded, tool, value, limits)
    try:
        return await threads.submit(lambda: succeeded(tool, value, limits))
    except ThreadsUnavailable as error:
        return unshown(str(error), limits)


def run_plain(
    tool: Tool, call: Callable[[], Any], limits: Limits, returned: Callable[[], None]
) -> tuple[Outcome, bool]:
    """Call a plain function, and return what came of it and whether it may be tried again."""
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001 - a stranger's code runs here, and rule 1 holds for all it raises
        return _failed(error, limits), isinstance(error, Exception)
    returned()
    return succeeded(tool, value, limits), False


def succeeded(tool: Tool, value: Any, limits: Limits) -> Outcome:
    """Return what becomes of a value that a tool has given."""
    if tool.present is not None:
        try:
            value = tool.present(value)
        except BaseException as error:  # noqa: BLE001 - a stranger's code; the effect has happened all the same
            # What was returned is not shown instead: `present` may be there to hide part of it.
            return unshown(f"present raised {type_name(error)}", limits)
    return present(value, context_bytes=limits.result_context_bytes, stored_bytes=limits.result_stored_bytes)


def _failed(error: BaseException, limits: Limits) -> Outcome:
    text = error_text(error)
    return Outcome(ResultStatus.ERROR, cut(text, limits.result_context_bytes), len(text.encode()))


def being_cancelled() -> int:
    """Return how many cancellations of this task are asked for and not taken back."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
