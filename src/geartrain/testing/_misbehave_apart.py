"""Tools that need a worker process: they crash, hang, eat everything or leave something behind.

They are at the top of a module, where a worker finds them. Their first line says what they do.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Final, NoReturn

from geartrain.tools import ToolContext

_held: Final[list[Any]] = []


def _sleep_for_ever() -> NoReturn:
    while True:
        time.sleep(1000)


# Taking all the time there is


def spin() -> NoReturn:
    """Compute for ever."""
    while True:
        pass


def spin_in_c() -> None:
    """Compute for ever in a function written in C, which gives way to nobody."""
    re.match(r"(a+)+$", "a" * 60 + "b")


async def spin_in_a_coroutine() -> NoReturn:
    """Take every turn of the event loop, and block none of them."""
    while True:  # noqa: ASYNC110 - that is the point
        await asyncio.sleep(0)


def deadlock() -> None:
    """Wait for a lock that it holds itself."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hang_and_ignore_signals() -> NoReturn:
    """Ignore every polite signal, and hang."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU):
        signal.signal(number, signal.SIG_IGN)
    _sleep_for_ever()


def stop_itself() -> str:
    """Stop its own process, which does not end by that."""
    os.kill(os.getpid(), signal.SIGSTOP)
    return "woken"


# Taking all the room there is


def allocate_at_once() -> None:
    """Ask for a terabyte."""
    bytearray(1 << 40)


def allocate_until_killed() -> NoReturn:
    """Take memory until there is none."""
    while True:
        _held.append(bytearray(1 << 20))


def allocate_in_children() -> NoReturn:
    """Take memory in eight processes, in each no more than one may."""
    for _ in range(8):
        if os.fork() == 0:
            _held.append(bytearray(b"x") * (40 << 20))
            _sleep_for_ever()
    _sleep_for_ever()


def open_files_without_end() -> NoReturn:
    """Open files until the system gives no more."""
    while True:
        _held.append(open(os.devnull))  # noqa: SIM115 - that is the point


def leave_files_open() -> str:
    """Open a hundred files and answer without closing them."""
    _held.extend(open(os.devnull) for _ in range(100))  # noqa: SIM115 - that is the point
    return "left a hundred"


def start_processes_without_end() -> NoReturn:
    """Start one process after the other, each in a session of its own."""
    while True:
        if os.fork() == 0:
            os.setsid()
            _sleep_for_ever()


def flood_the_output() -> str:
    """Print a hundred megabytes."""
    for _ in range(800):
        sys.stdout.write("x" * 65_536)
        sys.stderr.write("y" * 65_536)
    return "said"


def return_a_lot() -> bytes:
    """Return a hundred megabytes."""
    return b"\xff" * (100 << 20)


def trace_without_end(context: ToolContext) -> NoReturn:
    """Trace record after record, for ever."""
    while True:
        context.trace("again", text="x" * 1000)


# Ending the process


def exit_at_once() -> NoReturn:
    """End the process without a word."""
    os._exit(3)


def exit_as_if_well() -> NoReturn:
    """End the process as if all were well."""
    os._exit(0)


def exit_politely() -> NoReturn:
    """Ask for the end of the program."""
    sys.exit("no more")


def segmentation_fault() -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


def abort() -> NoReturn:
    """Abort the process, with a last word."""
    sys.stderr.write("it is all over\n")
    os.abort()


def kill_itself() -> None:
    """Kill its own process."""
    os.kill(os.getpid(), signal.SIGKILL)


def terminate_its_group() -> None:
    """End all processes of its group."""
    os.killpg(0, signal.SIGTERM)


def kill_its_warden() -> NoReturn:
    """Kill the process that watches over it."""
    os.kill(os.getppid(), signal.SIGKILL)
    _sleep_for_ever()


def stop_its_warden() -> NoReturn:
    """Stop the process that watches over it."""
    os.kill(os.getppid(), signal.SIGSTOP)
    _sleep_for_ever()


# Saying what makes no sense


def close_everything() -> None:
    """Close every file and connection of its process."""
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


def send_garbage() -> NoReturn:
    """Write garbage into every connection of its process."""
    for connection in _connections():
        os.write(connection, b"\xff" * 64)
    _sleep_for_ever()


def send_nonsense_frames() -> NoReturn:
    """Write what looks like a message into every connection of its process."""
    for connection in _connections():
        os.write(connection, b"\x00\x00\x00\x03abc")
    _sleep_for_ever()


def ask_for_input() -> str:
    """Read what somebody types."""
    return sys.stdin.read() or "nobody answers"


class _Unshowable(BaseException):
    def __str__(self) -> str:
        raise _Unshowable

    __reduce__ = __str__


def raise_what_cannot_be_shown() -> NoReturn:
    """Raise an error that raises when it is shown, and is no Exception."""
    raise _Unshowable


def connect_to_itself() -> str:
    """Open twenty connections to itself."""
    return str(len([socket.socketpair() for _ in range(20)]))


# Leaving something behind


def fork_and_return_twice() -> str:
    """Fork, and return in both processes."""
    os.fork()
    return "one of two"


def become_a_daemon() -> NoReturn:
    """End, and go on in a child with a session of its own."""
    if os.fork():
        os._exit(0)
    os.setsid()
    _sleep_for_ever()


def leave_a_thread() -> str:
    """Start a thread and answer without waiting for it."""
    threading.Thread(target=_sleep_for_ever, daemon=True).start()
    return "left one"


def leave_a_process() -> str:
    """Start a process in a session of its own and answer without waiting for it."""
    subprocess.Popen(["sleep", "1000"], start_new_session=True)  # noqa: S607 - every system has it
    return "left one"


def leave_the_folder() -> str:
    """Change the current folder."""
    os.chdir("/")
    return "gone"


def change_signal_handlers() -> str:
    """Ignore the signals by which the program is ended."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return "ignored from now on"
