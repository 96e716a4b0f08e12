"""Observers that misbehave. Their first line says what they do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from geartrain.trace import TraceRecord

_kept: Final[list[Sequence[TraceRecord]]] = []


def raise_each_time(_records: Sequence[TraceRecord], /) -> None:
    """Raise at every batch."""
    raise ValueError("an observer that fails")


def exit_each_time(_records: Sequence[TraceRecord], /) -> None:
    """Ask for the end of the program at every batch."""
    sys.exit("an observer that exits")


def observe_for_ever(_records: Sequence[TraceRecord], /) -> None:
    """Never return from the first batch."""
    threading.Event().wait(90.0)


def change_what_it_sees(records: Sequence[TraceRecord], /) -> None:
    """Change every record that it is given."""
    changed: Any = records
    for record in changed:
        record.payload.clear()
        record.payload["run_id"] = "another"
    changed.clear()


def keep_everything(records: Sequence[TraceRecord], /) -> None:
    """Keep all that it is given."""
    _kept.append(records)
