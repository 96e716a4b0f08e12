"""Steps with dependencies and conditions: what can run side by side does.

Rule 1: a step begins once all that it comes after is through, whatever else still runs.
Rule 2: a step sees what it comes after, and nothing else; so neither whether it runs nor what it is given depends on
who was faster, and both can be found again at any time.
Rule 3: a step whose condition says no is skipped, and so is one that comes after skipped ones only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from geartrain.machine import Progress, StepProgress
from geartrain.orchestrator._approval import APPROVALS, ask_a_person
from geartrain.orchestrator._errors import PlanRefused, WrongPlan
from geartrain.orchestrator._inputs import (
    Function,
    Maker,
    NoAnswer,
    asked,
    is_plain_function,
    named,
    restricted,
    template,
    told,
)
from geartrain.orchestrator._step import Step, check, looks_back, maker_for, name_of, outline_of
from geartrain.runtime import Agent, Do, Done, Fail, Job, Plan
from geartrain.tools import Tool

# As many sub-agents of one run as there are at once by default; more would only wait elsewhere.
AT_ONCE: Final = 50
_NONE: Final[frozenset[str]] = frozenset()


class Graph(Plan):
    """A plan of steps: each begins as soon as all that it comes after is through, at most *at_once* at a time.

    The run is finished when every step is through or skipped. Its answer are the texts of the steps that nothing comes
    after, or what *answer* says: a text with names in braces, or a function of the whole `Progress`. It fails as soon
    as a step that is needed has not gone well (`plan_failed`), and what is under way is cancelled.

    Steps that can run side by side do, writes too: what must not is made to come after each other.

    Raises:
        PlanRefused: Something about the steps is wrong: `why` says what.
    """

    def __init__(self, steps: Sequence[Step], *, at_once: int = AT_ONCE, answer: str | Function | None = None) -> None:
        self.steps: Final = _checked(steps)
        self._after: Final = {step.name: tuple(dict.fromkeys(step.after)) for step in self.steps}
        self._order: Final = _in_order(self.steps, self._after)
        # Of those that look at them: of a long chain all together would be as many as its square.
        self._ancestors: Final = {
            step.name: _ancestors(step.name, self._after) for step in self.steps if looks_back(step)
        }
        self._makers: Final = {step.name: maker_for(step, self._ancestors.get(step.name, _NONE)) for step in self.steps}
        before = {name for names in self._after.values() for name in names}
        self._last: Final = tuple(step.name for step in self.steps if step.name not in before)
        if isinstance(at_once, bool) or not isinstance(at_once, int) or at_once < 1:
            raise PlanRefused(type(self).__name__, WrongPlan.AT_ONCE, at_once)
        self.at_once: Final = at_once
        self._answer: Final = answer
        self._answer_maker: Final = self._answer_of(answer)
        runs = _runs(self.steps)
        self.agents = [run for run in runs if not isinstance(run, Tool)]
        self.tools = [run for run in runs if isinstance(run, Tool)]
        self.guardrails = (ask_a_person,) if APPROVALS in runs else ()
        self.width = len(self.steps)

    def next(self, progress: Progress, /) -> Do | Done | Fail:
        """Begin what can begin; see `Plan.next`."""
        for step in self.steps:
            begun = progress.get(step.name)
            if begun is not None and begun.done and not begun.ok and step.needed:
                return Fail(f"step {step.name!r} ({begun.status}): {begun.text}")
        try:
            through, ready = self._look(progress)
            if len(through) == len(self.steps):
                return Done(self._answer_maker(progress))
            room = max(0, self.at_once - len(progress.under_way))
            return Do(*(self._job(step, progress) for step in ready[:room]))
        except NoAnswer as problem:
            return Fail(str(problem))

    def _look(self, progress: Progress) -> tuple[Mapping[str, bool], Sequence[Step]]:
        """Return which steps are through (False: skipped), and which can begin."""
        through: dict[str, bool] = {}
        ready: list[Step] = []
        for step in self._order:
            begun, after = progress.get(step.name), self._after[step.name]
            if begun is not None:
                if begun.done:
                    through[step.name] = True
            elif not all(name in through for name in after):
                continue
            elif (after and not any(through[name] for name in after)) or not self._wanted(step, progress):
                through[step.name] = False
            else:
                ready.append(step)
        return through, ready

    def _wanted(self, step: Step, progress: Progress) -> bool:
        if step.when is None:
            return True
        what, seen = f"the condition of step {step.name!r}", restricted(progress, self._ancestors[step.name])
        return asked(what, step.when, seen, kinds=(bool,)) is True

    def _job(self, step: Step, progress: Progress) -> Job:
        arguments = asked(f"the input of step {step.name!r}", self._makers[step.name], progress, kinds=(str, Mapping))
        return Job(step.name, step.runs, arguments)

    def _answer_of(self, answer: Any) -> Maker:
        about = f"the answer of a {type(self).__name__}"
        if answer is None:
            return lambda progress: told(self._ran(self._last, progress))
        if isinstance(answer, str):
            return template(about, answer, self._after)
        if not is_plain_function(answer):
            raise PlanRefused(about, WrongPlan.ANSWER, answer)

        return lambda progress: asked("the answer", answer, progress, kinds=(str,))

    @staticmethod
    def _ran(names: Iterable[str], progress: Progress) -> list[StepProgress]:
        return [step for name in names if (step := progress.get(name)) is not None]

    def outline(self) -> Any:
        """Return as data what the graph is."""
        answer = named(self._answer) if callable(self._answer) else self._answer
        return {"steps": [outline_of(step) for step in self.steps], "answer": answer}

    def misfit(self, progress: Progress, /) -> str:
        """Say which step was begun that is no more, or that was begun too early; see `Plan.misfit`.

        Steps that were added, or run and are given something else now, are no misfit: what has begun stays as it was.
        One that was added before what has begun is, and so is a condition that says yes now and said no before.
        """
        try:
            through, _ = self._look(progress)
        except NoAnswer:
            return ""  # `next` says so, and ends the run
        for name, step in progress.steps.items():
            if name not in self._after:
                if name != step.call_id:  # else a person has made it in the plan's place
                    return f"the plan has no step {name!r}, which was begun"
                continue
            early = next((before for before in self._after[name] if before not in through), None)
            if early is not None:
                return f"step {name!r} was begun, and step {early!r}, which comes before it, is not through"
        return ""


def _checked(steps: Any) -> tuple[Step, ...]:
    if isinstance(steps, str) or not isinstance(steps, Sequence) or not steps:
        raise PlanRefused("Graph", WrongPlan.STEPS, steps)
    names: set[str] = set()
    for step in steps:
        if not isinstance(step, Step):
            raise PlanRefused("Graph", WrongPlan.STEPS, step)
        check(step)
        if step.name in names:
            raise PlanRefused(f"step {step.name!r}", WrongPlan.NAME_TAKEN, step.name)
        names.add(step.name)
    for step in steps:
        unknown = next((name for name in step.after if name not in names), None)
        if unknown is not None:
            raise PlanRefused(f"step {step.name!r}", WrongPlan.UNKNOWN_STEP, unknown)
    return tuple(steps)


def _in_order(steps: Sequence[Step], after: Mapping[str, Sequence[str]]) -> tuple[Step, ...]:
    """Return the steps so that each stands behind all that it comes after, else in their own order (Kahn's way)."""
    waits = {name: len(names) for name, names in after.items()}
    followers: dict[str, list[Step]] = {name: [] for name in after}
    for step in steps:
        for name in after[step.name]:
            followers[name].append(step)
    order = [step for step in steps if not waits[step.name]]
    for step in order:  # it grows meanwhile
        for follower in followers[step.name]:
            waits[follower.name] -= 1
            if not waits[follower.name]:
                order.append(follower)
    if len(order) < len(steps):
        placed = {step.name for step in order}
        left = [step for step in steps if step.name not in placed]
        raise PlanRefused("Graph", WrongPlan.CYCLE, _circle(left, placed))
    return tuple(order)


def _circle(left: Sequence[Step], placed: set[str]) -> str:
    """Return one circle among steps none of which can come first."""
    after = {step.name: next(name for name in step.after if name not in placed) for step in left}
    seen: list[str] = []
    name = left[0].name
    while name not in seen:
        seen.append(name)
        name = after[name]
    return " after ".join([*seen[seen.index(name) :], name])


def _ancestors(name: str, after: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return all that a step comes after, directly or not."""
    found: set[str] = set()
    ahead = list(after[name])
    while ahead:
        before = ahead.pop()
        if before not in found:
            found.add(before)
            ahead.extend(after[before])
    return frozenset(found)


def _runs(steps: Sequence[Step]) -> tuple[Agent | Tool | str, ...]:
    """Return what the steps run, each once; an agent given by name may be given as it is elsewhere."""
    found: dict[str, Agent | Tool | str] = {}
    for step in steps:
        run = step.runs
        known = found.setdefault(name_of(run), run)
        if known is run or (isinstance(run, str) and isinstance(known, Agent | str)):
            continue
        if not (isinstance(known, str) and isinstance(run, Agent)):
            raise PlanRefused(f"step {step.name!r}", WrongPlan.RUN_TAKEN, name_of(run))
        found[run.name] = run
    return tuple(found.values())
