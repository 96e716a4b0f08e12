"""An agent made with a setting that is none is refused where it is made, not when its first run starts."""

from __future__ import annotations

from typing import Any

import pytest

from geartrain.errors import InvalidValue
from geartrain.machine import Budget, TurnsReached
from geartrain.runtime import Agent


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"on_denied": "tel"}, "on_denied of agent 'a' must be 'fail' or 'tell', got 'tel'"),
        ({"on_budget": "stop"}, "'fail' or 'wrap_up' or 'suspend', got 'stop'"),
        ({"budget": {"max_turns": 3}}, "the budget of agent 'a' must be a Budget"),
        ({"window": {"messages": 3}}, "the window of agent 'a' must be a ContextRules"),
        ({"stop_when": lambda run: True}, "stop_when of agent 'a' must be a "),
    ],
)
def test_a_setting_that_is_none_is_refused(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Agent("a", model="offline", **setting)
    assert said in str(refused.value)


def test_a_condition_is_a_setting() -> None:
    stop_when = TurnsReached(3) | TurnsReached(4)
    assert Agent("a", model="offline", stop_when=stop_when).stop_when == stop_when


@pytest.mark.parametrize("value", [None, "20", True, -1, 0, float("inf"), float("nan")])
def test_a_limit_of_a_budget_is_a_number_or_unlimited(value: Any) -> None:
    with pytest.raises(InvalidValue, match="or UNLIMITED"):
        Budget(max_turns=value)
