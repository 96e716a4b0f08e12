"""Asking a tool whether a write of its own was done, when its result was not seen."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from geartrain.limits import Limits
from geartrain.tools._clean import cleaned, error_text
from geartrain.tools._contain import inside_a_tool
from geartrain.tools._context import ToolContext
from geartrain.tools._found import Done, NotDone, Unknown
from geartrain.tools._invoke import being_cancelled, own_context, shaped, succeeded
from geartrain.tools._json import type_name
from geartrain.tools._threads import ThreadPool
from geartrain.tools._tool import Tool

if TYPE_CHECKING:
    from geartrain.tools._process_pool import ProcessPool

REASON_CHARACTERS_MAX: Final = 500


async def verify(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext,
    *,
    limits: Limits,
    threads: ThreadPool,
    processes: ProcessPool | None = None,
) -> Done | NotDone | Unknown:
    """Ask a tool's `verify` about the call with these arguments; `Done.result` is then the text for the model.

    That text is made of the result as `invoke` makes its own: by the tool's `present`, cleaned and trimmed.

    An async `verify` runs in this task, a plain one on a thread, and that of a tool with isolation "process" in a
    worker process. Whatever it raises, and any answer that is none of the three, is `Unknown` with the reason. A
    cancellation of this task is raised.
    """
    if tool.isolation == "process" and tool.verify is not None:
        return await _asked_elsewhere(tool, arguments, context, limits, processes)
    cancellations = being_cancelled()
    try:
        answer = await _asked(tool, arguments, context, threads)
    except BaseException as error:
        # A stranger's code: not knowing is the answer to all that it raises.
        if isinstance(error, asyncio.CancelledError) and being_cancelled() > cancellations:
            raise
        return _raised(error)
    if isinstance(answer, Done):
        return Done((await shaped(tool, answer.result, limits, threads)).text)
    return _undone(answer)


def verify_here(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, limits: Limits
) -> Done | NotDone | Unknown:
    """Do the same in this thread, whose time is nobody else's: in a worker process."""
    assert tool.verify is not None, "asked only of tools that have it"
    try:
        answer = tool.verify(copy.deepcopy(dict(arguments)), own_context(context))
        if inspect.iscoroutinefunction(tool.verify):
            answer = asyncio.run(answer)
    except BaseException as error:  # noqa: BLE001 - a stranger's code: not knowing is the answer to all that it raises
        return _raised(error)
    return Done(succeeded(tool, answer.result, limits).text) if isinstance(answer, Done) else _undone(answer)


def _raised(error: BaseException) -> Unknown:
    return Unknown(f"verify raised {error_text(error)}"[:REASON_CHARACTERS_MAX])


def _undone(answer: object) -> NotDone | Unknown:
    match answer:
        case NotDone():
            return answer
        case Unknown(reason=str(reason)):
            return Unknown(cleaned(reason[:REASON_CHARACTERS_MAX]))
    return Unknown(f"verify returned {type_name(answer)!r}, expected Done, NotDone or Unknown")


async def _asked_elsewhere(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, limits: Limits, processes: ProcessPool | None
) -> Done | NotDone | Unknown:
    if processes is None:
        return Unknown("there are no worker processes here for verify to run in")
    from geartrain.tools._process_call import verify_in_process  # noqa: PLC0415 - only programs with such tools load it

    return await verify_in_process(tool, arguments, context, limits=limits, processes=processes)


async def _asked(tool: Tool, arguments: Mapping[str, Any], context: ToolContext, threads: ThreadPool) -> Any:
    if tool.verify is None:
        return Unknown(f"tool {tool.name!r} has no verify")
    ask, own, own_call = tool.verify, copy.deepcopy(dict(arguments)), own_context(context)
    if not inspect.iscoroutinefunction(ask):
        return await threads.submit(lambda: ask(own, own_call))
    with inside_a_tool():
        return await ask(own, own_call)
