"""A plan and tools of the tests' own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from geartrain.machine import Progress
from geartrain.orchestrator import Plan
from geartrain.tools import Tool, tool


class Asked(Plan):
    """A plan of the test's own."""

    def __init__(self, decide: Callable[[Progress], Any], *tools: Tool) -> None:
        self._decide, self.tools = decide, tools

    def next(self, progress: Progress, /) -> Any:
        return self._decide(progress)


def slow(name: str, seconds: float, log: list[str], **options: Any) -> Tool:
    """A tool that takes *seconds* and says so."""

    async def work(text: str = "") -> str:
        log.append(f"{name} begins")
        await asyncio.sleep(seconds)
        log.append(f"{name} ends")
        return f"{name}({text})"

    return tool(name=name, **{"read_only": True, **options})(work)


def now() -> float:
    return asyncio.get_running_loop().time()


__all__ = ["Asked", "now", "slow"]
