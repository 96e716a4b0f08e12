"""What a person types at this terminal."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from contextlib import suppress


async def typed_line(question: str, *, afresh: bool) -> str | None:
    """Ask, and return the next line typed; None at the end of the input. *afresh* forgets what was typed before."""
    descriptor = sys.stdin.fileno()
    if afresh:  # what was typed before the question could be seen is no answer to it
        with suppress(termios.error):
            termios.tcflush(descriptor, termios.TCIFLUSH)
    sys.stderr.write(question)
    sys.stderr.flush()
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    # Read on the loop and not in a thread: Ctrl-C could not end a thread that waits for the terminal.
    loop.add_reader(descriptor, _set_once, ready)
    try:
        await ready
    except asyncio.CancelledError:
        sys.stderr.write("\n")
        raise
    finally:
        loop.remove_reader(descriptor)
    try:
        data = os.read(descriptor, 4096)
    except OSError:  # the terminal is gone
        data = b""
    if not data:
        sys.stderr.write("\n")
    return data.decode("utf-8", "replace") if data else None


def _set_once(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
