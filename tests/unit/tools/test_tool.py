"""Declaring a tool, and checking the arguments that a model sends."""

from __future__ import annotations

import contextlib
import json
import pickle
import socket
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.tools import (
    ArgumentsInvalid,
    FileFailed,
    PathRefused,
    PatternRefused,
    ThreadsUnavailable,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolExited,
    tool,
)


class Place(msgspec.Struct):
    city: str
    zip: str = ""


@tool(read_only=True)
async def forecast(
    place: Place, days: Annotated[int, msgspec.Meta(ge=1, le=7)] = 3, *, units: Literal["C", "F"] = "C"
) -> str:
    """Say what the weather
    will be.

    Not part of the description.

    Args:
        place: Where.
        days (int): How many days,
            today included.
        nowhere: There is no such parameter.

    Returns:
        units: not an argument.
    """
    return f"{place.city} {days} {units}"


def test_a_tool_is_described_by_its_signature_and_docstring() -> None:
    spec = forecast.spec()

    assert spec.name == "forecast"
    assert spec.description == "Say what the weather will be."
    assert spec.read_only
    assert spec.parameters["additionalProperties"] is False
    assert spec.parameters["required"] == ["place"]
    assert spec.parameters["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 7,
        "default": 3,
        "description": "How many days, today included.",
    }
    assert spec.parameters["properties"]["place"] == {"$ref": "#/$defs/Place", "description": "Where."}
    assert spec.parameters["$defs"]["Place"]["required"] == ["city"]
    assert "description" not in spec.parameters["properties"]["units"]


def test_changing_a_spec_that_was_given_out_does_not_change_the_tool() -> None:
    forecast.spec().parameters["properties"].clear()

    assert "days" in forecast.spec().parameters["properties"]


def test_the_model_does_not_see_the_context_parameter() -> None:
    @tool
    def where(context: ToolContext, name: str) -> str:
        return f"{context.context['root']}/{name}"

    assert list(where.spec().parameters["properties"]) == ["name"]
    assert where(ToolContext(context={"root": "/r"}), "a") == "/r/a"


@pytest.mark.parametrize(("declared", "isolation"), [(None, "task"), ("task", "task")])
def test_an_async_function_runs_as_a_task(declared: Any, isolation: str) -> None:
    async def function() -> None: ...

    assert tool(isolation=declared)(function).isolation == isolation


@pytest.mark.parametrize(("declared", "isolation"), [(None, "thread"), ("thread", "thread"), ("task", "task")])
def test_a_plain_function_runs_on_a_thread_unless_told_otherwise(declared: Any, isolation: str) -> None:
    def function() -> None: ...

    assert tool(isolation=declared)(function).isolation == isolation


def test_a_default_that_can_be_changed_is_not_shared_between_calls() -> None:
    @tool
    def collect(into: list[int] = [1]) -> None: ...  # noqa: B006 - what is tested

    collect.decode("{}")["into"].append(2)

    assert collect.decode("{}") == {"into": [1]}


def test_the_model_is_told_each_default_as_json() -> None:
    @tool
    def defaults(a: list[int] = [1], b: Place = Place("Rome"), c: tuple[int, ...] = (2,)) -> None: ...  # noqa: B006, B008

    properties = defaults.spec().parameters["properties"]

    assert [properties[name]["default"] for name in "abc"] == [[1], {"city": "Rome", "zip": ""}, [2]]
    assert defaults.decode("{}") == {"a": [1], "b": Place("Rome"), "c": (2,)}
    assert defaults.decode("{}")["b"] is not defaults.decode("{}")["b"]


def test_a_bound_method_is_a_tool() -> None:
    class Shop:
        def price(self, item: str) -> int:
            return len(item)

    priced = tool(Shop().price)

    assert list(priced.spec().parameters["properties"]) == ["item"]
    assert priced("abc") == 3


def unannotated(a) -> None: ...
def of_a_method(self) -> None: ...
def many(*names: str) -> None: ...
def keywords(**names: str) -> None: ...
def positional(a: int, /) -> None: ...
def unsupported(a: socket.socket) -> None: ...
def unsupported_inside(a: list[Callable[[], int]]) -> None: ...
def ambiguous(a: list[int] | tuple[int]) -> None: ...
def unresolved(a: Unknown) -> None: ...  # type: ignore[name-defined] # noqa: F821 - what is tested
def two_contexts(a: ToolContext, b: ToolContext) -> None: ...
def dunder(__struct_fields__: int) -> None: ...
def default_of_another_type(a: int = None) -> None: ...  # type: ignore[assignment] # noqa: RUF013 - what is tested
def default_that_is_no_json(a: Any = len) -> None: ...
def default_that_is_no_number(a: float = float("nan")) -> None: ...
def default_that_is_no_text(a: str = "\ud800") -> None: ...
def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


async def asynchronous() -> None: ...
def plain() -> None: ...


@pytest.mark.parametrize("function", [asynchronous, plain])
def test_a_function_of_a_module_may_run_in_a_worker_process(function: Any) -> None:
    assert tool(isolation="process")(function).isolation == "process"


def nested() -> Any:
    def inner() -> None: ...

    return inner


class OfAClass:
    def method(self) -> None: ...


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (unannotated, {}, "parameter 'a' has no annotation"),
    (of_a_method, {}, "decorate the bound one"),
    (many, {}, r"takes \*names"),
    (keywords, {}, r"takes \*\*names"),
    (positional, {}, "'a' is positional only"),
    (unsupported, {}, "'a' has a type that JSON cannot carry"),
    (unsupported_inside, {}, "'a' has a type that JSON cannot carry"),
    (ambiguous, {}, "'a' has a type that JSON cannot carry"),
    (unresolved, {}, "annotation cannot be resolved"),
    (two_contexts, {}, "two ToolContext parameters, 'a' and 'b'"),
    (dunder, {}, "'__struct_fields__' begins with two underscores"),
    (default_of_another_type, {}, "'a' has a default that does not fit its annotation: Expected `int`, got `null`"),
    (default_that_is_no_json, {}, "'a' has a default that does not fit its annotation"),
    (default_that_is_no_number, {}, "'a' has a default that does not fit its annotation"),
    (default_that_is_no_text, {}, "'a' has a default that does not fit its annotation"),
    (generator, {}, "is a generator"),
    (async_generator, {}, "is a generator"),
    (lambda: None, {}, "the name must be"),
    (len, {}, "must be a function"),
    (object, {}, "must be a function"),
    (plain, {"name": ""}, "the name must be"),
    (plain, {"name": "1a"}, "the name must be"),
    (plain, {"name": "a b"}, "the name must be"),
    (plain, {"name": "a\n"}, "the name must be"),
    (plain, {"name": "é"}, "the name must be"),
    (plain, {"name": "a" * 65}, "the name must be"),
    (plain, {"read_only": 1}, "read_only must be True or False"),
    (plain, {"idempotent": None}, "idempotent must be True or False"),
    (plain, {"external": "no"}, "external must be True or False"),
    (plain, {"timeout_seconds": 0}, "timeout_seconds must be more than 0"),
    (plain, {"timeout_seconds": float("inf")}, "timeout_seconds must be more than 0"),
    (plain, {"timeout_seconds": float("nan")}, "timeout_seconds must be more than 0"),
    (plain, {"timeout_seconds": True}, "timeout_seconds must be more than 0"),
    (plain, {"read_only": True, "retries": -1}, "retries must be from 0"),
    (plain, {"read_only": True, "retries": 101}, "retries must be from 0"),
    (plain, {"read_only": True, "retries": 1.0}, "retries must be from 0"),
    (plain, {"retries": 1}, "only tried again if it is idempotent"),
    (plain, {"read_only": True, "verify": plain}, "only a write can be in doubt"),
    (plain, {"verify": "yes"}, "verify must be callable"),
    (plain, {"present": 3}, "present must be callable"),
    (plain, {"present": asynchronous}, "present must be a plain function"),
    (nested(), {"isolation": "process"}, r"nested.<locals>.inner cannot be found by a worker process"),
    (OfAClass().method, {"isolation": "process"}, "is a bound method, which a worker process cannot find"),
    (plain, {"isolation": "fiber"}, "isolation must be 'task', 'thread' or 'process'"),
    (asynchronous, {"isolation": "thread"}, "is async, which runs as a task"),
]


@pytest.mark.parametrize(("function", "settings", "reason"), WRONG)
def test_a_wrong_definition_is_refused_with_its_own_reason(
    function: Any, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=reason):
        tool(**settings)(function)


@pytest.mark.parametrize("name", ["a", "_", "A-1_b", "a" * 64])
def test_a_name_of_letters_digits_underscores_and_hyphens_is_taken(name: str) -> None:
    assert tool(name=name)(plain).name == name


def test_arguments_are_decoded_into_the_types_of_the_signature() -> None:
    arguments = forecast.decode('{"place": {"city": "Oslo"}, "units": "F"}')

    assert arguments == {"place": Place("Oslo"), "days": 3, "units": "F"}


@tool
def anything(x: Any, f: float = 0.0, n: int = 0) -> None: ...


# IN-1: each is an answer that a model can react to; none ends anything.
BROKEN = [
    (forecast, "{", "not valid JSON"),
    (forecast, "", "not valid JSON"),
    (forecast, "null", "Expected `object`, got `null`"),
    (forecast, "[]", "Expected `object`, got `array`"),
    (forecast, '"x"', "Expected `object`, got `str`"),
    (forecast, "\ud800", "not valid JSON"),
    (forecast, "{}", "missing required field `place`; the parameters are: place, days, units"),
    (forecast, '{"place": {"city": "x"}, "planet": 1}', "unknown field `planet`"),
    (forecast, '{"place": {"city": 1}}', r"\$\.place\.city"),
    (forecast, '{"place": {"city": "x"}, "days": 8}', r"<= 7 - at `\$\.days`"),
    (forecast, '{"place": {"city": "x"}, "days": "3"}', r"\$\.days"),
    (forecast, '{"place": {"city": "x"}, "units": "K"}', r"\$\.units"),
    (anything, '{"x": NaN}', "not valid JSON"),
    (anything, '{"x": -Infinity}', "not valid JSON"),
    (anything, '{"x": 1e999}', r"out of range - at `\$\.x`"),
    (anything, '{"x": 0, "f": 1e999}', r"out of range - at `\$\.f`"),
    (anything, '{"x": 0, "n": ' + "9" * 5_000 + "}", r"out of range - at `\$\.n`"),
    (anything, '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    (anything, '{"x": 0, "' + "y" * 100_000 + '": 1}', "unknown field `yyy"),
]


@pytest.mark.parametrize(("tool_", "arguments", "reason"), BROKEN)
def test_arguments_that_do_not_fit_are_refused_in_words_for_a_model(tool_: Tool, arguments: str, reason: str) -> None:
    """IN-1."""
    with pytest.raises(ArgumentsInvalid, match=reason) as refused:
        tool_.decode(arguments)

    assert refused.value.tool == tool_.name
    assert len(str(refused.value)) <= 500


@pytest.mark.parametrize("start", ['{"x": "', '{"x": [[', "[" * 100, "}", '{"x": "\\u'])
def test_five_megabytes_of_broken_text_are_refused_at_once(start: str) -> None:
    """IN-1."""
    text = start + "a" * 5_000_000
    began = time.perf_counter()

    with pytest.raises(ArgumentsInvalid):
        anything.decode(text)

    assert time.perf_counter() - began < 1.0


@given(st.text())
def test_any_text_is_decoded_or_refused_and_nothing_else(text: str) -> None:
    """IN-1."""
    with contextlib.suppress(ArgumentsInvalid):
        assert "x" in anything.decode(text)


@settings(max_examples=50)
@given(st.recursive(st.none() | st.booleans() | st.text(st.characters(codec="utf-8")) | st.floats(-1e9, 1e9), st.lists))
def test_any_json_value_comes_back_as_it_was_sent(value: Any) -> None:
    assert anything.decode(json.dumps({"x": value}))["x"] == value


@pytest.mark.parametrize(
    "error",
    [
        ToolDefinitionError("t", "why"),
        ArgumentsInvalid("t", "why"),
        ThreadsUnavailable("why"),
        PathRefused("p", "why"),
        FileFailed("p", "why"),
        PatternRefused("p", "why"),
        ToolExited("SystemExit"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_pickling(error: Exception) -> None:
    back = pickle.loads(pickle.dumps(error))

    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)
