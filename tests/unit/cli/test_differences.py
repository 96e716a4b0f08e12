from __future__ import annotations

from typing import Any

import msgspec
import pytest

from geartrain.cli import _differences as module
from geartrain.cli._differences import differences
from geartrain.machine import AgentSpec, Budget, ToolSpec

READ = ToolSpec(name="read", description="Read.", read_only=True)
WRITE = ToolSpec(name="write", description="Write.")
THEN = AgentSpec(name="a", instructions="look", tools=(READ, WRITE))


def changed(**fields: Any) -> list[str]:
    return differences(THEN, msgspec.structs.replace(THEN, **fields))


def test_a_spec_does_not_differ_from_itself() -> None:
    assert differences(THEN, THEN) == []


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({"tools": (READ,)}, ["tool write: gone"]),
        ({"tools": (READ, WRITE, ToolSpec(name="new"))}, ["tool new: new"]),
        (
            {"tools": (READ, msgspec.structs.replace(WRITE, name="save"))},
            ["tool write: gone (perhaps it is called save now)", "tool save: new"],
        ),
        (
            {"tools": (msgspec.structs.replace(READ, read_only=False), WRITE)},
            ["tool read: read_only True then, False now"],
        ),
        ({"tools": (READ, msgspec.structs.replace(WRITE, parameters={"x": 1}))}, ["tool write: takes other arguments"]),
        ({"tools": (READ, msgspec.structs.replace(WRITE, description="!"))}, ["tool write: described otherwise"]),
        ({"instructions": "look again"}, ["instructions: changed"]),
        ({"model": "huge"}, ["model: none then, huge now"]),
        ({"budget": Budget(max_turns=3)}, ["budget.max_turns: 20 then, 3 now"]),
        ({"on_denied": "tell"}, ["on_denied: fail then, tell now"]),
    ],
)
def test_each_change_is_named(fields: dict[str, Any], lines: list[str]) -> None:
    assert changed(**fields) == lines


def test_every_field_of_a_spec_is_compared() -> None:
    compared = {"name", "tools"}  # the run is looked up by the name
    compared |= {*module._PLAIN, *module._STRUCTS, *module._WHOLE}

    assert compared == set(AgentSpec.__struct_fields__)
    assert {*module._FLAGS, "name", "description", "parameters"} == set(ToolSpec.__struct_fields__)
