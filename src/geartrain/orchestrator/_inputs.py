"""What a step is given: a text with names in braces, a mapping of such, a function, or what it comes after."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from string import Formatter
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from geartrain.machine import Progress, StepProgress
from geartrain.orchestrator._errors import PlanRefused, WrongPlan
from geartrain.tools import Tool, error_text

# The name under which a template finds what the run was started with.
INPUT: Final = "input"

Function = Callable[[Progress], Any]
Input = str | Mapping[str, Any] | Function | None
# Makes of the progress what a step is given.
Maker = Callable[[Progress], Any]


class NoAnswer(Exception):
    """A function of the user's that gave no answer, with the reason; ends the run, and never leaves this room."""


def asked(what: str, function: Callable[..., Any], *given: Any, kinds: tuple[type, ...]) -> Any:
    """Return what a user's function returns.

    Raises:
        NoAnswer: It raised, or returned anything but one of *kinds*.
    """
    try:
        answer = function(*given)
    except NoAnswer:
        raise
    except Exception as error:  # noqa: BLE001 - a stranger's code: its run ends with the reason
        raise NoAnswer(f"{what} raised {error_text(error)}") from None
    if not isinstance(answer, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise NoAnswer(f"{what} returned {type(answer).__name__}, not {wanted}")
    return answer


def is_plain_function(value: Any) -> bool:
    """Whether *value* can be called and gives its answer at once."""
    return callable(value) and not inspect.iscoroutinefunction(value)


def named(value: Any) -> str:
    """Return how a function is called in the code, for the outline of a plan."""
    name = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{getattr(value, '__module__', '')}.{name}"


def restricted(progress: Progress, names: Iterable[str]) -> Progress:
    """Return the progress as a step may see it: of the steps only those that it comes after."""
    return replace(progress, steps={name: progress.steps[name] for name in names if name in progress.steps})


def told(steps: Iterable[StepProgress]) -> str:
    """Return what *steps* have brought: the text of one alone, those of several under their names."""
    found = list(steps)
    if len(found) == 1:
        return found[0].shown
    return "\n\n".join(f"## {step.name}\n\n{step.shown}" for step in found)


def template(about: str, text: str, names: Iterable[str]) -> Maker:
    """Return a maker of *text* with the names in its braces filled in.

    Raises:
        PlanRefused: Something in braces is no name of what can be known by then.
    """
    known = {INPUT, *names}
    try:
        parts = list(Formatter().parse(text))
    except ValueError:
        raise PlanRefused(about, WrongPlan.TEMPLATE, text) from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in known or form or conversion):
            raise PlanRefused(about, WrongPlan.TEMPLATE, text)

    def made(progress: Progress) -> str:
        return "".join(_filled(parts, progress))

    return made


def _filled(parts: Iterable[tuple[str, str | None, str | None, str | None]], progress: Progress) -> Iterator[str]:
    for literal, name, _, _ in parts:
        yield literal
        if name == INPUT:
            yield progress.input
        elif name is not None:
            step = progress.get(name)
            yield step.shown if step is not None else ""


def text_maker(about: str, given: Input, before: Iterable[str], ancestors: frozenset[str]) -> Maker:
    """Return a maker of the text that a step is given, or of whatever its function returns.

    Raises:
        PlanRefused: *given* is nothing that a text can be made of.
    """
    if given is None:
        direct = tuple(before)

        def passed_on(progress: Progress) -> str:
            found = [step for name in direct if (step := progress.get(name)) is not None]
            return told(found) if direct else progress.input

        return passed_on
    if isinstance(given, str):
        return template(about, given, ancestors)
    if is_plain_function(given):
        function: Function = given  # type: ignore[assignment]
        return lambda progress: function(restricted(progress, ancestors))
    raise PlanRefused(about, WrongPlan.INPUT, given)


def arguments_maker(about: str, given: Mapping[str, Any], tool: Tool, ancestors: frozenset[str]) -> Maker:
    """Return a maker of a tool's arguments: texts are templates, everything else stands for itself.

    For a parameter that takes no text, such a text is read as JSON: `"{count}"` can be a number.

    Raises:
        PlanRefused: The tool has no such parameter, or a text names what cannot be known.
    """
    unknown = next((name for name in given if name not in tool.parameters["properties"]), None)
    if unknown is not None:
        raise PlanRefused(about, WrongPlan.PARAMETER, unknown)
    makers = {name: template(about, value, ancestors) for name, value in given.items() if isinstance(value, str)}
    for name, maker in makers.items():
        if not _takes_text(tool.parameters["properties"][name]):
            makers[name] = _read_as_json(name, maker)
    return lambda progress: {name: makers[name](progress) if name in makers else value for name, value in given.items()}


def _takes_text(schema: Mapping[str, Any]) -> bool:
    """Whether a parameter of that schema takes a text; one that does not say is taken to."""
    kinds = schema.get("type")
    if kinds is None:
        return any(map(_takes_text, schema.get("anyOf", ({},))))
    return "string" in ((kinds,) if isinstance(kinds, str) else kinds)


def _read_as_json(name: str, maker: Maker) -> Maker:
    def made(progress: Progress) -> Any:
        text = maker(progress)
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            raise NoAnswer(f"parameter {name!r} takes no text, and {text[:100]!r} is no JSON") from None

    return made


def text_parameter(about: str, tool: Tool) -> str:
    """Return the one parameter of *tool* that a text can be given for: the one that it needs, or else its only text.

    Returns an empty one if it takes nothing at all.

    Raises:
        PlanRefused: There is none, or more than one.
    """
    properties: Mapping[str, Any] = tool.parameters["properties"]
    if not properties:
        return ""
    required = list(tool.parameters.get("required", ()))
    texts = [name for name in required or properties if _takes_text(properties[name])]
    if len(texts) != 1 or len(required) > 1:
        raise PlanRefused(about, WrongPlan.TEXT_INPUT, f"{tool.name}({', '.join(properties)})")
    return texts[0]


def for_tool(parameter: str, maker: Maker) -> Maker:
    """Return a maker of a tool's arguments of a maker of a text; a mapping that a function returns is left alone."""

    def made(progress: Progress) -> Any:
        found = maker(progress)
        if isinstance(found, str):
            return {parameter: found} if parameter else {}
        return found

    return made
