"""How far a plan has come: folded from its run's events, for the context drops what a plan still needs.

Rule 1: a step is a call, named by who asked for it (`provider_id`); a call without a name of its own goes by its id.
Rule 2: the text of a step is that of the event that brought it, not what the context was shown of it.
Rule 3: a run that is handed over begins its steps anew: they were another agent's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from geartrain.machine._context import NO_OUTPUT
from geartrain.machine._events import (
    CallAnswered,
    CallSettled,
    Event,
    EventHeard,
    HandedOff,
    InputReceived,
    SubAgentEnded,
    ToolFinished,
)
from geartrain.machine._run import Call, Run
from geartrain.machine._states import ResultStatus, RunState
from geartrain.machine._step import Refusal, Specs, step
from geartrain.machine._values import Artifact, ToolCall

# Events that bring the whole text of a step.
_TEXTS: Final = (ToolFinished, CallAnswered, CallSettled, SubAgentEnded, EventHeard)
# About what a book takes that is empty, and a step beside its texts: its call in the run as well.
_BOOK_BYTES: Final = 4_000
_STEP_BYTES: Final = 1_500


class StepProgress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step of a plan: what was asked for, and what came of it so far.

    `run` is the tool or the agent, `arguments` the JSON text that it was asked with, `call_id` the call of this run.
    `status` is None while it is under way. `size` is the number of bytes of the whole output: `text` is shortened if
    it is shorter than that. `child` is the run of a sub-agent that has ended.
    """

    name: str
    run: str
    arguments: str
    call_id: str
    status: ResultStatus | None = None
    text: str = ""
    size: int = 0
    artifact: Artifact | None = None
    child: str = ""

    @property
    def done(self) -> bool:
        """Whether it has its result, good or bad."""
        return self.status is not None

    @property
    def ok(self) -> bool:
        """Whether it went well."""
        return self.status is ResultStatus.OK

    @property
    def shown(self) -> str:
        """What to tell somebody of the result: its text, with the status before it if it did not go well."""
        return self.text if self.ok or self.status is None else f"[{self.status}] {self.text}".rstrip()


class Progress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that a plan may look at: the same progress gives the same reply, in any process and at any time.

    `input` is what the run was started with, `context` the data and `labels` the labels that it was given then; `said`
    is what was said to it since. `steps` are all steps begun so far, by name, in the order in which they were asked
    for. The run may have `width` steps in all.
    """

    run_id: str
    input: str
    context: Mapping[str, Any]
    labels: Mapping[str, str]
    said: tuple[str, ...]
    steps: Mapping[str, StepProgress]
    width: int

    def __getitem__(self, name: str) -> StepProgress:
        step = self.steps.get(name)
        if step is None:
            raise KeyError(f"no step {name!r} is to be seen from here; use get() for one that may be skipped")
        return step

    def get(self, name: str) -> StepProgress | None:
        """Return a step that has begun, or None: it was skipped, or is yet to come."""
        return self.steps.get(name)

    @property
    def under_way(self) -> tuple[StepProgress, ...]:
        """The steps that have begun and have no result yet."""
        return tuple(each for each in self.steps.values() if not each.done)


class ProgressBook:
    """The progress of one run, kept up event by event. It grows with the run: its owner bounds how many there are."""

    __slots__ = ("_names", "_said", "_size", "_steps", "_width", "run")

    def __init__(self, run_id: str) -> None:
        self.run = Run(id=run_id)
        self._size = 0
        self._steps: dict[str, StepProgress] = {}
        self._names: dict[str, str] = {}
        self._said: tuple[str, ...] = ()
        self._width = 0

    @property
    def size(self) -> int:
        """About how many bytes it takes, its run included."""
        return _BOOK_BYTES + self._size + self.run.messages_size

    def take(self, event: Event, specs: Specs) -> Refusal | None:
        """Take the next event of the run; return why it cannot follow, if it cannot."""
        before = self.run
        result = step(before, event, specs)
        if isinstance(result, Refusal):
            return result
        after = self.run = result.run
        self._width = specs[after.spec].limits.open_calls
        match event:
            case HandedOff():
                self._steps, self._names = {}, {}
            case InputReceived() if after.queued_input != before.queued_input:
                self._said = (*self._said, event.text)
                self._size += len(event.text)
        for call in _changed(before.calls, after.calls):
            if call.role != "tool":
                break  # texts that are judged
            self._open(call)
            if call.result is not None:
                self._close(call.id, call.result.status, call.result.text, event)
        if RunState.OBSERVE in result.path:
            self._look_at_merged(event, after)
        return None

    def _look_at_merged(self, event: Event, after: Run) -> None:
        """Find the results of calls that went into the context with this very event, perhaps as soon as they came."""
        asked_at = max(i for i, message in enumerate(after.messages) if message.calls)
        asked = after.messages[asked_at].calls
        for call, message in zip(asked, after.messages[asked_at + 1 :], strict=False):
            self._open(call)
            text = message.text.removeprefix(f"[{message.status}]").lstrip()
            self._close(call.id, message.status, "" if text == NO_OUTPUT else text, event)

    def _open(self, call: Call | ToolCall) -> None:
        if call.id in self._names:
            return
        name = call.provider_id or call.id
        if name in self._steps:  # a person took the turn and used a name again
            name = call.id
        self._names[call.id] = name
        self._steps[name] = StepProgress(name=name, run=call.tool, arguments=call.arguments, call_id=call.id)
        self._size += 2 * len(call.arguments) + _STEP_BYTES

    def _close(self, call_id: str, status: ResultStatus, text: str, event: Event) -> None:
        name = self._names[call_id]
        if self._steps[name].done:
            return
        about: dict[str, Any] = {"text": text, "size": len(text)}
        if isinstance(event, _TEXTS) and event.call_id == call_id and event.text:
            about = {"text": event.text, "size": max(len(event.text), getattr(event, "size", 0))}
            about["artifact"] = getattr(event, "artifact", None)
            about["child"] = getattr(event, "run_id", "")
        elif isinstance(event, InputReceived) and status is ResultStatus.OK:  # the answer to what it asked
            about = {"text": event.text, "size": len(event.text)}
        self._steps[name] = replace(self._steps[name], status=status, **about)
        self._size += len(about["text"])

    def fill(self, name: str, text: str) -> None:
        """Put the whole text of a step in the place of a shortened one."""
        known = self._steps[name]
        self._steps[name] = replace(known, text=text, artifact=None)
        self._size += len(text) - len(known.text)

    @property
    def progress(self) -> Progress:
        """The progress as of the newest event."""
        run = self.run
        return Progress(
            run_id=run.id,
            input=run.user_input,
            context=MappingProxyType(run.context),
            labels=MappingProxyType(run.labels),
            said=self._said,
            steps=MappingProxyType(dict(self._steps)),
            width=self._width,
        )


def _changed(before: tuple[Call, ...], after: tuple[Call, ...]) -> list[Call]:
    """Return the calls that a step has opened or changed: of a thousand open ones these are few."""
    known = len(before)
    return [call for i, call in enumerate(after) if i >= known or before[i] is not call]
