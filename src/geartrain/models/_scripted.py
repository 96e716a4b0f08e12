"""A model that plays what it was given: for tests, simulations and load.

Rule 1: entry i answers turn i + 1. What is played follows from the request alone, never from a count of calls, so a
run that is resumed in another process, or retried, or played beside a thousand others goes on at the right entry.
Rule 2: what stands in an entry is resolved in this order until a reply or an error is left: a function is asked,
`Attempts` picks by attempt, `Delay` waits.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from geartrain.errors import InvalidValue
from geartrain.machine import RequestedCall
from geartrain.models._protocol import Emit, ModelRejected, ModelReply, ModelRequest

REQUESTS_KEPT: Final = 1_000

# How many functions, attempts and delays may stand inside each other: an entry that yields itself must not hang.
NESTING_LIMIT: Final = 16


@dataclass(frozen=True, slots=True)
class Delay:
    """An entry that waits *seconds* and then plays *then*."""

    seconds: float
    then: Entry


class Attempts:
    """An entry that plays its n-th entry to the n-th attempt of the turn, and the last one to any later attempt.

    Raises:
        InvalidValue: There is no entry.
    """

    __slots__ = ("entries",)

    def __init__(self, *entries: Entry) -> None:
        if not entries:
            raise InvalidValue("entries", "at least one entry", entries)
        self.entries: Final = entries

    def of(self, attempt: int) -> Entry:
        """Return the entry for *attempt* (1 is the first)."""
        return self.entries[min(max(attempt, 1), len(self.entries)) - 1]


Entry = (
    ModelReply | str | Sequence[RequestedCall] | BaseException | Delay | Attempts | Callable[[ModelRequest], "Entry"]
)


def call(tool: str, /, **arguments: Any) -> RequestedCall:
    """Return a call of *tool* with *arguments* as JSON."""
    return RequestedCall(tool=tool, arguments=json.dumps(arguments, ensure_ascii=False))


def answer(text: str) -> ModelReply:
    """Return a reply that answers with *text*."""
    return ModelReply(text=text)


class ScriptedModel:
    """A model that answers turn n with the n-th of its *replies*.

    With `repeat` the replies start again after the last one. A request to compact is no turn: it is answered with
    *summary*, by default a sentence that counts the messages. The last requests are kept in `requests`.

    Args:
        replies: One entry a turn: a reply, a text (an answer), a sequence of calls, an exception (raised), a
            `Delay`, `Attempts`, or a pure function from the request to an entry.
        name: The model's name in errors and traces.
        repeat: Whether turn len(replies) + 1 plays the first entry again.
        summary: The entry that answers requests to compact; an agent asks for summaries only if there is one, or if
            its `window` says so.
    """

    def __init__(
        self,
        replies: Sequence[Entry],
        *,
        name: str = "scripted",
        repeat: bool = False,
        summary: Entry | None = None,
    ) -> None:
        self.name: str = name
        self.reports_cost: bool = True  # what its replies say, if anything
        self.summarises: bool = summary is not None
        self._replies: Final = tuple(replies)
        self._repeat: Final = repeat
        self._summary: Final = _counted if summary is None else summary
        self._requests: Final[deque[ModelRequest]] = deque(maxlen=REQUESTS_KEPT)

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The requests seen here, oldest first; the last 1,000."""
        return tuple(self._requests)

    async def reply(self, request: ModelRequest, emit: Emit, /) -> ModelReply:
        """Return what the script has for this turn and attempt; its text is emitted in one piece.

        Raises:
            ModelRejected: The script has no entry for this turn.
            BaseException: The entry is this exception.
        """
        self._requests.append(request)
        entry = self._summary if request.purpose == "compact" else self._entry(request)
        reply = await self._resolved(entry, request)
        if reply.text:
            emit(reply.text)
        return reply

    def _entry(self, request: ModelRequest) -> Entry:
        index, count = request.turn - 1, len(self._replies)
        if self._repeat and count:
            index %= count
        if not 0 <= index < count:
            raise ModelRejected(self.name, f"turn {request.turn} was asked for, the script has {count} replies")
        return self._replies[index]

    async def _resolved(self, entry: Entry, request: ModelRequest) -> ModelReply:
        for _ in range(NESTING_LIMIT):
            match entry:
                case ModelReply():
                    return entry
                case str():
                    return ModelReply(text=entry)
                case BaseException():
                    # One instance may be raised many times; it must not drag the earlier tracebacks along.
                    raise entry.with_traceback(None)
                case Delay():
                    await asyncio.sleep(entry.seconds)
                    entry = entry.then
                case Attempts():
                    entry = entry.of(request.attempt)
                case _ if callable(entry):
                    entry = entry(request)
                case _:
                    return ModelReply(calls=self._calls(entry, request), finish_reason="tool_calls")
        raise ModelRejected(self.name, f"the entry of turn {request.turn} is nested more than {NESTING_LIMIT} deep")

    def _calls(self, entry: object, request: ModelRequest) -> tuple[RequestedCall, ...]:
        if isinstance(entry, Sequence) and all(isinstance(item, RequestedCall) for item in entry):
            return tuple(entry)
        raise ModelRejected(
            self.name,
            f"the entry of turn {request.turn} must be a reply, a text, calls, an exception, a Delay, Attempts "
            f"or a function, got {entry!r}",
        )


def _counted(request: ModelRequest) -> Entry:
    return f"Summary of {len(request.messages)} messages."
