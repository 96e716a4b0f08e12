"""A step that is a person's yes: what it is about passes through it, as it was or as the person has edited it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from geartrain.orchestrator._errors import PlanRefused, WrongPlan
from geartrain.runtime import Allow, Ask, Decision, PolicyCall, RunView
from geartrain.tools import Tool, tool

QUESTION_CHARACTERS_MAX: Final = 2_000


@final
@dataclass(frozen=True, slots=True)
class Approval:
    """A step of a `Graph` at which somebody is asked *question*, whatever the policy allows.

    The steps after it wait, the others do not. Its input is what the question is about, and its text once it is
    approved, so in a pipeline the next step is given what was approved. Denied, or not decided within *expires_seconds*
    (by default as long as any approval), it has not gone well.

    Raises:
        PlanRefused: The question is no text, or the time is none.
    """

    question: str
    expires_seconds: float | None = None

    def __post_init__(self) -> None:
        question, seconds = self.question, self.expires_seconds
        if not isinstance(question, str) or not question.strip() or len(question) > QUESTION_CHARACTERS_MAX:
            raise PlanRefused("Approval", WrongPlan.QUESTION, question)
        timed = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < math.inf
        if seconds is not None and not timed:
            raise PlanRefused("Approval", WrongPlan.EXPIRES, seconds)


@tool(name="approval", read_only=True, isolation="task")
def ask_approval(question: str, about: str = "", expires_seconds: float | None = None) -> str:  # noqa: ARG001
    """Ask a person, who sees what it is about, and go on with that.

    Args:
        question: What the person is asked.
        about: What it is about.
        expires_seconds: How long the person has.
    """
    return about or "approved"


def ask_a_person(call: PolicyCall, _run: RunView) -> Decision:
    """Have somebody asked about every approval of a plan; of other calls nothing is said."""
    if call.tool != ask_approval.name:
        return Allow()
    seconds = call.arguments.get("expires_seconds")
    return Ask(str(call.arguments["question"]), rule="approval of a plan", expires_seconds=seconds)


APPROVALS: Final[Tool] = ask_approval
