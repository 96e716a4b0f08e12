"""The reference runs of the kill harness.

A plain answer; reads side by side; a write; writes that are asked about; a write and a read in processes of their own;
a run that somebody outside drives; and one that is told something, judged, handed over and changed by guardrails. Those
of trees are in `_kill_trees`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from geartrain.machine import RequestedCall
from geartrain.models import Emit, Model, ModelReply, ModelRequest, ScriptedModel
from geartrain.models import call as scripted_call
from geartrain.runtime import (
    Agent,
    Allow,
    Ask,
    Change,
    ContextProvider,
    Decision,
    Policy,
    PolicyCall,
    RunView,
    ToolGuardrail,
    default_policy,
)
from geartrain.testing._kill_tools import look_apart, post_apart
from geartrain.testing.ledger import Ledger
from geartrain.tools import Tool, ToolContext, tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A run to be killed: its agent, what it is asked, the policy, and whom a person's answers come from.

    *replies* are the turns of a run whose model is external, first to last: an answer, or calls.
    """

    agent: Agent
    input: str = "Go."
    policy: Policy = default_policy
    decided_by: str = "harness"
    replies: Sequence[str | Sequence[RequestedCall]] = ()


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


def an_agent(
    ledger: Ledger,
    replies: Sequence[object],
    tools: Sequence[Tool] = (),
    *,
    name: str = "killed",
    **options: Any,
) -> Agent:
    """Return an agent whose scripted model writes into the ledger."""
    model = LedgerModel(ScriptedModel(replies), ledger)  # type: ignore[arg-type]
    return Agent(name, instructions="Do as you are told.", model=model, tools=tools, **options)


def write_tool(ledger: Ledger) -> Tool:
    """Return a write that must not be done twice."""

    @tool
    async def post(text: str, context: ToolContext) -> str:
        """Post a text where the world can see it; posting twice shows it twice."""
        with ledger.effect(context.idempotency_key, "write", {"text": text}):
            return f"posted {text}"

    return post


def plain(ledger: Ledger) -> Scenario:
    """Return a run that answers at once."""
    return Scenario(agent=an_agent(ledger, ["Done."]))


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
    return Scenario(agent=an_agent(ledger, [three, [scripted_call("look", at="d")], "Done."], [look, peer]))


def write(ledger: Ledger) -> Scenario:
    """Return a run with a read, a write that must not be done twice, and a read, all in one reply."""

    @tool(read_only=True)
    async def look(at: str, context: ToolContext) -> str:
        """Look at something."""
        with ledger.effect(context.idempotency_key, "read", {"at": at}):
            return f"saw {at}"

    calls = [scripted_call("look", at="a"), scripted_call("post", text="b"), scripted_call("look", at="c")]
    agent = an_agent(ledger, [calls, "Done."], [look, write_tool(ledger)])
    return Scenario(agent=agent, policy=allow_all)


def approval(ledger: Ledger) -> Scenario:
    """Return a run with two writes, each of which a person is asked about."""
    calls = [scripted_call("post", text="a"), scripted_call("post", text="b")]
    agent = an_agent(ledger, [calls, "Done."], [write_tool(ledger)])
    return Scenario(agent=agent, policy=ask_about_writes)


def apart(ledger: Ledger) -> Scenario:
    """Return a run with a read and a write in processes of their own; the write can tell whether it was done."""
    book = str(ledger.path)
    calls = [scripted_call("look_apart", at="a", book=book), scripted_call("post_apart", text="b", book=book)]
    return Scenario(agent=an_agent(ledger, [calls, "Done."], [look_apart, post_apart]), policy=allow_all)


def outside(ledger: Ledger) -> Scenario:
    """Return a run that somebody outside drives: its turns, a read and a write that is asked about and done there."""

    @tool(external=True)
    async def ship(parcel: str, context: ToolContext) -> str:
        """Ship a parcel. Nobody here does."""
        with ledger.effect(context.idempotency_key, "write", {"parcel": parcel}):
            return parcel

    @tool(external=True, read_only=True)
    async def weigh(parcel: str, context: ToolContext) -> str:
        """Weigh a parcel. Nobody here does."""
        with ledger.effect(context.idempotency_key, "read", {"parcel": parcel}):
            return parcel

    agent = Agent("killed", instructions="Do as you are told.", model="external", tools=[ship, weigh])
    calls = [scripted_call("weigh", parcel="a"), scripted_call("ship", parcel="a")]
    return Scenario(agent=agent, policy=ask_about_writes, replies=[calls, "Done."])


def handed(ledger: Ledger) -> Scenario:
    """Return a run whose input is judged and which is handed over, each agent being told something before it begins.

    The second one posts a text that a guardrail changes and a person is asked about, as about its answer.
    """
    desk = Agent(
        "desk",
        instructions="Post it.",
        model=LedgerModel(ScriptedModel(["not its turn", [scripted_call("post", text="a")], "Done."]), ledger),
        tools=[write_tool(ledger)],
        context=[_provider(ledger, "stock")],
        tool_guardrails=[_stamping(ledger)],
        output_guardrails=[ask_about_texts],
    )
    front = Agent(
        "killed",
        instructions="Hand it over.",
        model=LedgerModel(ScriptedModel([[scripted_call("hand_off_to_desk")]]), ledger),
        context=[_provider(ledger, "customer"), _provider(ledger, "weather")],
        input_guardrails=[ask_about_texts],
        handoffs=[desk],
    )
    return Scenario(agent=front, policy=ask_about_writes)


def _provider(ledger: Ledger, name: str) -> ContextProvider:
    async def told(view: RunView) -> str:
        key = f"{view.run_id}/t{view.turn_count}.{name}"
        with ledger.effect(key, "provider", turn=view.turn_count):
            return f"The {name} is fine."

    told.__name__ = name
    return told


def _stamping(ledger: Ledger) -> ToolGuardrail:
    """Return a guardrail that stamps what is posted, and is a stricter one in a process that finds an approval given.

    So a death between the yes and the write has the text changed once more: that yes is one to something else.
    """
    approved = any(line.more.get("id", "").startswith("approval.t2.c1") for line in ledger.lines())
    stamp = "stamped twice" if approved else "stamped"

    def stamped(call: PolicyCall, _run: RunView) -> Decision:
        return Change({"text": f"{call.arguments['text']}, {stamp}"})

    return stamped


def ask_about_texts(_text: str, _run: RunView) -> Decision:
    """Ask about what is said or answered."""
    return Ask("somebody is to read it")


def allow_all(_call: PolicyCall, _run: RunView) -> Decision:
    """Allow everything."""
    return Allow()


def ask_about_writes(call: PolicyCall, _run: RunView) -> Decision:
    """Allow reads and sub-agents, ask about the rest."""
    return Allow() if call.read_only or call.sub_agent else Ask("it is a write")
