"""Plans: code that takes a model's turns. What a plan may say, and what becomes of it.

Rule 1: a plan looks at its progress and at nothing else. The same progress gives the same reply, so a plan goes on in
another process where it was, and may be asked the same again.
Rule 2: a reply names all that should have begun by now. What has begun is not begun again.
Rule 3: whatever a plan does, its run ends: a reply that is none, a step asked for in two ways, more steps than a run
may have, or waiting for nothing, all end it with the reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from geartrain.errors import InvalidValue, UsageError
from geartrain.ids import digest
from geartrain.limits import UNLIMITED
from geartrain.machine import Budget, Progress, RequestedCall, StepProgress, Usage
from geartrain.models import Emit, ModelReply, ModelRequest
from geartrain.runtime._policy import ToolGuardrail
from geartrain.tools import Tool, error_text

if TYPE_CHECKING:
    from geartrain.runtime._agent import Agent

# The name of the model that a plan is.
PLAN: Final = "plan"
# What bounds a plan are its steps, and the budgets of its agents.
PLAN_BUDGET: Final = Budget(
    max_turns=UNLIMITED, max_seconds=UNLIMITED, max_tool_failures=UNLIMITED, max_tokens=UNLIMITED
)
NAME_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Job:
    """One step of a plan, to be begun: its name, the tool or agent to run, and the arguments.

    A tool is given its arguments by name; an agent may be given its input as a text.
    """

    name: str
    run: Tool | Agent | str
    arguments: Mapping[str, Any] | str

    @property
    def runs(self) -> str:
        """The name of what is run."""
        return self.run if isinstance(self.run, str) else self.run.name

    @property
    def json(self) -> str:
        """The arguments as JSON, as they are stored; raises whatever comes of data that are none."""
        arguments = {"input": self.arguments} if isinstance(self.arguments, str) else dict(self.arguments)
        return msgspec.json.encode(arguments).decode()


@dataclass(frozen=True, slots=True, init=False)
class Do:
    """The plan goes on: all of *jobs* are to have begun. None is to wait for what is under way."""

    jobs: tuple[Job, ...]

    def __init__(self, *jobs: Job) -> None:
        object.__setattr__(self, "jobs", jobs)


@dataclass(frozen=True, slots=True)
class Done:
    """The plan is through, and this is the run's answer; what is still under way is cancelled.

    An answer of more characters than a quarter of `Limits.event_bytes` fails the run.
    """

    text: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """The plan cannot be fulfilled: the run fails (`plan_failed`), and what is still under way is cancelled."""

    reason: str


class Plan(ABC):
    """Coordination as code: `Agent(plan=…)` runs it, durable like every other run. Holds no state of a run.

    `next` is called on the event loop whenever there is something new: it decides at once, from its argument alone.
    Anything else (a clock, a file, randomness) would make it decide otherwise after a restart; that belongs in a tool.

    `agents` and `tools` are what it runs, an agent as itself or by the name that a runtime has it under; `guardrails`
    are asked about its calls before the runtime's policy. Of steps it has at least its `width`: more than
    `Limits.sub_agent_width` are refused when a runtime is opened.
    """

    agents: Sequence[Agent | str] = ()
    tools: Sequence[Tool] = ()
    guardrails: Sequence[ToolGuardrail] = ()
    width: int = 0

    @abstractmethod
    def next(self, progress: Progress, /) -> Do | Done | Fail:
        """Return what is to be done now.

        One that raises, or returns anything else, fails its run with the reason.
        """

    def outline(self) -> Any:
        """Return as JSON data what the plan is: recorded as a digest, so that a change is seen."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def misfit(self, progress: Progress, /) -> str:  # noqa: ARG002 - the method's shape is for those who override it
        """Say why this plan cannot go on from *progress*, or return an empty text.

        Asked before each `next`: code may have changed since the run began. If it says something, the run is set apart
        with it until somebody puts the plan back and resumes it, or cancels it.
        """
        return ""


@dataclass(eq=False)
class PlanFailed(UsageError):
    """A plan has ended its run, or is wrong."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(eq=False)
class PlanChanged(UsageError):
    """Today's plan cannot go on with what was begun under another one. Nothing was started."""

    agent: str
    reason: str

    def __str__(self) -> str:
        return f"agent {self.agent!r}: {self.reason}; put the plan back and resume the run, or cancel it"


class PlanModel:
    """A plan in the place of a model: its turns cost nothing."""

    name: str = PLAN
    summarises: bool = False
    reports_cost: bool = True

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan

    async def reply(self, request: ModelRequest, emit: Emit, /) -> ModelReply:  # noqa: ARG002 - the protocol's
        """Return what the plan says to the progress in the request.

        Raises:
            PlanFailed: The plan is at its end without an answer, or is wrong.
            PlanChanged: The plan cannot go on from there.
        """
        assert request.progress is not None, "a plan is asked with its progress"
        return _reply_of(self.plan, request.agent, request.progress)


def plan_digest(name: str, plan: Plan) -> str:
    """Return the digest of what the plan of agent *name* is.

    Raises:
        InvalidValue: Its outline is no data, or a text in it is none.
    """
    try:
        return digest(msgspec.json.encode(plan.outline(), order="sorted"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise InvalidValue(f"the plan of agent {name!r}", "made of what JSON can hold", str(problem)) from None


def _reply_of(plan: Plan, agent: str, progress: Progress) -> ModelReply:
    try:
        misfit = plan.misfit(progress)
        said = plan.next(progress) if not misfit else None
    except BaseException as error:  # noqa: BLE001 - a stranger's code: a plan that raises fails its own run only
        raise PlanFailed(f"the plan raised {error_text(error)}") from None
    if misfit:
        raise PlanChanged(agent, str(misfit))
    match said:
        case Done(str() as text):
            return ModelReply(text=text if text.strip() else "(no output)", usage=Usage(), finish_reason="done")
        case Fail(str() as reason):
            raise PlanFailed(reason or "the plan gave no reason")
        case Do():
            calls = tuple(_new_calls(said.jobs, progress))
            if not calls and not progress.under_way:
                raise PlanFailed(f"the plan waits, but nothing is under way: it would never end{_first_bad(progress)}")
            return ModelReply(calls=calls, usage=Usage(), finish_reason="tool_calls" if calls else "waits")
        case _:
            raise PlanFailed(f"the plan returned {type(said).__name__}, not Do, Done or Fail with what belongs to it")


def _first_bad(progress: Progress) -> str:
    """Return which step has not gone well, if any has not: it may be what the plan has not reckoned with."""
    bad = next((step for step in progress.steps.values() if step.done and not step.ok), None)
    return f"; first step {bad.name!r} ({bad.status}): {_brief(bad.text)}" if bad is not None else ""


def _new_calls(jobs: Sequence[Job], progress: Progress) -> Iterator[RequestedCall]:
    """Yield the calls of those *jobs* that have not begun."""
    names: set[str] = set()
    begun = len(progress.steps)
    for job in jobs:
        call = _call_of(job)
        if call.provider_id in names:
            raise PlanFailed(f"two steps of one name: {call.provider_id!r}")
        names.add(call.provider_id)
        known = progress.get(call.provider_id)
        if known is not None:
            _check_same(known, call)
            continue
        begun += 1
        if begun > progress.width:
            raise PlanFailed(f"step {call.provider_id!r} is one too many: a run has at most {progress.width} steps")
        yield call


def _check_same(known: StepProgress, call: RequestedCall) -> None:
    if (known.run, known.arguments) != (call.tool, call.arguments):
        raise PlanFailed(
            f"step {known.name!r} was begun as {known.run} with {_brief(known.arguments)}, and is asked for as "
            f"{call.tool} with {_brief(call.arguments)}: a plan must say the same whenever it is asked"
        )


def _brief(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:99]}…"


def _call_of(job: Any) -> RequestedCall:
    if not isinstance(job, Job):
        raise PlanFailed(f"the plan asked for {type(job).__name__}, not for a Job")
    if not isinstance(job.name, str) or not 0 < len(job.name) <= NAME_CHARACTERS_MAX or not job.name.isprintable():
        raise PlanFailed(f"a step's name must be 1 to {NAME_CHARACTERS_MAX} printable characters, got {job.name!r}")
    try:
        runs, arguments = job.runs, job.json
    except BaseException as error:  # noqa: BLE001 - a stranger's objects: anything may happen when they are looked at
        raise PlanFailed(f"step {job.name!r}: it cannot be asked for so: {error_text(error)}") from None
    if not isinstance(runs, str):
        raise PlanFailed(f"step {job.name!r}: it runs what has no name")
    return RequestedCall(tool=runs, arguments=arguments, provider_id=job.name)
