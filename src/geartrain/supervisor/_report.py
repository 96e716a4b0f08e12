"""What a supervisor says of what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from geartrain.errors import plain_traceback
from geartrain.supervisor._strategy import Restart


class CrashContext(StrEnum):
    """What the child was doing, or was to do."""

    START = "start"  # it was getting up: its factory or its `started` raised
    RUN = "run"
    SHUTDOWN = "shutdown"  # it was being stopped: its `stopping` raised, or it did not end in its time
    LIMIT = "limit"  # it was to be restarted once more than is allowed, so the supervisor itself has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """The child that a report is about. `restarts` is how often it was restarted before, since it was added."""

    name: str
    restart: Restart
    restarts: int
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """What went wrong, where: the four fields of an OTP supervisor report. All of it is text, in bounds.

    Args:
        supervisor: The name of the supervisor.
        context: What the child was doing.
        reason: What the error says of itself, or what else happened.
        offender: Which child, and where in its code; of a run: its id.
    """

    supervisor: str
    context: CrashContext
    reason: str
    offender: Offender

    def __str__(self) -> str:
        return f"{self.offender.name!r} of {self.supervisor!r} failed ({self.context}): {self.reason}"


def traceback_of(error: BaseException | None) -> str:
    """Return where *error*, or what it came from, was raised: the end of the traceback, and no values of variables."""
    while error is not None and error.__traceback__ is None:
        error = error.__cause__
    return plain_traceback(error)
