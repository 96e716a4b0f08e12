"""What is given wrongly is refused where it is given, with a word about how it should be."""

from __future__ import annotations

from typing import Any

import pytest
from runtime_world import Store, an_agent

from geartrain.errors import InvalidValue
from geartrain.limits import Limits
from geartrain.models import answer
from geartrain.runtime import Agent, Runtime
from geartrain.tools import tool


def plain() -> str:
    """Do something."""
    return ""


class Nameless:
    async def reply(self, _request: Any, _emit: Any) -> Any: ...


def test_a_function_that_is_no_tool_is_refused_with_the_decorators_name() -> None:
    with pytest.raises(InvalidValue, match="@tool"):
        Agent("a", tools=[plain])  # type: ignore[list-item]


@pytest.mark.parametrize("model", [None, Nameless(), 5, object()])
def test_what_is_no_model_is_refused(model: Any) -> None:
    with pytest.raises(InvalidValue, match="`name` and `reply`"):
        Agent("a", model=model)


@pytest.mark.parametrize("agents", [Agent("a"), [Agent("a"), "b"], [plain]])
def test_what_is_no_list_of_agents_is_refused(agents: Any) -> None:
    with pytest.raises(InvalidValue, match="a list of agents"):
        Runtime.open("never.db", agents=agents)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": -1}, {"states": ["bogus"]}, {"states": ["failed"]}])
async def test_a_listing_refuses_what_names_nothing(memory: Store, wrong: dict[str, Any]) -> None:
    async with memory.runtime(an_agent([answer("x")])) as runtime:
        with pytest.raises(InvalidValue):
            await runtime.list(**wrong)


def test_a_tool_without_a_time_out_takes_the_runtimes() -> None:
    own = tool(timeout_seconds=7.0)(plain)
    other = tool(name="other")(plain)

    spec = Agent("a", tools=[own, other]).spec(Limits(tool_call_seconds=99.0))

    assert [(each.name, each.timeout_seconds) for each in spec.tools] == [("plain", 7.0), ("other", 99.0)]
