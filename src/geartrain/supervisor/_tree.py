"""What all supervisors of one tree share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass

from geartrain.actors import ActorGroup
from geartrain.supervisor._report import CrashReport

OnCrash = Callable[[CrashReport], None]


@dataclass(frozen=True, slots=True)
class Tree:
    """The group that a tree lives in, its loop, its chance, and who is told what goes wrong."""

    group: ActorGroup
    loop: asyncio.AbstractEventLoop
    chance: random.Random
    on_crash: OnCrash
    grace_seconds: float

    def report(self, report: CrashReport) -> None:
        """Have *report* told, soon: it is a stranger's code, and must not come between children."""
        self.loop.call_soon(self.on_crash, report, context=Context())


def to_the_loop(report: CrashReport) -> None:
    """Tell the event loop's exception handler, which logs it: for trees that nobody listens to."""
    asyncio.get_running_loop().call_exception_handler({"message": f"{report}\n{report.offender.traceback}".rstrip()})
