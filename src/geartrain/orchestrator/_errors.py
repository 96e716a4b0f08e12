"""What can be wrong about a plan as it is written down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from geartrain.errors import UsageError


class WrongPlan(StrEnum):
    """What is wrong with a plan; each wrong one has its own."""

    STEPS = "steps must be a list of Step, and not empty"
    NAME = "a step's name must be 1 to 100 letters, digits, '_', '-' and '.'"
    NAME_RESERVED = "no step can be called 'input': that is what the run was started with"
    NAME_TAKEN = "two steps must not have one name"
    RUN = "run must be an agent or its name, a tool, or an Approval"
    RUN_TAKEN = "two different agents or tools must not have one name"
    AFTER = "after must be a list of names of steps"
    UNKNOWN_STEP = "a step can only come after one that there is"
    CYCLE = "steps must not come after each other in a circle"
    WHEN = "when must be a plain function of a Progress, or None"
    INPUT = "input must be a text, a mapping, a plain function of a Progress, or None"
    TEMPLATE = "in braces a text can only name input, and steps that this one comes after; other braces are doubled"
    TEXT_INPUT = "a tool without exactly one text to give needs its input as a mapping, or a function that returns one"
    PARAMETER = "a mapping can only name parameters of the tool"
    NEEDED = "needed must be True or False"
    ANSWER = "answer must be a text, a plain function of a Progress, or None"
    STAGE_AFTER = "a step of a pipeline comes after the one before it, so it has no `after` of its own"
    QUESTION = "a question must be 1 to 2000 characters, not blank"
    EXPIRES = "expires_seconds must be more than 0 and finite, or None"
    INPUTS = "inputs must be a list of texts (or of mappings, for a tool), or a plain function of a Progress"
    AT_ONCE = "at_once must be a whole number, at least 1"
    NEED = "need must be 'all', 'any', or a whole number, at least 1 and at most the number of inputs"
    REST = "rest must be 'finish' or 'cancel'"
    GATHER = "gather must be a plain function of a list of steps, or None"


@dataclass(eq=False)
class PlanRefused(UsageError):
    """A plan cannot be as it was written; *why* says what is wrong, *about* where."""

    about: str
    why: WrongPlan
    found: Any

    def __post_init__(self) -> None:
        if not isinstance(self.found, str | int | float | None):
            self.found = repr(self.found)[:200]  # a tool or a function could not be pickled

    def __str__(self) -> str:
        return f"{self.about}: {self.why.value}; got {self.found!r}"
