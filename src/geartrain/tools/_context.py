"""What a tool is told about the call that it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from geartrain.tools._errors import ResultUnavailable

Emit = Callable[[str, Mapping[str, Any]], None]
ReadResult = Callable[[str], Awaitable[str]]


def _nowhere(_name: str, _payload: Mapping[str, Any]) -> None:
    """Drop a trace record: the default, for calls outside a run."""


async def _no_results(call_id: str) -> str:
    """Refuse: the default, for calls outside a run."""
    raise ResultUnavailable(call_id, "there is no run whose results could be read")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The call that a tool serves; given to the parameter that is annotated with this class.

    `idempotency_key` is the same each time the same call is tried. `attempt` counts from 1. `deadline` is in
    seconds since 1970, or None. `context` is a copy of the data that the run was started with; `principal` is on
    whose behalf it runs. `emit` is where `trace` sends its records, called on the tool's own thread
    (for one in a worker process, on the event loop's); `read_result` is where `result_of` looks.
    """

    run_id: str = ""
    call_id: str = ""
    idempotency_key: str = ""
    attempt: int = 1
    deadline: float | None = None
    context: Mapping[str, Any] = field(default_factory=dict)
    principal: str = ""
    emit: Emit = field(default=_nowhere, repr=False, compare=False)
    read_result: ReadResult = field(default=_no_results, repr=False, compare=False)

    async def result_of(self, call_id: str) -> str:
        """Return the whole result of an earlier call of this run, as far as it is stored.

        For `async` tools, as tasks or in worker processes: the store is read on the event loop.

        Raises:
            ResultUnavailable: There is no such call, it has no result yet, or what it gave is no text.
        """
        return await self.read_result(call_id)

    def trace(self, name: str, /, **payload: Any) -> None:
        """Send a trace record of this call. Never raises: who listens never changes a result.

        It is told live, and journalled with the call's result, so that the timeline of an old run has it: the first
        100 records of a call, and at most 32 KiB of them. One with a name of the runtime's own, such as
        `run_finished`, is told as `tool.run_finished`.
        """
        with suppress(Exception):  # a stranger's code
            self.emit(name, payload)
