"""Agents as the tools of another agent: what its model is offered, and what a call of one may say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from geartrain.errors import InvalidValue
from geartrain.machine import Budget, SubAgentSpec

if TYPE_CHECKING:
    from geartrain.runtime._agent import Agent

# What providers take as the name of a tool.
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "What it is to do."}},
    "required": ["input"],
    "additionalProperties": False,
}
# What an agent with sub-agents gets where it is given no budget: one for all of them together.
TEAM_BUDGET: Final = Budget(max_turns=500, max_seconds=3_600.0, max_tool_failures=100, max_tokens=2_000_000)

# A part of something that is smaller by more than this comes to nothing.
WEIGHT_MAX: Final = 1_000_000

Shares = Literal["equal", "on_demand"] | Mapping[str, float]


class _Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: str


_decoder: Final = msgspec.json.Decoder(_Input)


def input_of(arguments: str) -> str:
    """Return what a sub-agent is to do, from its call's arguments.

    Raises:
        InvalidValue: They are not `{"input": "…"}`.
    """
    try:
        text = _decoder.decode(arguments).input
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InvalidValue("the arguments of a sub-agent", f'{{"input": "…"}} ({problem})', arguments[:200]) from None
    if not text.strip():
        raise InvalidValue("the input of a sub-agent", "text, not blank", text)
    return text


def name_of(agent: Agent | str) -> str:
    """Return the name of an agent that is given, or named."""
    return agent if isinstance(agent, str) else agent.name


def checked_sub_agents(name: str, given: Sequence[Agent | str], taken: Sequence[str]) -> tuple[Agent | str, ...]:
    """Return the sub-agents of agent *name*; *taken* are the names of its tools.

    Raises:
        InvalidValue: One is no agent or has no name that models can call, or two have one name.
    """
    what = f"the sub-agents of agent {name!r}"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidValue(what, "a list of agents, or of their names", given)
    names: list[str] = []
    for each in given:
        called = each if isinstance(each, str) else getattr(each, "name", None)
        if not isinstance(called, str):
            raise InvalidValue(what, "a list of agents, or of their names", each)
        if not _NAME.fullmatch(called):
            problem = "agents whose names are 1 to 64 letters, digits, '_' and '-', for models call them like tools"
            raise InvalidValue(what, problem, called)
        if called in names or called in taken:
            raise InvalidValue(what, "different agents, none named as a tool of the agent is", called)
        names.append(called)
    return tuple(given)


def checked_shares(name: str, shares: Any, sub_agents: Sequence[Agent | str]) -> Shares:
    """Return how the budget of agent *name* is cut.

    Raises:
        InvalidValue: It is none of the ways, or weighs an agent that is none of its sub-agents.
    """
    what = f"the shares of agent {name!r}"
    if isinstance(shares, str):
        if shares not in ("equal", "on_demand"):
            raise InvalidValue(what, "'equal', 'on_demand', or a weight for each sub-agent", shares)
        return shares  # type: ignore[return-value]
    if not isinstance(shares, Mapping):
        raise InvalidValue(what, "'equal', 'on_demand', or a weight for each sub-agent", shares)
    names = [name_of(each) for each in sub_agents]
    for each, weight in shares.items():
        if each not in names:
            raise InvalidValue(what, f"about its sub-agents ({', '.join(names) or 'none'})", each)
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not 1 / WEIGHT_MAX <= weight <= WEIGHT_MAX:
            problem = f"a number from {1 / WEIGHT_MAX:f} to {WEIGHT_MAX}"
            raise InvalidValue(f"{what}: the weight of {each!r}", problem, weight)
    return dict(shares)


def sub_agent_specs(agent: Agent, known: Mapping[str, Agent]) -> tuple[SubAgentSpec, ...]:
    """Return what the model of *agent* may call; those given by name are looked for in *known*."""
    weights = agent.shares if isinstance(agent.shares, Mapping) else {}
    specs: list[SubAgentSpec] = []
    for each in agent.sub_agents:
        name = name_of(each)
        found = (agent if name == agent.name else known.get(name)) if isinstance(each, str) else each
        specs.append(
            SubAgentSpec(
                name=name,
                description=found.description if found is not None else "",
                parameters=dict(PARAMETERS),
                budget=found.budget if found is not None else None,
                weight=float(weights.get(name, 1.0)),
            )
        )
    return tuple(specs)
