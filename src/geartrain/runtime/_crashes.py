"""Crashes of supervised actors: logged, and told to whoever wants to hear of them."""

from __future__ import annotations

from collections.abc import Callable

from geartrain.runtime._log import log
from geartrain.supervisor import CrashContext, CrashReport, OnCrash


def logged(on_crash: OnCrash | None) -> Callable[[CrashReport], None]:
    """Return what logs each report and then calls *on_crash*, if there is one."""

    def tell(report: CrashReport) -> None:
        write = log.warning if report.context is CrashContext.SHUTDOWN else log.error
        write(
            "actor_crashed",
            actor=report.offender.name,
            supervisor=report.supervisor,
            context=report.context.value,
            error=report.reason,
            restart=report.offender.restart.value,
            restarts=report.offender.restarts,
            traceback=report.offender.traceback,
        )
        if on_crash is not None:
            on_crash(report)

    return tell
