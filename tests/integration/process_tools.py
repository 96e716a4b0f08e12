"""Tools that run in worker processes: those that mean well, and those that do not."""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
import threading
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


# Each does one thing that a tool must not do. What a call of it comes to is in the table of its test.


def spin() -> None:
    while True:
        pass


def spin_in_c() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


def hang_and_ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    sleep_for_ever()


def deadlock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def allocate_at_once() -> None:
    bytearray(1 << 40)


def allocate_until_killed() -> None:
    held = []
    while True:
        held.append(bytearray(1 << 20))


def allocate_in_children() -> None:
    for _ in range(8):
        if os.fork() == 0:
            held = bytearray(b"x") * (40 << 20)
            sleep_for_ever()
            del held
    sleep_for_ever()


def exit_at_once() -> None:
    os._exit(3)


def exit_as_if_well() -> None:
    os._exit(0)


def segmentation_fault() -> None:
    ctypes.string_at(0)


def abort() -> None:
    sys.stderr.write("it is all over\n")
    os.abort()


def kill_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def terminate_its_group() -> None:
    os.killpg(0, signal.SIGTERM)


def kill_its_warden() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    sleep_for_ever()


def stop_its_warden() -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    sleep_for_ever()


def close_everything() -> None:
    os.closerange(0, 256)


def _connections() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.append(int(name))
        except OSError:
            continue
    return found


def send_garbage() -> None:
    for connection in _connections():
        os.write(connection, b"\xff" * 64)
    sleep_for_ever()


def send_nonsense_frames() -> None:
    for connection in _connections():
        os.write(connection, b"\x00\x00\x00\x03abc")
    sleep_for_ever()


def flood_the_output() -> str:
    for _ in range(400):
        print("x" * 65_536)
        sys.stderr.write("y" * 65_536)
    return "said"


def ask_for_input() -> str:
    return sys.stdin.read() or "nobody answers"


def return_a_lot() -> bytes:
    return b"\xff" * (100 << 20)


def exit_politely() -> None:
    sys.exit("no more")


class _Unshowable(BaseException):
    def __str__(self) -> str:
        raise _Unshowable

    __reduce__ = __str__  # type: ignore[assignment]


def raise_what_cannot_be_shown() -> None:
    raise _Unshowable


def fork_and_return_twice() -> str:
    os.fork()
    return "one of two"


def become_a_daemon() -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    sleep_for_ever()


def start_processes_without_end() -> None:
    while True:
        if os.fork() == 0:
            os.setsid()
            sleep_for_ever()


def leave_a_thread() -> str:
    threading.Thread(target=sleep_for_ever, daemon=True).start()
    return "left one"


def leave_a_process() -> str:
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return "left one"


def leave_the_folder() -> str:
    os.chdir("/")
    return "gone"


def trace_without_end(context: ToolContext) -> None:
    while True:
        context.trace("again", text="x" * 1000)


def connect_to_itself() -> str:
    return str(len([socket.socketpair() for _ in range(20)]))


MISBEHAVIOURS = {
    function.__name__: tool(read_only=True, isolation="process")(function)
    for function in (
        spin,
        spin_in_c,
        hang_and_ignore_signals,
        deadlock,
        allocate_at_once,
        allocate_until_killed,
        allocate_in_children,
        exit_at_once,
        exit_as_if_well,
        segmentation_fault,
        abort,
        kill_itself,
        terminate_its_group,
        kill_its_warden,
        stop_its_warden,
        close_everything,
        send_garbage,
        send_nonsense_frames,
        flood_the_output,
        ask_for_input,
        return_a_lot,
        exit_politely,
        raise_what_cannot_be_shown,
        fork_and_return_twice,
        become_a_daemon,
        start_processes_without_end,
        leave_a_thread,
        leave_a_process,
        leave_the_folder,
        trace_without_end,
    )
}


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
