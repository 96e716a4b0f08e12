"""One agent or tool over many inputs: bounded, and gathered in the order of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from geartrain.machine import Progress, StepProgress
from geartrain.orchestrator._errors import PlanRefused, WrongPlan
from geartrain.orchestrator._inputs import (
    Function,
    NoAnswer,
    asked,
    is_plain_function,
    named,
    restricted,
    text_parameter,
)
from geartrain.orchestrator._step import NAME, name_of
from geartrain.runtime import Agent, Do, Done, Fail, Job, Plan
from geartrain.tools import Tool

FAN_OUT_AT_ONCE: Final = 8

Item = str | Mapping[str, Any]
Gather = Callable[[Sequence[StepProgress]], str]


class FanOut(Plan):
    """A plan that runs one agent or tool for each of many inputs, at most *at_once* at a time.

    The steps are called `NAME.1`, `NAME.2` and so on, and the answer are their texts, a line each, in the order of the
    inputs, or what *gather* makes of the steps. It fails as soon as fewer can go well than *need* says: "all", "any"
    (at least one) or a number. Once enough have, the *rest* may still "finish", or is "cancel"led.

    Args:
        run: An agent or its name, or a tool; of several parameters a tool is given mappings.
        inputs: What each is given, or a function of the `Progress` that returns it: of its `input` and `context` only,
            for it must return the same whenever it is asked.
        at_once: How many run at once; of a tool no more than `Limits.calls_at_once_per_run`.
        need: How many have to go well.
        rest: What becomes of the others once enough have.
        gather: Makes the answer of the steps that are through, in the order of the inputs.

    Raises:
        PlanRefused: Something about it is wrong: `why` says what.
    """

    def __init__(
        self,
        run: Agent | Tool | str,
        inputs: Sequence[Item] | Function,
        *,
        at_once: int = FAN_OUT_AT_ONCE,
        need: Literal["all", "any"] | int = "all",
        rest: Literal["finish", "cancel"] = "finish",
        gather: Gather | None = None,
    ) -> None:
        if not isinstance(run, Agent | Tool) and not (isinstance(run, str) and run):
            raise PlanRefused("FanOut", WrongPlan.RUN, run)
        if isinstance(at_once, bool) or not isinstance(at_once, int) or at_once < 1:
            raise PlanRefused("FanOut", WrongPlan.AT_ONCE, at_once)
        if need not in ("all", "any") and (isinstance(need, bool) or not isinstance(need, int) or need < 1):
            raise PlanRefused("FanOut", WrongPlan.NEED, need)
        if rest not in ("finish", "cancel"):
            raise PlanRefused("FanOut", WrongPlan.REST, rest)
        if gather is not None and not is_plain_function(gather):
            raise PlanRefused("FanOut", WrongPlan.GATHER, gather)
        self._run: Final = run
        self.agents = () if isinstance(run, Tool) else (run,)
        self.tools = (run,) if isinstance(run, Tool) else ()
        name = name_of(run)
        self._name: Final = name if NAME.fullmatch(name) else "item"
        self.at_once: Final = at_once
        self._need: Final = need
        self._cancels: Final = rest == "cancel"
        self._gather: Final = gather or _lines
        self._parameter: Final = _parameter_of(run)
        self._find: Final[Any] = inputs if is_plain_function(inputs) else None
        self._inputs: Final = () if self._find is not None else self._checked(inputs)
        self.width = len(self._inputs)
        # What was made of the inputs last: they are asked for at each turn, and hardly ever others.
        self._made: tuple[tuple[Item, ...], Sequence[Job]] = ((), ())
        if self._find is None and self._needed(len(self._inputs)) > len(self._inputs):
            raise PlanRefused("FanOut", WrongPlan.NEED, need)

    def next(self, progress: Progress, /) -> Do | Done | Fail:
        """Begin the next ones while there is room; see `Plan.next`."""
        try:
            return self._next(self._jobs(progress), progress)
        except NoAnswer as problem:
            return Fail(str(problem))

    def _next(self, jobs: Sequence[Job], progress: Progress) -> Do | Done | Fail:
        begun = [step for job in jobs if (step := progress.get(job.name)) is not None]
        through = [step for step in begun if step.done]
        good = sum(step.ok for step in through)
        bad = len(through) - good
        needed = self._needed(len(jobs))
        if len(jobs) - bad < needed:
            worst = next((step for step in through if not step.ok), None)
            first = f", first {worst.name} ({worst.status}): {worst.text}" if worst is not None else ""
            return Fail(f"{needed} of {len(jobs)} have to go well, and {bad} have not{first}")
        if len(through) == len(jobs) or (self._cancels and good >= needed):
            return Done(asked("gather", self._gather, through, kinds=(str,)))
        room = max(0, self.at_once - (len(begun) - len(through)))
        return Do(*[job for job in jobs if job.name not in progress.steps][:room])

    def _needed(self, count: int) -> int:
        if self._need == "all":
            return count
        return 1 if self._need == "any" else self._need

    def _jobs(self, progress: Progress) -> Sequence[Job]:
        if self._find is None:
            return self._jobs_for(self._inputs)
        try:
            inputs = self._checked(
                asked("the function for the inputs", self._find, restricted(progress, ()), kinds=(object,))
            )
        except PlanRefused as refused:
            raise NoAnswer(f"inputs: {refused.why.value}; got {refused.found!r}") from None
        if len(inputs) > progress.width:
            raise NoAnswer(f"there are {len(inputs)} inputs, and a run has at most {progress.width} steps")
        return self._jobs_for(inputs)

    def _jobs_for(self, inputs: tuple[Item, ...]) -> Sequence[Job]:
        if self._made[0] != inputs:
            numbered = enumerate(inputs, start=1)
            jobs = [Job(f"{self._name}.{number}", self._run, self._arguments(item)) for number, item in numbered]
            self._made = (inputs, jobs)
        return self._made[1]

    def _arguments(self, item: Item) -> Item:
        return {self._parameter: item} if self._parameter and isinstance(item, str) else item

    def _checked(self, inputs: Any) -> tuple[Item, ...]:
        properties = self._run.parameters["properties"] if isinstance(self._run, Tool) else None
        if isinstance(inputs, str) or not isinstance(inputs, Sequence):
            raise PlanRefused("FanOut", WrongPlan.INPUTS, inputs)
        for item in inputs:
            if isinstance(item, str):
                if properties is not None and not self._parameter:
                    raise PlanRefused("FanOut", WrongPlan.TEXT_INPUT, item)
            elif properties is None or not isinstance(item, Mapping):
                raise PlanRefused("FanOut", WrongPlan.INPUTS, item)
            elif (unknown := next((name for name in item if name not in properties), None)) is not None:
                raise PlanRefused("FanOut", WrongPlan.PARAMETER, unknown)
        return tuple(inputs)

    def outline(self) -> Any:
        """Return as data what it is."""
        inputs = list(self._inputs) if self._find is None else named(self._find)
        return {"run": name_of(self._run), "inputs": inputs, "need": self._need, "gather": named(self._gather)}

    def misfit(self, progress: Progress, /) -> str:
        """Say which input was begun and is another one now; see `Plan.misfit`."""
        try:
            jobs = {job.name: job for job in self._jobs(progress)}
        except NoAnswer:
            return ""  # `next` says so, and ends the run
        for name, step in progress.steps.items():
            if name not in jobs and name != step.call_id:
                return f"the plan has no step {name!r}, which was begun"
            # Arguments that were too large were not kept: that step has failed, and is told so.
            if name in jobs and step.arguments and jobs[name].json != step.arguments:
                return f"step {name!r} was begun with {step.arguments[:100]}, and its input is another one now"
        return ""


def _parameter_of(run: Agent | Tool | str) -> str:
    """Return the parameter of a tool that a text is given for, or nothing if there is none of the kind."""
    if not isinstance(run, Tool):
        return ""
    try:
        return text_parameter("FanOut", run)
    except PlanRefused:
        return ""


def _lines(steps: Sequence[StepProgress]) -> str:
    return "\n".join(step.shown for step in steps)
