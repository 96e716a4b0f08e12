"""What tests of processes share: which there are below this one, and waiting for what they do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import psutil


def processes_below() -> set[int]:
    """The processes that this one has started, and theirs. Other tests may have left some that all of them share."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


async def until(condition: Callable[[], Any], seconds: float = 15.0) -> None:
    """Wait until *condition* holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.005)
