"""The reference runs of the kill harness that are trees.

A root with three sub-agents, one of which is asked about; a plan of tools, agents and a fan-out; and a root whose
sub-agents are asked about again and again, run out of budget, tell each other something, and are cancelled.
"""

from __future__ import annotations

from geartrain.machine import Budget
from geartrain.models import call as scripted_call
from geartrain.orchestrator import FanOut, Graph, Step
from geartrain.runtime import Agent
from geartrain.testing._kill_runs import Scenario, an_agent, ask_about_writes, write_tool
from geartrain.testing.ledger import Ledger
from geartrain.tools import Tool, ToolContext, publish, tool, wait_for


def look_tool(ledger: Ledger) -> Tool:
    """Return a read."""

    @tool(read_only=True)
    async def look(at: str, context: ToolContext) -> str:
        """Look at something."""
        with ledger.effect(context.idempotency_key, "read", {"at": at}):
            return f"saw {at}"

    return look


def team(ledger: Ledger) -> Scenario:
    """Return a run with three sub-agents: one posts what a person is asked about, one looks, one has another look."""
    looking = [[scripted_call("look", at="a")], "Seen."]
    scout = an_agent(ledger, looking, [look_tool(ledger)], name="scout")
    guide = an_agent(ledger, [[scripted_call("scout", input="look")], "Shown."], name="guide", sub_agents=[scout])
    writer = an_agent(ledger, [[scripted_call("post", text="b")], "Posted."], [write_tool(ledger)], name="writer")
    calls = [scripted_call(name, input="go") for name in ("writer", "scout", "guide")]
    return Scenario(
        agent=an_agent(ledger, [calls, "Done."], sub_agents=[writer, scout, guide]), policy=ask_about_writes
    )


def planned(ledger: Ledger) -> Scenario:
    """Return a plan: a look and then a post that a person is asked about, beside an agent and a fan-out."""
    look = look_tool(ledger)
    scout = an_agent(ledger, [[scripted_call("look", at="c")], "Seen."], [look], name="scout")
    parts = Agent("parts", plan=FanOut(look, ["x", "y", "z"], at_once=2))
    steps = [
        Step("look", look, input="a"),
        Step("post", write_tool(ledger), after=["look"]),
        Step("scout", scout),
        Step("parts", parts),
        Step("end", look, after=["post", "scout", "parts"], input="{scout}"),
    ]
    return Scenario(agent=Agent("killed", plan=Graph(steps)), policy=ask_about_writes)


def steered(ledger: Ledger) -> Scenario:
    """Return a run whose sub-agents are steered from elsewhere.

    One posts three times and is asked about each; one has to be given more budget; one waits for what another one
    publishes; and one waits for what nobody publishes, until its parent's one tool call fails, which ends them both.
    """
    posts = [[scripted_call("post", text=text)] for text in "abc"]
    writer = an_agent(ledger, [*posts, "Posted."], [write_tool(ledger)], name="writer")
    one = Budget(max_turns=1)
    poor = [[scripted_call("look", at="a")], "Seen."]
    scout = an_agent(ledger, poor, [look_tool(ledger)], name="scout", budget=one, on_budget="suspend")
    herald = an_agent(
        ledger, [[scripted_call("publish", name="ready", payload="b")], "Told."], [publish], name="herald"
    )
    listener = an_agent(ledger, [[scripted_call("wait_for", name="ready")], "Heard."], [wait_for], name="listener")
    idle = an_agent(ledger, [[scripted_call("wait_for", name="never")]], [wait_for], name="idle")
    hasty = an_agent(
        ledger,
        [[scripted_call("idle", input="wait"), scripted_call("stumble")]],
        [_stumbling(ledger)],
        name="hasty",
        sub_agents=[idle],
        budget=Budget(max_tool_failures=1),
    )
    team = [writer, scout, herald, listener, hasty]
    calls = [scripted_call(each.name, input="go") for each in team]
    return Scenario(agent=an_agent(ledger, [calls, "Done."], sub_agents=team), policy=ask_about_writes)


def _stumbling(ledger: Ledger) -> Tool:
    @tool(read_only=True)
    async def stumble(context: ToolContext) -> str:
        """Look at something that is not there."""
        with ledger.effect(context.idempotency_key, "read", {}):
            raise LookupError("there is nothing")

    return stumble
