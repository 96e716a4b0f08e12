"""What all supervisors of one tree share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass

from geartrain.actors import ActorFailure, ActorGroup, described
from geartrain.errors import TimedOut
from geartrain.supervisor._child import Child
from geartrain.supervisor._report import CrashContext, CrashReport

OnCrash = Callable[[CrashReport], None]


@dataclass(frozen=True, slots=True)
class Tree:
    """The group that a tree lives in, its loop, its chance, and who is told what goes wrong."""

    group: ActorGroup
    loop: asyncio.AbstractEventLoop
    chance: random.Random
    on_crash: OnCrash
    grace_seconds: float

    def report(self, supervisor: str, child: Child, context: CrashContext, error: BaseException) -> None:
        """Have it told, soon, that *child* has failed: whoever is told is a stranger, and must not come in between."""
        report = CrashReport(
            supervisor=supervisor, context=context, reason=described(error), offender=child.offender(error)
        )
        self.loop.call_soon(self.on_crash, report, context=Context())

    def report_shutdown(self, supervisor: str, child: Child, failure: ActorFailure | None) -> None:
        """Tell what went wrong while *child* was ending, if anything did."""
        if failure is not None:
            self.report(supervisor, child, CrashContext.SHUTDOWN, failure.error)
        elif child.life is not None and child.life.abandoned:
            seconds = child.shutdown_seconds(self.grace_seconds)
            self.report(
                supervisor, child, CrashContext.SHUTDOWN, TimedOut(f"end of {child.path!r}, now abandoned", seconds)
            )


def to_the_loop(report: CrashReport) -> None:
    """Tell the event loop's exception handler, which logs it: for trees that nobody listens to."""
    asyncio.get_running_loop().call_exception_handler({"message": f"{report}\n{report.offender.traceback}".rstrip()})
