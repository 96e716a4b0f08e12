"""`step`: going through a run event by event, forth and back. Nothing of it is done again."""

from __future__ import annotations

import json
from typing import Any, Final

from geartrain.cli._acts import Setting
from geartrain.cli._errors import OptionInvalid
from geartrain.cli._frames import headline, lines_of
from geartrain.cli._given import opened
from geartrain.cli._outcome import FAILED
from geartrain.cli._screen import Screen
from geartrain.cli._text import one_line
from geartrain.cli._typed import typed_line
from geartrain.errors import FormatUnknown, InvalidValue
from geartrain.machine import EVENT_VERSIONS
from geartrain.runtime import Frame, Stepper

_QUESTION: Final = "[n]ext, [p]revious, NUMBER, [q]uit, ? for more: "
_HELP: Final = """\
n or nothing   the next event
p              the one before
NUMBER         that event
a, z           the first, the last
f              this event again, with all of what it says and what the model saw
l              all events, a line each
push TYPE JSON what a hand-made event would do after this one; the run stays as it is
q              leave"""


async def step(
    setting: Setting, given: str, *, at: int | None, everything: bool, pushed: tuple[str, str] | None, full: bool
) -> int:
    """Print the events of a run as asked for, or go through them with whoever sits at the terminal.

    Returns 1 if an event does not lead where it led, cannot follow, or was pushed and refused; else 0.
    """
    async with opened(setting, given) as one:
        stepper = await one.reader.steps(one.run_id)
    screen = setting.screen
    least = 0 if pushed is not None else 1
    if at is not None and not least <= at <= len(stepper):
        raise OptionInvalid("--at", f"must be {least} to {len(stepper)}, got {at}")
    if pushed is not None:
        return _push(screen, stepper, len(stepper) if at is None else at, *pushed, full=full)
    if at is None and not everything and not screen.json and screen.browsable:
        await _Browser(screen, stepper, full=full).browse()
        return 0
    wrong = bool(stepper.problem) and at is None
    for seq in range(1, len(stepper) + 1) if at is None else [at]:
        frame = stepper.frame(seq)
        wrong = wrong or frame.differs
        _print(screen, frame, len(stepper), whole=at is not None, full=full)
    if stepper.problem and at is None:
        screen.say(f"geartrain: {stepper.problem}", "red")
    return FAILED if wrong else 0


def _print(screen: Screen, frame: Frame, total: int | None, *, whole: bool, full: bool) -> None:
    if screen.json:
        screen.print_json(frame) if whole else screen.print_json_line(frame)
        return
    for line in lines_of(frame, total, full=full) if whole or full else [headline(frame)]:
        screen.answer(line)


def _push(screen: Screen, stepper: Stepper, at: int, kind: str, text: str, *, full: bool) -> int:
    """Print what a hand-made event would do after event *at*; return 1 if it cannot follow."""
    fields = _fields(text)
    if kind not in EVENT_VERSIONS:
        raise OptionInvalid("--push", f"{kind!r} is no type of event; there are: {', '.join(EVENT_VERSIONS)}")
    try:
        frame = stepper.push(stepper.run(at), kind, fields)
    except FormatUnknown as problem:
        raise OptionInvalid("--push", f"{kind}: {problem.__cause__}") from None
    _print(screen, frame, None, whole=True, full=full)
    if frame.refusal is None:
        return 0
    screen.say(f"geartrain: {kind} is not possible in {frame.refusal.state}: {frame.refusal.reason}", "red")
    return FAILED


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise OptionInvalid("--push", f"{one_line(text)!r} is no JSON ({problem})") from None
    if not isinstance(fields, dict):
        raise OptionInvalid("--push", f"the fields of the event must be a JSON object, got {text!r}")
    return fields


class _Browser:
    """One person's way through the events of a run."""

    def __init__(self, screen: Screen, stepper: Stepper, *, full: bool) -> None:
        self._screen = screen
        self._stepper = stepper
        self._full = full
        self._at = 1

    async def browse(self) -> None:
        """Show one event after the other as asked for, until it is enough."""
        if not len(self._stepper):
            self._screen.say(f"geartrain: {self._stepper.problem or 'there is no event'}", "red")
            return
        self._show()
        while (line := await typed_line(_QUESTION, afresh=False)) is not None:
            word, _, rest = line.strip().partition(" ")
            if word in ("q", "quit"):
                return
            self._do(word, rest.strip())

    def _do(self, word: str, rest: str) -> None:
        last = len(self._stepper)
        goals = {"": self._at + 1, "n": self._at + 1, "p": self._at - 1, "a": 1, "z": last}
        if word in goals or word.isdecimal():
            goal = goals[word] if word in goals else int(word)
            if 1 <= goal <= last:
                self._at = goal
                self._show()
            else:
                beyond = f": {self._stepper.problem}" if goal > last and self._stepper.problem else ""
                self._screen.say(f"there are events 1 to {last}{beyond}", "yellow")
        elif word == "f":
            self._show(full=True)
        elif word == "l":
            for seq in range(1, last + 1):
                self._screen.answer(headline(self._stepper.frame(seq)))
        elif word == "push":
            kind, _, text = rest.partition(" ")
            self._push(kind, text.strip() or "{}")
        else:
            self._screen.say(_HELP)

    def _show(self, *, full: bool = False) -> None:
        _print(self._screen, self._stepper.frame(self._at), len(self._stepper), whole=True, full=full or self._full)

    def _push(self, kind: str, text: str) -> None:
        try:
            _push(self._screen, self._stepper, self._at, kind, text, full=self._full)
        except (OptionInvalid, InvalidValue) as problem:
            self._screen.say(f"geartrain: {problem}", "red")
