"""The request that a model call sees: from the run alone, so that a timeline can show it again."""

from __future__ import annotations

from geartrain.limits import Unlimited
from geartrain.machine import HANDOFF_PREFIX, AgentSpec, CallModel, Message, Run, ToolSpec
from geartrain.models import ModelRequest

SUMMARISE = (
    "Summarise the conversation above for somebody who will carry it on: what was asked, what was found "
    "(with file names, numbers and identifiers exactly as given), what was decided, what is still open."
)


def model_request(run: Run, spec: AgentSpec, command: CallModel) -> ModelRequest:
    """Return what the model is asked for that turn."""
    limit = command.max_output_tokens
    if not isinstance(spec.max_output_tokens, Unlimited):
        limit = min(spec.max_output_tokens, limit) if limit is not None else spec.max_output_tokens
    return ModelRequest(
        run_id=run.id,
        agent=run.agent,
        turn=command.turn,
        attempt=command.attempt,
        messages=run.messages,
        tools=offered_tools(spec) if command.tools else (),
        model=spec.model,
        max_output_tokens=limit,
        output_schema=spec.output_schema,
        open_calls=run.calls,
        context=run.context,
    )


def offered_tools(spec: AgentSpec) -> tuple[ToolSpec, ...]:
    """Return what the model may call: tools, sub-agents and handoffs, which look like tools to it."""
    if not spec.sub_agents and not spec.handoffs:
        return spec.tools
    sub_agents = (
        ToolSpec(name=agent.name, description=agent.description, parameters=agent.parameters)
        for agent in spec.sub_agents
    )
    handoffs = (
        ToolSpec(name=f"{HANDOFF_PREFIX}{name}", description=f"Hand the conversation over to {name}.", read_only=True)
        for name in spec.handoffs
    )
    return (*spec.tools, *sub_agents, *handoffs)


def summary_request(run: Run, spec: AgentSpec, count: int) -> ModelRequest:
    """Return the request for a summary of the oldest *count* messages after the system prompt."""
    asked = Message(role="user", text=SUMMARISE, turn=run.turn_count)
    return ModelRequest(
        run_id=run.id,
        agent=run.agent,
        turn=run.turn_count,
        attempt=1,
        purpose="compact",
        messages=(*run.messages[1 : 1 + count], asked),
        model=spec.model,
        context=run.context,
    )
