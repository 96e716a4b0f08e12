"""Tools that misbehave on the event loop or on a thread. Their first line says what they do."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, Final, NoReturn

from geartrain.tools import ToolContext

# What runs on of a call is kept here: a task that nobody holds is forgotten in the middle of its work.
_left: Final[set[asyncio.Task[Any]]] = set()
_shared: Final[list[str]] = ["the same list each time"]


async def _undisturbed(seconds: float) -> None:
    """Sleep for *seconds*, however often it is cancelled."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        try:
            await asyncio.sleep(until - loop.time())
        except asyncio.CancelledError:
            continue


def _leave(name: str, seconds: float) -> None:
    task = asyncio.create_task(_undisturbed(seconds), name=name)
    _left.add(task)
    task.add_done_callback(_left.discard)


# Cancellation


async def never_answer() -> NoReturn:
    """Wait for what never comes; a cancellation ends it."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def swallow_cancel_once(seconds: float = 90.0) -> str:
    """Swallow the first cancellation and go on."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        await asyncio.sleep(seconds)
    return "went on"


async def swallow_cancel_and_answer(seconds: float = 90.0) -> str:
    """Swallow the cancellation and answer as if nothing had been."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return "an answer that comes too late"
    return "an answer"


async def swallow_cancel_always(seconds: float = 90.0) -> str:
    """Swallow every cancellation, and go on to the end."""
    await _undisturbed(seconds)
    return "an answer that comes much too late"


async def clean_up_for_long(seconds: float = 10.0) -> NoReturn:
    """Clean up for long when cancelled, and let nothing disturb that."""
    try:
        await never_answer()
    finally:
        await _undisturbed(seconds)


async def raise_when_cancelled() -> NoReturn:
    """Answer a cancellation with an error of its own."""
    try:
        await never_answer()
    except asyncio.CancelledError:
        raise ValueError("not now") from None


async def cancel_itself() -> NoReturn:
    """Cancel the task that it runs in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)
    raise AssertionError


async def pretend_to_be_cancelled() -> NoReturn:
    """Raise a CancelledError that nobody has asked for."""
    raise asyncio.CancelledError


# Leaving something behind


async def leave_a_task(seconds: float = 90.0) -> str:
    """Start a task and answer without waiting for it."""
    _leave("left behind by a tool", seconds)
    return "left one"


async def wait_for_stubborn_tasks(seconds: float = 90.0) -> str:
    """Start tasks that swallow cancellation, and wait beside them; a cancellation ends the wait alone."""
    for number in range(3):
        _leave(f"stubborn task {number} of a tool", seconds)
    await asyncio.sleep(seconds)
    return "they are done"


# Errors


async def exit_in_a_task_of_its_own() -> str:
    """Exit the program from a task that nobody waits for."""

    async def leave() -> None:
        sys.exit("from a task of a tool")

    task = asyncio.create_task(leave())
    _left.add(task)
    task.add_done_callback(_forget)
    await asyncio.sleep(0)
    return "still here"


def _forget(task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if not task.cancelled():
        task.exception()  # or asyncio complains that nobody has looked at it


async def raise_in_a_callback() -> str:
    """Raise in a callback of the event loop, now and later."""
    loop = asyncio.get_running_loop()
    loop.call_soon(_raise)
    loop.call_later(0.01, _raise)
    await asyncio.sleep(0)
    return "still here"


def _raise() -> NoReturn:
    raise RuntimeError("from a callback of a tool")


# What is shared


async def mutate_the_arguments(context: ToolContext, items: list[str] | None = None) -> str:
    """Change the arguments and the data of the run, as far as they can be changed."""
    given: Any = items if items is not None else []
    given.append(given)
    data: Any = context.context
    try:
        data["changed"] = given
    except TypeError:
        return "the data of the run cannot be changed"
    return "changed"


async def return_the_same_object() -> list[str]:
    """Return one and the same list each time, and change it afterwards."""
    _shared.append("more")
    asyncio.get_running_loop().call_soon(_shared.append, "changed after it was returned")
    return _shared


async def trace_a_lot(context: ToolContext) -> str:
    """Trace ten thousand records at once, far more than anybody can take."""
    for number in range(10_000):
        context.trace("again", number=number, text="x" * 100)
    await asyncio.sleep(0)
    return "traced"


# Blocking: harmless on a thread; on the event loop nothing else moves meanwhile


def block_for_a_moment(seconds: float = 0.2) -> str:
    """Block for a fifth of a second."""
    time.sleep(seconds)
    return "slept"


def block_for_seconds(seconds: float = 5.0) -> str:
    """Block for five seconds."""
    time.sleep(seconds)
    return "slept"


def block_for_long(seconds: float = 90.0) -> str:
    """Block for a minute and a half."""
    time.sleep(seconds)
    return "slept"
