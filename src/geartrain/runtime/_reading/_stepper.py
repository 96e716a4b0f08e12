"""Going through a run event by event, forth and back. Pure: a list of stored events in, what each one did out.

Nothing is carried out, whatever the commands are; and what is pushed moves a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from geartrain.errors import FormatUnknown, InvalidValue
from geartrain.machine import (
    AgentSpec,
    Command,
    Event,
    Message,
    Refusal,
    Run,
    RunState,
    decode_event,
    event_from_json,
    outstanding,
    split_path,
    step,
)
from geartrain.persistence import StoredEvent

# Every so many events the run is kept; those between are folded anew when somebody looks at them.
_KEPT_EVERY: Final = 64


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a run, and what it did.

    `path` are the states it led through now, `recorded` those it led through when it was stored (None: it never was).
    `commands` must be in progress after it; those that were before are `commands_before`. `saw` is what the model
    call that it began was given. If `refusal` is set the event cannot follow, and `after` equals `before`.
    """

    seq: int
    event: Event
    before: Run
    after: Run
    path: tuple[str, ...]
    recorded: tuple[str, ...] | None
    commands_before: tuple[Command, ...]
    commands: tuple[Command, ...]
    saw: tuple[Message, ...] | None = None
    refusal: Refusal | None = None

    @property
    def differs(self) -> bool:
        """Whether the event does not lead where it led when it was stored."""
        return self.refusal is not None or (self.recorded is not None and self.recorded != self.path)


class Stepper:
    """A run's events, each with what it did. Events are numbered from 1.

    What cannot be gone through (an event of a newer version, or one that cannot follow) ends it: `problem` says why,
    and `len()` counts the events up to there.
    """

    def __init__(self, run_id: str, rows: Sequence[StoredEvent], specs: Mapping[str, AgentSpec]) -> None:
        self.run_id = run_id
        self.problem = ""
        self._specs = specs
        self._events: list[tuple[Event, tuple[str, ...]]] = []
        run = Run(id=run_id)
        self._kept = [run]
        self._looked_at = run
        for row in rows:
            try:
                event = decode_event(row.type, row.version, row.body)
            except FormatUnknown as unknown:
                self.problem = f"event {row.seq}: {unknown}"
                break
            result = step(run, event, specs)
            if isinstance(result, Refusal):
                self.problem = f"event {row.seq} ({row.type}) cannot follow: {result.reason}"
                break
            run = result.run
            self._events.append((event, split_path(row.path)))
            if len(self._events) % _KEPT_EVERY == 0:
                self._kept.append(run)

    def __len__(self) -> int:
        return len(self._events)

    def run(self, seq: int) -> Run:
        """Return the run as of event *seq*; 0 is before the first.

        Raises:
            InvalidValue: There is no such event.
        """
        if not 0 <= seq <= len(self):
            raise InvalidValue("the number of an event", f"0 to {len(self)}", seq)
        kept = self._kept[seq // _KEPT_EVERY]
        run = self._looked_at if kept.seq < self._looked_at.seq <= seq else kept
        for event, _ in self._events[run.seq : seq]:
            result = step(run, event, self._specs)
            assert not isinstance(result, Refusal), "it could follow when the list was made, and a step is pure"
            run = result.run
        self._looked_at = run
        return run

    def frame(self, seq: int) -> Frame:
        """Return what event *seq* did.

        Raises:
            InvalidValue: There is no such event.
        """
        if not 1 <= seq <= len(self):
            raise InvalidValue("the number of an event", f"1 to {len(self)}", seq)
        event, recorded = self._events[seq - 1]
        return self._frame(self.run(seq - 1), event, recorded)

    def push(self, run: Run, kind: str, fields: Mapping[str, Any] | None = None) -> Frame:
        """Return what a hand-made event would do to *run*, as `run()` or an earlier frame gave it.

        It is a copy that moves: these events stay as they are. `id` and `time` may be left out; the time is then that
        of the run's last event.

        Args:
            run: The run that it comes to.
            kind: The type of the event, such as `ApprovalDecided`.
            fields: Its fields.

        Raises:
            FormatUnknown: It is no event, or its fields do not fit.
            InvalidValue: Its fields are no JSON data.
        """
        given = {"id": f"pushed.{run.seq}", "time": run.updated_at, "source": "step", **(fields or {}), "type": kind}
        try:
            data = msgspec.json.encode(given)
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise InvalidValue("the fields of an event", "JSON data", str(problem)) from None
        return self._frame(run, event_from_json(data), None)

    def _frame(self, before: Run, event: Event, recorded: tuple[str, ...] | None) -> Frame:
        commands_before = outstanding(before) if before.seq else ()
        result = step(before, event, self._specs)
        if isinstance(result, Refusal):
            return Frame(
                seq=before.seq + 1,
                event=event,
                before=before,
                after=before,
                path=(),
                recorded=recorded,
                commands_before=commands_before,
                commands=commands_before,
                refusal=result,
            )
        return Frame(
            seq=before.seq + 1,
            event=event,
            before=before,
            after=result.run,
            path=tuple(map(str, result.path)),
            recorded=recorded,
            commands_before=commands_before,
            commands=result.commands,
            saw=result.run.messages if _asks_anew(before, result.run) else None,
        )


def _asks_anew(before: Run, after: Run) -> bool:
    """Say whether a model call began between the two."""
    if after.state is not RunState.MODEL_THINKING:
        return False
    asked = (before.turn_count, before.model_attempt)
    return before.state is not RunState.MODEL_THINKING or asked != (after.turn_count, after.model_attempt)
