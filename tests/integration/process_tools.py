"""Tools that run in worker processes: those that mean well, and those that do not."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from geartrain.tools import tool


@tool(read_only=True, isolation="process")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(read_only=True, isolation="process")
async def add_later(a: int, b: int) -> int:
    """Add, some time."""
    await asyncio.sleep(0)
    return a + b


@tool(read_only=True, isolation="process")
def where() -> list[Any]:
    """Return the process, its parent, its session."""
    return [os.getpid(), os.getppid(), os.getsid(0)]
