"""A progress made by hand, and a world that carries a plan out in any order: for tests of plans alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from geartrain.machine import Progress, ResultStatus, StepProgress
from geartrain.orchestrator import Do, Done, Fail, Plan
from geartrain.runtime import Agent
from geartrain.tools import tool


@tool(read_only=True)
async def look(text: str = "") -> str:
    """Look."""
    return text


@tool
async def write(text: str) -> str:
    """Write."""
    return text


@tool(read_only=True)
async def nothing() -> str:
    """Take nothing."""
    return ""


@tool(read_only=True)
async def add(left: int, right: int) -> int:
    """Add."""
    return left + right


HELPER = Agent("helper", instructions="Help.")


def a_step(name: str, text: str = "", status: str | None = "ok", **more: Any) -> StepProgress:
    known = None if status is None else ResultStatus(status)
    return StepProgress(
        **{"name": name, "run": "look", "arguments": "{}", "call_id": f"c-{name}", **more}, status=known, text=text
    )


def a_progress(*steps: StepProgress, **more: Any) -> Progress:
    plain: dict[str, Any] = {"run_id": "r-1", "input": "go", "context": {}, "labels": {}, "said": (), "width": 1_000}
    return Progress(**{**plain, **more}, steps={step.name: step for step in steps})


def names(said: Do | Done | Fail) -> list[str]:
    assert isinstance(said, Do), said
    return [job.name for job in said.jobs]


def arguments(said: Do | Done | Fail) -> dict[str, Any]:
    assert isinstance(said, Do), said
    return {job.name: msgspec.json.decode(job.json) for job in said.jobs}


class World:
    """Carries out what a plan asks for, in an order that follows from a seed, and notes what happened."""

    def __init__(self, plan: Plan, seed: int, *, fails: Mapping[str, str] | None = None) -> None:
        self.plan = plan
        self.random = random.Random(seed)
        self.fails = fails or {}
        self.steps: dict[str, StepProgress] = {}
        self.begun: list[str] = []
        self.ended: list[str] = []
        # What had ended when each step began.
        self.before: dict[str, frozenset[str]] = {}
        self.peak = 0

    @property
    def progress(self) -> Progress:
        return a_progress(*self.steps.values())

    @property
    def under_way(self) -> list[str]:
        return [name for name, step in self.steps.items() if not step.done]

    def ask(self) -> Do | Done | Fail:
        """Ask the plan, twice: it must say the same."""
        said, again = self.plan.next(self.progress), self.plan.next(self.progress)
        assert said == again
        assert not self.plan.misfit(self.progress)
        return said

    def run(self) -> Done | Fail:
        for _ in range(10_000):
            said = self.ask()
            if not isinstance(said, Do):
                return said
            for job in said.jobs:
                assert job.name not in self.steps
                self.begun.append(job.name)
                self.before[job.name] = frozenset(self.ended)
                self.steps[job.name] = a_step(
                    job.name, status=None, run=job.runs, arguments=job.json, call_id=f"c-{len(self.begun)}"
                )
            self.peak = max(self.peak, len(self.under_way))
            assert self.under_way, "the plan waits for nothing"
            for name in self.random.sample(self.under_way, self.random.randint(1, len(self.under_way))):
                self.end(name)
        raise AssertionError("it never ends")

    def end(self, name: str) -> None:
        status = self.fails.get(name, "ok")
        known = self.steps[name]
        self.ended.append(name)
        self.steps[name] = msgspec.structs.replace(known, status=ResultStatus(status), text=f"<{name}>")
