"""The reference runs of the kill harness: a plain answer, parallel reads, a write, a write that is asked about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from geartrain.models import Emit, Model, ModelReply, ModelRequest, ScriptedModel
from geartrain.models import call as scripted_call
from geartrain.runtime import Agent, Allow, Ask, Decision, Policy, PolicyCall, RunView, default_policy
from geartrain.testing.ledger import Ledger
from geartrain.tools import Tool, ToolContext, tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A run to be killed: its agent, what it is asked, the policy, and whom a person's answers come from."""

    agent: Agent
    input: str = "Go."
    policy: Policy = default_policy
    decided_by: str = "harness"


Make = Callable[[Ledger], Scenario]


class LedgerModel:
    """A model that writes into the ledger which turn it is asked for, and which results it was shown."""

    def __init__(self, model: Model, ledger: Ledger) -> None:
        self.name: str = model.name
        self._model: Final = model
        self._ledger: Final = ledger

    async def reply(self, request: ModelRequest, emit: Emit, /) -> ModelReply:
        """Return what the model behind it says."""
        key = f"{request.run_id}/t{request.turn}.{request.purpose}"
        with self._ledger.effect(key, "model", turn=request.turn, seen=list(_shown(request))):
            return await self._model.reply(request, emit)


def _shown(request: ModelRequest) -> Iterator[tuple[list[str], list[str]]]:
    """Yield, for each reply with calls that the model is shown, the calls and the results behind it."""
    messages = request.messages
    for index, message in enumerate(messages):
        if message.role == "assistant" and message.calls:
            answers: list[str] = []
            for after in messages[index + 1 :]:
                if after.role != "tool":
                    break
                answers.append(after.call_id)
            yield [call.id for call in message.calls], answers


def _agent(ledger: Ledger, replies: Sequence[object], tools: Sequence[Tool] = ()) -> Agent:
    model = LedgerModel(ScriptedModel(replies), ledger)  # type: ignore[arg-type]
    return Agent("killed", instructions="Do as you are told.", model=model, tools=tools)


def _write_tool(ledger: Ledger) -> Tool:
    @tool
    async def post(text: str, context: ToolContext) -> str:
        """Post a text where the world can see it; posting twice shows it twice."""
        with ledger.effect(context.idempotency_key, "write", {"text": text}):
            return f"posted {text}"

    return post


def plain(ledger: Ledger) -> Scenario:
    """Return a run that answers at once."""
    return Scenario(agent=_agent(ledger, ["Done."]))


def reads(ledger: Ledger) -> Scenario:
    """Return a run with three reads side by side, one of them on a thread, and then one more."""

    @tool(read_only=True)
    async def look(at: str, context: ToolContext) -> str:
        """Look at something."""
        with ledger.effect(context.idempotency_key, "read", {"at": at}):
            return f"saw {at}"

    @tool(read_only=True)
    def peer(at: str, context: ToolContext) -> str:
        """Look at something on a thread."""
        with ledger.effect(context.idempotency_key, "read", {"at": at}):
            return f"saw {at} " + "x" * 40_000

    three = [scripted_call("look", at="a"), scripted_call("peer", at="b"), scripted_call("look", at="c")]
    return Scenario(agent=_agent(ledger, [three, [scripted_call("look", at="d")], "Done."], [look, peer]))


def write(ledger: Ledger) -> Scenario:
    """Return a run with a read, a write that must not be done twice, and a read, all in one reply."""

    @tool(read_only=True)
    async def look(at: str, context: ToolContext) -> str:
        """Look at something."""
        with ledger.effect(context.idempotency_key, "read", {"at": at}):
            return f"saw {at}"

    calls = [scripted_call("look", at="a"), scripted_call("post", text="b"), scripted_call("look", at="c")]
    agent = _agent(ledger, [calls, "Done."], [look, _write_tool(ledger)])
    return Scenario(agent=agent, policy=allow_all)


def approval(ledger: Ledger) -> Scenario:
    """Return a run with two writes, each of which a person is asked about."""
    calls = [scripted_call("post", text="a"), scripted_call("post", text="b")]
    agent = _agent(ledger, [calls, "Done."], [_write_tool(ledger)])
    return Scenario(agent=agent, policy=ask_about_writes)


def allow_all(_call: PolicyCall, _run: RunView) -> Decision:
    """Allow everything."""
    return Allow()


def ask_about_writes(call: PolicyCall, _run: RunView) -> Decision:
    """Allow reads, ask about the rest."""
    return Allow() if call.read_only else Ask("it is a write")


REFERENCE_RUNS: Final = tuple(f"{__name__}:{make.__name__}" for make in (plain, reads, write, approval))
