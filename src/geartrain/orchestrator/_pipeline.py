"""Stages one after the other: the simplest graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from geartrain.orchestrator._approval import Approval
from geartrain.orchestrator._errors import PlanRefused, WrongPlan
from geartrain.orchestrator._graph import Graph
from geartrain.orchestrator._inputs import Function
from geartrain.orchestrator._step import NAME, Run, Step
from geartrain.runtime import Agent
from geartrain.tools import Tool


class Pipeline(Graph):
    """A plan whose stages run one after the other; each is given what the one before it brought, the first the input.

    A stage is an agent or its name, a tool, an `Approval`, or a `Step` where it needs a name, an input or a condition
    of its own; without a name it goes by that of what it runs, the second one of a name with `-2` behind it.

    Raises:
        PlanRefused: Something about the stages is wrong: `why` says what.
    """

    def __init__(self, *stages: Run | Step, answer: str | Function | None = None) -> None:
        super().__init__(list(_chained(stages)), answer=answer)


def _chained(stages: tuple[Any, ...]) -> Iterator[Step]:
    taken = {stage.name for stage in stages if isinstance(stage, Step)}
    before: tuple[str, ...] = ()
    for stage in stages:
        if isinstance(stage, Step):
            if stage.after:
                raise PlanRefused(f"step {stage.name!r}", WrongPlan.STAGE_AFTER, stage.after)
            step = replace(stage, after=before)
        else:
            step = Step(_name(stage, taken), stage, before)
            taken.add(step.name)
        yield step
        before = (step.name,)


def _name(stage: Any, taken: set[str]) -> str:
    match stage:
        case Approval():
            own = "approval"
        case Agent() | Tool():
            own = stage.name
        case str():
            own = stage
        case _:
            raise PlanRefused("a stage", WrongPlan.RUN, stage)
    own = own if NAME.fullmatch(own) else "stage"
    names = (own, *(f"{own}-{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)
