"""What a tool traces, kept until its call has a result and is journalled with it: bounded in number and in bytes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from geartrain.machine import Traced

RECORDS_KEPT: Final = 100
BYTES_KEPT: Final = 32 * 1024
NAME_CHARACTERS: Final = 200
# The name of the record that says how many are not kept.
NOT_KEPT: Final = "trace_not_kept"


class TracedRecords:
    """The first records of one call. Made on the loop, filled perhaps from a thread of the tool's."""

    __slots__ = ("_dropped", "_kept", "_lock", "_loop", "_offset", "_room")

    def __init__(self, now: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._offset = now - self._loop.time()
        self._lock = threading.Lock()
        self._kept: list[Traced] = []
        self._room = BYTES_KEPT
        self._dropped = 0

    def note(self, name: str, payload: Mapping[str, Any]) -> None:
        """Keep a record, if there is room; *payload* is JSON data."""
        own = {key: value for key, value in payload.items() if key != "call_id"}  # the event names the call
        record = Traced(name=name[:NAME_CHARACTERS], time=self._now(), payload=own)
        size = len(msgspec.json.encode(record))
        with self._lock:
            if self._dropped or len(self._kept) >= RECORDS_KEPT or size > self._room:
                self._dropped += 1
                return
            self._kept.append(record)
            self._room -= size

    def _now(self) -> float:
        return self._offset + self._loop.time()

    def taken(self) -> tuple[Traced, ...]:
        """Return what is kept, and how many are not."""
        with self._lock:
            kept, dropped = tuple(self._kept), self._dropped
        if not dropped:
            return kept
        return (*kept, Traced(name=NOT_KEPT, time=self._now(), payload={"records": dropped}))
