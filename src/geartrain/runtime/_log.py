"""The runtime's own log: structlog, loaded when something is first logged."""

from __future__ import annotations

import traceback
from typing import Any, Final

from geartrain.machine import Run

_SHOWN: Final = 4_000


def plain_traceback(error: BaseException | None) -> str:
    """Return where *error* was raised, as text.

    Given to the log in the place of the exception: what renders exceptions may show every local variable, secrets
    included, takes long to do so, and runs a stranger's `__repr__` on our loop.
    """
    if error is None:
        return ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{frames[-_SHOWN:]}{type(error).__name__}"


class _LazyLog:
    """Stands for `structlog.get_logger("geartrain")`, so that importing geartrain loads no logging library."""

    def __getattr__(self, name: str) -> Any:
        import structlog  # noqa: PLC0415 - loaded when first used

        return getattr(structlog.get_logger("geartrain"), name)


log = _LazyLog()


def log_stuck(run: Run) -> None:
    """Tell that a run did not get on, and what was done about it: as often as something was done."""
    acted = run.acted
    if acted is not None:
        about = {"cause": acted.cause, "about": acted.about, "since": acted.since, "action": acted.action}
        log.warning("run_stuck", run_id=run.id, **about)
