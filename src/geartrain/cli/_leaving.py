"""Leaving when a command is over, whatever a tool of the user's still does.

`asyncio.run` waits at its end for every task, and Python for every thread that is no daemon: one that swallows its
cancellation, or blocks, would keep a command from ending for as long as it likes. Its run knows that it was given up.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

# What has to be cancelled at the end has so long to stop.
LEAVING_SECONDS: Final = 0.3


class CommandRunner:
    """Runs the coroutine of one command. Closing it ends the process if something keeps that from ending.

    What has to be cancelled then is a stranger's: everything of ours has ended with the command.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._before = set(threading.enumerate())

    def run(self, command: Coroutine[Any, Any, int]) -> int:
        """Return the exit code of the command, or raise what it raises."""
        return self._runner.run(command)

    def close(self, code: int) -> None:
        """Let go of the loop; *code* is the exit code if the process has to be ended for that."""
        loop = self._runner.get_loop()
        try:
            loop.run_until_complete(_stop_all(loop))
        except KeyboardInterrupt:
            _exit(130)
        if asyncio.all_tasks(loop) or any(not thread.daemon for thread in {*threading.enumerate()} - self._before):
            _exit(code)
        self._runner.close()


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


async def _stop_all(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=LEAVING_SECONDS)
    with suppress(TimeoutError):
        # Its idle threads end by this, so that those that are left are at work for a tool.
        await asyncio.wait_for(asyncio.shield(loop.shutdown_default_executor()), LEAVING_SECONDS)
