"""Tools that run in worker processes: those that mean well, and those that do not."""

from __future__ import annotations

import asyncio
import builtins
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from geartrain.tools import Done, NotDone, ResultUnavailable, ToolContext, Unknown, tool


@tool(read_only=True, isolation="process")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(read_only=True, isolation="process")
async def add_later(a: int, b: int) -> int:
    """Add, some time."""
    await asyncio.sleep(0)
    return a + b


def plain_sum(a: int, b: int) -> int:
    """Add, as a plain function that becomes a tool under another name."""
    return a + b


def shown_sum(value: int) -> str:
    """Present a sum."""
    return f"the sum is {value}"


named_sum = tool(name="sum", read_only=True, isolation="process", present=shown_sum)(plain_sum)
hidden_hook = tool(name="hidden", read_only=True, isolation="process", present=lambda value: value)(plain_sum)


@tool(read_only=True, isolation="process", present=lambda value: f"{len(value):,} characters")
def large(size: int) -> str:
    """Return much text, of which little is shown."""
    return "x" * size


@tool(read_only=True, isolation="process")
def whole(size: int) -> str:
    """Return much text."""
    return "x" * size


@tool(read_only=True, isolation="process")
def where() -> list[Any]:
    """Return the process and its session."""
    return [os.getpid(), os.getsid(0)]


@tool(read_only=True, isolation="process")
def told(context: ToolContext) -> list[Any]:
    """Return what the context says."""
    context.trace("seen", key=context.idempotency_key, odd=object)
    fields = [context.run_id, context.call_id, context.idempotency_key, context.attempt, context.deadline]
    return [*fields, context.principal, dict(context.context)]


@tool(read_only=True, isolation="process")
def trace_much(records: int, context: ToolContext) -> int:
    """Trace so many records, as fast as it goes."""
    for number in range(records):
        context.trace("step", number=number, text="x" * 500)
    return records


@tool(read_only=True, isolation="process")
async def read_again(context: ToolContext) -> list[str]:
    """Return the results of two earlier calls, the second of which there is not."""
    try:
        await context.result_of("t9.c9")
    except ResultUnavailable as unavailable:
        return [await context.result_of("t1.c1"), str(unavailable)]
    return []


def found_out(arguments: dict[str, Any], _context: ToolContext) -> Done | NotDone | Unknown:
    """Verify a write of `mark`."""
    match arguments["path"]:
        case "crash":
            os._exit(9)
        case "unknown":
            return Unknown("nobody saw it")
    return Done("x" * 40_000) if Path(arguments["path"]).exists() else NotDone()


@tool(isolation="process", verify=found_out)
def mark(path: str, hang: bool = False) -> str:
    """Write a file, and perhaps never return."""
    Path(path).write_text(f"{os.getpid()} ")
    if hang:
        sleep_for_ever()
    return "written"


@tool(isolation="process", idempotent=True)
def crash_at_first(path: str) -> str:
    """End the process the first time."""
    if Path(path).exists():
        return "done at last"
    Path(path).touch()
    os._exit(5)


def sleep_for_ever() -> None:
    """Sleep until ended."""
    while True:
        time.sleep(1000)


@tool(read_only=True, isolation="process")
def fail_with(name: str) -> None:
    """Raise an error of that name."""
    raise {"CancelledError": asyncio.CancelledError}.get(name) or getattr(builtins, name)


@tool(read_only=True, isolation="process")
async def fail_later_with(name: str) -> None:
    """Raise an error of that name from a coroutine."""
    await asyncio.sleep(0)
    raise {"CancelledError": asyncio.CancelledError}.get(name) or getattr(builtins, name)


@tool(read_only=True, isolation="process")
def reserve(size: int) -> str:
    """Reserve address space that is never used, as other languages' runtimes do."""
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    return f"reserved {len(mapped)}"


@tool(isolation="process")
def hang_with_children(folder: str) -> None:
    """Start a child, a grandchild in a session of its own, and one that nobody knows; say their numbers, and hang."""
    note = f"import os, pathlib, time; pathlib.Path({folder!r}, str(os.getpid())).touch(); time.sleep(1000)"
    subprocess.Popen([sys.executable, "-S", "-c", note])
    subprocess.Popen([sys.executable, "-S", "-c", note], start_new_session=True)
    twice = f"import os; os.fork() and os._exit(0); os.setsid(); {note}"
    subprocess.run([sys.executable, "-S", "-c", twice], check=True)
    Path(folder, str(os.getpid())).touch()
    sleep_for_ever()


@tool(isolation="process", verify=found_out)
def mark_and_exit(path: str) -> None:
    """Write a file, and end the process before anybody is told."""
    with Path(path).open("a") as file:
        file.write("x")
    os._exit(7)
