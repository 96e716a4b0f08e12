"""One step of a graph, as it is written down."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from geartrain.orchestrator._approval import APPROVALS, Approval
from geartrain.orchestrator._errors import PlanRefused, WrongPlan
from geartrain.orchestrator._inputs import (
    INPUT,
    Function,
    Input,
    Maker,
    arguments_maker,
    for_tool,
    is_plain_function,
    named,
    text_maker,
    text_parameter,
)
from geartrain.runtime import Agent
from geartrain.tools import Tool

NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
Run = Agent | Tool | Approval | str


@final
@dataclass(frozen=True, slots=True)
class Step:
    """A step: its name, what it runs, and what it comes after.

    It begins when all that it comes *after* is through. It is skipped if *when* says no, or if all that it comes after
    was skipped. A step that fails ends the graph, unless it is not *needed*: then what comes after it goes on and sees
    what became of it.

    *input* is what it is given. A text may name in braces `{input}`, what the run was started with, and the steps
    before it: `"Check {summary} against {sources}."` A mapping gives the arguments of a tool, its texts likewise; one
    for a parameter that takes no text is then read as JSON. A function is given the `Progress` and returns a text or a
    mapping. Without any, a step is given the texts of what it comes directly after (of several each under its name),
    and a first step the run's input.

    *when* and *input* see of the progress only what the step comes after, directly or not: whatever else runs at the
    same time, and however fast, changes nothing. They are plain functions of it alone, and may be called again.
    """

    name: str
    run: Run
    after: Sequence[str] = ()
    when: Function | None = None
    input: Input = None
    needed: bool = True

    @property
    def runs(self) -> Agent | Tool | str:
        """The agent or tool that is called."""
        return APPROVALS if isinstance(self.run, Approval) else self.run


def check(step: Step) -> None:
    """Refuse what is wrong with a step alone.

    Raises:
        PlanRefused: Something is.
    """
    name = step.name
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PlanRefused("a step", WrongPlan.NAME, name)
    about = f"step {name!r}"
    if name == INPUT:
        raise PlanRefused(about, WrongPlan.NAME_RESERVED, name)
    if not isinstance(step.run, Agent | Tool | Approval) and not (isinstance(step.run, str) and step.run):
        raise PlanRefused(about, WrongPlan.RUN, step.run)
    after: Any = step.after
    if isinstance(after, str) or not isinstance(after, Sequence) or not all(isinstance(a, str) for a in after):
        raise PlanRefused(about, WrongPlan.AFTER, after)
    if step.when is not None and not is_plain_function(step.when):
        raise PlanRefused(about, WrongPlan.WHEN, step.when)
    if not isinstance(step.needed, bool):
        raise PlanRefused(about, WrongPlan.NEEDED, step.needed)


def maker_for(step: Step, ancestors: frozenset[str]) -> Maker:
    """Return what makes the arguments of a step that comes after *ancestors*.

    Raises:
        PlanRefused: Its input is none that what it runs can be given.
    """
    about, given, run = f"step {step.name!r}", step.input, step.run
    if isinstance(run, Tool):
        if isinstance(given, Mapping):
            return arguments_maker(about, given, run, ancestors)
        # What a function returns may be a mapping, so it is looked at when it is there.
        parameter = "" if is_plain_function(given) and not _takes_text(run) else text_parameter(about, run)
        return for_tool(parameter, text_maker(about, given, step.after, ancestors))
    if isinstance(given, Mapping):
        raise PlanRefused(about, WrongPlan.INPUT, given)
    maker = text_maker(about, given, step.after, ancestors)
    if not isinstance(run, Approval):
        return maker
    asked: dict[str, Any] = {"question": run.question}
    if run.expires_seconds is not None:
        asked["expires_seconds"] = run.expires_seconds
    return lambda progress: {**asked, "about": maker(progress)}


def looks_back(step: Step) -> bool:
    """Whether a step looks at more than the texts of what it comes directly after."""
    return step.when is not None or step.input is not None


def outline_of(step: Step) -> dict[str, Any]:
    """Return as data what a step is; of functions only their names are known."""
    given = named(step.input) if callable(step.input) else step.input
    return {
        "name": step.name,
        "run": name_of(step.runs),
        "after": list(step.after),
        "when": named(step.when) if step.when is not None else None,
        "input": dict(given) if isinstance(given, Mapping) else given,
        "needed": step.needed,
        "question": step.run.question if isinstance(step.run, Approval) else None,
    }


def _takes_text(tool: Tool) -> bool:
    try:
        return bool(text_parameter("", tool))
    except PlanRefused:
        return False


def name_of(run: Agent | Tool | str) -> str:
    """Return under which name an agent or a tool is called."""
    return run if isinstance(run, str) else run.name
