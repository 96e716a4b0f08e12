"""Whether a tool call is allowed: the verdicts, what a policy is asked about, and the policy by default.

A policy decides and does nothing; it is asked again whenever an approved call is about to run.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from geartrain.machine import Run


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run. `rule` names what in the policy decided; it is kept with the decision."""

    reason: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call must not run, whoever approves it."""

    reason: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A person decides, within *expires_seconds* if given, or else as long as the runtime's limit says."""

    reason: str = ""
    rule: str = ""
    expires_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The call may run, but as `to` says: the arguments in place of its own, or the text in place of the one judged.

    Changed arguments are checked against the tool like the model's. What does not fit counts as `Ask`.

    Whenever guardrails are asked again, they are asked about what the model (or a person who edited it) gave, and not
    about what they made of it. If they then make something else of it than was approved, a person is asked once more.
    """

    to: Mapping[str, Any] | str
    reason: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class PolicyCall:
    """The call that a policy is asked about: its id, its tool's name and flags, and its checked arguments.

    With `sub_agent` it starts a run of the agent of that name; what that run does is asked about call by call.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any]
    read_only: bool
    idempotent: bool
    sub_agent: bool = False


@dataclass(frozen=True, slots=True)
class RunView:
    """What strangers' code may know of the run. A copy; `input` is what the run was started with."""

    run_id: str
    agent: str
    turn_count: int
    tool_calls: int
    principal: str
    permissions: tuple[str, ...]
    labels: Mapping[str, str]
    context: Mapping[str, Any]
    input: str = ""


Decision = Allow | Deny | Ask | Change
Policy = Callable[[PolicyCall, RunView], Decision | Awaitable[Decision]]
# A tool guardrail is asked like a policy; one for inputs or answers is given the text.
ToolGuardrail = Policy
TextGuardrail = Callable[[str, RunView], Decision | Awaitable[Decision]]


def default_policy(call: PolicyCall, _run: RunView) -> Decision:
    """Allow read-only tools and sub-agents, and ask a person about the rest."""
    if call.sub_agent:
        return Allow("its own calls are checked")
    return Allow("read-only") if call.read_only else Ask(f"{call.tool!r} changes something")


def view_of(run: Run) -> RunView:
    """Return what a policy may know of *run*: a copy, so that it can change nothing."""
    return RunView(
        run_id=run.id,
        agent=run.agent,
        turn_count=run.turn_count,
        tool_calls=run.tool_calls,
        principal=run.principal,
        permissions=run.permissions,
        labels=dict(run.labels),
        context=copy.deepcopy(run.context) if run.context else {},
        input=run.user_input,
    )
