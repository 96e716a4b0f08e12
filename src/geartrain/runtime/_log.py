"""The runtime's own log: structlog, loaded when something is first logged."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from geartrain.machine import Run, Verdict


class _LazyLog:
    """Stands for `structlog.get_logger("geartrain")`, so that importing geartrain loads no logging library.

    It never raises: a log is written where something has failed already, perhaps to the same full disk, and how it is
    written is a stranger's code.
    """

    def __getattr__(self, name: str) -> Any:
        return partial(_written, name)


def _written(method: str, event: str, **fields: Any) -> None:
    with suppress(Exception):
        import structlog  # noqa: PLC0415 - loaded when first used

        getattr(structlog.get_logger("geartrain"), method)(event, **fields)


log = _LazyLog()


def log_stuck(run: Run) -> None:
    """Tell that a run did not get on, and what was done about it: as often as something was done."""
    acted = run.acted
    if acted is not None:
        about = {"cause": acted.cause, "about": acted.about, "since": acted.since, "action": acted.action}
        log.warning("run_stuck", run_id=run.id, **about)


def log_verdicts(run_id: str, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Tell of a policy or guardrail that failed, so that a person was asked instead; return the *verdicts*."""
    failed = [verdict for verdict in verdicts if verdict.error]
    if failed:
        calls = [verdict.call_id for verdict in failed]
        log.warning("policy_failed", run_id=run_id, calls=calls, error=failed[0].error)
    return verdicts
